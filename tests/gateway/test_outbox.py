"""The bounded queue between events and one client."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from rtmem.gateway.outbox import Outbox, SlowReaderError
from rtmem.gateway.protocol import encode_event
from rtmem.records import LogEvent, TurnEvent

pytestmark = pytest.mark.anyio


def delta(seq: int, text: str, *, message: str = "m", index: int = 0, kind: str = "text") -> LogEvent:
    piece = {"type": f"{kind}-delta", kind: text}
    data = {"event": "content-block-delta", "index": index, "delta": piece, "id": message, "run_id": "r"}
    event = TurnEvent("messages", data, node="n")
    return LogEvent(seq, "messages", (), encode_event(event, seq=seq, event_id=f"e{seq}", timestamp_ms=1))


async def taken(outbox: Outbox) -> list[dict[str, Any]]:
    outbox.finish()
    frames = []
    try:
        while True:
            frames.append(json.loads(await outbox.get()))
    except anyio.EndOfStream:
        return frames


async def test_frames_come_out_in_order_and_then_it_ends() -> None:
    outbox = Outbox(frames_max=10, bytes_max=1_000)
    outbox.put(b"1")
    outbox.put(b"2")
    assert await taken(outbox) == [1, 2]
    assert (len(outbox), outbox.size_bytes) == (0, 0)


async def test_a_burst_of_deltas_stays_token_by_token() -> None:
    outbox = Outbox(frames_max=800, bytes_max=1_000_000)
    for seq in range(100):
        outbox.put_event(delta(seq, f"{seq} "))
    assert len(await taken(outbox)) == 100


async def test_deltas_that_pile_up_become_longer_ones_with_the_last_seq() -> None:
    outbox = Outbox(frames_max=16, bytes_max=1_000_000)
    for seq in range(1_000):
        outbox.put_event(delta(seq, f"{seq} "))
    frames = await taken(outbox)
    assert len(frames) <= 16
    assert "".join(frame["params"]["data"]["delta"]["text"] for frame in frames) == "".join(
        f"{n} " for n in range(1_000)
    )
    assert (frames[-1]["seq"], frames[-1]["event_id"]) == (999, "e999")
    assert [frame["seq"] for frame in frames] == sorted(frame["seq"] for frame in frames)


@pytest.mark.parametrize("other", [{"message": "other"}, {"index": 1}, {"kind": "reasoning"}])
async def test_deltas_of_different_pieces_are_not_mixed(other: dict[str, Any]) -> None:
    outbox = Outbox(frames_max=100, bytes_max=1_000_000)
    outbox._merge_from_frames = 1
    outbox.put_event(delta(1, "a"))
    outbox.put_event(delta(2, "b", **other))
    outbox.put_event(delta(3, "c"))
    assert [frame["seq"] for frame in await taken(outbox)] == [1, 2, 3]


async def test_what_does_not_fit_is_refused() -> None:
    outbox = Outbox(frames_max=2, bytes_max=1_000)
    outbox.put(b"1")
    outbox.put(b"2")
    with pytest.raises(SlowReaderError, match="2 frames wait"):
        outbox.put(b"3")
    outbox = Outbox(frames_max=100, bytes_max=10)
    outbox.put(b"1" * 11)
    with pytest.raises(SlowReaderError):
        outbox.put(b"2")
    assert outbox.size_bytes == 11


async def test_room_comes_when_frames_are_taken() -> None:
    outbox = Outbox(frames_max=4, bytes_max=1_000)
    for frame in (b"1", b"2", b"3"):
        outbox.put(frame)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.get)
        tasks.start_soon(outbox.get)
        await outbox.room(stall_timeout_s=5)
    assert len(outbox) == 1


async def test_room_gives_up_on_a_reader_that_takes_nothing() -> None:
    outbox = Outbox(frames_max=2, bytes_max=1_000)
    outbox.put(b"1")
    with pytest.raises(SlowReaderError, match="has taken no frame"):
        await outbox.room(stall_timeout_s=0.01)
