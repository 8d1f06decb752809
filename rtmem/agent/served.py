"""What a gateway tells the runs of an authenticated principal. Light: a gateway knows it without what memory needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rtmem.agent.recall import Recall
    from rtmem.pointers import AsyncPointers

SERVED: Final = "__rtmem_served"
"""In `configurable` of a run. Names that begin so are never a client's to set, and no checkpoint keeps them."""

CACHED_TURNS: Final = "__rtmem_cached_turns"
"""In `configurable` of a graph's own config: how its turns are cached; see agent/cache/turns.py."""


@dataclass(frozen=True, slots=True)
class Served:
    """Who was authenticated, what he may remember with, and where his large values are kept."""

    principal: str
    recall: Callable[[], Recall]  # the gateway's own memory, bound to that principal
    pointers: AsyncPointers | None = None  # the gateway's own, bound to that principal; None: it keeps none


class _Expectations:
    """Of the graphs in this process."""

    memory = False


def expect_memory() -> None:
    """An agent takes its memory from the gateway that serves it: `rtmem serve` loads it when it starts."""
    _Expectations.memory = True


def memory_is_expected() -> bool:
    """Whether an agent of this process does."""
    return _Expectations.memory
