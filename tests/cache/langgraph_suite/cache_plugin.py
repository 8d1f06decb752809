"""A pytest plugin that puts NodeCache in the place of LangGraph's own caches, in LangGraph's own tests.

Loaded by `-p cache_plugin` before those tests are imported: they take `RedisCache` and `InMemoryCache` from modules
whose attributes are replaced here, so not a line of theirs is edited. Every cache that is made gets a principal of its
own, as every InMemoryCache has a dictionary of its own; those of one `prefix` share it, as Redis keys do. What the
tests ask of localhost goes to SUITE_REDIS_URL.
"""

from __future__ import annotations

import os
from typing import Any
from uuid import uuid4

import langgraph.cache.memory
import langgraph.cache.redis
import redis

from rtmem.cache.nodes import NodeCache
from rtmem.settings import Cache

URL = os.environ["SUITE_REDIS_URL"]
PATIENT = Cache(lookup_deadline_ms=60_000, update_deadline_ms=60_000)
AWAY = "redis://127.0.0.1:1"  # nothing listens there


class InOurs(NodeCache):
    """Made as InMemoryCache is."""

    def __init__(self, *, serde: Any = None) -> None:
        super().__init__(URL, serde=serde, principal=str(uuid4()), settings=PATIENT)


class AsRedisCache(NodeCache):
    """Made as RedisCache is: around a client, with a prefix."""

    def __init__(self, client: Any, *, serde: Any = None, prefix: str = "langgraph:cache:") -> None:
        there = client.connection_pool.connection_kwargs.get("host") != "nonexistent"
        super().__init__(URL if there else AWAY, serde=serde, principal=prefix, settings=PATIENT)

    def _make_key(self, namespace: tuple[str, ...], key: str) -> str:
        """Where a test puts damaged bytes."""
        return self.context.keys.values + self.context.keys.value_id(namespace, key)


class OurServer(redis.Redis):
    """What the tests ask of a server of their own."""

    def __new__(cls, host: str = "localhost", **options: Any) -> Any:
        if host != "localhost":
            return redis_class(host=host, **options)
        return redis_class.from_url(URL, decode_responses=options.get("decode_responses", False))


redis_class: Any = redis.Redis
redis.Redis = OurServer  # type: ignore[misc]
langgraph.cache.memory.InMemoryCache = InOurs  # type: ignore[assignment, misc]
langgraph.cache.redis.RedisCache = AsRedisCache  # type: ignore[assignment, misc]
