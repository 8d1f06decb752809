"""What an operation may ask for, and nothing about how it is answered.

A Redis exchange is a generator: it yields requests and is sent the replies. It never makes a round trip.
`drivers/sync.py` and `drivers/aio.py` answer the requests, blocking or awaiting, so an algorithm is written once
for both colours. (psycopg 3 is built this way: `generators.py` asks, `waiting.py` answers.)
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

R = TypeVar("R")

Argument: TypeAlias = bytes | str | int | float
Command: TypeAlias = tuple[Argument, ...]

Lane: TypeAlias = Literal["auto", "large", "blocking"]
"""Which connection a batch travels on.

auto: by the size of its arguments. large: its own connection, so that a big value holds up nobody.
blocking: a command that waits at the server (XREAD BLOCK); it would stall everything pipelined behind it.
"""


@dataclass(frozen=True, slots=True)
class Batch:
    """Commands for one round trip, in order. Answered with one raw reply per command.

    A reply that is an error is raised for the whole batch (the first one, translated). With `atomic` the commands
    run as MULTI/EXEC. Only an `idempotent` batch may be sent again after a lost connection.
    """

    commands: tuple[Command, ...]
    atomic: bool = False
    idempotent: bool = True
    lane: Lane = "auto"
    timeout_ms: int | None = None  # overrides the driver's deadline; a blocking read needs its own


@dataclass(frozen=True, slots=True)
class Embed:
    """Texts to turn into vectors. Answered with float32 vectors, shape (len(texts), dims)."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compute:
    """Pure work that is long enough to stall an event loop: the async driver runs it in a worker thread.

    Answered with a list of one: what `work()` returned. `work` must touch nothing that other tasks may change.
    """

    work: Callable[[], Any]
    cost_bytes: int  # how much data it walks; the driver keeps short work on the loop


Request: TypeAlias = Batch | Embed | Compute
Steps: TypeAlias = Generator[Request, list[Any], R]


class Embedder(Protocol):
    """Turns texts into unit vectors. `fingerprint` names model and settings; vectors of two never mix."""

    fingerprint: str
    dims: int

    def embed(self, texts: list[str]) -> Any:
        """Vectors of `texts`: float32, shape (len(texts), dims), unit length."""
        ...
