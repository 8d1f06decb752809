"""The index of long-term memory: its schema, how it comes to be, and the words of a query to it.

One index serves all tenants. Every query names a scope, a hash over (principal, prefix of a namespace), and there is
no way here to write one without. An index per tenant would have to be made and dropped with its tenant, every write
would be matched against the prefixes of all of them, and nothing could be searched across tenants; while a KNN within
a scope looks at the documents of that scope only, however many there are besides.

The vectors' field carries the fingerprint of its embedder in its name: vectors of two embedders cannot be compared by
accident, and a reindex can write the new ones beside the old. Programs find the index by an alias; whoever makes a
better one switches it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from redisvl.schema import IndexSchema

from rtmem import settings as all_settings
from rtmem.errors import CommandError, ModuleMissingError
from rtmem.keys import Keys
from rtmem.operations.functions import call
from rtmem.operations.memory_filters import as_path, number_field
from rtmem.operations.memory_items import SEPARATOR
from rtmem.operations.vector_fields import field_words, is_lost, name_of, short, vector_attributes
from rtmem.steps import Argument, Batch, Embedder, R, Steps

LOOK_AGAIN_S: Final = 1.0
_LOOKS_MAX: Final = 50
_PAUSE_S: Final = 0.01

NO_ENGINE: Final = (
    "searching and listing needs the query engine, which this Redis lacks: use Redis 8, load the modules of Redis "
    "Stack, or let `rtmem up` run a Redis that has them (pip install 'rtmem[local]'); get, put and delete work without"
)


@dataclass(slots=True)
class IndexState:
    """What a store remembers of the index; shared by all that are bound to other principals."""

    known: bool = False
    has_engine: bool = True
    is_ready: bool = False
    looked_s: float = -1e9
    clock: Callable[[], float] = time.monotonic

    def is_due(self) -> bool:
        """Whether to ask again if the index is whole: after a restart it is built anew, in the background."""
        return not self.is_ready or self.clock() - self.looked_s > LOOK_AGAIN_S


@dataclass(frozen=True, slots=True)
class Index:
    """The index, seen with the eyes of one store."""

    keys: Keys
    settings: all_settings.Store
    embedder: Embedder | None
    state: IndexState = field(default_factory=IndexState)

    @property
    def alias(self) -> str:
        """By this name all queries find it."""
        return self.keys.memory_index

    @property
    def fingerprint(self) -> str:
        """Whose vectors it holds; '' for a store without an embedder."""
        return "" if self.embedder is None else short(self.embedder.fingerprint)

    @property
    def embedder_name(self) -> str:
        """Whose vectors it holds, for people: what [embedding] model calls it, where that can be said."""
        return "" if self.embedder is None else name_of(self.embedder)

    @property
    def dims(self) -> int:
        """How many numbers a vector has."""
        return 0 if self.embedder is None else self.embedder.dims

    @property
    def vector_field(self) -> str:
        """Where the vectors of this store's embedder are."""
        return f"vector_{self.fingerprint}"


# The schema ----------------------------------------------------------------------------------------------------------


def schema(index: Index, name: str) -> IndexSchema:
    """What of a memory is indexed, and how."""
    tag = {"separator": SEPARATOR, "case_sensitive": True}  # RediSearch folds case unless it is told not to
    fields: list[dict[str, Any]] = [
        {"name": "scope", "type": "tag", "attrs": tag},
        {"name": "mark", "type": "tag", "attrs": tag},
        {"name": "eq", "type": "tag", "attrs": tag},
        {"name": "created", "type": "numeric", "attrs": {"sortable": True}},
        # Stemmed by the client, in the language of the text; the server must not stem again.
        {"name": "s", "type": "text", "attrs": {"no_stem": True}},
        # Of facts only.
        {"name": "tags", "type": "tag", "attrs": tag},
        *({"name": name, "type": "numeric"} for name in ("importance", "valid_from", "valid_to")),
    ]
    numbers = dict.fromkeys(number_field(as_path(path)) for path in index.settings.numbers)
    fields += [{"name": number, "type": "numeric"} for number in numbers]
    if index.embedder is not None:
        fields.append(
            {"name": index.vector_field, "type": "vector", "attrs": vector_attributes(index.dims, index.settings)}
        )
    # No stopwords: RediSearch 2.10 crashes on an OR of three terms that begins with two of them.
    head = {"name": name, "prefix": index.keys.memories, "storage_type": "hash", "stopwords": []}
    return IndexSchema.from_dict({"index": head, "fields": fields})


def _create_words(index: Index, fields: Sequence[tuple[str, list[Argument]]]) -> list[Argument]:
    words: list[Argument] = ["ON", "HASH", "PREFIX", 1, index.keys.memories, "STOPWORDS", 0, "SCHEMA"]
    for _, each in fields:
        words += each
    return words


def create_words(index: Index, beside: Iterable[tuple[str, str, str]]) -> list[Argument]:
    """What follows the name in FT.CREATE.

    Args:
        beside: name, type and algorithm of fields that another index has: numbers that other stores ask for are taken
            over.
    """
    fields = field_words(schema(index, index.alias))
    known = {name for name, _ in fields}
    fields += [(name, [name, "NUMERIC"]) for name, kind, _ in beside if kind == "NUMERIC" and name not in known]
    return _create_words(index, fields)


def setup(index: Index) -> Steps[bool]:
    """Make the index if there is none, add what it lacks for this store, and learn whether it is ready.

    Returns:
        False where there is no query engine.

    Raises:
        EmbedderMismatchError: its vectors are another embedder's.

    Redis: 1 round trip, FCALL rtmem_v1_memories_setup; the first time that a store searches or writes. Where that
        makes or changes the index, some more over half a second at most, until the engine has read what is there.
    """
    name = f"{index.alias}:1"
    made = schema(index, name)
    fields = field_words(made)
    create = _create_words(index, fields)
    args: list[Argument] = [name, index.fingerprint, index.dims, index.embedder_name, len(create), *create]
    for field_name, words in fields:
        args += [field_name, len(words), *words]
    state = index.state
    for _ in range(_LOOKS_MAX):
        reply = yield from call("rtmem_v1_memories_setup", [index.alias], args)
        state.known, state.has_engine = True, bool(reply)
        if not reply:
            return False
        state.is_ready, state.looked_s = reply[0] == b"1", state.clock()
        if state.is_ready:
            break
        # An engine reads what is there in the background, also where that is nothing. Nobody pushes to this key.
        yield Batch((("BLPOP", f"{index.alias}:pause", _PAUSE_S),), lane="blocking")
    return True


def ensure(index: Index) -> Steps[None]:
    """The index is there. Raises ModuleMissingError, EmbedderMismatchError. Redis: none once it is known."""
    state = index.state
    if not (state.known and state.has_engine) and not (yield from setup(index)):
        raise ModuleMissingError(NO_ENGINE)


def with_index(index: Index, ask: Callable[[], Steps[R]]) -> Steps[R]:
    """What `ask` finds; asked again where the index had been lost. Raises ModuleMissingError, EmbedderMismatchError."""
    yield from ensure(index)
    try:
        return (yield from ask())
    except CommandError as exc:
        if not is_lost(exc):
            raise
        yield from _again(index)
        return (yield from ask())


def note_ready(index: Index, due: bool, ready: bytes) -> None:
    """Remember what a function said about the index. `due`: it was asked."""
    if due:
        index.state.is_ready, index.state.looked_s = ready == b"1", index.state.clock()


def _again(index: Index) -> Steps[None]:
    # FLUSHALL takes indexes along.
    index.state.known = False
    yield from ensure(index)
