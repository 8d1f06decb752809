"""Search and list long-term memory: pages of what the index finds, checked here, until there is enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph.store.base import ListNamespacesOp, MatchCondition, SearchItem, SearchOp

from rtmem.errors import QueryError
from rtmem.operations import memory_queries
from rtmem.operations.functions import calls
from rtmem.operations.memory_filters import matches, narrow
from rtmem.operations.memory_items import BARE, Namespace, decode_key, read_found, read_namespace, ttl_ms
from rtmem.operations.memory_queries import Query, in_order, nearest, scope_clause
from rtmem.operations.memory_scope import MemoryScope
from rtmem.steps import Steps

_GUESS_MIN = 64
_GROWTH = 4


class SearchResults(list[SearchItem]):
    """What a search found.

    index_ready: False while the engine still reads memory back after a restart: there may be more.
    """

    index_ready: bool = True


@dataclass(slots=True)
class Wanted:
    """How much of what is found is wanted."""

    offset: int
    limit: int

    def __post_init__(self) -> None:
        for name, number in (("limit", self.limit), ("offset", self.offset)):
            if type(number) is not int or number < 0:
                raise QueryError(f"{name} is {number!r}: a whole number, 0 or more")


def search(scope: MemoryScope, op: SearchOp, vector: bytes | None) -> Steps[SearchResults]:
    """Items whose namespace begins with a prefix: nearest to `vector` first, or oldest first without.

    Items without a vector follow behind those that have one. A filter is left to the server where it can decide it,
    and checked here in any case.

    Args:
        vector: float32, shape (dims,); of `op.query`.

    Raises:
        QueryError: limit, offset or filter cannot be used. ModuleMissingError, EmbedderMismatchError.

    Redis: 1 round trip, ttls included. More where the server cannot decide a filter (one per 4 times as many items
        looked at, and one for ttls), or where items expire meanwhile.
    """
    wanted = Wanted(op.offset, op.limit)
    narrowed = narrow(op.filter, scope.settings.numbers)
    clauses = f"{scope_clause(scope.principal, op.namespace_prefix)} {narrowed.query}".rstrip()

    def queries(most: int) -> list[Query]:
        if vector is None:
            return [in_order(scope.index, clauses, most)]
        bare = in_order(scope.index, f"{clauses} @mark:{{{BARE}}}", most, sides=True)
        # One more, for `find` leaves out the last, and all that are as near.
        return [nearest(scope.index, clauses, vector, min(most + 1, memory_queries.RESULTS_MAX)), bare]

    results = SearchResults()
    if wanted.limit:
        pages = Pages(scope, queries, fitting(scope, op), wanted, vector is not None)
        results += yield from pages.collect(narrowed.whole, op.refresh_ttl)
    results.index_ready = scope.index.state.is_ready
    return results


@dataclass(slots=True)
class Pages:
    """Goes through what queries find, in ever larger steps."""

    scope: MemoryScope
    queries: Callable[[int], list[Query]]
    fits: Callable[[Sequence[bytes]], SearchItem | None]
    wanted: Wanted
    with_vectors: bool

    def collect(self, is_whole: bool, refresh: bool) -> Steps[list[SearchItem]]:
        """The items that are wanted. `is_whole`: the server decides all of the filter, so that it can skip, too."""
        page_max = self.scope.settings.page_items_max
        skip, left_out = (self.wanted.offset, 0) if is_whole else (0, self.wanted.offset)
        found: dict[bytes, tuple[SearchItem, bytes]] = {}
        needed = left_out + self.wanted.limit
        guess = needed if is_whole else max(_GROWTH * needed, _GUESS_MIN)
        window = skip + guess * self.scope.vectors_guess if self.with_vectors else skip + guess
        while True:
            window = min(window, memory_queries.RESULTS_MAX) if skip < memory_queries.RESULTS_MAX else skip + needed
            take = min(page_max, needed - len(found) if is_whole else guess)
            page = yield from memory_queries.find(
                self.scope.index,
                self.queries(window),
                skip=skip,
                take=take,
                enough=skip + take,
                refresh=refresh and is_whole,
                with_vectors=self.with_vectors,
            )
            for row in page.rows:
                item = self.fits(row)
                if item is not None and row[0] not in found:
                    found[row[0]] = (item, row[4])
            if len(found) >= needed or not page.has_more:
                break
            if len(page.rows) < take and window == memory_queries.RESULTS_MAX:
                break  # a million vectors that are equally near
            skip += len(page.rows)
            if len(page.rows) < take:  # not a full page: the window was too small
                window *= _GROWTH
            guess *= _GROWTH
            window = max(window, skip + min(guess, page_max))
        kept = list(found.items())[left_out:needed]
        if refresh and not is_whole:
            yield from calls(
                [("FCALL", "rtmem_v1_memories_touch", 1, key) for key, (_, u) in kept if ttl_ms(u)],
            )
        return [item for _, (item, _) in kept]


def fitting(scope: MemoryScope, op: SearchOp) -> Callable[[Sequence[bytes]], SearchItem | None]:
    """Makes an item of a row (id, distance or b"", v, created, u, ns, k), or None if it is not asked for."""
    prefix = tuple(op.namespace_prefix)

    def fits(row: Sequence[bytes]) -> SearchItem | None:
        owner, namespace = read_namespace(row[5])
        if owner != scope.principal or namespace[: len(prefix)] != prefix:
            return None  # two scopes with one hash
        score = 1.0 - float(row[1]) if row[1] else None
        item = read_found(scope.serde, namespace, decode_key(row[6]), row[2:5], score)
        return item if matches(item.value, op.filter) else None

    return fits


# Namespaces ----------------------------------------------------------------------------------------------------------


def list_namespaces(scope: MemoryScope, op: ListNamespacesOp) -> Steps[list[Namespace]]:
    """The namespaces that hold an item, sorted.

    Raises QueryError for a limit, offset or depth that cannot be used, and for an unknown kind of condition.

    Redis: 1 round trip; the server looks at every item below the longest prefix that is asked for without wildcards.
    """
    wanted = Wanted(op.offset, op.limit)
    if not isinstance(op.max_depth, int | None):
        raise QueryError(f"max_depth is {op.max_depth!r}: a whole number, or None")
    conditions = op.match_conditions or ()
    known: Sequence[str] = ()
    for condition in conditions:
        if condition.match_type not in ("prefix", "suffix"):
            raise QueryError(f"match_type is {condition.match_type!r}: prefix or suffix")
        if condition.match_type == "prefix":
            known = max(known, _before_wildcard(condition.path), key=len)
    stored = yield from memory_queries.namespaces(scope.index, scope_clause(scope.principal, known))
    found = {namespace for _, namespace in map(read_namespace, stored)}
    if conditions:
        found = {namespace for namespace in found if all(_does_match(each, namespace) for each in conditions)}
    if op.max_depth is not None:
        found = {namespace[: op.max_depth] for namespace in found}
    return sorted(found)[wanted.offset : wanted.offset + wanted.limit]


def _before_wildcard(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(path[: path.index("*")] if "*" in path else path)


def _does_match(condition: MatchCondition, namespace: Namespace) -> bool:
    path: Sequence[Any] = condition.path
    if len(namespace) < len(path):
        return False
    end = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(end, path, strict=True))
