"""Who takes part: rtmem's cache, RedisVL's and LangChain's, each as its documentation opens it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import redis.asyncio

from loadtest.cache.questions import Embedding, Question
from loadtest.vectorizers import LangChainEmbeddings, redisvl_vectorizer
from rtmem import settings
from rtmem.cache import AsyncSemanticCache, CacheScope
from rtmem.cli.cache.comparing import EMBEDDED_AS

OURS, REDISVL, LANGCHAIN = "rtmem", "redisvl", "LangChain RedisSemanticCache"
SCOPE: Final = CacheScope(model="model", parameters={"temperature": 0}, system="You are brief.")
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured, by verbs that take the same for all; `tenant` is who asks."""

    name: str
    look_up: Callable[[str], Awaitable[object]]  # of the tenant that asks; None or nothing: a miss
    store: Callable[[Question], Awaitable[object]]
    fill: Callable[[str, Sequence[Question]], Awaitable[object]]  # of any tenant


def cache_settings(prefix: str) -> settings.Cache:
    """The defaults, with room for all entries and time on a busy machine."""
    return msgspec.structs.replace(
        settings.Cache(), prefix=prefix, entries_max=100_000, lookup_deadline_ms=60_000, update_deadline_ms=60_000
    )


@asynccontextmanager
async def rtmem_cache(url: str, embedding: Embedding, prefix: str, tenant: str) -> AsyncIterator[AsyncSemanticCache]:
    """rtmem's cache of one tenant."""
    kept = cache_settings(prefix)
    async with AsyncSemanticCache(url, embedder=embedding, principal=tenant, settings=kept) as cache:
        yield cache


def of_rtmem(cache: AsyncSemanticCache, name: str = OURS) -> Subject:
    """By its public verbs."""

    async def fill(tenant: str, asked: Sequence[Question]) -> None:
        bound = cache.bind(tenant)
        await _all(asked, lambda question: bound.update(question.text, question.answer, SCOPE, took_ms=800))

    return Subject(
        name,
        look_up=lambda text: cache.lookup(text, SCOPE),
        store=lambda question: cache.update(question.text, question.answer, SCOPE, took_ms=800),
        fill=fill,
    )


@asynccontextmanager
async def peers(url: str, embedding: Embedding, name: str, tenant: str) -> AsyncIterator[list[Subject]]:
    """RedisVL's and LangChain's, open and empty."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(_redisvl(url, embedding, f"vl-{name}", tenant)),
            await stack.enter_async_context(_langchain(url, embedding, f"lc-{name}", tenant)),
        ]


@asynccontextmanager
async def _redisvl(url: str, embedding: Embedding, name: str, tenant: str) -> AsyncIterator[Subject]:
    """acheck and astore; a tenant is a filter, as its documentation separates users."""
    from redisvl.extensions.cache.llm import SemanticCache
    from redisvl.query.filter import Tag

    vectorizer = redisvl_vectorizer(embedding, EMBEDDED_AS)
    fields = [{"name": "tenant", "type": "tag"}]
    cache = SemanticCache(name=name, redis_url=url, vectorizer=vectorizer, filterable_fields=fields)
    mine = Tag("tenant") == tenant

    async def fill(whose: str, asked: Sequence[Question]) -> None:
        await _all(asked, lambda question: cache.astore(question.text, question.answer, filters={"tenant": whose}))

    async def look_up(text: str) -> object:
        return await cache.acheck(text, filter_expression=mine)

    async def store(question: Question) -> object:
        return await cache.astore(question.text, question.answer, filters={"tenant": tenant})

    try:
        yield Subject(REDISVL, look_up, store, fill)
    finally:
        await cache.adisconnect()
        cache.disconnect()


@asynccontextmanager
async def _langchain(url: str, embedding: Embedding, name: str, tenant: str) -> AsyncIterator[Subject]:
    """alookup and aupdate; it has no tenants, so the one who asks is alone in it."""
    from langchain_core.outputs import Generation
    from langchain_redis import RedisSemanticCache
    from redis import Redis

    client, awaiting = Redis.from_url(url), redis.asyncio.Redis.from_url(url)
    cache: Any = RedisSemanticCache(LangChainEmbeddings(embedding, EMBEDDED_AS), redis_client=client, name=name)
    # Out of a blocking client RedisVL cannot make an awaiting one for a unix socket: it gets the one it would make.
    cache.cache._async_redis_client = awaiting

    async def fill(whose: str, asked: Sequence[Question]) -> None:
        def update() -> None:
            for question in asked:
                cache.update(question.text, "model", [Generation(text=question.answer)])

        if whose == tenant:
            await asyncio.to_thread(update)

    async def store(question: Question) -> object:
        return await cache.aupdate(question.text, "model", [Generation(text=question.answer)])

    try:
        yield Subject(LANGCHAIN, lambda text: cache.alookup(text, "model"), store, fill)
    finally:
        client.close()
        await awaiting.aclose()


async def _all(asked: Sequence[Question], one: Callable[[Question], Awaitable[object]]) -> None:
    """Some at a time."""
    for first in range(0, len(asked), _AT_ONCE):
        await asyncio.gather(*(one(question) for question in asked[first : first + _AT_ONCE]))
