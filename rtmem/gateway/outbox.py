"""Frames on their way to one client: bounded, so that a client that does not read costs little and then its connection.

One task takes frames out and writes them; everything else only puts. What does not fit is refused: the connection then
reads on from the log at the client's pace (`room`), and a client that takes nothing for `stall_timeout_ms` is given up.

The kernel and the server's own buffer are kept
small (SO_SNDBUF, the transport's high-water mark), so a client that stops reading is felt here after about 200 KB.
When frames pile up, consecutive deltas of one text become one frame: the client reads the same text in larger bites.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import anyio

from rtmem.errors import RtmemError
from rtmem.gateway.protocol import merge_deltas
from rtmem.records import LogEvent

_MERGED_BYTES_MAX: Final = 16 * 1024


class SlowReaderError(RtmemError):
    """The client reads slower than its events are made."""

    retryable = True


class Outbox:
    """A bounded queue of frames with one consumer."""

    def __init__(self, *, frames_max: int, bytes_max: int) -> None:
        self._frames_max = frames_max
        self._bytes_max = bytes_max
        # Below this, frames go out one by one: a burst of tokens is no reason to blur them.
        self._merge_from_frames = max(1, frames_max // 8)
        self._queue: deque[tuple[bytes, bool]] = deque()  # frame, may be merged with the next
        self._bytes = 0
        self._changed = anyio.Event()
        self._finished = False
        self._in_hand = False  # a frame that the consumer has taken, and not come back from yet

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def size_bytes(self) -> int:
        """Bytes that wait."""
        return self._bytes

    def put(self, frame: bytes) -> None:
        """Queue a frame. Raises SlowReaderError when that is too much."""
        self._append(frame, mergeable=False)

    def put_event(self, event: LogEvent) -> None:
        """Queue an event, perhaps as a longer form of the one before. Raises SlowReaderError."""
        mergeable = event.channel == "messages"
        if mergeable and len(self._queue) >= self._merge_from_frames and self._queue[-1][1]:
            last, _ = self._queue[-1]
            merged = merge_deltas(last, event.frame) if len(last) < _MERGED_BYTES_MAX else None
            if merged is not None:
                self._queue[-1] = (merged, True)
                self._bytes += len(merged) - len(last)
                return
        self._append(event.frame, mergeable=mergeable)

    def _append(self, frame: bytes, *, mergeable: bool) -> None:
        # What waits already is what the client has not read; a big state that joins it says nothing about its reader.
        if len(self._queue) >= self._frames_max or self._bytes >= self._bytes_max:
            raise self._slow("reads too slowly")
        self._queue.append((frame, mergeable))
        self._bytes += len(frame)
        self._signal()

    async def get(self) -> bytes:
        """The next frame. Raises anyio.EndOfStream after `finish`, when all are out."""
        self._in_hand = False
        if not self._queue:
            self._signal()  # for `emptied`
        while not self._queue:
            if self._finished:
                raise anyio.EndOfStream
            await self._changed.wait()
        frame, _ = self._queue.popleft()
        self._bytes -= len(frame)
        self._in_hand = True
        self._signal()
        return frame

    async def emptied(self) -> None:
        """Wait until nothing waits, and the consumer has sent what it took."""
        while self._queue or self._in_hand:
            await self._changed.wait()

    async def room(self, *, stall_timeout_s: float) -> None:
        """Wait until at most a quarter is used: how a replay keeps the client's pace.

        Raises:
            SlowReaderError: no frame was taken for `stall_timeout_s`.
        """
        while len(self._queue) > self._frames_max // 4 or self._bytes > self._bytes_max // 4:
            with anyio.move_on_after(stall_timeout_s) as waiting:
                await self._changed.wait()
            if waiting.cancelled_caught:
                raise self._slow(f"has taken no frame for {stall_timeout_s:g} s")

    def finish(self) -> None:
        """No more frames; what waits is still sent."""
        self._finished = True
        self._signal()

    def _slow(self, what: str) -> SlowReaderError:
        return SlowReaderError(
            f"the client {what}, {len(self._queue)} frames wait: reconnect with `since` and read faster, "
            "or subscribe to fewer channels",
            frames=len(self._queue),
            size_bytes=self._bytes,
        )

    def _signal(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
