"""Models that run in this process: loaded once, and run in threads of their own, so that no event loop waits.

Texts go through the model one by one. Batches of equal length were measured with MiniLM on a CPU: they save a tenth
below 32 tokens and lose a third above 64; and padding costs more than it saves. One by one, a text has the same vector
whatever stands beside it, callers take turns text by text, and a cancelled call stops after the text at hand.
Tokenising and the models release the GIL.
"""

from __future__ import annotations

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar, TypeAlias

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from rtmem.embedding.contract import encodable, unit_rows
from rtmem.errors import EmbeddingError
from rtmem.steps import TextKind

Model: TypeAlias = Callable[[str, TextKind], NDArray[np.float32]]
"""One text to one vector, float32, shape (dims,). Called from several threads at once."""

_loading = threading.Lock()
_models: dict[type[InProcess], Model] = {}


def _in_a_forked_child() -> None:
    # Another thread of the parent may have been loading: nobody would ever open its lock here.
    global _loading
    _loading = threading.Lock()


os.register_at_fork(after_in_child=_in_a_forked_child)


class InProcess(ABC):
    """An embedder whose model runs in this process. The first call loads it, in a worker thread.

    Args:
        threads: how many texts of documents are embedded at the same time, one core each. Queries have a thread of
            their own: nobody shall wait for an answer until somebody else's documents are indexed.
    """

    name: ClassVar[str]
    fingerprint: ClassVar[str]
    dims: ClassVar[int]

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._closed = False
        self._employ()

    def _employ(self) -> None:
        self._pid = os.getpid()
        self._workers: dict[TextKind, ThreadPoolExecutor] = {
            "query": ThreadPoolExecutor(1, "rtmem-embed-query"),
            "document": ThreadPoolExecutor(self._threads, "rtmem-embed-document"),
        }

    @staticmethod
    @abstractmethod
    def load() -> Model:
        """The model, from its files. Raises ExtraMissingError, EmbeddingError."""

    def embed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        """See steps.Embedder."""
        vectors = [self._submit(text, what).result() for text in texts]
        return unit_rows(vectors, len(texts), self.dims, self.name)

    async def aembed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        """See steps.Embedder."""
        vectors = [await asyncio.wrap_future(self._submit(text, what)) for text in texts]
        return unit_rows(vectors, len(texts), self.dims, self.name)

    def _submit(self, text: str, what: TextKind) -> Future[NDArray[np.float32]]:
        if self._closed:
            raise self._is_closed()
        if self._pid != os.getpid():
            self._employ()  # threads are not forked
        try:
            return self._workers[what].submit(self._embed_one, text, what)
        except RuntimeError as exc:  # closed by another thread just now
            raise self._is_closed() from exc

    def _embed_one(self, text: str, what: TextKind) -> NDArray[np.float32]:
        if self._closed:
            raise self._is_closed()
        model = _loaded(type(self))
        try:
            return model(encodable(text), what)
        except Exception as exc:
            raise EmbeddingError(
                f"model {self.name!r} failed on a text of {len(text)} characters: {exc}", model=self.name
            ) from exc

    def _is_closed(self) -> EmbeddingError:
        return EmbeddingError(f"the embedder {self.name!r} was closed: make another one", model=self.name)

    def close(self) -> None:
        """End the threads after the texts at hand; who still waits gets an EmbeddingError. The model stays loaded."""
        self._closed = True
        for workers in self._workers.values():
            workers.shutdown(wait=False)

    async def aclose(self) -> None:
        """See `close`, which does not wait."""
        self.close()


def _loaded(kind: type[InProcess]) -> Model:
    with _loading:
        if kind not in _models:
            _models[kind] = kind.load()
        return _models[kind]


def verified(path: Path, digest: str, name: str) -> Path:
    """`path`, if its content is what the fingerprint of model `name` promises. Raises EmbeddingError."""
    try:
        found = blake3(path.read_bytes()).hexdigest()
    except OSError as exc:
        raise EmbeddingError(f"model {name!r}: {path} cannot be read ({exc}): reinstall its package") from exc
    if found != digest:
        raise EmbeddingError(
            f"model {name!r}: {path} is another file than the one whose vectors are stored (BLAKE3 {found[:16]}, not "
            f"{digest[:16]}): install the version that pyproject.toml names",
            model=name,
        )
    return path
