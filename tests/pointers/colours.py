"""One test body for both colours: awaiting pointers are driven from outside their loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rtmem import settings as all_settings
from rtmem.pointers import AsyncPointers, Pointers
from rtmem.records import PointerReport
from rtmem.steps import Steps
from tests import callers
from tests.checkpoint.colours import Loop

SMALL = all_settings.Pointers(chunk_bytes=1_024, batch_bytes=4_096)
"""So that a value of some kilobytes has many chunks and several batches."""


class Caller(callers.Caller):
    """Pointers of either colour."""

    def run(self, steps: Steps[Any]) -> Any:
        """Run an operation over the same connections."""
        if isinstance(self.owner, AsyncPointers):
            return self.loop.wait(self.owner._driver.run(steps))
        return self.owner._driver.run(steps)

    def sound(self) -> PointerReport:
        """What `inspect` reports, if all of it fits together."""
        report: PointerReport = self.inspect()
        assert report.sound, report
        return report


@dataclass(slots=True)
class World:
    """Makes pointers of one colour at one server."""

    url: str
    client: Any  # redis.Redis, raw: bytes
    loop: Loop
    awaiting: bool
    protocol: int

    @contextmanager
    def open(self, *, url: str | None = None, settings: Any = SMALL, **options: Any) -> Iterator[Caller]:
        redis = all_settings.Redis(protocol=2 if self.protocol == 2 else 3)
        if self.awaiting:
            awaiting = AsyncPointers(url or self.url, settings=settings, redis=redis, **options)
            try:
                yield Caller(awaiting, self.loop)
            finally:
                self.loop.wait(awaiting.aclose())
        else:
            with Pointers(url or self.url, settings=settings, redis=redis, **options) as blocking:
                yield Caller(blocking, self.loop)
