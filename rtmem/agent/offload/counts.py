"""What pointers did for a conversation, in numbers."""

from __future__ import annotations

import threading
from typing import Final

import msgspec

from rtmem.operations.pointer_previews import estimate_tokens
from rtmem.records import Pointer


class PointerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted since the object was made. A token here is an estimate, as in `Pointer.tokens`."""

    offloaded: int = 0  # results and artifacts that became pointers
    bytes_kept_out: int = 0  # of results, less what the model reads instead; each counted once, when it arose
    tokens_kept_out: int = 0  # the same in tokens; each later model call saves them again
    resolved: int = 0  # values given to tools in place of pointers
    refetches: int = 0  # answers of read_pointer, search_pointer and select_pointer
    refetched_characters: int = 0  # of those answers
    dangling: int = 0  # look-ups that led nowhere: an id that never was, is somebody else's, or has expired
    refused: int = 0  # results that could not be kept (quota, size), and were cut


class Counter:
    """Counts, from any thread."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._counts = PointerCounts()

    @property
    def counts(self) -> PointerCounts:
        """As of now."""
        return self._counts

    def add(self, **more: int) -> None:
        """Count some things together."""
        with self._lock:
            now = {name: getattr(self._counts, name) + number for name, number in more.items()}
            self._counts = msgspec.structs.replace(self._counts, **now)

    def offloaded(self, pointer: Pointer, shown: str) -> None:
        """Count a value that is replaced by the text `shown`, or that no model would have read (no text)."""
        if not shown:
            self.add(offloaded=1)
            return
        size = len(shown.encode("utf-8", "surrogatepass"))
        self.add(
            offloaded=1,
            bytes_kept_out=max(0, pointer.bytes - size),
            tokens_kept_out=max(0, pointer.tokens - estimate_tokens("text", size)),
        )
