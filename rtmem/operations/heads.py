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
_BYTES_PER_HEAD = 1_500


@dataclass(slots=True)
class Channel:
    """One channel of a remembered head."""

    version: bytes
    image: ListImage | None = None  # of a list in pieces
    number: int = -1  # of a value in one piece
    digest: bytes = b""  # of that piece


@dataclass(slots=True)
class Head:
    """One remembered checkpoint: enough to say what of the next one is stored already."""

    member: bytes
    nonce: bytes
    channels: dict[str, Channel] = field(default_factory=dict)

    def size_bytes(self) -> int:
        """About how much memory this takes."""
        elements = sum(len(channel.image.prints) for channel in self.channels.values() if channel.image)
        return _BYTES_PER_HEAD + _BYTES_PER_ELEMENT * elements


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
