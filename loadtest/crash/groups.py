"""The control for what is written together: four keys a group, as four commands or in MULTI, by a raw client."""

from __future__ import annotations

import threading
from typing import Final

import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from loadtest.crash.fleet import Writer, undisturbed
from loadtest.crash.ledger import Ledger

_PARTS: Final = ("piece", "record", "index", "head")


def group_writers(url: str, *, count: int, multi: bool) -> list[Writer]:
    """Writers that do what a saver without functions would do for each checkpoint."""
    return [_writer(url, name, multi=multi) for name in range(count)]


def _writer(url: str, name: int, *, multi: bool) -> Writer:
    async def write(ledger: Ledger, over: threading.Event) -> None:
        async with undisturbed(redis.asyncio.Redis.from_url(url, retry=Retry(NoBackoff(), 0))) as client:
            number = 0
            try:
                while not over.is_set():
                    number += 1
                    pipeline = client.pipeline(transaction=True)
                    for part in _PARTS:
                        await (pipeline if multi else client).set(f"group:{name}:{number}:{part}", "x" * 200)
                    if multi:
                        await pipeline.execute()
            except redis.RedisError as exc:
                ledger.refused.append(f"{type(exc).__name__}: {exc}")

    return write


def torn_groups(url: str) -> tuple[int, int]:
    """How many groups there are, and how many of them are half there."""
    parts: dict[bytes, int] = {}
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter("group:*", count=10_000):
            group = key.rpartition(b":")[0]
            parts[group] = parts.get(group, 0) + 1
    return len(parts), sum(1 for count in parts.values() if count < len(_PARTS))
