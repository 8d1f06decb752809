"""What a gateway tells the runs of an authenticated principal. Light: a gateway knows it without what memory needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rtmem.served import SERVED, served_in_run

if TYPE_CHECKING:
    from rtmem.agent.recall import Recall
    from rtmem.pointers import AsyncPointers

__all__ = ["CACHED_TURNS", "SERVED", "Served", "expect_memory", "memory_is_expected", "memory_was_read"]

CACHED_TURNS: Final = "__rtmem_cached_turns"
"""In `configurable` of a graph's own config: how its turns are cached; see agent/cache/turns.py."""


@dataclass(frozen=True, slots=True)
class Served:
    """Who was authenticated, what he may remember with, and where his large values are kept."""

    principal: str
    recall: Callable[[], Recall]  # the gateway's own memory, bound to that principal
    pointers: AsyncPointers | None = None  # the gateway's own, bound to that principal; None: it keeps none
    used: set[str] = field(default_factory=set, compare=False)  # "memory": its answers are as old as what was read


class _Expectations:
    """Of the graphs in this process."""

    memory = False


def memory_was_read() -> None:
    """The run at work has read what somebody remembers. Outside of a gateway nobody needs to know."""
    served = served_in_run()
    if isinstance(served, Served):
        served.used.add("memory")


def expect_memory() -> None:
    """An agent takes its memory from the gateway that serves it: `rtmem serve` loads it when it starts."""
    _Expectations.memory = True


def memory_is_expected() -> bool:
    """Whether an agent of this process does."""
    return _Expectations.memory
