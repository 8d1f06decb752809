"""How to reach the server of a directory."""

from __future__ import annotations

from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from rtmem.server.directory import Layout


def url(layout: Layout) -> str:
    """The address of the server in this directory."""
    return f"unix://{quote(str(layout.socket))}?db=0"


def client(layout: Layout, timeout_s: float) -> redis.Redis:
    """A client that tries once: whoever waits for a server wants to see every failure."""
    return redis.Redis(unix_socket_path=str(layout.socket), socket_timeout=timeout_s, retry=Retry(NoBackoff(), 0))
