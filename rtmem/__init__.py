"""rtmem: the Redis-native, low-latency memory layer for streaming agents."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rtmem.cache import AsyncSemanticCache, CacheScope, SemanticCache
    from rtmem.checkpoint import AsyncRedisSaver, AsyncShallowRedisSaver, RedisSaver, ShallowRedisSaver
    from rtmem.errors import RtmemError
    from rtmem.memory import AsyncMemory, Memory
    from rtmem.pointers import AsyncPointers, Pointers
    from rtmem.settings import Settings
    from rtmem.store import AsyncRedisStore, RedisStore

__version__ = "0.1.0"

__all__ = [
    "AsyncMemory",
    "AsyncPointers",
    "AsyncRedisSaver",
    "AsyncRedisStore",
    "AsyncSemanticCache",
    "AsyncShallowRedisSaver",
    "CacheScope",
    "Memory",
    "Pointers",
    "RedisSaver",
    "RedisStore",
    "RtmemError",
    "SemanticCache",
    "Settings",
    "ShallowRedisSaver",
    "__version__",
]

_HOME = {
    "AsyncMemory": "rtmem.memory",
    "AsyncPointers": "rtmem.pointers",
    "AsyncRedisSaver": "rtmem.checkpoint",
    "AsyncRedisStore": "rtmem.store",
    "AsyncShallowRedisSaver": "rtmem.checkpoint",
    "AsyncSemanticCache": "rtmem.cache",
    "CacheScope": "rtmem.cache",
    "Memory": "rtmem.memory",
    "RedisSaver": "rtmem.checkpoint",
    "RedisStore": "rtmem.store",
    "ShallowRedisSaver": "rtmem.checkpoint",
    "Pointers": "rtmem.pointers",
    "RtmemError": "rtmem.errors",
    "SemanticCache": "rtmem.cache",
    "Settings": "rtmem.settings",
}


def __getattr__(name: str) -> Any:
    # Lazily, so that `rtmem --help` and a process that only needs errors do not import LangGraph.
    if name not in _HOME:
        raise AttributeError(f"module 'rtmem' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
