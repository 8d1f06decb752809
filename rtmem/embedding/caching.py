"""Texts that come again: their vectors are remembered, and what several ask for at the same time is computed once."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import OrderedDict
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeAlias

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from rtmem.errors import EmbeddingError
from rtmem.steps import Embedder, TextKind

ENTRY_BYTES: Final = 256
"""What an entry takes beside its numbers: digest, array header, place in the order."""

Vector: TypeAlias = NDArray[np.float32]
Outcome: TypeAlias = Vector | EmbeddingError | None
"""Of a text that somebody computes. None: given up, and whoever waits has to do it."""

Claim: TypeAlias = tuple[str, Future[Outcome]]
Claims: TypeAlias = Generator[tuple[str, ...] | Future[Outcome], Any, Vector]


class CachingEmbedder:
    """`embedder` with a memory of the texts it saw last. Safe to share between threads and event loops.

    Args:
        bytes_max: of vectors that are remembered; the least recently used go first. 0: none are, and what is asked for
            at the same time is still computed once.
    """

    def __init__(self, embedder: Embedder, bytes_max: int) -> None:
        self.embedder = embedder
        self.bytes_max = bytes_max
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._bytes = 0
        self._known: OrderedDict[bytes, Vector] = OrderedDict()
        self._under_way: dict[bytes, Future[Outcome]] = {}

    @property
    def name(self) -> str:
        """See steps.Embedder."""
        return self.embedder.name

    @property
    def setting(self) -> str:
        """What [embedding] model calls it; empty for one that no setting names."""
        found: str = getattr(self.embedder, "setting", "")
        return found

    @property
    def fingerprint(self) -> str:
        """See steps.Embedder."""
        return self.embedder.fingerprint

    @property
    def dims(self) -> int:
        """See steps.Embedder."""
        return self.embedder.dims

    @property
    def cached_bytes(self) -> int:
        """How much is remembered now."""
        return self._bytes

    def embed(self, texts: Sequence[str], what: TextKind = "document") -> Vector:
        """See steps.Embedder."""
        # On an event loop's own thread, who computes may be a task of that loop: waiting for it would take for ever.
        claims = self._claims(texts, what, share=not _on_an_event_loop())
        try:
            asked = next(claims)
            while True:
                try:
                    answer = asked.result() if isinstance(asked, Future) else self.embedder.embed(asked, what)
                except EmbeddingError as exc:
                    asked = claims.throw(exc)
                else:
                    asked = claims.send(answer)
        except StopIteration as stop:
            vectors: Vector = stop.value
            return vectors
        finally:
            claims.close()

    async def aembed(self, texts: Sequence[str], what: TextKind = "document") -> Vector:
        """See steps.Embedder. Who waits for a text that a cancelled caller was computing computes it itself."""
        claims = self._claims(texts, what, share=True)
        try:
            asked = next(claims)
            while True:
                try:
                    if isinstance(asked, Future):
                        answer: Any = await asyncio.wrap_future(asked)
                    else:
                        answer = await self.embedder.aembed(asked, what)
                except EmbeddingError as exc:
                    asked = claims.throw(exc)
                else:
                    asked = claims.send(answer)
        except StopIteration as stop:
            vectors: Vector = stop.value
            return vectors
        finally:
            claims.close()

    def _claims(self, texts: Sequence[str], what: TextKind, *, share: bool) -> Claims:
        """Yields texts to embed, and is sent their vectors; then texts that others compute, and is sent each outcome.

        In this order two callers never wait for each other.
        """
        keys = [_key(text, what) for text in texts]
        found: dict[bytes, Vector] = {}
        while missing := {key: text for key, text in zip(keys, texts, strict=True) if key not in found}:
            mine, others = self._look_up(missing, found, share=share)
            if mine:
                found |= yield from self._compute(mine)
            for key, future in others.items():
                outcome: Outcome = yield future
                if isinstance(outcome, EmbeddingError):
                    raise type(outcome)(outcome.message, **outcome.data) from outcome
                if outcome is not None:
                    found[key] = outcome
        return np.stack([found[key] for key in keys]) if keys else np.empty((0, self.dims), np.float32)

    def _look_up(
        self, missing: Mapping[bytes, str], found: dict[bytes, Vector], *, share: bool
    ) -> tuple[dict[bytes, Claim], dict[bytes, Future[Outcome]]]:
        """Put what is known into `found`; what is left is claimed, or somebody else's."""
        if self._pid != os.getpid():
            self._reset()  # a forked child has none of the threads that compute
        mine: dict[bytes, Claim] = {}
        others: dict[bytes, Future[Outcome]] = {}
        with self._lock:
            for key, text in missing.items():
                if (vector := self._known.get(key)) is not None:
                    self._known.move_to_end(key)
                    found[key] = vector
                elif share and key in self._under_way:
                    others[key] = self._under_way[key]
                else:
                    future: Future[Outcome] = Future()
                    future.set_running_or_notify_cancel()  # who waits may be cancelled; the future must not be
                    mine[key] = (text, future)
                    self._under_way.setdefault(key, future)
        return mine, others

    def _compute(self, mine: Mapping[bytes, Claim]) -> Generator[tuple[str, ...], Vector, dict[bytes, Vector]]:
        outcomes: dict[bytes, Any] = dict.fromkeys(mine)
        try:
            vectors = yield tuple(text for text, _ in mine.values())
            # Copies: a row of a batch would keep the whole batch in memory.
            outcomes = {key: row.copy() for key, row in zip(mine, vectors, strict=True)}
            return outcomes
        except EmbeddingError as exc:
            outcomes = dict.fromkeys(mine, exc)
            raise
        finally:
            self._settle(mine, outcomes)

    def _settle(self, mine: Mapping[bytes, Claim], outcomes: Mapping[bytes, Outcome]) -> None:
        with self._lock:
            for key, (_, future) in mine.items():
                if self._under_way.get(key) is future:
                    del self._under_way[key]
                if isinstance(vector := outcomes[key], np.ndarray):
                    self._remember(key, vector)
        for key, (_, future) in mine.items():
            future.set_result(outcomes[key])

    def _remember(self, key: bytes, vector: Vector) -> None:
        if key not in self._known:
            self._bytes += vector.nbytes + ENTRY_BYTES
        self._known[key] = vector
        while self._bytes > self.bytes_max:
            _, oldest = self._known.popitem(last=False)
            self._bytes -= oldest.nbytes + ENTRY_BYTES

    def close(self) -> None:
        """Close the embedder, if it can be closed."""
        if (close := getattr(self.embedder, "close", None)) is not None:
            close()

    async def aclose(self) -> None:
        """See `close`."""
        if (aclose := getattr(self.embedder, "aclose", None)) is not None:
            await aclose()


def _on_an_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _key(text: str, what: TextKind) -> bytes:
    return blake3(f"{what}\0{text}".encode("utf-8", "surrogatepass")).digest()
