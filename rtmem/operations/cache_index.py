"""The index of cached questions: its schema, how it comes to be, and the one query to it.

Each embedder has an index of its own over the same entries, and a field of its own in them: a change of embedder begins
with an empty index, and leaves exact hits as they are. There is no way here to write a query without a scope.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from redisvl.query import VectorQuery
from redisvl.schema import IndexSchema

from rtmem import settings as all_settings
from rtmem.errors import CommandError, PermissionDeniedError, ReadOnlyReplicaError
from rtmem.keys import Keys
from rtmem.operations.functions import call
from rtmem.operations.vector_fields import field_words, is_lost, name_of, short, vector_attributes
from rtmem.steps import Argument, Batch, Embedder, Steps

_logger: Final = logging.getLogger(__name__)
_LOOKS_MAX: Final = 50
_PAUSE_S: Final = 0.01


@dataclass(slots=True)
class CacheIndexState:
    """What a cache remembers of its index; shared by all that are bound to other principals."""

    known: bool = False
    has_engine: bool = True


@dataclass(frozen=True, slots=True)
class CacheIndex:
    """The index, seen with the eyes of one cache."""

    keys: Keys
    settings: all_settings.Cache
    embedder: Embedder
    state: CacheIndexState = field(default_factory=CacheIndexState)

    @property
    def fingerprint(self) -> str:
        """Whose vectors it holds."""
        return short(self.embedder.fingerprint)

    @property
    def name(self) -> str:
        """By which queries find it."""
        return self.keys.cache_index(self.fingerprint)

    @property
    def embedder_name(self) -> str:
        """For people, and for [cache] thresholds."""
        return name_of(self.embedder)

    @property
    def vector_field(self) -> str:
        """Where the vectors of this embedder are."""
        return f"vector_{self.fingerprint}"


def schema(index: CacheIndex) -> IndexSchema:
    """What of an entry is indexed, and how."""
    vectors = vector_attributes(index.embedder.dims, index.settings)
    fields: list[dict[str, Any]] = [
        {"name": "scope", "type": "tag", "attrs": {"case_sensitive": True}},
        {"name": index.vector_field, "type": "vector", "attrs": vectors},
    ]
    head = {"name": index.name, "prefix": index.keys.cache_entries, "storage_type": "hash", "stopwords": []}
    return IndexSchema.from_dict({"index": head, "fields": fields})


def ensure(index: CacheIndex, *, wait: bool, timeout_ms: int) -> Steps[bool]:
    """Make the index if there is none. False where there is no query engine, or none for this user of Redis.

    wait: until the engine has read what is there; half a second at most. A look-up does without.

    Redis: 1 round trip, FCALL rtmem_v1_cache_setup; none once the index is known.
    """
    state = index.state
    if state.known:
        return state.has_engine
    words: list[Argument] = [index.name, "ON", "HASH", "PREFIX", 1, index.keys.cache_entries, "STOPWORDS", 0, "SCHEMA"]
    for _, each in field_words(schema(index)):
        words += each
    ready = b"0"
    for _ in range(_LOOKS_MAX):
        try:
            ready = yield from call("rtmem_v1_cache_setup", [], words, timeout_ms=timeout_ms)
        except ReadOnlyReplicaError:
            ready = b"1"  # its master makes indexes
        except PermissionDeniedError as exc:
            ready = b""  # to this user, as if there were no engine: exact hits need none
            _logger.warning("the cache gives exact hits only: %s", exc)
        if ready != b"0" or not wait:
            break
        # Nobody pushes to this key: waiting for it is a way to wait.
        yield Batch((("BLPOP", f"{index.keys.cache_index('')}pause", _PAUSE_S),), lane="blocking")
    state.known, state.has_engine = True, ready != b""
    return state.has_engine


@dataclass(frozen=True, slots=True)
class Near:
    """A question of the same scope, and its answer as it is stored."""

    entry_id: str
    distance: float
    threshold: float | None  # learned from reports
    prompt: bytes
    row: list[bytes]  # answer, created, took, tags


def nearest(
    index: CacheIndex, entries: str, scope: str, vector: bytes, up_to: float, timeout_ms: int, *, learned: bool = True
) -> Steps[list[Near]]:
    """The nearest questions of a scope, nearest first.

    Args:
        vector: float32, shape (dims,), in this machine's order of bytes.
        up_to: distance.
        learned: leave out what is farther than its own threshold, if [cache] adaptive says so.

    Redis: 1 round trip, FCALL rtmem_v1_cache_find. 2 more when the index has been lost.
    """
    settings = index.settings
    args: list[Argument] = [up_to, int(learned and settings.adaptive), index.name]
    args += _words(index.vector_field, settings.candidates_max)
    args += ["TIMEOUT", settings.lookup_deadline_ms, "PARAMS", 4, "scope", scope, "vector", vector]
    try:
        rows = yield from call("rtmem_v1_cache_find", [entries], args, read_only=True, timeout_ms=timeout_ms)
    except CommandError as exc:
        if not is_lost(exc):
            raise
        index.state.known = False
        yield from ensure(index, wait=False, timeout_ms=timeout_ms)
        rows = yield from call("rtmem_v1_cache_find", [entries], args, read_only=True, timeout_ms=timeout_ms)
    found = [
        Near(entry_id.decode(), max(0.0, float(distance)), float(threshold) if threshold else None, prompt, row)
        for entry_id, distance, threshold, prompt, *row in rows
    ]
    return sorted(found, key=lambda near: near.distance)


@lru_cache(maxsize=16)
def _words(vector_field: str, most: int) -> tuple[Argument, ...]:
    # RedisVL takes 16 us for this. The scope comes as a parameter, so the words are the same for all.
    query = VectorQuery(b"", vector_field, return_fields=[], filter_expression="@scope:{$scope}", num_results=most)
    return tuple(query.get_args())
