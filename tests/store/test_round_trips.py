"""How often each verb asks the server; the embedding comes on top."""

from __future__ import annotations

from langgraph.store.base import GetOp, ListNamespacesOp, PutOp, SearchOp

from rtmem.settings import Store
from tests.embedders import Letters
from tests.store.colours import AnyStore, Meter, Stores

NS = ("users", "ann")


def test_get_put_search_and_delete_are_one_round_trip_each(store: AnyStore) -> None:
    store.put(NS, "first", {"text": "abc"})  # the function library and the index are there
    meter = Meter(store)
    store.put(NS, "key", {"text": "abd", "kind": "note", "meta": {"lang": "en"}, "n": 1})
    assert meter.take() == 1
    store.put(NS, "key", {"text": "xyz", "kind": "note", "meta": {"lang": "en"}, "n": 1}, ttl=5)
    assert meter.take() == 1
    assert store.get(NS, "key") is not None
    assert meter.take() == 1
    for options in (
        {},
        {"query": "xyz"},
        {"query": "xyz", "limit": 1},
        {"filter": {"kind": "note"}},
        {"filter": {"kind": {"$in": ["note", "memo"]}, "n": 1}},
        {"filter": {"meta": {"lang": "en"}}, "query": "xyz"},
        {"filter": {"kind": {"$ne": "memo"}}, "offset": 1},
    ):
        assert store.search(NS, **options), options
        assert meter.take() == 1, options
    assert store.list_namespaces(prefix=("users",)) == [NS]
    assert meter.take() == 1
    store.delete(NS, "key")
    assert meter.take() == 1


def test_a_range_of_a_declared_number_is_left_to_the_server(stores: Stores) -> None:
    with stores.open(settings=Store(numbers=["price", "meta.stars"])) as store:
        for n in range(300):
            store.put(NS, f"{n}", {"price": n, "meta": {"stars": n / 2}})
        meter = Meter(store)
        assert [item.key for item in store.search(NS, filter={"price": {"$gt": 296, "$lte": 298}})] == ["297", "298"]
        assert meter.take() == 1
        assert [item.key for item in store.search(NS, filter={"meta": {"stars": {"$gte": 149}}})] == ["298", "299"]
        assert meter.take() == 1
        assert [item.key for item in store.search(NS, filter={"meta": {"stars": {"$lt": 149}}}, offset=290)] == [
            f"{n}" for n in range(290, 298)
        ]
        assert meter.take() == 1


def test_any_other_filter_is_read_in_ever_larger_pages(stores: Stores) -> None:
    with stores.open() as store:
        store.batch([PutOp(NS, f"{n}", {"tags": ["new"] if n == 999 else ["old"]}) for n in range(1_000)])
        meter = Meter(store)
        assert [item.key for item in store.search(NS, filter={"tags": ["new"]}, limit=1)] == ["999"]
        assert meter.take() == 3  # of 64, of 256 and of 680


def test_a_batch_takes_at_most_two_round_trips(store: AnyStore) -> None:
    store.put(NS, "first", {"text": "abc"})
    meter = Meter(store)
    puts = [PutOp(NS, f"{n}", {"text": f"text {n}"}) for n in range(20)]
    store.batch([*puts, *(GetOp(NS, f"{n}") for n in range(20)), PutOp(NS, "first", None)])
    assert meter.take() == 1
    store.batch([GetOp(NS, "1"), SearchOp(NS, query="text"), SearchOp(NS, {"text": "text 3"}), ListNamespacesOp()])
    assert meter.take() == 1
    results = store.batch([*puts, GetOp(NS, "1"), SearchOp(NS, query="text"), ListNamespacesOp(), SearchOp(NS)])
    assert meter.take() == 2
    assert [bool(result) for result in results[20:]] == [True] * 4


def test_texts_of_a_batch_are_embedded_together_and_equal_ones_once(stores: Stores) -> None:
    letters = Letters()
    with stores.open(index={"embed": letters, "fields": ["text"]}) as store:
        store.batch(
            [
                PutOp(NS, "1", {"text": "same"}),
                PutOp(NS, "2", {"text": "same"}),
                PutOp(NS, "3", {"text": "other"}),
                SearchOp(NS, query="what"),
                SearchOp(("x",), query="what"),
            ]
        )
        assert letters.asked == [("what",), ("same", "other")]


def test_refreshing_a_ttl_costs_no_round_trip(stores: Stores) -> None:
    with stores.open(index={"embed": Letters(), "fields": ["text"]}, ttl={"default_ttl": 10}) as store:
        store.put(NS, "key", {"text": "abc"})
        (name,) = stores.client.keys("rtmem:m:*")
        meter = Meter(store)
        for read in (
            lambda: store.get(NS, "key"),
            lambda: store.search(NS),
            lambda: store.search(NS, query="abc"),
            lambda: store.search(NS, filter={"text": "abc"}),
        ):
            stores.client.pexpire(name, 300_000)
            assert read()
            assert meter.take() == 1
            assert stores.client.pttl(name) > 300_000
