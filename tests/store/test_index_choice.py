"""Flat while it is small, a graph where one owner has much; never back by itself, never against somebody else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis

from rtmem.memory import Memory
from rtmem.operations.index_choice import Choice, choose
from rtmem.operations.memory_state import look
from rtmem.operations.reindex import Reindex
from rtmem.settings import Store
from rtmem.store import RedisStore
from tests.embedders import Letters
from tests.store.test_reindex import reindex_of, run

NS = ("n",)
MOST = 20


def opened(url: str, **options: Any) -> RedisStore:
    given = Store(**{"flat_items_max": MOST, **options})
    return RedisStore(url, index={"embed": Letters(), "fields": ["texts[*]"]}, settings=given, principal="ann")  # type: ignore[typeddict-item]


@pytest.fixture
def store(redis_url: str, redis_client: redis.Redis) -> Iterator[RedisStore]:
    with opened(redis_url) as store:
        yield store


def fill(store: RedisStore, count: int, first: int = 0) -> None:
    for n in range(first, first + count):
        store.put((f"{n % 3}",), f"k{n}", {"texts": [f"{chr(97 + n % 26)}{n}"]})


def choice_of(store: RedisStore) -> Choice:
    index = store.scope.index
    return store.run(choose(index, store.run(look(index))))


def test_many_owners_of_few_are_searched_exactly_and_one_of_many_is_not(
    store: RedisStore, redis_client: redis.Redis
) -> None:
    for n in range(500):
        redis_client.hset(f"rtmem:other:{n}", "scope", "not of memory")
    for owner in "abcde":
        fill(store.bind(owner), MOST)
    small = choice_of(store)
    assert (small.algorithm, small.fix) == ("flat", "")
    assert "nobody has more than 20 of the 100 documents" in small.why
    assert run(store, reindex_of(store)).finished
    assert store.run(look(store.scope.index)).algorithm == "flat"
    fill(store.bind("c"), 1, MOST)
    large = choice_of(store)
    assert (large.algorithm, large.short_bytes) == ("hnsw", 0)
    assert large.why.startswith("flat, and 21 documents are of one owner")
    assert run(store, reindex_of(store)).finished
    assert store.run(look(store.scope.index)).algorithm == "hnsw"
    assert {item.key for item in store.bind("c").search((), query="b", limit=1)} == {"k1"}


def test_each_vector_counts_and_what_has_none_does_not(store: RedisStore) -> None:
    for n in range(MOST + 5):
        store.put(NS, f"bare{n}", {"texts": ["a"]}, index=False)
    store.put(NS, "many", {"texts": [f"{chr(97 + n)}" for n in range(MOST)]})
    assert choice_of(store).algorithm == "flat"
    store.put(NS, "one more", {"texts": ["z"]})
    assert choice_of(store).algorithm == "hnsw"


def test_a_team_is_an_owner_too(redis_url: str, redis_client: redis.Redis) -> None:
    from rtmem.memory import Principal

    given = Store(flat_items_max=MOST)
    crew = Principal(user="ann", teams=("crew",))
    with Memory(redis_url, principal=crew, embedder=Letters(), store=given) as memory:
        for n in range(MOST):
            memory.write(f"fact {n}", to="team:crew")
            memory.write(f"my fact {n}")
        index = memory.scope.index
        assert memory.run(choose(index, memory.run(look(index)))).algorithm == "flat"
        memory.bind(crew).write("one more fact", to="team:crew")
        assert memory.run(choose(index, memory.run(look(index)))).algorithm == "hnsw"


def test_a_graph_stays_one_when_memory_shrinks(store: RedisStore) -> None:
    fill(store, MOST + 1)
    run(store, reindex_of(store))
    for item in store.search((), limit=MOST):
        store.delete(item.namespace, item.key)
    assert choice_of(store).algorithm == "hnsw"
    run(store, reindex_of(store))
    assert store.run(look(store.scope.index)).algorithm == "hnsw"
    run(store, reindex_of(store, algorithm="flat"))
    assert store.run(look(store.scope.index)).algorithm == "flat"


def test_where_redis_has_no_room_for_both_it_stays_flat_and_says_what_is_missing(store: RedisStore) -> None:
    fill(store, MOST + 1)
    index = store.scope.index
    state = store.run(look(index))
    assert state.index is not None
    huge = replace(state, index=replace(state.index, vector_bytes=1 << 50))
    found = store.run(choose(index, huge))
    assert found.algorithm == "flat"
    assert found.short_bytes > 1 << 50
    assert "no room" in found.why
    assert "MB more" in found.fix


def test_what_settings_say_outright_is_done_and_told(redis_url: str, store: RedisStore) -> None:
    fill(store, MOST + 1)
    with opened(redis_url, vectors="flat") as flat, opened(redis_url, vectors="hnsw") as graph:
        kept = choice_of(flat)
        assert (kept.algorithm, '"auto"' in kept.fix) == ("flat", True)
        wanted = choice_of(graph)
        assert (wanted.algorithm, wanted.fix) == ("hnsw", "`rtmem memory reindex`, or change the setting")
        run(graph, reindex_of(graph))
        assert graph.run(look(graph.scope.index)).algorithm == "hnsw"
        assert choice_of(graph) == Choice("hnsw", 'vectors = "hnsw" in [store]')


def test_a_change_that_is_under_way_is_gone_on_with_whatever_the_size_is_by_then(store: RedisStore) -> None:
    fill(store, MOST + 1)
    begun = reindex_of(store)
    store.run(begun.advance())
    for item in store.search((), limit=MOST):
        store.delete(item.namespace, item.key)
    assert choice_of(store) == Choice("hnsw", "a reindex to it is under way")
    run(store, reindex_of(store))
    assert store.run(look(store.scope.index)).algorithm == "hnsw"


def made_by(store: RedisStore) -> list[object]:
    """What a reindex has made so far."""
    state = store.run(look(store.scope.index))
    return [state.name, state.fingerprint, state.next_fingerprint, state.next_index is None, state.has_leftovers]


@pytest.mark.parametrize("other", ["embedder", "algorithm", "leftovers"])
def test_one_that_yields_leaves_another_reindex_alone(redis_url: str, store: RedisStore, other: str) -> None:
    fill(store, MOST + 1)
    scope = store.scope
    new = RedisStore(
        redis_url,
        index={"embed": Letters(name="new", dims=30), "fields": ["texts[*]"]},  # type: ignore[typeddict-item]
        principal="ann",
    )
    if other == "algorithm":
        run(store, reindex_of(store, algorithm="hnsw"))
    work = reindex_of(store, algorithm="flat") if other == "algorithm" else reindex_of(new)
    with new:
        (store if other == "algorithm" else new).run(work.advance())
        if other == "leftovers":
            while new.run(work.advance()).phase != "tidying":
                pass
        before = made_by(new)
        given_way = Reindex(scope.index, scope.serde, algorithm="hnsw", yielding=True)
        assert store.run(given_way.advance()).finished
        assert made_by(new) == before
        run(store if other == "algorithm" else new, work)
