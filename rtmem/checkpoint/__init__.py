"""Checkpoint savers for LangGraph on any Redis >= 7.0 or Valkey >= 7.2; no module needed."""

from rtmem.checkpoint.aio import AsyncRedisSaver, AsyncShallowRedisSaver
from rtmem.checkpoint.sync import RedisSaver, ShallowRedisSaver

__all__ = ["AsyncRedisSaver", "AsyncShallowRedisSaver", "RedisSaver", "ShallowRedisSaver"]
