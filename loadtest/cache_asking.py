"""One process of the storm of `loadtest cache`: waits for the others, asks many times at once, tells what it got.

Not in that folder, whose package imports far more than a process of the storm needs.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any, Final

import msgspec
import redis.asyncio

from rtmem import settings
from rtmem.cache import AsyncSemanticCache, CacheScope

_SCOPE: Final = CacheScope(model="model", parameters={})
# Whoever loses Redis computes for itself: on a machine that is busy starting processes, 200 ms are soon over.
_PATIENT: Final = settings.Cache(lookup_deadline_ms=60_000, update_deadline_ms=60_000)
_DEADLINE_S: Final = 120.0


class Told(msgspec.Struct, frozen=True):
    """What a process says of its share."""

    answers: list[str]
    longest_ms: float


async def ask(url: str, question: str, times: int, model_s: float) -> Told:
    """`question` at once `times` times, of a model that counts its calls and takes `model_s`."""
    cache = AsyncSemanticCache(url, principal="storm", settings=_PATIENT)
    async with redis.asyncio.Redis.from_url(url) as client, cache:

        async def model() -> str:
            await client.set(f"{question}:caller", os.getpid())
            number = await client.incr(f"{question}:calls")
            await asyncio.sleep(model_s)
            return f"answer {number}"

        async def one() -> tuple[str, float]:
            begin = time.perf_counter()
            outcome = await cache.get_or_compute(question, _SCOPE, model)
            return outcome.answer, (time.perf_counter() - begin) * 1000

        await cache.lookup("is anybody there?", _SCOPE)  # the connection is open
        await client.incr(f"{question}:ready")
        await until(client, f"{question}:go", 1)
        asked = await asyncio.gather(*(one() for _ in range(times)))
    return Told([answer for answer, _ in asked], max(took_ms for _, took_ms in asked))


async def until(client: Any, key: str, count: int) -> None:
    """Wait until the number at `key` is at least `count`."""
    deadline = time.monotonic() + _DEADLINE_S
    while int(await client.get(key) or 0) < count:
        assert time.monotonic() < deadline, f"{key} has not reached {count}"
        await asyncio.sleep(0.002)


if __name__ == "__main__":
    url, question, times, model_s = sys.argv[1:]
    told = asyncio.run(ask(url, question, int(times), float(model_s)))
    sys.stdout.buffer.write(msgspec.json.encode(told))
