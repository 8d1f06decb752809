"""Clients that do not give up: they note what they are told, wait a little, and go on.

So it is seen who is told what when something below them fails, and when it is over for each, without anybody's help.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread
from langgraph_sdk import get_client

from loadtest.crash.fleet import TASK_ID, checkpoint_of, config_of, undisturbed, writes_of
from loadtest.crash.gateway import end_of_run
from loadtest.crash.ledger import Acked, Ledger, Thread
from rtmem.checkpoint import AsyncRedisSaver, RedisSaver
from rtmem.errors import RtmemError
from rtmem.settings import Ack

PAUSE_S: Final = 0.05  # after an error
PACE_S: Final = 0.005  # between steps: looking afterwards at what was written takes longer than writing it
TURN_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Told:
    """One error that a client got."""

    at_s: float  # monotonic
    kind: str  # name of its class
    message: str


@dataclass(slots=True)
class Client:
    """One client and what happened to it."""

    thread: Thread
    ack: Ack
    ledger: Ledger = field(default_factory=Ledger)
    told: list[Told] = field(default_factory=list)

    @property
    def acked(self) -> list[Acked]:
        return self.ledger.acked

    def acked_since(self, moment_s: float) -> list[Acked]:
        return [one for one in self.acked if one.at_s > moment_s]

    def told_since(self, moment_s: float) -> list[Told]:
        return [one for one in self.told if one.at_s > moment_s]

    def hear(self, kind: str, message: str) -> None:
        self.told.append(Told(time.monotonic(), kind, message))

    def gap_ms(self, moment_s: float) -> float:
        """From then to its next acknowledgement."""
        return (min(one.at_s for one in self.acked_since(moment_s)) - moment_s) * 1000


Life = Callable[[threading.Event], Coroutine[Any, Any, None]]


async def savers(
    stack: AsyncExitStack, url: str, seed: str, acks: Sequence[Ack], *, each: int = 4, **options: Any
) -> list[tuple[Client, Life]]:
    """For each ack, `each` clients of an async saver and two of a sync one. Closed with the stack; `options` are those
    of their savers."""
    made: list[tuple[Client, Life]] = []
    for ack in acks:
        saver = await stack.enter_async_context(AsyncRedisSaver.from_conn_string(url, ack=ack, **options))
        for number in range(each):
            client = Client(Thread(f"async-{ack}-{number}", seed), ack)
            made.append((client, partial(_write, client, saver.aput, saver.aput_writes)))
        blocking = stack.enter_context(RedisSaver(url, ack=ack, **options))
        for number in range(2):
            client = Client(Thread(f"sync-{ack}-{number}", seed), ack)
            calls = _in_a_thread(blocking.put), _in_a_thread(blocking.put_writes)
            made.append((client, partial(_write, client, *calls)))
    return made


def _in_a_thread(call: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    return partial(anyio.to_thread.run_sync, call)


async def _write(
    client: Client, put: Callable[..., Awaitable[Any]], put_writes: Callable[..., Awaitable[Any]], over: threading.Event
) -> None:
    """Checkpoints and writes, one after the other. An error that is none of ours ends the whole run."""
    thread, ledger = client.thread, client.ledger
    config, number = config_of(thread), 0
    while not over.is_set():
        number += 1
        checkpoint = checkpoint_of(thread, number)
        try:
            config = await put(config, checkpoint, {"step": number}, checkpoint["channel_versions"])
            ledger.add("put", thread, checkpoint["id"], number)
            await put_writes(config, writes_of(number), TASK_ID)
            ledger.add("put_writes", thread, checkpoint["id"], number)
            await anyio.sleep(PACE_S)
        except RtmemError as exc:
            client.hear(type(exc).__name__, exc.message)
            await anyio.sleep(PAUSE_S)


def talkers(url: str, token: str, principal: str, seed: str, promised: Ack, *, count: int) -> list[tuple[Client, Life]]:
    """Clients of the official SDK that talk to the demo agent at `url`, turn after turn."""
    # It logs what its caller is told, each time that it opens a stream again.
    logging.getLogger("langgraph_sdk").setLevel(logging.ERROR)
    clients = [Client(Thread(f"talk-{n}", seed, principal=principal, turns=True), promised) for n in range(count)]
    return [(client, partial(_talk, client, url, token)) for client in clients]


async def _talk(client: Client, url: str, token: str, over: threading.Event) -> None:
    number = 0
    async with undisturbed(get_client(url=url, api_key=token)) as sdk:
        while not over.is_set():
            number += 1
            try:
                end = await _turn(sdk, client.thread.name, number)
            except Exception as exc:  # noqa: BLE001 - see below
                # Whatever the SDK raises: it has no base class for its errors, nor for a gateway that was killed.
                refused = str(exc).startswith("Protocol error")  # an error reply of the gateway
                client.hear("refused" if refused else type(exc).__name__, str(exc))
                await anyio.sleep(PAUSE_S)
                continue
            if not end:
                client.hear("ConnectionEnded", "the SDK's stream has ended before the run")
                await anyio.sleep(PAUSE_S)
            elif end.get("event") == "completed" and client.ack in ("memory", end.get("durability")):
                client.ledger.add("turn", client.thread, end["checkpoint"]["id"], number)
            else:
                why = str(end.get("error") or end.get("durability_error") or end)
                client.hear(_class_in(why), f"{end.get('event')}: {why}")
                await anyio.sleep(PAUSE_S)


async def _turn(sdk: Any, thread_id: str, number: int) -> dict[str, Any]:
    said = {"messages": [{"role": "user", "content": f"what is {number} + {number}?"}]}
    with anyio.fail_after(TURN_TIMEOUT_S):
        stream = sdk.threads.stream(thread_id, assistant_id="demo", transport="websocket")
        async with undisturbed(stream) as conversation:
            events = conversation.subscribe(["lifecycle"], namespaces=[[]], depth=0)
            await conversation.run.start(input=said)
            return await end_of_run(events)


def _class_in(text: str) -> str:
    """The name of the error that a gateway tells: `ServerFullError: Redis answered ...`."""
    found = re.match(r"\w*Error", text)
    return found[0] if found else "?"


def told_words(clients: Sequence[Client], since_s: float) -> str:
    """What each kind of client was told, and how often: `async-fsync NotDurableError 2, PersistenceError 31; ...`."""
    kinds: dict[str, Counter[str]] = {}
    for client in clients:
        kind = client.thread.name.rpartition("-")[0]
        kinds.setdefault(kind, Counter()).update(one.kind for one in client.told_since(since_s))
    return "; ".join(f"{who} {_counts(told)}" for who, told in kinds.items())


def _counts(told: Counter[str]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in told.items()) or "nothing"


async def becomes(condition: Callable[[], object], what: str, *, within_s: float = 60.0) -> None:
    """Wait until `condition()` holds. Raises TimeoutError that says what was waited for."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"within {within_s:g} s it has not happened: {what}")
        await anyio.sleep(0.01)
