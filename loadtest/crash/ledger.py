"""What was acknowledged, noted outside of the victim; and the contents, which can be made again from their names."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio

Verb = Literal["put", "put_writes", "turn"]

MESSAGES_MAX = 30  # in one state
_SIZES_BYTES = (200, 600, 2_000, 6_000, 20_000, 50_000)


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread that one writer writes, and nobody else."""

    name: str
    seed: str
    shallow: bool = False
    principal: str = ""
    turns: bool = False  # written by a gateway; else by a writer who calls the saver
    small: bool = False  # states of some hundred bytes instead of 200 B to 50 KB

    def state(self, number: int) -> dict[str, Any]:
        """The state after checkpoint `number` (from 1 on): most messages are those of the last one."""
        if self.small:
            return {"number": number, "text": f"{self.name}/{number}/", "messages": [number]}
        chance = random.Random(f"{self.seed}/{self.name}/{number}")
        size = chance.choice(_SIZES_BYTES) if number % 4 == 0 else _SIZES_BYTES[0]
        first = max(1, number - MESSAGES_MAX + 1)
        messages = [{"number": one, "text": f"{self.name} says {one} " * 8} for one in range(first, number + 1)]
        return {"number": number, "text": f"{self.name}/{number}/".ljust(size, "x"), "messages": messages}


@dataclass(frozen=True, slots=True)
class Acked:
    """One call that has returned, or one turn whose end has arrived."""

    verb: Verb
    thread: Thread
    checkpoint_id: str
    number: int
    at_s: float  # monotonic, read after the answer


@dataclass(slots=True)
class Ledger:
    """Acknowledgements of a whole fleet. Threads may add at the same time."""

    acked: list[Acked] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # what writers were told when something failed, before the crash

    def add(self, verb: Verb, thread: Thread, checkpoint_id: str, number: int) -> None:
        self.acked.append(Acked(verb, thread, checkpoint_id, number, time.monotonic()))

    async def begun(self, timeout_s: float = 60.0) -> None:
        """Return once something was acknowledged: a run begins here, however long connecting took."""
        await self.reaches(1, timeout_s)

    async def reaches(self, count: int, timeout_s: float = 60.0) -> None:
        """Return once so many calls were acknowledged."""
        with anyio.fail_after(timeout_s):
            while len(self.acked) < count:  # noqa: ASYNC110 - other threads add too, and an anyio.Event is not for them
                await anyio.sleep(0.005)

    def until(self, moment_s: float) -> list[Acked]:
        """What was acknowledged by then."""
        return [one for one in self.acked if one.at_s <= moment_s]


def window_ms(lost: list[Acked], moment_s: float) -> float:
    """How old the oldest lost acknowledgement was at that moment; 0 when nothing is lost."""
    return max(((moment_s - one.at_s) * 1000 for one in lost), default=0.0)
