"""One test body for both colours: awaiting memories are driven from outside their loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rtmem import settings as all_settings
from rtmem.memory import AsyncMemory, Memory
from tests.callers import Caller
from tests.checkpoint.colours import Loop


@dataclass(slots=True)
class World:
    """Makes memories of one colour at one server."""

    url: str
    client: Any  # redis.Redis, raw: bytes
    loop: Loop
    awaiting: bool
    protocol: int

    @contextmanager
    def open(self, *, url: str | None = None, retries_max: int = 2, **options: Any) -> Iterator[Caller]:
        redis = all_settings.Redis(protocol=2 if self.protocol == 2 else 3, retries_max=retries_max)
        if self.awaiting:
            awaiting = AsyncMemory(url or self.url, redis=redis, **options)
            try:
                yield Caller(awaiting, self.loop)
            finally:
                self.loop.wait(awaiting.aclose())
        else:
            with Memory(url or self.url, redis=redis, **options) as blocking:
                yield Caller(blocking, self.loop)
