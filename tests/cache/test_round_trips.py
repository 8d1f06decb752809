"""What a call costs in round trips and embeddings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from rtmem.cache import AsyncSemanticCache
from rtmem.steps import Batch
from tests.cache.colours import FRANCE, LIKE_FRANCE, SCOPE, World, settings
from tests.embedders import Words
from tests.wire import Wire


def test_every_verb_takes_the_round_trips_that_are_promised(world: World) -> None:
    embedder, reading = Words(), Words()
    with world.open(embedder=embedder) as cache, world.open(embedder=reading) as reader:
        cache.update("The first one makes the index.", "x", SCOPE)
        reader.lookup("The first one makes the index, says who reads", SCOPE)
        wires = {id(cache): (Wire(cache.owner), embedder), id(reader): (Wire(reader.owner), reading)}

        def cost(call: Callable[[], Any], of: Any = cache) -> tuple[int, int]:
            wire, embeds = wires[id(of)]
            wire.take()
            embeds.asked.clear()
            call()
            return wire.take(), len(embeds.asked)

        assert cost(lambda: cache.update(FRANCE, "Paris.", SCOPE, tags=["a", "b"], ttl_ms=60_000)) == (1, 1)
        assert cost(lambda: cache.lookup(FRANCE, SCOPE)) == (1, 0)
        assert cost(lambda: cache.lookup(LIKE_FRANCE, SCOPE)) == (2, 1)
        assert cost(lambda: cache.lookup("Who wrote Faust?", SCOPE)) == (2, 1)
        assert cost(lambda: reader.lookup(FRANCE, SCOPE), reader)[0] == 1  # of another process
        assert cost(lambda: reader.lookup(FRANCE, SCOPE), reader) == (1, 0)
        assert cost(lambda: cache.get_or_compute(FRANCE, SCOPE, lambda: "no")) == (1, 0)
        assert cost(lambda: cache.get_or_compute("Who wrote Faust?", SCOPE, lambda: "Goethe."))[0] == 4
        hit = cache.lookup(LIKE_FRANCE, SCOPE)
        assert cost(lambda: cache.report(hit.hit_id, True)) == (1, 0)
        assert cost(lambda: cache.explain(LIKE_FRANCE, SCOPE)) == (2, 1)
        assert cost(lambda: cache.entries()) == (1, 0)
        assert cost(lambda: cache.entry(hit.entry_id)) == (1, 0)
        cache.stats()
        assert cost(lambda: cache.stats()) == (1, 0)
        assert cost(lambda: cache.invalidate(tag="a")) == (1, 0)
        assert cost(lambda: cache.invalidate(everything=True)) == (1, 0)


@pytest.mark.anyio
async def test_the_question_is_embedded_while_redis_is_asked_for_the_very_same_one(redis_url: str) -> None:
    order: list[str] = []

    class Noting(Words):
        async def aembed(self, *args: Any) -> Any:
            order.append("embedding began")
            await reading
            order.append("embedding ended")
            return self.embed(*args)

    reading: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    reading.set_result(None)
    options: dict[str, Any] = {"principal": str(uuid4()), "guard": False, "settings": settings()}
    async with AsyncSemanticCache(redis_url, embedder=Noting(), **options) as cache:
        await cache.update(FRANCE, "Paris.", SCOPE)
        reading = asyncio.get_running_loop().create_future()
        order.clear()
        driver: Any = cache.driver
        answer = driver.answer

        async def noted(request: Any) -> Any:
            replies = await answer(request)
            if isinstance(request, Batch):
                order.append(str(request.commands[0][0]))
                if not reading.done():
                    reading.set_result(None)
            return replies

        driver.answer = noted
        hit = await cache.lookup(LIKE_FRANCE, SCOPE)
        assert hit is not None
        assert hit.kind == "semantic"
        assert order == ["embedding began", "HMGET", "embedding ended", "FCALL_RO"]
