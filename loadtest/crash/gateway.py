"""A real gateway in a process of its own, to be killed, and clients of the official SDK that talk to it.

The process is forked from one that has imported everything already, or each crash would cost three seconds.
"""

from __future__ import annotations

import logging
import multiprocessing
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any, Final

import msgspec
from langgraph_sdk import get_client

from loadtest.crash.fleet import Writer, undisturbed
from loadtest.crash.ledger import Ledger, Thread
from rtmem.settings import Ack, Agent, Checkpoint, Gateway, Redis, Settings

PRINCIPAL: Final = "crash"
TOKEN: Final = "token-of-the-crash-lab"
_START_TIMEOUT_S: Final = 60.0
ASSISTANT: Final = "demo"

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["loadtest.crash.gateway", "rtmem.gateway", "rtmem.agent.demo", "uvloop"])


class GatewayProcess:
    """Serves the demo agent from the Redis at `url`."""

    def __init__(self, redis_url: str, turn_durability: Ack, *, port: int = 0, token_interval_ms: int = 0) -> None:
        settings = Settings(
            redis=Redis(url=redis_url),
            gateway=Gateway(tokens={TOKEN: PRINCIPAL}, port=port, turn_durability=turn_durability),
            checkpoint=Checkpoint(),
            agent=Agent(token_interval_ms=token_interval_ms),
        )
        receiver, sender = _processes.Pipe(duplex=False)
        self._process: ForkServerProcess = _processes.Process(
            target=_serve, args=(msgspec.json.encode(settings), sender), daemon=True
        )
        self._process.start()
        sender.close()
        with receiver:
            if not receiver.poll(_START_TIMEOUT_S):
                self.kill()
                raise TimeoutError(f"the gateway has not started within {_START_TIMEOUT_S:.0f} s")
            self.url = str(receiver.recv())  # EOFError: it has ended; what it said is above

    def kill(self) -> None:
        """kill -9, and return when it is gone."""
        self._process.kill()
        self._process.join()


def _serve(encoded: bytes, started: Connection) -> None:
    from rtmem.agent import demo
    from rtmem.checkpoint import AsyncRedisSaver
    from rtmem.drivers import AsyncDriver
    from rtmem.gateway import create_app, run

    settings = msgspec.json.decode(encoded, type=Settings)

    @asynccontextmanager
    async def app() -> AsyncIterator[Any]:
        async with await AsyncDriver.connect(settings.redis.url, settings.redis) as driver:
            saver = AsyncRedisSaver(driver=driver, settings=settings.checkpoint)
            yield create_app({ASSISTANT: demo.graph(saver)}, driver, saver, settings)

    def tell(url: str) -> None:
        started.send(url)
        # From here on it is told of a dying Redis, at length; its clients hear the same.
        logging.disable(logging.CRITICAL)

    run(app, settings, on_started=tell)


@contextmanager
def gateway(redis_url: str, turn_durability: Ack) -> Iterator[GatewayProcess]:
    """A gateway for the length of a block."""
    process = GatewayProcess(redis_url, turn_durability)
    try:
        yield process
    finally:
        process.kill()


def talkers(url: str, promised: Ack, *, seed: str, count: int) -> list[Writer]:
    """Clients that talk to a gateway, each on a thread of its own, turn after turn.

    A turn is acknowledged when its `completed` has arrived; where more than memory was promised, only if that event
    says that the promise was kept.
    """
    return [_talker(url, promised, Thread(f"talk-{n}", seed, principal=PRINCIPAL, turns=True)) for n in range(count)]


def _talker(url: str, promised: Ack, thread: Thread) -> Writer:
    async def talk(ledger: Ledger, over: threading.Event) -> None:
        number = 0
        async with undisturbed(get_client(url=url, api_key=TOKEN)) as client:
            while not over.is_set():
                number += 1
                said = {"messages": [{"role": "user", "content": f"what is {number} + {number}?"}]}
                stream = client.threads.stream(thread.name, assistant_id=ASSISTANT, transport="websocket")
                async with undisturbed(stream) as conversation:
                    events = conversation.subscribe(["lifecycle"], namespaces=[[]], depth=0)
                    await conversation.run.start(input=said)
                    end = await end_of_run(events)
                if end.get("event") != "completed":
                    ledger.refused.append(f"turn {number} of {thread.name}: {end}")
                    return
                if promised == "memory" or end.get("durability") == promised:
                    ledger.add("turn", thread, end["checkpoint"]["id"], number)
                else:
                    ledger.refused.append(f"turn {number} of {thread.name}: {end.get('durability_error')}")

    async def until_it_breaks(ledger: Ledger, over: threading.Event) -> None:
        try:
            await talk(ledger, over)
        except Exception as exc:  # noqa: BLE001 - see below
            # The SDK has no base class for a gateway that was killed: whatever it raises ends this client's talk.
            ledger.refused.append(f"{type(exc).__name__}: {exc}")

    return until_it_breaks


async def end_of_run(events: AsyncIterator[Any]) -> dict[str, Any]:
    """The lifecycle event of the root that ends a run; empty where the events end before."""
    async for event in events:
        params = event["params"]
        if event["method"] == "lifecycle" and not params.get("namespace"):
            data: dict[str, Any] = params["data"]
            if data["event"] in ("completed", "failed", "interrupted"):
                return data
    return {}
