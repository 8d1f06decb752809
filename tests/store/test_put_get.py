"""Items by their keys: what was put comes back, and nothing else."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from langgraph.store.base import GetOp, InvalidNamespaceError, PutOp

from rtmem.errors import IdTooLongError, InvalidRequestError, TooLargeError
from rtmem.settings import Store
from tests.embedders import Letters
from tests.store.colours import AnyStore, Stores

NS = ("users", "ann")


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"text": "plain"},
        {"n": 1, "f": 1.5, "t": True, "none": None, "list": [1, "a", {"b": []}], "map": {"deep": {"deeper": [None]}}},
        {"эмодзи": "🧠 \x00 \x1f | {} *", "": "", " padded ": " padded "},
        {"big": "x" * 300_000},
        {"number": 2**63 - 1, "small": -(2**63)},
        {str(n): n for n in range(5_000)},
    ],
    ids=["empty", "text", "json", "odd", "big", "64 bits", "many numbers"],
)
def test_what_was_put_comes_back(store: AnyStore, value: dict[str, Any]) -> None:
    before = datetime.now(UTC)
    store.put(NS, "key", value)
    item = store.get(NS, "key")
    assert item is not None
    assert (item.value, item.key, item.namespace) == (value, "key", NS)
    assert item.created_at == item.updated_at
    assert abs((item.created_at - before).total_seconds()) < 60
    assert [found.value for found in store.search(NS)] == [value]


def test_there_is_nothing_where_nothing_was_put(store: AnyStore) -> None:
    assert store.get(NS, "nothing") is None
    store.delete(NS, "nothing")
    store.put(NS, "key", {"a": 1})
    for namespace, key in (
        (("users",), "key"),
        (("users", "ann", "key"), "key"),
        (("Users", "ann"), "key"),
        (NS, "KEY"),
    ):
        assert store.get(namespace, key) is None


def test_an_update_keeps_when_an_item_was_made_and_leaves_nothing_of_the_old_value(
    stores: Stores, store: AnyStore
) -> None:
    store.put(NS, "key", {"text": "abc", "old": "x", "n": 1}, ttl=5)
    first = store.get(NS, "key")
    store.put(NS, "key", {"new": 2})
    second = store.get(NS, "key")
    assert first is not None
    assert second is not None
    assert second.value == {"new": 2}
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at
    (name,) = stores.client.keys("rtmem:m:*")
    fields = set(stores.client.hkeys(name))
    assert fields == {b"created", b"u", b"ns", b"k", b"v", b"scope", b"eq", b"n_new", b"mark"}
    assert stores.client.pttl(name) == -1
    assert store.search(NS, filter={"old": "x"}) == []
    assert [found.score for found in store.search(NS, query="abc")] == [None]


def test_a_deleted_item_is_gone_with_all_its_keys(stores: Stores, store: AnyStore) -> None:
    store.put(NS, "key", {"texts": ["abc", "def", "ghi"]}, index=["texts[*]"])
    assert len(stores.client.keys("rtmem:m:*")) == 3
    store.delete(NS, "key")
    assert store.get(NS, "key") is None
    assert stores.client.keys("rtmem:m:*") == []
    assert store.search(()) == [] == store.search((), query="abc")
    assert store.list_namespaces() == []


def test_concurrent_puts_of_one_key_leave_one_item(stores: Stores) -> None:
    with stores.open(index={"embed": Letters(), "fields": ["texts[*]"]}) as store:
        store.put(("n",), "other", {"texts": ["z"]})

        def put(n: int) -> None:
            for _ in range(5):
                store.put(("n",), "key", {"texts": [f"{letter}{n}" for letter in "abcdefgh"[: n + 1]], "n": n})

        threads = [threading.Thread(target=put, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        item = store.get(("n",), "key")
        assert item is not None
        found = [each for each in store.search(("n",), query="abcdefgh", limit=100) if each.key == "key"]
        assert [each.value for each in found] == [item.value]
        assert len(stores.client.keys("rtmem:m:*")) == 1 + item.value["n"] + 1


@pytest.mark.parametrize("index", [None, {"embed": Letters(), "fields": ["text"]}], ids=["plain", "embedding"])
def test_a_value_that_is_too_large_or_no_mapping_is_refused_before_anything_is_written(
    stores: Stores, index: Any
) -> None:
    with stores.open(settings=Store(value_bytes_max=1_000), index=index) as store:
        with pytest.raises(TooLargeError, match="at most 1000"):
            store.put(NS, "key", {"a": "x" * 2_000})
        with pytest.raises(InvalidRequestError, match="mappings"):
            store.put(NS, "key", ["a"])  # type: ignore[arg-type]
        deep: Any = {}
        for _ in range(5_000):
            deep = {"deeper": deep}
        with pytest.raises(InvalidRequestError):
            store.put(NS, "key", deep)
        with pytest.raises(InvalidRequestError, match="ttl"):
            store.put(NS, "key", {"a": 1}, ttl=-1)
        assert stores.client.keys("*:m:*") == []


def test_namespaces_that_langgraph_forbids_are_refused_in_batches_too(store: AnyStore) -> None:
    for namespace in ((), ("a.b",), ("",), ("langgraph", "x")):
        with pytest.raises(InvalidNamespaceError):
            store.put(namespace, "key", {"a": 1})
    for op in (PutOp(("a.b",), "key", {"a": 1}), GetOp(("",), "key"), PutOp(("a\0",), "key", None)):
        with pytest.raises(InvalidNamespaceError):
            store.batch([op])


def test_a_principal_is_an_id(stores: Stores) -> None:
    with stores.open() as store, pytest.raises(IdTooLongError):
        store.bind("p" * 600)


def test_puts_of_a_batch_are_what_they_are_one_by_one(stores: Stores) -> None:
    def op(n: int, parts: int) -> PutOp:
        value = {
            "parts": [f"text {n} {part}" for part in range(parts)],
            "n": n,
            "long": "x" * (70_000 if n == 4 else 9),
        }
        if n == 13:
            value |= {f"field {each}": each for each in range(3_000)}  # more than one HSET of Lua takes
        return PutOp(NS, f"{n}", None if n % 7 == 3 else value, index=False if n % 5 == 1 else None, ttl=n % 3 or None)

    rounds = [[op(n, n % 4) for n in range(30)], [op(n, (n + 1) % 3) for n in range(40)]]
    index = {"embed": Letters(), "fields": ["parts[*]"]}
    seen = []
    for principal in ("together", "apart"):
        with stores.open(index=index, principal=principal) as store:
            for ops in rounds:
                for part in [ops] if principal == "together" else [[each] for each in ops]:
                    store.batch(part)
            keys = [store.scope.keys.memory(principal, NS, f"{n}") for n in range(40)]
            seen.append(
                [
                    [(item.key, item.value) for item in store.search(NS, limit=100)],
                    [sorted(stores.client.hkeys(f"{key}{side}")) for key in keys for side in ("", ":1", ":2", ":3")],
                    [stores.client.pttl(key) > 0 for key in keys],
                    [(stores.client.hget(key, "u") or b"").split(b" ")[1:] for key in keys],
                ]
            )
    assert [key for key, _ in seen[0][0]] == [f"{n}" for n in range(40) if n % 7 != 3]
    assert seen[0] == seen[1]
