"""A websocket endpoint that speaks LangChain's agent streaming protocol for compiled graphs.

    POST /threads/{id}/commands        run.start, input.respond, state.get, rtmem.prefetch
    WS   /threads/{id}/stream/events   the same, and subscription.subscribe / unsubscribe; events
    POST /threads/{id}/stream/events   one subscription as server-sent events
    GET  /threads/{id}/state           the thread's state; any id is one's own thread, empty at first
    GET  /ok                           is this process serving

What this gateway adds to the protocol, or decides where it leaves a choice:

- Every event has a `seq` that rises for the whole life of a thread, and an `event_id` that no other has. Both are in
  the log before a client sees them (threads.py).
- `since` replays what came after. Where the log cannot continue, a custom event `rtmem.replay_gap` says so, followed by
  the state (replay.py). Without `since` a subscription starts with the current run (session.py).
- `rtmem.prefetch` says what is known so far of the next message: its recall is under way when the run starts.
- A run at work refuses another one: error_type RunInProgressError, retryable.
- Error replies carry `meta.error_type` (a class of rtmem.errors) and `meta.retryable`.
- Close codes: 4401 token, 4422 thread id, both final; 4429 a client that reads nothing, 1013 Redis away, 1012 shutting
  down, after which the SDKs come back; 1009 a frame too large or in too many pieces.
- A run whose gateway died has `failed` once its thread is met again. `run.start` with no input goes on from the last
  stored step.
"""

from rtmem.gateway.app import create_app
from rtmem.gateway.server import run

__all__ = ["create_app", "run"]
