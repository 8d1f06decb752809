"""What this process remembers of the latest checkpoints it has read or written, bounded in bytes.

It never decides what is true: a put that builds on a remembered head names it by its nonce, and the server refuses if
it holds something else; a read asks the server whether the head is still the same. So a forgotten, outdated or foreign
memory costs bytes on the wire, never a wrong value.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from rtmem.operations.sharing import ListImage

HeadKey = tuple[str, str]  # the thread's hash key, checkpoint_ns

_BYTES_PER_ELEMENT = 80  # a 16-byte fingerprint object, its place in the list, its share of sizes and numbers
_BYTES_PER_CHANNEL = 300
_OBJECTS_PER_BYTE = 5  # decoded messages take about five times their encoding


@dataclass(slots=True)
class Channel:
    """One channel of a remembered head, as it is stored."""

    version: bytes
    kind: bytes = b"-"  # as in lua/checkpoints_v2/: - i p l
    data: bytes = b""  # of an inline value or of the piece that holds the value
    number: int = -1  # of that piece
    image: ListImage | None = None  # of a list in pieces


@dataclass(slots=True)
class Head:
    """One remembered checkpoint: what of the next one is stored already, and all that is needed to read it again."""

    member: bytes
    nonce: bytes
    parent: bytes = b""
    body: bytes = b""
    metadata: bytes = b""
    stamp: bytes = b""  # of its pending writes, as last seen
    writes: list[bytes] = field(default_factory=list)
    channels: dict[str, Channel] = field(default_factory=dict)
    readable: bool = True  # False: some channel was taken over from a parent that this process has not read

    def size_bytes(self) -> int:
        """About how much memory this takes, once its lists have been decoded."""
        size = len(self.body) + len(self.metadata) + sum(map(len, self.writes))
        for channel in self.channels.values():
            size += _BYTES_PER_CHANNEL + len(channel.data)
            if channel.image:
                stored = sum(map(len, channel.image.stored))
                size += stored * (1 + _OBJECTS_PER_BYTE) + len(channel.image.prints) * _BYTES_PER_ELEMENT
        return size


class Heads:
    """Least recently used heads leave first. Safe to share between threads."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._heads: OrderedDict[HeadKey, tuple[Head, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: HeadKey) -> Head | None:
        """The remembered head, which must not be changed."""
        with self._lock:
            if key not in self._heads:
                return None
            self._heads.move_to_end(key)
            return self._heads[key][0]

    def remember(self, key: HeadKey, head: Head) -> None:
        """Keep `head`, unless a newer checkpoint of that thread is kept."""
        size = head.size_bytes()
        with self._lock:
            old = self._heads.pop(key, None)
            if old is not None:
                self._bytes -= old[1]
                if old[0].member > head.member:
                    head, size = old
            if size <= self._bytes_max:
                self._heads[key] = (head, size)
                self._bytes += size
            while self._bytes > self._bytes_max:
                _, (_, freed) = self._heads.popitem(last=False)
                self._bytes -= freed

    def forget_thread(self, thread: str) -> None:
        """Drop what is known of any namespace of a thread; `thread` is its hash key."""
        with self._lock:
            for key in [key for key in self._heads if key[0] == thread]:
                self._bytes -= self._heads.pop(key)[1]
