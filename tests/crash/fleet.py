"""Writers through rtmem's savers, and a ledger of what was acknowledged to them, outside of the victim."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint

from rtmem.checkpoint import AsyncRedisSaver
from rtmem.errors import RtmemError
from rtmem.settings import Ack, Redis


@dataclass(frozen=True, slots=True)
class Acked:
    """One call that has returned: put, or put_writes."""

    verb: str

    thread_id: str
    checkpoint_id: str
    number: int
    at_s: float  # monotonic


@dataclass(slots=True)
class Ledger:
    """What was acknowledged, and what is gone."""

    acked: list[Acked] = field(default_factory=list)

    def until(self, moment_s: float) -> list[Acked]:
        return [one for one in self.acked if one.at_s <= moment_s]


def _payload(thread_id: str, number: int, size_bytes: int) -> dict[str, Any]:
    return {"number": number, "text": f"{thread_id}/{number}/".ljust(size_bytes, "x")}


async def write_on(saver: AsyncRedisSaver, ledger: Ledger, thread_id: str, size_bytes: int) -> None:
    """Checkpoints of one thread, one after the other, until a put fails; what was not acknowledged is not counted."""
    config: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    with suppress(RtmemError):
        number = 0
        while True:
            number += 1
            checkpoint = empty_checkpoint()
            version = f"{number:07}.aaaaaa"
            checkpoint["channel_values"] = _payload(thread_id, number, size_bytes)
            checkpoint["channel_versions"] = dict.fromkeys(checkpoint["channel_values"], version)
            versions = dict(checkpoint["channel_versions"])
            config = await saver.aput(config, checkpoint, {"step": number}, versions)
            ledger.acked.append(Acked("put", thread_id, checkpoint["id"], number, time.monotonic()))
            await saver.aput_writes(config, [("text", f"write-{number}")], "task")
            ledger.acked.append(Acked("put_writes", thread_id, checkpoint["id"], number, time.monotonic()))


async def run_fleet(url: str, ack: Ack, *, writers: int, size_bytes: int, cut: Any) -> tuple[Ledger, float]:
    """Let `writers` write until `cut` (an async function that returns when the power went) has done its work."""
    ledger = Ledger()
    how = {"deadline_ms": 2_000, "retries_max": 0}
    async with AsyncRedisSaver.from_conn_string(url, ack=ack, connection_args=how) as saver:
        async with anyio.create_task_group() as fleet:
            for number in range(writers):
                fleet.start_soon(write_on, saver, ledger, f"thread-{number}", size_bytes)
            moment_s = await cut()
            fleet.cancel_scope.cancel()
    return ledger, moment_s


async def lost(url: str, acked: list[Acked], size_bytes: int) -> list[Acked]:
    """Which of the acknowledged checkpoints and writes are not there any more.

    Also: whatever is there is whole, and each thread's latest checkpoint loads; anything half-written raises.
    """
    gone: list[Acked] = []
    async with AsyncRedisSaver.from_conn_string(url, connection_args={"deadline_ms": Redis().deadline_ms}) as saver:
        for thread_id in sorted({one.thread_id for one in acked}):
            config: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
            found = {one.checkpoint["id"]: one async for one in saver.alist(config)}
            for one in found.values():
                number = int(one.metadata["step"])
                assert one.checkpoint["channel_values"] == _payload(thread_id, number, size_bytes)
                assert one.pending_writes in ([], [("task", "text", f"write-{number}")])
                if one.parent_config is not None:
                    assert one.parent_config["configurable"]["checkpoint_id"] in found
            latest = await saver.aget_tuple(config)
            assert (latest.checkpoint["id"] if latest else None) == max(found, default=None)
            written = {id_ for id_, one in found.items() if one.pending_writes}
            there = {"put": found.keys(), "put_writes": written}
            gone += [one for one in acked if one.thread_id == thread_id and one.checkpoint_id not in there[one.verb]]
    return gone
