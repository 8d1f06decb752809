"""A new index beside the old one: nobody waits, nothing is missed, and what was broken off goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from rtmem.errors import EmbedderMismatchError, EmbeddingError, EmbeddingUnavailableError, RtmemError, StaleWriterError
from rtmem.memory import Memory
from rtmem.operations.memory_state import look
from rtmem.operations.reindex import Progress, Reindex
from rtmem.settings import Store
from rtmem.store import AsyncRedisStore, RedisStore
from tests.embedders import Letters

NS = ("n",)


@pytest.fixture
def client(redis_client: redis.Redis) -> redis.Redis:
    return redis_client


def store_of(url: str, embedder: Letters | None, **options: Any) -> RedisStore:
    index = None if embedder is None else {"embed": embedder, "fields": ["texts[*]"]}
    return RedisStore(url, index=index, principal="ann", **options)  # type: ignore[arg-type]


def run(store: RedisStore, reindex: Reindex, after: Callable[[Progress], object] = lambda _: None) -> Progress:
    """The whole of a reindex; `after` every step."""
    for _ in range(100_000):
        progress = store.run(reindex.advance())
        after(progress)
        if progress.finished:
            return progress
        threading.Event().wait(progress.wait_ms / 1000)
    raise AssertionError(f"it does not come to an end: {progress}")


def reindex_of(store: RedisStore, **options: Any) -> Reindex:
    return Reindex(store.scope.index, store.scope.serde, batch=8, **options)


def filled(url: str, embedder: Letters, count: int = 40) -> RedisStore:
    store = store_of(url, embedder)
    for n in range(count):
        store.put(
            NS, f"k{n}", {"texts": [f"{chr(97 + n % 26)} {n}", "zz"][: 1 + n % 2], "n": n}, ttl=60 if n % 3 else None
        )
    store.put(NS, "bare", {"texts": ["never embedded"]}, index=False)
    return store


def documents(client: redis.Redis) -> dict[bytes, dict[bytes, bytes]]:
    return {key: client.hgetall(key) for key in client.scan_iter("rtmem:m:*")}


def vector_fields(client: redis.Redis) -> set[bytes]:
    return {name for fields in documents(client).values() for name in fields if name.startswith(b"vector_")}


@pytest.fixture
def old(redis_url: str, client: redis.Redis) -> Iterator[RedisStore]:
    with filled(redis_url, Letters(name="old")) as store:
        yield store


@pytest.fixture
def new(redis_url: str, old: RedisStore) -> Iterator[RedisStore]:
    """The same memory with another embedder, which is refused until there was a reindex."""
    with store_of(redis_url, Letters(name="new", dims=30)) as store:
        yield store


def test_another_embedder_is_refused_before_and_finds_all_that_there_was_after(
    client: redis.Redis, old: RedisStore, new: RedisStore
) -> None:
    before = documents(client)
    for call in (lambda: new.search(NS, query="a"), lambda: new.put(NS, "x", {"texts": ["a"]})):
        with pytest.raises(EmbedderMismatchError, match="rtmem memory reindex"):
            call()
    done = run(new, reindex_of(new))
    assert (done.embedded, done.failed) == (40, 0)
    assert vector_fields(client) == {b"vector_new30"}
    assert {key: set(fields) for key, fields in documents(client).items()} == {
        key: {name.replace(b"vector_old26", b"vector_new30") for name in fields} for key, fields in before.items()
    }
    assert {item.value["n"] for item in new.search(NS, query="c", limit=2)} == {2, 28}
    assert {item.key for item in new.search(NS, query="zz", limit=99)} == {f"k{n}" for n in range(40)} | {"bare"}
    with pytest.raises(EmbedderMismatchError):
        old.search(NS, query="a")
    state = new.run(look(new.scope.index))
    assert (state.fingerprint, state.dims, state.has_leftovers, state.again) == ("new30", 30, False, 0)
    assert state.embedder == "new"
    assert client.execute_command("FT._LIST") == [b"rtmem:memory:2"]


def test_data_of_before_names_were_kept_are_told_by_their_fingerprint_alone(
    client: redis.Redis, old: RedisStore, new: RedisStore
) -> None:
    client.hdel("rtmem:memory", "name_old26")
    with pytest.raises(EmbedderMismatchError, match=r'of embedder old26, not of "new" \(new30\): to use what is there'):
        new.search(NS, query="a")
    assert old.run(look(old.scope.index)).embedder == ""


def test_what_expires_keeps_its_time_with_further_vectors(
    client: redis.Redis, old: RedisStore, new: RedisStore
) -> None:
    run(new, reindex_of(new))
    left = [client.pttl(key) for key, fields in documents(client).items() if fields.get(b"k", b"").startswith(b"k")]
    assert sum(ms == -1 for ms in left) == 14
    assert all(0 < ms <= 3_600_000 for ms in left if ms != -1)


def test_whoever_searches_meanwhile_misses_nothing_and_is_never_refused(redis_url: str, client: redis.Redis) -> None:
    """Of a change of the index: to the same embedder, so that searchers need not be restarted."""
    with filled(redis_url, Letters(name="old"), 200) as store, store_of(redis_url, Letters(name="old")) as other:
        problems: list[Any] = []
        searches: list[Any] = []
        stop = threading.Event()

        def search() -> None:
            while not stop.is_set():
                try:
                    found = {item.value["n"] for item in other.search(NS, query="c", limit=8)}
                    searches.append(found)
                    if found != set(range(2, 200, 26)):
                        problems.append(found)
                except RtmemError as exc:
                    problems.append(exc)

        thread = threading.Thread(target=search)
        thread.start()
        try:
            for algorithm in ("hnsw", "flat", "hnsw"):
                seen = len(searches)
                run(store, reindex_of(store, algorithm=algorithm))
                assert store.run(look(store.scope.index)).algorithm == algorithm
                while len(searches) < seen + 3 and not problems:
                    threading.Event().wait(0.01)
        finally:
            stop.set()
            thread.join()
        assert problems == []
        assert client.execute_command("FT._LIST") == [b"rtmem:memory:4"]


def test_whoever_searches_with_the_old_embedder_misses_nothing_until_it_is_refused(
    client: redis.Redis, old: RedisStore, new: RedisStore
) -> None:
    seen = []

    def search(progress: Progress) -> None:
        seen.append(progress.phase)
        if progress.phase in ("tidying", "done"):
            assert {item.value["n"] for item in new.search(NS, query="c", limit=2)} == {2, 28}
        else:
            assert {item.value["n"] for item in old.search(NS, query="c", limit=2)} == {2, 28}

    run(new, reindex_of(new), search)
    assert {"embedding", "catching up", "tidying", "done"} <= set(seen)


def test_what_the_old_embedder_writes_meanwhile_is_not_lost(
    client: redis.Redis, old: RedisStore, new: RedisStore
) -> None:
    written: list[int] = []

    def write(progress: Progress) -> None:
        if progress.phase in ("embedding", "catching up") and len(written) < 60:
            n = len(written)
            written.append(n)
            old.put(NS, f"k{n % 30}", {"texts": [f"{'jqjq' if n % 2 else 'jq'}{n}", "yy"], "n": n})
            old.put(NS, f"w{n}", {"texts": ["www"], "n": n})
            old.delete(NS, f"k{30 + n % 10}")

    run(new, reindex_of(new), write)
    assert written
    assert vector_fields(client) == {b"vector_new30"}
    for key, fields in documents(client).items():
        assert b"vector_new30" in fields or fields[b"mark"] == b"bare", key
    last = {n % 30: n for n in written}
    assert {item.key: item.value["n"] for item in new.search(NS, query="jq", limit=len(last))} == {
        f"k{key}": n for key, n in last.items()
    }


def test_a_reindex_that_was_killed_goes_on_and_embeds_nothing_twice(
    redis_url: str, client: redis.Redis, old: RedisStore, new: RedisStore
) -> None:
    embedder = Letters(name="new", dims=30)
    for steps in range(3, 40, 3):
        # Each is a process of its own, and is killed after some steps.
        with store_of(redis_url, embedder) as store:
            reindex = reindex_of(store)
            for _ in range(steps):
                if store.run(reindex.advance()).finished:
                    break
            else:
                continue
            break
    else:
        pytest.fail("it never came to an end")
    assert vector_fields(client) == {b"vector_new30"}
    assert len([text for texts in embedder.asked for text in texts if text != "zz"]) == 40
    assert len(new.search(NS, query="zz", limit=99)) == 41


def test_another_target_takes_its_place_and_leaves_nothing_of_it(
    redis_url: str, client: redis.Redis, old: RedisStore, new: RedisStore
) -> None:
    given_up = reindex_of(new)
    for _ in range(4):
        new.run(given_up.advance())
    assert vector_fields(client) == {b"vector_old26", b"vector_new30"}
    with store_of(redis_url, Letters(name="third", dims=5)) as third:
        run(third, reindex_of(third))
        with pytest.raises(StaleWriterError, match="replaced by another"):
            new.run(given_up.advance())
        assert vector_fields(client) == {b"vector_third5"}
        assert len(third.search(NS, query="zz", limit=99)) == 41
    assert client.execute_command("FT._LIST") == [b"rtmem:memory:2"]


def test_back_to_the_embedder_there_is_gives_a_reindex_up(
    client: redis.Redis, old: RedisStore, new: RedisStore
) -> None:
    reindex = reindex_of(new)
    for _ in range(4):
        new.run(reindex.advance())
    run(old, reindex_of(old))
    assert vector_fields(client) == {b"vector_old26"}
    assert client.execute_command("FT._LIST") == [b"rtmem:memory:1"]
    assert len(old.search(NS, query="zz", limit=99)) == 41


def test_a_failing_embedder_stops_it_and_a_text_it_cannot_embed_does_not(
    redis_url: str, client: redis.Redis, old: RedisStore
) -> None:
    class Choosy(Letters):
        away = True

        def embed(self, texts: Any, what: Any = "document") -> Any:
            if self.away:
                raise EmbeddingUnavailableError("away: this is a test")
            if any("5" in text for text in texts):
                raise EmbeddingError("no fives: this is a test")
            return super().embed(texts, what)

    embedder = Choosy(name="choosy")
    with store_of(redis_url, embedder) as store:
        reindex = reindex_of(store)
        with pytest.raises(EmbeddingUnavailableError):
            run(store, reindex)
        embedder.away = False
        done = run(store, reindex)
        assert (done.embedded, done.failed) == (36, 4)
        assert {item.key for item in store.search(NS, query="zz", limit=99)} == {f"k{n}" for n in range(40)} | {"bare"}
        marked = [
            fields[b"k"] for fields in documents(client).values() if fields.get(b"mark", b"").endswith(b"unembedded")
        ]
        assert sorted(marked) == [b"k15", b"k25", b"k35", b"k5"]


def test_facts_and_what_was_never_embedded_get_vectors_too(redis_url: str, client: redis.Redis) -> None:
    broken = Letters(name="old", broken=True)
    with Memory(redis_url, principal="ann", embedder=broken) as memory:
        memory.write("Ann lives in Rome.", subject="Ann", predicate="lives in", object="Rome")
    old = Memory(redis_url, principal="ann", embedder=Letters(name="old"))
    new = Memory(redis_url, principal="ann", embedder=Letters(name="new", dims=30))
    with old, new:
        home = old.write("Ann has a cat.", subject="Ann", predicate="has", object="a cat")
        old.update(home, object="a dog", reason="the cat was a dog")
        reindex = Reindex(new.scope.index, new.scope.serde, batch=2)
        reworded = False
        while not (progress := new.run(reindex.advance())).finished:
            if progress.phase == "catching up" and not reworded:
                reworded = True
                # The same fact in other words: its new vector must not be that of the old ones.
                old.write("A dog is what Ann has, zzz.", subject="Ann", predicate="has", object="a dog")
        facts = {fact.text: fact for fact in new.query(ended=True).facts}
        assert set(facts) == {"Ann lives in Rome.", "Ann has a cat.", "A dog is what Ann has, zzz."}
        assert all(fact.embedded for fact in facts.values())
        dog = facts["A dog is what Ann has, zzz."]
        stored = client.hget(new.scope.keys.fact(dog.id), "vector_new30")
        assert stored == Letters(name="new", dims=30).embed([dog.text])[0].tobytes()
        assert vector_fields(client) == {b"vector_new30"}
        assert len(new.history(home.id)) == 2


def test_a_memory_without_vectors_gets_some(redis_url: str, client: redis.Redis) -> None:
    with Memory(redis_url, principal="ann") as bare, Memory(redis_url, principal="ann", embedder=Letters()) as memory:
        bare.write("Ann lives in Rome.")
        reindex = Reindex(memory.scope.index, memory.scope.serde)
        while not memory.run(reindex.advance()).finished:
            pass
        assert memory.query().facts[0].embedded
        assert memory.retrieve("rome").hits


def test_numbers_that_stores_ask_for_are_in_the_new_index(redis_url: str, client: redis.Redis, new: RedisStore) -> None:
    """Also if a store asks for them for the first time while the index is made."""
    with store_of(redis_url, Letters(name="old"), settings=Store(numbers=["n"])) as store:
        store.search(NS, filter={"n": {"$gt": 1}})
    reindex = reindex_of(new)
    for _ in range(2):
        new.run(reindex.advance())
    with store_of(redis_url, Letters(name="old"), settings=Store(numbers=["m"])) as store:
        store.put(NS, "m", {"m": 7})
        assert [item.key for item in store.search(NS, filter={"m": {"$gt": 5}})] == ["m"]
    run(new, reindex)
    with store_of(redis_url, Letters(name="new", dims=30), settings=Store(numbers=["n", "m"])) as store:
        assert [item.key for item in store.search(NS, filter={"m": {"$gt": 5}})] == ["m"]
        assert len(store.search(NS, filter={"n": {"$gte": 38}})) == 2
    state = new.run(look(new.scope.index))
    assert state.index is not None
    assert {"n_n", "n_m"} <= {name for name, _, _ in state.index.fields}


@pytest.mark.anyio
async def test_an_awaiting_store_takes_the_same_steps(redis_url: str, client: redis.Redis, old: RedisStore) -> None:
    index: Any = {"embed": Letters(name="new", dims=30), "fields": ["texts[*]"]}
    async with AsyncRedisStore.from_conn_string(redis_url, index=index, principal="ann") as store:
        reindex = Reindex(store.scope.index, store.scope.serde)
        while not (progress := await store.run(reindex.advance())).finished:
            pass
        assert progress.embedded == 40
        assert len(await store.asearch(NS, query="zz", limit=99)) == 41
