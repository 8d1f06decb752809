"""One test body for both colours of the store: the awaiting one is called from outside its loop, by its sync verbs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rtmem.steps import Batch, Request, Steps
from rtmem.store import AsyncRedisStore, RedisStore
from tests.checkpoint.colours import Loop

AnyStore = RedisStore | AsyncRedisStore


@dataclass(slots=True)
class Stores:
    """Makes stores of one colour at one server."""

    url: str
    client: Any  # redis.Redis, raw: bytes
    loop: Loop
    awaiting: bool
    protocol: int

    @contextmanager
    def open(self, *, url: str | None = None, **options: Any) -> Iterator[AnyStore]:
        """A store whose sync verbs can be called here, whatever its colour."""
        arguments = {"protocol": self.protocol, **options.pop("connection_args", {})}
        if self.awaiting:
            store = AsyncRedisStore(url or self.url, connection_args=arguments, **options)
            store.loop = self.loop.loop
            try:
                yield store
            finally:
                self.loop.wait(store.aclose())
        else:
            with RedisStore(url or self.url, connection_args=arguments, **options) as blocking:
                yield blocking

    def run(self, store: AnyStore, steps: Steps[Any]) -> Any:
        """What an operation returns, run over the connections of a store."""
        if isinstance(store, AsyncRedisStore):
            return self.loop.wait(store.run(steps))
        return store.run(steps)

    def call(self, store: AnyStore, verb: str, *args: Any) -> Any:
        """A verb that LangGraph does not know, of either colour."""
        result = getattr(store, verb)(*args)
        return self.loop.wait(result) if isinstance(store, AsyncRedisStore) else result


class Meter:
    """Counts the round trips of a store."""

    def __init__(self, store: AnyStore) -> None:
        self.batches: list[Batch] = []
        driver: Any = store._driver
        answer = driver.answer

        async def answer_async(request: Request) -> list[Any]:
            self._see(request)
            replies: list[Any] = await answer(request)
            return replies

        def answer_sync(request: Request) -> list[Any]:
            self._see(request)
            replies: list[Any] = answer(request)
            return replies

        driver.answer = answer_async if isinstance(store, AsyncRedisStore) else answer_sync

    def _see(self, request: Request) -> None:
        if isinstance(request, Batch):
            self.batches.append(request)

    def take(self) -> int:
        """Round trips since the last call."""
        count = len(self.batches)
        self.batches.clear()
        return count
