"""Search where InMemoryStore is no measure: several vectors, filters of our own, failures."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
import pytest
from langgraph.store.base import PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from numpy.typing import NDArray

from rtmem.errors import EmbedderMismatchError, EmbeddingError, InvalidRequestError, QueryError
from rtmem.settings import Store
from rtmem.steps import TextKind
from tests.embedders import Letters
from tests.store.colours import AnyStore, Stores

NS = ("users", "ann")


def test_an_item_is_found_by_the_nearest_of_its_vectors_and_once(stores: Stores) -> None:
    with stores.open(index={"embed": Letters(), "fields": ["parts[*]"]}) as store:
        store.put(NS, "many", {"parts": [f"{letter}{letter}z" for letter in "abcdefghijkl"]})
        store.put(NS, "one", {"parts": ["aaab"]})
        store.put(NS, "none", {"parts": []})
        found = store.search(NS, query="aa", limit=3)
        assert [item.key for item in found] == ["one", "many", "none"]
        assert found[1].score == pytest.approx(2 / math.sqrt(5), abs=1e-6)
        # Twelve documents of one item in front of another's.
        store.put(NS, "far", {"parts": ["az"]})
        assert [item.key for item in store.search(NS, query="z", limit=2)] == ["far", "many"]
        assert [item.key for item in store.search(NS, query="zzzz", limit=3)][:2] == ["far", "many"]
        assert [item.key for item in store.search(NS, query="zzzz", limit=1, offset=2)] == ["one"]


def test_an_update_leaves_no_stale_vector(stores: Stores) -> None:
    """InMemoryStore keeps the vectors of paths that a new value lacks."""
    index = {"embed": Letters(), "fields": ["parts[*]"]}
    with stores.open(index=index) as store:
        store.put(NS, "key", {"parts": ["aaa", "bbb", "ccc"]})
        store.put(NS, "key", {"parts": ["ddd"]})
        (found,) = store.search(NS, query="ccc")
        assert found.score == pytest.approx(0, abs=1e-6)
        store.put(NS, "key", {"parts": ["eee", "fff"]}, index=False)
        (found,) = store.search(NS, query="eee")
        assert found.score is None
        assert len(stores.client.keys("rtmem:m:*")) == 1


def test_the_dollar_is_the_whole_value_wherever_it_stands(stores: Stores) -> None:
    """InMemoryStore knows it in its own fields, and not in those of a put."""
    with stores.open(index={"embed": Letters(), "fields": ["text"]}) as store:
        store.put(NS, "key", {"other": "zzz"}, index=["$"])
        (found,) = store.search(NS, query="zzz")
        assert found.score is not None
        assert found.score > 0.5


def test_pages_fit_together_where_many_items_are_equally_near(store: AnyStore) -> None:
    """Of those that are as near as its last, the engine brings any, and others for every length of a page."""
    store.batch([PutOp(NS, f"{n}", {"text": ["a", "ab", "abc"][n % 3]}) for n in range(60)])
    store.put(NS, "bare", {"text": "a"}, index=False)
    for size in (4, 10, 25):
        pages = [store.search(NS, query="a", limit=size, offset=offset) for offset in range(0, 62, size)]
        keys = [item.key for page in pages for item in page]
        assert sorted(keys) == sorted([*map(str, range(60)), "bare"]), size
        assert [len(page) for page in pages[:-1]] == [size] * (len(pages) - 1)
        assert keys[-1] == "bare"


def test_items_without_a_vector_come_last_and_pages_do_not_repeat_them(store: AnyStore) -> None:
    """InMemoryStore brings them again on each page."""
    for n in range(3):
        store.put(NS, f"text {n}", {"text": "abc"[: n + 1]})
        store.put(NS, f"bare {n}", {"n": n})
    pages = [store.search(NS, query="a", limit=2, offset=offset) for offset in range(0, 8, 2)]
    assert [item.key for page in pages for item in page] == [
        *("text 0", "text 1", "text 2"),
        *("bare 0", "bare 1", "bare 2"),
    ]
    assert [item.score is None for page in pages for item in page] == [False] * 3 + [True] * 3


def test_a_range_does_not_match_what_is_no_number(stores: Stores) -> None:
    """InMemoryStore raises."""
    for numbers in ([], ["n"]):
        with stores.open(settings=Store(numbers=numbers), principal=str(numbers)) as store:
            values = [{"n": 1}, {"n": "2"}, {"n": "two"}, {"n": None}, {}, {"n": [3]}, {"n": 10**400}, {"n": 1e308}]
            for k, value in enumerate(values[:6]):
                store.put(NS, f"{k}", value)
            store.put(NS, "6", values[7])
            assert [item.key for item in store.search(NS, filter={"n": {"$gte": 1}})] == ["0", "1", "6"]
            assert [item.key for item in store.search(NS, filter={"n": {"$lt": "2"}})] == ["0"]
            assert store.search(NS, filter={"n": {"$gt": "no number"}}) == []
            assert store.search(NS, filter={"n": {"$gt": float("nan")}}) == []
            assert store.search(NS, filter={"n": {"$gt": 10**400}}) == []


def test_not_equal_inside_of_a_mapping_asks_that_there_be_one(store: AnyStore) -> None:
    for key, value in {"a": {}, "b": {"m": 1}, "c": {"m": {}}, "d": {"m": {"n": 5}}, "e": {"m": {"n": 6}}}.items():
        store.put(NS, key, value)
    wanted = {"m": {"n": {"$ne": 5}}}
    assert [item.key for item in store.search(NS, filter=wanted)] == ["c", "e"]
    assert [item.key for item in store.search(NS, filter=wanted, offset=1)] == ["e"]


def test_in_is_a_membership(store: AnyStore) -> None:
    """InMemoryStore has no $in."""
    for key, value in {"a": 1, "b": "x", "c": None, "d": [1]}.items():
        store.put(NS, key, {"v": value})
    for choices, keys in (
        ([1, "x"], ["a", "b"]),
        ([1.0], ["a"]),
        ([None], ["c"]),
        ([[1], "x"], ["b", "d"]),
        ([], []),
        (["y" * 500, "x"], ["b"]),
    ):
        assert [item.key for item in store.search(NS, filter={"v": {"$in": choices}})] == keys, choices


def test_what_cannot_be_asked_is_refused(store: AnyStore) -> None:
    store.put(NS, "key", {"n": 1})
    for wanted in ({"n": {"$near": 1}}, {"n": {"m": {"$or": []}}}):
        with pytest.raises(QueryError, match="no operator"):
            store.search(NS, filter=wanted)
    deep: dict[str, object] = {}
    for _ in range(2_000):
        deep = {"n": deep}
    with pytest.raises(QueryError, match="mappings"):
        store.search(NS, filter=deep)
    for options in ({"limit": -1}, {"offset": -1}, {"limit": 1.5}, {"limit": None}):
        with pytest.raises(QueryError):
            store.search(NS, query="a", **options)  # type: ignore[arg-type]
    for unusable in ({"n": {"$in": 5}}, {"n": {"$in": "abc"}}, {"n": {"m": {"$in": None}}}, [("n", 1)], "n"):
        with pytest.raises(QueryError, match="filter"):
            store.search(NS, filter=unusable)  # type: ignore[arg-type]
    for query in (5, b"a", ["a"]):
        with pytest.raises(QueryError, match="query is a"):
            store.search(NS, query=query)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="max_depth"):
        store.list_namespaces(max_depth="1")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="index"):
        store.put(NS, "key", {"n": 1}, index="text")  # type: ignore[arg-type]


def test_a_limit_has_no_hidden_cap(stores: Stores) -> None:
    with stores.open(index={"embed": Letters(), "fields": ["text"]}) as store:
        store.batch([PutOp(("ns", f"{n % 150}"), f"{n}", {"text": "abc", "n": n, "l": [n]}) for n in range(1_200)])
        assert [item.value["n"] for item in store.search((), limit=5_000)] == list(range(1_200))
        assert len(store.search((), query="abc", limit=5_000)) == 1_200
        assert len(store.search((), limit=5_000, filter={"l": {"$ne": [7]}})) == 1_199
        assert [item.value["n"] for item in store.search((), limit=7, offset=1_197)] == [1_197, 1_198, 1_199]
        assert len(store.list_namespaces(limit=5_000)) == 150
        assert len(store.list_namespaces()) == 100


def test_where_the_embedder_fails_an_item_is_stored_and_embedded_later(stores: Stores) -> None:
    letters = Letters()
    with stores.open(index={"embed": letters, "fields": ["text", "parts[*]"]}) as store:
        letters.broken = True
        store.put(NS, "key", {"text": "abc", "parts": ["xx", "yy"]}, ttl=60)
        store.put(NS, "own", {"other": "zzz", "text": "abc"}, index=["other"])
        store.put(NS, "changed", {"text": "q"})
        item = store.get(NS, "key")
        assert item is not None
        with pytest.raises(EmbeddingError):
            store.search(NS, query="abc")
        with pytest.raises(EmbeddingError):
            stores.call(store, "reembed")
        letters.broken = False
        assert [found.score for found in store.search(NS, query="abc")] == [None] * 3
        store.put(NS, "changed", {"text": "new"})
        assert stores.call(store, "reembed") == 2
        assert stores.call(store, "reembed") == 0
        assert store.search(NS, query="yyy", limit=1)[0].key == "key"
        assert store.search(NS, query="z", limit=1)[0].key == "own"
        assert all(found.score is not None for found in store.search(NS, query="abc"))
        assert store.get(NS, "key") == item
        assert all(stores.client.pttl(name) > 0 for name in stores.client.keys("rtmem:m:*:*"))
        store.delete(NS, "key")
        assert stores.client.keys("rtmem:m:*:*") == []


def test_a_text_that_cannot_be_embedded_hinders_no_other(stores: Stores) -> None:
    class Picky(Letters):
        def embed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
            if any("bad" in text for text in texts):
                raise ValueError("bad text")
            return super().embed(texts, what)

    with stores.open(index={"embed": Picky(), "fields": ["text"]}) as store:
        for batch in range(
            3
        ):  # more than go to the embedder at once; the oldest are among those that cannot be embedded
            store.batch([PutOp(NS, f"{batch}-{n}", {"text": "bad" if n < 3 else "abc"}) for n in range(30)])
        assert [item.score for item in store.search(NS, query="abc", limit=90)] == [None] * 90
        assert stores.call(store, "reembed") == 81
        assert sum(item.score is None for item in store.search(NS, query="abc", limit=90)) == 9
        with pytest.raises(EmbeddingError, match="bad text"):
            stores.call(store, "reembed")


def test_vectors_of_two_embedders_are_never_mixed(stores: Stores) -> None:
    with stores.open(index={"embed": Letters(), "fields": ["text"]}) as store:
        store.put(NS, "key", {"text": "abc"})
    for other in (Letters(dims=13), Letters(name="others")):
        with stores.open(index={"embed": other, "fields": ["text"]}) as store:
            for refused in (
                lambda: store.put(NS, "key", {"text": "abc"}),
                lambda: store.search(NS, query="abc"),
                lambda: stores.call(store, "setup"),
            ):
                with pytest.raises(EmbedderMismatchError, match="reindex"):
                    refused()
            item = store.get(NS, "key")
            assert item is not None
            assert item.value == {"text": "abc"}
    # Under a prefix of its own another one has a memory of its own.
    with stores.open(index={"embed": Letters(dims=13), "fields": ["text"]}, settings=Store(prefix="other")) as store:
        store.put(NS, "elsewhere", {"text": "abc"})
        assert [item.key for item in store.search(NS, query="abc")] == ["elsewhere"]
    # A store without an embedder reads and writes all the same.
    with stores.open() as store:
        store.put(NS, "bare", {"text": "bcd"})
        assert len(store.search(NS, query="ignored")) == 2
    with stores.open(index={"embed": Letters(), "fields": ["text"]}) as store:
        assert [item.key for item in store.search(NS, query="bcd")] == ["key", "bare"]


def test_a_store_with_an_embedder_can_follow_one_without(stores: Stores) -> None:
    with stores.open() as store:
        store.put(NS, "bare", {"text": "abc", "price": 5})
    with stores.open(
        index={"embed": Letters(), "fields": ["text"]}, settings=Store(numbers=["price"], vectors="hnsw")
    ) as store:
        store.put(NS, "key", {"text": "abc", "price": 7})
        assert [item.key for item in store.search(NS, query="abc")] == ["key", "bare"]
    info = stores.client.execute_command("FT.INFO", "rtmem:memory")
    assert b"HNSW" in repr(info).encode()


def test_langchain_functions_and_objects_are_embedders(stores: Stores) -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        return [row.tolist() for row in Letters().embed(texts)]

    model = InMemoryStore(index={"embed": embed, "dims": 26})
    with stores.open(index={"embed": embed, "dims": 26}) as store:
        for each in (model, store):
            each.put(NS, "a", {"text": "abc"})
            each.put(NS, "b", {"text": "xyz"})
        found, wanted = store.search(NS, query="xyz"), model.search(NS, query="xyz")
        assert [item.key for item in found] == [item.key for item in wanted]
        assert [item.score for item in found] == pytest.approx([item.score for item in wanted], abs=1e-6)


def wait_until_found(store: AnyStore, key: str) -> None:
    """What a store without vectors wrote before anybody missed the index is read in the background."""
    deadline = time.monotonic() + 30
    while not (found := store.search(NS, query="abc")) or not found.index_ready:  # type: ignore[attr-defined]
        assert time.monotonic() < deadline
    assert key in [item.key for item in found]


def test_an_index_that_was_flushed_is_made_again(stores: Stores) -> None:
    with stores.open(index={"embed": Letters(), "fields": ["text"]}) as store, stores.open() as plain:
        for kind in (store, plain):
            for flush in (stores.client.flushall, lambda: stores.client.function_flush()):
                kind.put(NS, "before", {"text": "abc"})
                flush()
                kind.put(NS, "after", {"text": "abc"})
                wait_until_found(kind, "after")
                stores.client.flushall()
                assert kind.search(NS, query="abc") == []
                assert kind.list_namespaces() == []
                stores.client.flushall()
                assert kind.list_namespaces() == []
                stores.client.flushall()
                ops = [SearchOp(NS), SearchOp(("x",), query="abc"), PutOp(NS, "key", {"text": "abc"})]
                assert kind.batch(ops) == [[], [], None]
                assert [item.key for item in kind.search(NS)] == ["key"]


def test_an_index_that_is_still_being_read_is_not_called_whole(stores: Stores) -> None:
    with stores.open() as store:
        store.batch([PutOp(NS, f"{n}", {"n": n}) for n in range(2_000)])
        for name in stores.client.execute_command("FT._LIST"):
            stores.client.execute_command("FT.DROPINDEX", name)
        deadline = time.monotonic() + 60
        while True:
            found = store.search(NS, limit=5_000)
            if found.index_ready:  # type: ignore[attr-defined]
                break
            assert time.monotonic() < deadline
        assert len(found) == 2_000


def test_a_search_says_whether_the_index_is_whole(store: AnyStore) -> None:
    store.put(NS, "key", {"text": "abc"})
    wait_until_found(store, "key")
    assert store.index_ready
