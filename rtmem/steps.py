"""What an operation may ask for, and nothing about how it is answered.

A Redis exchange is a generator: it yields requests and is sent the replies. It never makes a round trip.
`drivers/sync.py` and `drivers/aio.py` answer the requests, blocking or awaiting, so an algorithm is written once
for both colours. (psycopg 3 is built this way: `generators.py` asks, `waiting.py` answers.)
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

R = TypeVar("R")

Argument: TypeAlias = bytes | memoryview | str | int | float
Command: TypeAlias = tuple[Argument, ...]

Lane: TypeAlias = Literal["auto", "large", "blocking", "durable"]
"""Which connection a batch travels on.

auto: by the size of its arguments. large: its own connection, so that a big value holds up nobody.
blocking: a command that waits at the server (XREAD BLOCK); it would stall everything pipelined behind it.
durable: waits for a disk (WAITAOF); apart from blocking, whose clients wait for minutes and could take all its places.
"""


class Batch(msgspec.Struct, frozen=True):  # made for each request: 0.1 us, a frozen dataclass 1 us
    """Commands for one round trip, in order. Answered with one raw reply per command.

    A reply that is an error is raised for the whole batch (the first one, translated). With `atomic` the commands
    run as MULTI/EXEC. Only an `idempotent` batch may be sent again after a lost connection.

    On the lane `large` a command is asked for when those before it are under way: a sequence that makes its commands
    can compute meanwhile. It makes the same ones each time, and is ready with each in well under a millisecond.
    """

    commands: Sequence[Command]
    atomic: bool = False
    idempotent: bool = True
    lane: Lane = "auto"
    timeout_ms: int | None = None  # overrides the driver's deadline; a blocking read needs its own


@dataclass(frozen=True, slots=True)
class Compute:
    """Pure work that may be long enough to stall an event loop, cut into slices.

    Each `next(slices)` does a little of it, well under a millisecond. The sync driver runs them through; the async
    driver lets other tasks have the loop every `YIELD_AFTER_US`. Answered with an empty list: the results are where
    the slices put them. Slices rather than a worker thread: decoding holds the GIL, so a thread would stall the loop
    just as long, and would share objects with it.

    What is long and cannot be cut, but is Python that gives the GIL up every few milliseconds (an expression that is
    evaluated), says `apart`: it runs in a thread then, and the loop goes on beside it.
    """

    slices: Iterator[None]
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Shared:
    """Steps that many may share, such as waiting for an fsync (group commit).

    Whoever asks while a run of them is under way is answered by the next one, together with all who asked meanwhile:
    what they wrote in between may not be covered by the one under way. For one `key` the next run begins when the last
    one has ended, or has been going on for `spacing_ms`: behind an fsync a second nobody shall wait for two. Answered
    with a list of one: what the steps return. A cancelled asker does not end them.
    """

    key: object
    steps: Callable[[], Generator[Any, list[Any], Any]]
    spacing_ms: int = 100


TextKind: TypeAlias = Literal["document", "query"]
"""What a text is embedded for: many models put other words in front of a question than of what may answer it."""


@dataclass(frozen=True, slots=True)
class Embed:
    """Texts whose meaning is asked for. Answered with a vector for each: float32, shape (dims,), unit length.

    `driver.run(steps, embedder)` says who embeds. An EmbeddingError is thrown into the steps like an error of Redis, so
    that an operation may go on without vectors. No texts are answered without asking anybody.
    """

    texts: tuple[str, ...]
    what: TextKind = "document"
    timeout_ms: int | None = (
        None  # after it an EmbeddingUnavailableError; nothing can stop a blocking driver's embedder
    )


@dataclass(frozen=True, slots=True)
class Call:
    """The caller's own code: a model that is asked, a judge. Answered with a list of one: what `function` returns.

    The async driver awaits that if it is awaitable; the sync driver has a WrongColourError for it. Whatever it raises
    is thrown into the steps as it is, and so is whatever ends the wait for it (a cancellation, Ctrl-C): steps that
    hold something while it runs can give it back, and then let the exception rise.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    beside: Callable[[], Generator[Any, list[Any], Any]] | None = None  # run again each `every_ms` while it runs
    every_ms: int = 1_000
    timeout_ms: int | None = None  # after it a TimeoutError; nothing can stop a blocking driver's function
    apart: bool = False  # a function that blocks does so in a thread of its own, and holds no event loop


@dataclass(frozen=True, slots=True)
class Begin:
    """Start on `request` and let the steps go on: an embedding, while Redis is asked for something else.

    Answered at once with a list of one, a `Begun`. The async driver works on it meanwhile; the sync driver begins when
    it is asked for the answer. What nobody has asked for when the steps end is cancelled.
    """

    request: Batch | Embed


@dataclass(frozen=True, slots=True, eq=False)
class Begun:
    """What was begun, and itself a request: answered as the request that was begun, or with its error."""

    answer: Any  # the driver's own


Request: TypeAlias = Batch | Compute | Shared | Embed | Call | Begin | Begun
Steps: TypeAlias = Generator[Request, list[Any], R]


class Embedder(Protocol):
    """Turns texts into vectors; `rtmem.embedding` has several. Safe to share between threads and event loops."""

    @property
    def name(self) -> str:
        """For people: the model, and where it runs."""

    @property
    def fingerprint(self) -> str:
        """Differs whenever vectors would: model, revision, quantisation, pooling, prefixes, dims.

        Vectors of two fingerprints must never be compared.
        """

    @property
    def dims(self) -> int:
        """How many numbers a vector has."""

    def embed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        """The vectors of `texts`, blocking: float32, shape (len(texts), dims), C-contiguous, each of unit length.

        Raises:
            EmbeddingError: no vectors; an EmbeddingUnavailableError may pass by itself.
        """

    async def aembed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        """See `embed`. Never holds the event loop."""
