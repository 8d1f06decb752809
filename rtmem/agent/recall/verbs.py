"""What an agent does with its memory, written once for both colours: generators that ask for verbs of `rtmem.memory`.

As `rtmem.steps` for round trips, one floor up: so the memory's own counters and promises hold for whatever is asked.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from rtmem.errors import RtmemError
from rtmem.memory import AsyncMemory, Memory

AnyMemory: TypeAlias = Memory | AsyncMemory

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """A verb of a memory with its arguments. Answered with what the verb returns, or its error is thrown."""

    verb: str
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


Verbs: TypeAlias = Generator[Call, Any, T]


def run(memory: Memory, verbs: Verbs[T]) -> T:
    """Do what is asked for, blocking, to the end."""
    try:
        call = next(verbs)
        while True:
            try:
                result = getattr(memory, call.verb)(*call.args, **call.options)
            except RtmemError as exc:
                call = verbs.throw(exc)
            else:
                call = verbs.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        verbs.close()


async def arun(memory: AsyncMemory, verbs: Verbs[T]) -> T:
    """Do what is asked for, awaiting, to the end."""
    try:
        call = next(verbs)
        while True:
            try:
                result = await getattr(memory, call.verb)(*call.args, **call.options)
            except RtmemError as exc:
                call = verbs.throw(exc)
            else:
                call = verbs.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        verbs.close()
