"""ranking="hybrid": words and meaning, fused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from langgraph.store.base import PutOp

from rtmem.errors import ConfigError
from rtmem.settings import Retrieval, Store
from tests.embedders import Letters
from tests.store.colours import AnyStore, Meter, Stores

NS = ("users", "ann")
TEXTS = {
    "cat": "The cat sleeps on the windowsill",
    "flight": "Flight LH-4417 leaves at noon",
    "dog": "My dogs are barking at the postman",
    "russian": "Мария переехала в Осло",
}
WORDS = ["cat", "dog", "zebra", "bread", "act", "god", "tac", "beard", "bared", "brat", "bat", "tab", "abet", "beat"]


@pytest.fixture
def hybrid(stores: Stores) -> Iterator[AnyStore]:
    with stores.open(index={"embed": Letters(), "fields": ["text"]}, ranking="hybrid") as store:
        store.batch([PutOp(NS, key, {"text": text, "n": n}) for n, (key, text) in enumerate(TEXTS.items())])
        store.put(("users", "bob"), "other", {"text": "cat flight dog"})
        yield store


@pytest.mark.parametrize(
    ("query", "key"),
    [("4417", "flight"), ("does any dog bark?", "dog"), ("переехать в осло", "russian"), ("windowsills", "cat")],
)
def test_a_word_is_found_in_another_form_of_it(hybrid: AnyStore, query: str, key: str) -> None:
    found = hybrid.search(NS, query=query)
    assert found[0].key == key
    assert {item.key for item in found} == set(TEXTS)
    assert found[0].score == pytest.approx(1.0)


def test_hybrid_search_is_one_round_trip_and_pages_do_not_repeat(hybrid: AnyStore) -> None:
    hybrid.put(NS, "bare", {"n": 9})
    meter = Meter(hybrid)
    pages = [hybrid.search(NS, query="dog cat", limit=2, offset=offset) for offset in (0, 2)]
    assert meter.take() == 2
    pages.append(hybrid.search(NS, query="dog cat", limit=2, offset=4))
    assert meter.take() == 2  # what neither search finds
    keys = [item.key for page in pages for item in page]
    assert sorted(keys) == sorted([*TEXTS, "bare"])
    assert keys[-1] == "bare"
    assert pages[2][0].score is None


@pytest.mark.parametrize("wanted", [None, {"n": {"$gte": 9}}], ids=["all", "a filter that is decided here"])
@pytest.mark.parametrize("settings", [Store(), Store(thread="thread", position="n")], ids=["apart", "in a thread"])
def test_pages_of_any_size_are_pieces_of_one_ranking(stores: Stores, settings: Store, wanted: dict[str, Any]) -> None:
    """Also where they reach far beyond the window."""
    source = random.Random(7)
    options = {"ranking": "hybrid", "settings": settings, "retrieval": Retrieval(window=6)}
    with stores.open(index={"embed": Letters(), "fields": ["text"]}, **options) as store:
        values = [{"text": " ".join(source.choices(WORDS, k=5)), "thread": "t", "n": n} for n in range(70)]
        store.batch([PutOp(NS, f"{n}", value) for n, value in enumerate(values)])
        store.put(NS, "bare", {"n": 70, "thread": "t"})
        whole = store.search(NS, query="cat bread", filter=wanted, limit=100)
        assert len(whole) == len({item.key for item in whole}) == (71 if wanted is None else 62)
        assert whole[-1].key == "bare"
        scores = [item.score for item in whole if item.score is not None]
        assert scores == sorted(scores, reverse=True)
        for size in (3, 13):
            pages = [
                store.search(NS, query="cat bread", filter=wanted, limit=size, offset=offset)
                for offset in range(0, len(whole) + 1, size)
            ]
            assert [item.key for page in pages for item in page] == [item.key for item in whole], size


@pytest.mark.parametrize("fusion", ["linear", "rrf"])
@pytest.mark.parametrize("vector_weight", [0.0, 0.4, 1.0])
def test_the_best_are_the_best_of_all_that_both_searches_found(
    stores: Stores, fusion: Literal["linear", "rrf"], vector_weight: float
) -> None:
    source = random.Random(5)
    retrieval = Retrieval(fusion=fusion, vector_weight=vector_weight, window=20)
    options = {"index": {"embed": Letters(), "fields": ["parts[*]"]}, "ranking": "hybrid", "retrieval": retrieval}
    with stores.open(**options) as store:
        parts = [[" ".join(source.choices(WORDS, k=5)) for _ in range(source.randint(1, 3))] for _ in range(60)]
        store.batch([PutOp(NS, f"{n}", {"parts": texts}) for n, texts in enumerate(parts)])
        meter = Meter(store)
        for query in ("cat", "dog bread", "zebra bread", "nothing", "cat dog zebra"):
            # A whole window is ranked with all rows before it; of less, only those that may be among it are brought.
            whole = [(item.key, item.score) for item in store.search(NS, query=query, limit=20)]
            assert len(whole) == 20
            for limit in (1, 3, 10, 19):
                meter.take()
                best = [(item.key, item.score) for item in store.search(NS, query=query, limit=limit)]
                assert best == whole[:limit], (query, limit)
                if vector_weight == 0.4 and best[-1][1] is not None:  # no weight leaves ties; without a score: more
                    assert meter.take() == 1, (query, limit)


def test_filters_hold_in_hybrid_search_too(hybrid: AnyStore) -> None:
    for wanted in ({"n": {"$in": [0, 2]}}, {"n": {"$lt": 3, "$ne": 1}}):
        assert {item.key for item in hybrid.search(NS, query="cat", filter=wanted)} == {"cat", "dog"}
    assert [item.key for item in hybrid.search(("users", "bob"), query="cat")] == ["other"]


def test_words_find_what_has_no_vector(stores: Stores) -> None:
    letters = Letters()
    with stores.open(index={"embed": letters, "fields": ["text"]}, ranking="hybrid") as store:
        letters.broken = True
        store.put(NS, "key", {"text": TEXTS["dog"]})
        assert store.search(NS, query="barking")[0].score == pytest.approx(1.0)
    with stores.open(ranking="hybrid", principal="no embedder") as store:
        store.put(NS, "key", {"text": TEXTS["dog"]})
        assert store.search(NS, query="barks")[0].score == pytest.approx(1.0)
        assert store.search(NS, query="?!")[0].score is None


@pytest.mark.parametrize(
    "query", ["will|such|cat", "@scope:{*}", "*", "a) | (b", "\\", "🧠", "\0", "the of and", "x" * 9_999]
)
def test_a_question_is_no_syntax(hybrid: AnyStore, query: str) -> None:
    assert {item.key for item in hybrid.search(NS, query=query)} == set(TEXTS)
    assert {item.key for item in hybrid.search((), query=query, limit=3)} <= {*TEXTS, "other"}


def test_a_search_begins_ttls_anew(stores: Stores, hybrid: AnyStore) -> None:
    hybrid.put(NS, "short", {"text": "zebra"}, ttl=10)
    (name,) = [key for key in stores.client.keys("rtmem:m:*") if stores.client.pttl(key) > 0]
    stores.client.pexpire(name, 1_000)
    assert hybrid.search(NS, query="zebra", limit=1, refresh_ttl=False)[0].key == "short"
    assert stores.client.pttl(name) <= 1_000
    assert hybrid.search(NS, query="zebra", limit=1)[0].key == "short"
    assert stores.client.pttl(name) > 1_000


def test_a_ranking_is_one_of_two(stores: Stores) -> None:
    with pytest.raises(ConfigError, match="hybrid"), stores.open(ranking="magic"):
        pass


def test_items_that_stand_together_lift_each_other_where_the_settings_say_how(stores: Stores) -> None:
    said = [
        ("before", "no word of it", "t", 4),
        ("hit", "zebra zebra", "t", 5),
        ("far", "no word of it", "t", 9),
        ("elsewhere", "no word of it", "u", 5),
        ("untold", "no word of it", None, 6),
    ]
    ops = [PutOp(NS, key, {"text": text, "at": {"thread": t, "place": n}}) for key, text, t, n in said]
    options = {"index": {"embed": Letters(), "fields": ["text"]}, "ranking": "hybrid"}
    told = Store(thread="at.thread", position="at.place")
    with stores.open(**options) as plain, stores.open(settings=told, **options) as lifting:
        plain.batch(ops)
        scores = [{item.key: item.score for item in each.search(NS, query="zebra")} for each in (plain, lifting)]
    equal = ["before", "far", "elsewhere", "untold"]  # but for their places
    assert len({scores[0][key] for key in equal}) == 1
    assert len({scores[1][key] for key in equal[1:]}) == 1
    assert scores[1]["before"] > scores[1]["far"]
