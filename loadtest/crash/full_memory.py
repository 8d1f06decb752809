"""A Redis that is full (maxmemory, noeviction): who is told what, what goes on, and what is stored.

Two ways out are taken: a large thread is deleted, and the limit is raised. What was acknowledged is there afterwards.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint

from loadtest.crash.checking import check
from loadtest.crash.fleet import config_of
from loadtest.crash.gateway import PRINCIPAL, TOKEN, gateway
from loadtest.crash.lab import Lab, Scenario
from loadtest.crash.outcome import Outcome, Verdict
from loadtest.crash.persevering import Client, becomes, savers, talkers, told_words
from loadtest.crash.victim import Victim, restart
from rtmem.checkpoint import AsyncRedisSaver
from rtmem.errors import ServerFullError

LIMIT_BYTES: Final = 16 * 1024**2
RAISED_BYTES: Final = 512 * 1024**2
_BALLAST: Final = "ballast"
_BALLAST_BYTES: Final = 1_000_000  # one checkpoint of it
_BALLAST_SHARE: Final = 0.75  # of the limit, before anybody else writes: so that deleting it makes room for a while
_NOTED_MAX: Final = 5
_PATIENCE_S: Final = 60.0


async def fill(lab: Lab, number: int) -> Outcome:
    """Fill a server while others write and talk; make room by deleting; fill it again; raise the limit; kill -9."""
    seed = lab.label("full memory", number)
    victim = lab.serve("balanced", lab.folder() / "data", maxmemory_bytes=LIMIT_BYTES)
    over = threading.Event()
    async with AsyncExitStack() as stack:
        process = stack.enter_context(gateway(victim.url, "fsync"))
        lives = await savers(stack, victim.url, seed, ("memory", "fsync"), each=2)
        lives += talkers(process.url, TOKEN, PRINCIPAL, seed, "fsync", count=2)
        ballast = await stack.enter_async_context(AsyncRedisSaver.from_conn_string(victim.url))
        clients = [client for client, _ in lives]
        with anyio.move_on_after(_PATIENCE_S):
            await _fill(ballast, victim)
        async with anyio.create_task_group() as fleet:
            for _, life in lives:
                fleet.start_soon(life, over)
            try:
                await becomes(lambda: all(len(one.acked) > 1 for one in clients), "everybody is served")
                began_s = time.monotonic()
                deleted_ms, wrong = await _full_until(ballast, clients, partial(ballast.adelete_thread, _BALLAST))
                raised_ms, more = await _full_until(ballast, clients, partial(_raise_limit, victim))
            finally:
                over.set()
            moment_s = time.monotonic()
            victim.kill()
            fleet.cancel_scope.cancel()
    wrong += [*more, *_told_badly(clients, began_s, moment_s)]
    acked = [one for client in clients for one in client.ledger.until(moment_s)]
    back = await anyio.to_thread.run_sync(partial(restart, "balanced", victim.data_dir, maxmemory_bytes=RAISED_BYTES))
    try:
        checked = await check(back.server.url, acked)
    finally:
        back.release()
    return Outcome(
        scenario="full memory",
        profile="balanced",
        ack="memory and fsync",
        seed=seed,
        acked=len(acked),
        lost=len(checked.lost),
        turns=sum(one.verb == "turn" for one in acked),
        turns_lost=sum(one.verb == "turn" for one in checked.lost),
        start=back.start,
        recovery_ms=round(max(deleted_ms, raised_ms), 1),
        faults=(*wrong, *checked.faults),
        note=f"served again {deleted_ms:.0f} ms after a delete, {raised_ms:.0f} ms after a raised limit; "
        + told_words(clients, began_s),
    )


async def _full_until(
    ballast: AsyncRedisSaver, clients: Sequence[Client], make_room: Callable[[], Coroutine[Any, Any, None]]
) -> tuple[float, list[str]]:
    """Fill the server, look at what still goes on, make room. How long until all are served, and what is wrong."""
    full_s = time.monotonic()
    wrong: list[str] = []
    async with anyio.create_task_group() as filling:
        filling.start_soon(_fill, ballast)
        await becomes(lambda: all(one.told_since(full_s) for one in clients), "all are told that it is full")
        if await ballast.aget_tuple(config_of(clients[0].thread)) is None:
            wrong.append("nothing can be read while it is full")
        filling.cancel_scope.cancel()
    await make_room()
    room_s = time.monotonic()
    await becomes(lambda: all(len(one.acked_since(room_s)) > 1 for one in clients), "all are served again")
    return max(one.gap_ms(room_s) for one in clients), wrong


async def _fill(saver: AsyncRedisSaver, victim: Victim | None = None) -> None:
    """One large checkpoint after the other, smaller ones as soon as those do not fit; with `victim` up to a share of
    its limit, else without end."""
    size, number = _BALLAST_BYTES, 0
    while victim is None or _used_bytes(victim) < _BALLAST_SHARE * LIMIT_BYTES:
        number += 1
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"text": str(number).ljust(size, "x")}
        checkpoint["channel_versions"] = {"text": f"{number:07}.aaaaaa"}
        try:
            await saver.aput(_config(), checkpoint, {"step": number}, checkpoint["channel_versions"])
        except ServerFullError:
            size = max(500, size // 4)
            await anyio.sleep(0.005)


def _used_bytes(victim: Victim) -> int:
    with victim.client() as client:
        return int(client.info("memory")["used_memory"])


def _config() -> RunnableConfig:
    return {"configurable": {"thread_id": _BALLAST, "checkpoint_ns": ""}}


async def _raise_limit(victim: Victim) -> None:
    with victim.client() as client:
        client.config_set("maxmemory", RAISED_BYTES)


def _told_badly(clients: Sequence[Client], since_s: float, until_s: float) -> list[str]:
    """Errors that are not the right ones, or that do not say what to do."""
    # The last two come from a busy machine too, at any time.
    right = {"ServerFullError", "refused", "NotDurableError", "DeadlineExceededError"}
    wrong = [
        f"{one.thread.name} was told {told.kind}: {told.message}"
        for one in clients
        for told in one.told_since(since_s)
        if told.at_s < until_s and (told.kind not in right or ": " not in told.message)
    ]
    return wrong[:_NOTED_MAX]


async def run(lab: Lab) -> list[Outcome]:
    """Some fillings: what varies is only who is at which step when the last byte goes."""
    times = max(1, lab.cuts // 25)
    lab.bar.announce(times)
    outcomes = []
    for number in range(times):
        lab.bar.describe(f"full memory {number + 1}/{times}")
        outcomes.append(await fill(lab, number))
        lab.bar.step()
    return outcomes


def judge(outcomes: list[Outcome]) -> list[Verdict]:
    """What was promised of a full server."""
    lost, acked = sum(one.lost for one in outcomes), sum(one.acked for one in outcomes)
    wrong = sum(len(one.faults) for one in outcomes)
    slowest_ms = max((one.recovery_ms for one in outcomes), default=0.0)
    return [
        Verdict(
            what="a full Redis",
            promised="an error with a next step; reads and deletes go on; nothing half-written; served again with room",
            found=f"{lost} of {acked:,} lost, {wrong} faults, served again after {slowest_ms:.0f} ms at most",
            kept=lost == 0 and acked > 0 and wrong == 0,
        )
    ]


SCENARIOS: Final = [Scenario(name="full memory", what="maxmemory reached under noeviction", run=run, judge=judge)]
