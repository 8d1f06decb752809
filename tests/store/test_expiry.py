"""Items whose time is over are gone: for every verb, at once, whatever the index still says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
import redis

from tests.conftest import ServerFactory
from tests.embedders import Letters
from tests.store.colours import AnyStore, Stores

NS = ("users", "ann")
MINUTE_MS = 60_000


def ttls(stores: Stores) -> list[int]:
    """The remaining milliseconds of every key of an item."""
    return [stores.client.pttl(name) for name in sorted(stores.client.keys("rtmem:m:*"))]


@pytest.fixture
def lazy_stores(stores: Stores, redis_server: ServerFactory) -> Iterator[Stores]:
    """Stores at a server that notices what is over only when somebody looks at it: all verbs come before it."""
    server = redis_server(extra_conf=["enable-debug-command local"])
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", "0")
        yield replace(stores, url=server.url, client=client)


def test_an_item_ends_with_all_its_vectors(lazy_stores: Stores) -> None:
    with lazy_stores.open(index={"embed": Letters(), "fields": ["parts[*]"]}) as store:
        store.put(NS, "stays", {"parts": ["abc"]})
        for read in (
            lambda: store.get(("other",), "ends") is None,
            lambda: [item.key for item in store.search((), query="abe", limit=1)] == ["stays"],
            lambda: [item.key for item in store.search(())] == ["stays"],
            lambda: store.list_namespaces() == [NS],
        ):
            store.put(("other",), "ends", {"parts": ["abc", "abd", "abe"]}, ttl=1 / MINUTE_MS)
            time.sleep(0.002)
            assert read()


def test_an_expired_item_takes_no_place_in_a_ranking(lazy_stores: Stores) -> None:
    with lazy_stores.open(index={"embed": Letters(), "fields": ["text"]}, ranking="hybrid") as store:
        for n in range(12):
            store.put(NS, f"{n}", {"text": f"zebra {'abc' * n}"}, ttl=1 / MINUTE_MS if n < 6 else None)
        time.sleep(0.002)
        found = store.search(NS, query="zebra", limit=2)
        assert [item.key for item in found] == ["6", "7"]
        assert found[0].score == pytest.approx(1.0)


def test_an_expired_item_leaves_no_gap_in_a_page(lazy_stores: Stores) -> None:
    for options, keys in (
        ({"limit": 2}, "67"),
        ({"limit": 2, "offset": 1}, "78"),
        ({"limit": 4, "query": "abc"}, "6789"),
        ({"limit": 2, "offset": 2, "query": "abc"}, None),
        ({"limit": 2, "filter": {"l": {"$ne": [7]}}}, "68"),
    ):
        with lazy_stores.open(index={"embed": Letters(), "fields": ["text"]}, principal=str(options)) as store:
            for n in range(10):
                store.put(NS, f"{n}", {"text": "abc", "l": [n]}, ttl=1 / MINUTE_MS if n < 6 else None)
            time.sleep(0.002)
            found = [item.key for item in store.search(NS, **options)]
            assert len(found) == options["limit"]
            assert set(found) <= set("6789")
            assert keys is None or sorted(found) == list(keys)


def test_reading_begins_a_ttl_anew_unless_told_otherwise(stores: Stores) -> None:
    with stores.open(index={"embed": Letters(), "fields": ["parts[*]"]}) as store:
        store.put(NS, "key", {"parts": ["abc", "abd"], "n": 1}, ttl=10)
        assert all(9 * MINUTE_MS < ttl <= 10 * MINUTE_MS for ttl in ttls(stores))
        reads = {
            "get": lambda refresh: store.get(NS, "key", refresh_ttl=refresh),
            "search": lambda refresh: store.search(NS, refresh_ttl=refresh),
            "query": lambda refresh: store.search(NS, query="abc", refresh_ttl=refresh),
            "paged": lambda refresh: store.search(NS, filter={"parts": ["abc", "abd"]}, refresh_ttl=refresh),
        }
        for name, read in reads.items():
            for refresh in (False, True):
                for key in stores.client.keys("rtmem:m:*"):
                    stores.client.pexpire(key, MINUTE_MS)
                assert read(refresh), name
                assert all((ttl > MINUTE_MS) == refresh for ttl in ttls(stores)), (name, refresh)


def test_a_search_begins_the_ttl_of_what_it_answers_and_of_nothing_else(store: AnyStore, stores: Stores) -> None:
    for n in range(4):
        store.put(NS, f"{n}", {"text": "abcd"[: n + 1], "l": [n]}, ttl=10)
    for options in (
        {"limit": 1, "offset": 1},
        {"limit": 1, "query": "a", "offset": 1},
        {"limit": 1, "filter": {"l": [2]}},
    ):
        for key in stores.client.keys("rtmem:m:*"):
            stores.client.pexpire(key, MINUTE_MS)
        assert len(store.search(NS, **options)) == 1
        assert sum(ttl > MINUTE_MS for ttl in ttls(stores)) == 1, options


def test_the_ttl_of_a_store_is_that_of_its_items_and_can_be_absolute(stores: Stores) -> None:
    with stores.open(ttl={"default_ttl": 10, "refresh_on_read": False}) as store:
        store.put(NS, "default", {"a": 1})
        store.put(NS, "stays", {"a": 1}, ttl=None)
        store.put(NS, "longer", {"a": 1}, ttl=100)
        assert sorted(round(ttl / MINUTE_MS) for ttl in ttls(stores)) == [0, 10, 100]
        for key in stores.client.keys("rtmem:m:*"):
            stores.client.pexpire(key, MINUTE_MS)
        store.get(NS, "default")
        store.search(NS)
        assert max(ttls(stores)) <= MINUTE_MS
        store.put(NS, "default", {"a": 2})  # a write does
        assert round(max(ttls(stores)) / MINUTE_MS) == 10
        store.put(NS, "default", {"a": 2}, ttl=None)
        assert stores.client.exists(*stores.client.keys("rtmem:m:*")) == 3
        assert -1 in ttls(stores)


@pytest.mark.parametrize("minutes", [1e300, 10**30])
def test_a_ttl_of_ages_is_one(store: AnyStore, minutes: float) -> None:
    store.put(NS, "key", {"a": 1}, ttl=minutes)
    assert store.get(NS, "key") is not None
