"""Pointers, blocking: one line per verb, the algorithms are in `rtmem.operations`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from rtmem import settings as all_settings
from rtmem.drivers import SyncDriver
from rtmem.errors import ConfigError
from rtmem.operations import pointer_inspection, pointer_lifetimes, pointer_reading, pointer_slices, pointers
from rtmem.operations.pointer_uploads import offload
from rtmem.pointers.base import Scoped
from rtmem.records import (
    Matches,
    Pointer,
    PointerPage,
    PointerReport,
    PointerUnit,
    PointerUsage,
    Selection,
    Slice,
    SweepReport,
)
from rtmem.steps import R, Steps


class Pointers(Scoped):
    """Large values of one principal, kept out of conversations. Blocking; see `rtmem.pointers` for all verbs.

    Args:
        redis_url: redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://.
        driver: a SyncDriver to share, instead of a URL.
        principal: whose pointers; nothing in a message can change it.
        settings: limits and lifetimes.
        redis: deadlines and connections, with a URL.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        driver: SyncDriver | None = None,
        principal: str = "",
        settings: all_settings.Pointers | None = None,
        redis: all_settings.Redis | None = None,
    ) -> None:
        super().__init__(settings, principal)
        if driver is None and not redis_url:
            raise ConfigError("give redis_url or driver; `rtmem up --redis-only` runs an embedded Redis")
        self._owns_driver = driver is None
        self._driver = driver or SyncDriver.lazy(redis_url or "", redis)

    @classmethod
    @contextmanager
    def from_conn_string(cls, redis_url: str | None = None, **options: Any) -> Iterator[Self]:
        """Pointers for the length of a with block; options as for the class."""
        pointers = cls(redis_url, **options)
        try:
            yield pointers
        finally:
            pointers.close()

    def close(self) -> None:
        """Close the connections, unless the driver was given."""
        if self._owns_driver:
            self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def run(self, steps: Steps[R]) -> R:
        """Run steps of your own over the same connections: `pointers.run(operation(pointers.scope, ...))`."""
        return self._driver.run(steps)

    def offload(
        self,
        value: Any,
        *,
        thread_id: str | None = None,
        ttl_ms: int | None = None,
        media_type: str | None = None,
        name: str | None = None,
    ) -> Pointer:
        """See operations.pointer_uploads.offload."""
        return self._driver.run(
            offload(self.scope, value, thread_id=thread_id, ttl_ms=ttl_ms, media_type=media_type, name=name)
        )

    def resolve(self, pointer: str | Pointer) -> Any:
        """See operations.pointers.resolve."""
        return self._driver.run(pointers.resolve(self.scope, pointer))

    def describe(self, pointer: str | Pointer) -> Pointer:
        """See operations.pointers.describe."""
        return self._driver.run(pointers.describe(self.scope, pointer))

    def slice(
        self,
        pointer: str | Pointer,
        unit: PointerUnit = "characters",
        start: int = 0,
        count: int | None = None,
        *,
        characters_max: int | None = None,
        continuation: str = "",
    ) -> Slice:
        """See operations.pointer_slices.slice_value."""
        return self._driver.run(
            pointer_slices.slice_value(
                self.scope, pointer, unit, start, count, characters_max=characters_max, continuation=continuation
            )
        )

    def search(
        self,
        pointer: str | Pointer,
        pattern: str,
        *,
        regex: bool = False,
        ignore_case: bool = False,
        matches_max: int = 20,
        characters_max: int | None = None,
        continuation: str = "",
    ) -> Matches:
        """See operations.pointer_reading.search."""
        return self._driver.run(
            pointer_reading.search(
                self.scope,
                pointer,
                pattern,
                regex=regex,
                ignore_case=ignore_case,
                matches_max=matches_max,
                characters_max=characters_max,
                continuation=continuation,
            )
        )

    def select(
        self, pointer: str | Pointer, expression: str, *, characters_max: int | None = None, continuation: str = ""
    ) -> Selection:
        """See operations.pointer_reading.select."""
        return self._driver.run(
            pointer_reading.select(
                self.scope, pointer, expression, characters_max=characters_max, continuation=continuation
            )
        )

    def pin(self, pointer: str | Pointer, thread_id: str | None = None) -> None:
        """See operations.pointer_lifetimes.pin."""
        self._driver.run(pointer_lifetimes.pin(self.scope, pointer, thread_id))

    def unpin(self, pointer: str | Pointer, thread_id: str | None = None) -> None:
        """See operations.pointer_lifetimes.unpin."""
        self._driver.run(pointer_lifetimes.unpin(self.scope, pointer, thread_id))

    def delete(self, pointer: str | Pointer) -> bool:
        """See operations.pointer_lifetimes.delete."""
        return self._driver.run(pointer_lifetimes.delete(self.scope, pointer))

    def list(self, thread_id: str | None = None, *, limit: int = 20, continuation: str = "") -> PointerPage:
        """See operations.pointers.list_page."""
        return self._driver.run(pointers.list_page(self.scope, thread_id, limit=limit, continuation=continuation))

    def usage(self) -> PointerUsage:
        """See operations.pointers.usage."""
        return self._driver.run(pointers.usage(self.scope))

    def release_thread(self, thread_id: str) -> None:
        """See operations.pointer_lifetimes.release_thread."""
        self._driver.run(pointer_lifetimes.release_thread(self.scope, thread_id))

    def copy_pins(self, source_thread_id: str, target_thread_id: str) -> None:
        """See operations.pointer_lifetimes.copy_pins."""
        self._driver.run(pointer_lifetimes.copy_pins(self.scope, source_thread_id, target_thread_id))

    def sweep(self, *, steps_max: int = 1_000) -> SweepReport:
        """See operations.pointer_lifetimes.sweep."""
        return self._driver.run(pointer_lifetimes.sweep(self.scope, steps_max=steps_max))

    def inspect(self) -> PointerReport:
        """See operations.pointer_inspection.inspect."""
        return self._driver.run(pointer_inspection.inspect(self.scope))
