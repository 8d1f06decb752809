"""Servers without a query engine, durable writes, and stores that are set up wrongly."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from langgraph.store.base import PutOp, SearchOp

from rtmem.errors import ConfigError, ModuleMissingError, WrongColourError
from rtmem.server import binaries, embedded
from rtmem.server.binaries import Binaries
from rtmem.settings import Server
from rtmem.store import AsyncRedisStore, RedisStore
from tests.embedders import Letters
from tests.store.colours import Meter, Stores

NS = ("users", "ann")


@pytest.fixture(scope="module")
def plain_url() -> Iterator[str]:
    """A server without modules that has an AOF."""
    with tempfile.TemporaryDirectory(prefix="rtmem-test-") as data_dir:
        program = Binaries(binaries.find().server, ())
        with embedded.start(Server(data_dir=data_dir, profile="balanced"), program=program) as server:
            yield server.url


def test_without_a_query_engine_items_live_by_their_keys_and_a_search_says_what_is_missing(
    stores: Stores, plain_url: str
) -> None:
    with redis.Redis.from_url(plain_url) as client:
        client.flushall()
    with stores.open(url=plain_url, index={"embed": Letters(), "fields": ["text"]}) as store:
        store.put(NS, "key", {"text": "abc"}, ttl=5)
        store.put(NS, "key", {"text": "abcd"})
        meter = Meter(store)
        store.put(NS, "other", {"text": "abc"})
        item = store.get(NS, "key")
        assert item is not None
        assert item.value == {"text": "abcd"}
        store.delete(NS, "other")
        assert store.get(NS, "other") is None
        assert meter.take() == 4
        for asked in (
            lambda: store.search(NS),
            lambda: store.search(NS, query="abc"),
            store.list_namespaces,
            lambda: stores.call(store, "setup"),
            lambda: store.batch([SearchOp(NS), PutOp(NS, "never", {"a": 1})]),
        ):
            with pytest.raises(ModuleMissingError, match="rtmem up"):
                asked()
        assert store.get(NS, "never") is None


def test_a_write_waits_for_the_disk_if_told_so(stores: Stores, plain_url: str) -> None:
    with stores.open(url=plain_url, ack="fsync") as store:
        store.put(NS, "key", {"a": 1})
        meter = Meter(store)
        store.put(NS, "key", {"a": 2})
        store.delete(NS, "key")
        waits = [str(command[0]) for batch in meter.batches for command in batch.commands]
        assert waits.count("WAITAOF") >= 2
        meter.take()
        assert store.get(NS, "key") is None
        assert meter.take() == 1
    with stores.open(ack="fsync") as store, pytest.raises(ConfigError, match="AOF"):  # the session's server has none
        store.put(NS, "key", {"a": 1})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"index": {"dims": 3}}, "embed"),
        ({"index": {"embed": Letters(), "dims": 3}}, "dims"),
        ({"index": {"embed": Letters(), "text_fields": ["a"]}}, "fields"),
        ({"index": {"embed": Letters(), "fields": "text"}}, "list of paths"),
        ({"index": {"embed": lambda texts: [], "dims": None}}, "dims"),
        ({"ttl": 5}, "default_ttl"),
        ({"ttl": {"default_ttl": -1}}, "minutes"),
        ({"ttl": {"minutes": 1}}, "default_ttl"),
        ({"ack": "never"}, "ack"),
    ],
)
def test_a_store_that_is_set_up_wrongly_says_what_to_write(stores: Stores, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words), stores.open(**options):
        pass


def test_a_store_needs_a_place(stores: Stores) -> None:
    for kind in (RedisStore, AsyncRedisStore):
        with pytest.raises(ConfigError, match="rtmem up"):
            kind()


@pytest.mark.anyio
async def test_each_colour_has_the_verbs_of_the_other_where_they_cannot_hang(redis_url: str) -> None:
    async with AsyncRedisStore.from_conn_string(redis_url, principal="colours") as store:
        await store.aput(NS, "key", {"a": 1})
        with pytest.raises(WrongColourError):
            store.get(NS, "key")
        with pytest.raises(asyncio.InvalidStateError):  # what LangGraph's own stores raise
            store.put(NS, "key", {"a": 1})
        item = await asyncio.to_thread(store.get, NS, "key")
        assert item is not None
    with RedisStore.from_conn_string(redis_url, principal="colours") as blocking:
        assert await blocking.aget(NS, "key") == item
        assert [found.key for found in await blocking.asearch(("users",))] == ["key"]
