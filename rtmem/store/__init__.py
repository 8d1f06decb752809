"""Long-term memory as LangGraph's BaseStore."""

from rtmem.operations.memory_search import SearchResults
from rtmem.store.aio import AsyncRedisStore
from rtmem.store.sync import RedisStore

__all__ = ["AsyncRedisStore", "RedisStore", "SearchResults"]
