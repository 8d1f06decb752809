"""Whatever strings people and models make up: nothing breaks, and nobody sees what is not theirs."""

from __future__ import annotations

import os
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.store.base import SearchOp

from rtmem.errors import InvalidRequestError
from rtmem.operations import memory_queries
from rtmem.settings import Store
from tests.embedders import Letters
from tests.store.colours import AnyStore, Stores

EXAMPLES = int(os.environ.get("RTMEM_STORE_FUZZ", "25"))  # for each colour, of up to four items and forty questions
_numbers = count()

NASTY = [
    *(
        "a",
        "A",
        "a ",
        " a",
        "  ",
        "*",
        "a*",
        "|",
        "a|b",
        "{",
        "}",
        "{a}",
        "a:b",
        ":",
        ",",
        "-a",
        "@scope",
        "@scope:{a}",
    ),
    *("\\", "\\}", "\\u007d", '"', "'", "a'b", "%", "%2F", "/", "a/b", "//", "$", "$p", "(", ")", "[", "]", "~", "=>"),
    *(
        "\x1f",
        "a\x1fb",
        "\n",
        "\r\n",
        "\t",
        "🧠",
        "👩‍👩‍👧",
        "ё",
        "е\u0308",
        "İ",
        "ﬁ",
        "\u202e",
        "\ud800",
        "-@mark:{side}",
    ),
    *("a) | (@scope:*", "*=>[KNN 10 @vector $v]", "x" * 5_000, "will|such|cat", "the", "inf", "nan", "0", "None"),
]
LABEL = (st.sampled_from(NASTY) | st.text(min_size=1, max_size=8)).map(
    lambda text: text.replace(".", "_").replace("\0", "_")
)
LABELS = LABEL.filter(lambda label: label not in ("", "langgraph"))
NAMESPACE = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
TEXT = st.sampled_from([*NASTY, "\0", "a\0b", ""]) | st.text(max_size=12)
PRINCIPAL = st.sampled_from(["", "a", "A", "a/", "a%2F", "a ", "a/b", "{a}", "🧠", "*", "\\"])
SCALAR = TEXT | st.integers() | st.floats() | st.booleans() | st.none()
VALUE = st.dictionaries(
    TEXT, SCALAR | st.lists(SCALAR, max_size=2) | st.dictionaries(TEXT, SCALAR, max_size=2), max_size=3
)
OPERATORS = st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"])
FILTER = st.dictionaries(TEXT, SCALAR | st.dictionaries(OPERATORS, SCALAR, min_size=1, max_size=2), max_size=2)
LETTERS = Letters()
SOME = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


@SOME
@given(
    st.lists(st.tuples(PRINCIPAL, NAMESPACE, TEXT, VALUE), min_size=1, max_size=4, unique_by=lambda put: put[:3]),
    FILTER,
    TEXT,
)
def test_nothing_breaks_and_nothing_crosses(
    stores: Stores, puts: list[tuple[str, tuple[str, ...], str, dict[str, Any]]], wanted: dict[str, Any], query: str
) -> None:
    mine = f"{next(_numbers)}"  # other examples, and other words for the same principals
    with stores.open(index={"embed": LETTERS, "fields": ["$"]}, settings=Store(numbers=["n", "a"])) as store:
        there: list[tuple[str, tuple[str, ...], str]] = []
        for principal, namespace, key, value in puts:
            try:
                store.bind(principal + mine).put(namespace, key, {"id": repr((principal, namespace, key)), **value})
            except InvalidRequestError:
                continue  # what cannot be stored: an integer of more than 64 bits, half a character
            there.append((principal, namespace, key))
        for principal in {principal for principal, _, _, _ in puts}:
            bound = store.bind(principal + mine)
            own = [(namespace, key) for owner, namespace, key in there if owner == principal]
            check_keys(bound, puts, own)
            for prefix in {namespace[:n] for _, namespace, _, _ in puts for n in range(len(namespace) + 1)}:
                below = {place for place in own if place[0][: len(prefix)] == prefix}
                for found in (bound.search(prefix), bound.search(prefix, query=query)):
                    assert {(item.namespace, item.key) for item in found} == below
                for narrowed in (bound.search(prefix, filter=wanted), bound.search(prefix, query=query, filter=wanted)):
                    assert {(item.namespace, item.key) for item in narrowed} <= below
                if "*" not in prefix:  # which LangGraph makes a wildcard there, and nowhere else
                    assert bound.list_namespaces(prefix=prefix) == sorted({namespace for namespace, _ in below})
        check_deletes(store, mine, there)


def check_keys(bound: AnyStore, puts: list[Any], own: list[Any]) -> None:
    for _, namespace, key, _ in puts:
        item = bound.get(namespace, key)
        assert (item is not None) == ((namespace, key) in own)
        if item is not None:
            assert (item.namespace, item.key) == (namespace, key)
            (same,) = bound.search(namespace, filter={"id": item.value["id"]})
            assert same.value == item.value or repr(same.value) == repr(item.value)  # NaN


def check_deletes(store: AnyStore, mine: str, there: list[Any]) -> None:
    while there:
        principal, namespace, key = there.pop()
        store.bind(principal + mine).delete(namespace, key)
        left = [
            (owner, item.namespace, item.key)
            for owner in sorted({owner for owner, _, _ in there} | {principal})
            for item in store.bind(owner + mine).search(())
        ]
        assert sorted(left) == sorted(there)


def test_labels_keys_and_values_may_be_large(store: AnyStore) -> None:
    label, key = "ы" * 500_000, "k" * 1_000_000
    store.put((label, "x"), key, {"text": "abc " * 10_000, label: label})
    item = store.get((label, "x"), key)
    assert item is not None
    assert item.value[label] == label
    assert store.search((label,), query="abc", filter={label: label})[0].key == key
    assert store.search((label[:-1],)) == []
    assert store.list_namespaces() == [(label, "x")]


def test_a_namespace_of_many_labels_is_one(store: AnyStore) -> None:
    namespace = tuple(f"{n}" for n in range(2_000))
    store.put(namespace, "key", {"a": 1})
    for depth in (0, 1, 1_000, 2_000):
        assert len(store.search(namespace[:depth])) == 1
    assert store.search((*namespace, "more")) == []
    assert store.list_namespaces(max_depth=2) == [("0", "1")]


@pytest.mark.parametrize("prefix", [(), ("a",)])
def test_no_query_goes_without_a_scope(store: AnyStore, stores: Stores, prefix: tuple[str, ...]) -> None:
    store.bind("bob").put(("a",), "key", {"text": "abc"})
    for options in ({}, {"query": "abc"}, {"filter": {}}, {"filter": None}, {"filter": {"text": {"$ne": "x"}}}):
        assert store.search(prefix, **options) == []
    assert store.list_namespaces(prefix=prefix or None) == []
    assert store.batch([SearchOp(prefix, query="abc")]) == [[]]
    # Where a scope is missing, nothing is found rather than everything.
    query = memory_queries.in_order(store.scope.index, "@scope:{}", 10)
    with pytest.raises(Exception, match="Syntax error"):
        stores.run(
            store,
            memory_queries.find(
                store.scope.index, [query], skip=0, take=10, enough=10, refresh=False, with_vectors=False
            ),
        )
