"""One test body for both colours: awaiting memories are driven from outside their loop."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtmem import settings as all_settings
from rtmem.errors import EmbeddingUnavailableError
from rtmem.memory import AsyncMemory, Memory
from rtmem.operations.text_query import stemmed
from rtmem.steps import TextKind
from tests.checkpoint.colours import Loop


@dataclass
class Words:
    """An embedder whose vectors count words: texts that share some are near. It can be made to fail."""

    dims: int = 64
    name: str = "words"
    broken: bool = False
    asked: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def fingerprint(self) -> str:
        return f"{self.name}{self.dims}"

    def embed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        self.asked.append(tuple(texts))
        if self.broken:
            raise EmbeddingUnavailableError("the embedder is broken: this is a test")
        rows = np.zeros((len(texts), self.dims), np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[0] = 0.01
            for word in stemmed(text).split():
                row[1 + sum(word.encode("utf-8", "replace")) % (self.dims - 1)] += 1
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)

    async def aembed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        return self.embed(texts, what)


class Caller:
    """A memory of either colour whose verbs are called the same way."""

    def __init__(self, memory: Memory | AsyncMemory, loop: Loop) -> None:
        self.memory = memory
        self.loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.memory, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            result = found(*args, **options)
            if isinstance(result, Memory | AsyncMemory):
                return Caller(result, self.loop)
            return self.loop.wait(result) if inspect.isawaitable(result) else result  # type: ignore[arg-type]

        return call


@dataclass(slots=True)
class World:
    """Makes memories of one colour at one server."""

    url: str
    client: Any  # redis.Redis, raw: bytes
    loop: Loop
    awaiting: bool
    protocol: int

    @contextmanager
    def open(self, *, url: str | None = None, retries_max: int = 2, **options: Any) -> Iterator[Caller]:
        redis = all_settings.Redis(protocol=2 if self.protocol == 2 else 3, retries_max=retries_max)
        if self.awaiting:
            awaiting = AsyncMemory(url or self.url, redis=redis, **options)
            try:
                yield Caller(awaiting, self.loop)
            finally:
                self.loop.wait(awaiting.aclose())
        else:
            with Memory(url or self.url, redis=redis, **options) as blocking:
                yield Caller(blocking, self.loop)
