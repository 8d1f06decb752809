"""Whatever is done in whatever order: as InMemoryStore does it, but for the differences that `rtmem.store` lists.

What is different by intent is in `Expected`, one comment each; all else is compared.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.store.base import GetOp, Item, ListNamespacesOp, MatchCondition, Op, PutOp, SearchItem, SearchOp
from langgraph.store.memory import InMemoryStore

from rtmem.settings import Store
from tests.embedders import Letters
from tests.store.colours import AnyStore, Stores

EXAMPLES = int(os.environ.get("RTMEM_STORE_EXAMPLES", "25"))
ALL = 10_000
_principals = count()

# Few of everything, so that operations meet.
LABELS = st.sampled_from(["a", "A", "b", "a b", "*", "ab"])
NAMESPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
KEYS = st.sampled_from(["k", "K", "k ", "l"])
SCALARS = st.sampled_from([0, 1, 1.0, True, False, -2, 2.5, "1", "x", "X", "", " x", "x" * 80, None, float("inf")])
LISTS = st.lists(SCALARS, max_size=2)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "n": SCALARS | LISTS,
        "s": SCALARS,
        "m": st.fixed_dictionaries({}, optional={"n": SCALARS, "o": SCALARS | LISTS}) | SCALARS,
        "text": st.text("abcd", min_size=1, max_size=4),  # InMemoryStore embeds the empty text too
        "more": st.lists(st.text("efgh", min_size=1, max_size=3), max_size=3, unique=True),
    },
)
OPERANDS = SCALARS | LISTS
CONDITIONS = (
    OPERANDS
    | st.dictionaries(st.sampled_from(["$eq", "$ne"]), OPERANDS, min_size=1)
    | st.dictionaries(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), st.sampled_from([0, 1, 1.5, 2, "1"]), min_size=1)
)
FILTERS = st.none() | st.dictionaries(
    st.sampled_from(["n", "s", "m", "absent"]),
    CONDITIONS | st.dictionaries(st.sampled_from(["n", "o"]), CONDITIONS, max_size=2),
    max_size=2,
)
INDEX = st.sampled_from([None, None, False, ["text"], ["more[*]"], ["m.n", "absent"], []])
PAGES = st.sampled_from([(10, 0), (1, 0), (2, 1), (3, 2), (0, 0), (ALL, 3)])
PATTERNS = st.lists(LABELS, max_size=2).map(tuple)

PUT = st.builds(lambda *parts: PutOp(*parts), NAMESPACES, KEYS, VALUES, INDEX)
DELETE = st.builds(lambda *parts: PutOp(*parts, None), NAMESPACES, KEYS)
GET = st.builds(lambda *parts: GetOp(*parts), NAMESPACES, KEYS)
SEARCH = st.builds(
    lambda prefix, wanted, page, query: SearchOp(prefix, wanted, *page, query),
    st.lists(LABELS, max_size=2).map(tuple),
    FILTERS,
    PAGES,
    st.sampled_from([None, "", "a", "bcd", "ef"]),
)
LIST = st.builds(
    lambda conditions, depth, page: ListNamespacesOp(tuple(conditions), depth, *page),
    st.lists(
        st.builds(lambda *parts: MatchCondition(*parts), st.sampled_from(["prefix", "suffix"]), PATTERNS), max_size=2
    ),
    st.sampled_from([None, None, 1, 2]),
    PAGES,
)
BATCHES = st.lists(st.lists(PUT | PUT | DELETE | GET | SEARCH | SEARCH | LIST, min_size=1, max_size=5), max_size=12)


class Expected:
    """InMemoryStore, made to answer what ours is meant to answer."""

    def __init__(self, index: Any) -> None:
        self.index = index
        self.store = InMemoryStore(index=index)
        self.born: dict[tuple[tuple[str, ...], str], int] = {}
        self._numbers = count()

    def put(self, op: PutOp) -> None:
        place = (op.namespace, op.key)
        # InMemoryStore keeps vectors of fields that an update no longer has: so its item is deleted first.
        self.store.delete(*place)
        if op.value is None:
            self.born.pop(place, None)
            return
        self.store.batch([op])
        self.born.setdefault(place, next(self._numbers))

    def order(self, item: Item) -> int:
        return self.born[item.namespace, item.key]

    def search(self, op: SearchOp) -> list[SearchItem] | None:
        """All that fits; None where InMemoryStore raises, because a range filter meets what is no number."""
        try:
            (found,) = self.store.batch([op._replace(limit=ALL, offset=0)])
        except (TypeError, ValueError, OverflowError):
            return None
        # InMemoryStore goes by namespaces; ours by the time when an item was first put, wherever it is.
        scored = [item for item in found if item.score is not None]
        return scored + sorted((item for item in found if item.score is None), key=self.order)

    def list(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        # InMemoryStore lists namespaces whose items were deleted, or that somebody only asked for.
        living = InMemoryStore()
        for namespace, key in self.born:
            living.put(namespace, key, {})
        (found,) = living.batch([op])
        return found


def run(expected: Expected, store: AnyStore, batch: Sequence[Op]) -> None:
    results = store.batch(batch)
    # Reads of a batch see what was there before it.
    for op, result in zip(batch, results, strict=True):
        if isinstance(op, GetOp):
            check_item(result, expected.store.get(op.namespace, op.key))
        elif isinstance(op, SearchOp):
            check_search(expected, op, result)
        elif isinstance(op, ListNamespacesOp):
            assert result == expected.list(op), op
        else:
            assert result is None
    for op in {(op.namespace, op.key): op for op in batch if isinstance(op, PutOp)}.values():
        expected.put(op)


def check_item(item: Any, wanted: Item | None) -> None:
    assert (item is None) == (wanted is None)
    if wanted is not None:
        assert (item.namespace, item.key) == (wanted.namespace, wanted.key)
        # 1 == 1.0 == True, but what was put comes back as what it was.
        assert repr(item.value) == repr(wanted.value)


def check_search(expected: Expected, op: SearchOp, found: Any) -> None:
    wanted = expected.search(op)
    if wanted is None:
        return
    page = wanted[op.offset : op.offset + op.limit]
    by_place = {(item.namespace, item.key): item for item in wanted}
    assert len(found) == len(page), op
    assert len({(item.namespace, item.key) for item in found}) == len(found)
    for item, here in zip(found, page, strict=True):
        check_item(item, by_place[item.namespace, item.key])
        assert type(item) is SearchItem
        if here.score is None:
            assert item.score is None
            assert (item.namespace, item.key) == (here.namespace, here.key), op
        else:  # items of one score come in any order
            assert item.score == pytest.approx(here.score, abs=1e-5), op
            assert item.score == pytest.approx(by_place[item.namespace, item.key].score, abs=1e-5)


SOME = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


def letters(texts: Sequence[str]) -> list[list[float]]:
    """For InMemoryStore: what Letters gives."""
    return [row.tolist() for row in Letters().embed(texts)]


@SOME
@given(batches=BATCHES)
def test_with_vectors(stores: Stores, batches: list[list[Op]]) -> None:
    fields = ["text", "more[*]"]
    expected = Expected({"embed": letters, "dims": 26, "fields": fields})
    with stores.open(
        principal=f"p{next(_principals)}",
        index={"embed": Letters(), "fields": fields},
        settings=Store(numbers=["n", "m.n"], page_items_max=3),
    ) as store:
        for batch in batches:
            run(expected, store, batch)


@SOME
@given(batches=BATCHES)
def test_without_vectors(stores: Stores, batches: list[list[Op]]) -> None:
    expected = Expected(None)
    with stores.open(principal=f"p{next(_principals)}") as store:
        for batch in batches:
            run(expected, store, batch)
