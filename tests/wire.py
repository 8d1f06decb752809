"""What goes over the wire of an object that has a driver: counted, and cut where a test wants it."""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import Any

from rtmem.errors import ServerUnavailableError
from rtmem.steps import Batch, Request


class Wire:
    """Sees every round trip of a memory or of pointers, and breaks the one it is told to."""

    def __init__(self, owner: Any) -> None:
        self.batches: list[Batch] = []
        self.left = -1  # round trips to let pass before one breaks; below 0: none will
        self.after = False
        driver: Any = owner._driver
        answer = driver.answer

        async def answer_async(request: Request) -> list[Any]:
            self._see(request)
            replies: list[Any] = await answer(request)
            self._saw(request)
            return replies

        def answer_sync(request: Request) -> list[Any]:
            self._see(request)
            replies: list[Any] = answer(request)
            self._saw(request)
            return replies

        driver.answer = answer_async if iscoroutinefunction(answer) else answer_sync

    def take(self) -> int:
        """Round trips since the last call."""
        count = len(self.batches)
        self.batches.clear()
        return count

    def cut(self, nth: int, *, after: bool) -> None:
        """Let `nth` round trips pass, and break the next one before the server hears of it, or after it was done."""
        self.left, self.after = nth, after

    def _see(self, request: Request) -> None:
        if isinstance(request, Batch):
            self.batches.append(request)
            if not self.after:
                self._burn()

    def _saw(self, request: Request) -> None:
        if isinstance(request, Batch) and self.after:
            self._burn()

    def _burn(self) -> None:
        if self.left >= 0:
            self.left -= 1
            if self.left < 0:
                raise ServerUnavailableError("the wire was cut: this is a test")
