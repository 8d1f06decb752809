"""Embedders for tests: quick, without a model, and their vectors can be foretold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rtmem.errors import EmbeddingError, EmbeddingUnavailableError
from rtmem.operations.text_query import stemmed
from rtmem.steps import TextKind


@dataclass
class Counting:
    """What is known of all of them. It can be made to fail."""

    dims: int
    name: str
    broken: bool = False
    asked: list[tuple[str, ...]] = field(default_factory=list)
    failure: ClassVar[type[EmbeddingError]] = EmbeddingError

    @property
    def fingerprint(self) -> str:
        return f"{self.name}{self.dims}"

    def embed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        self.asked.append(tuple(texts))
        if self.broken:
            raise self.failure("the embedder is broken: this is a test")
        rows = np.zeros((len(texts), self.dims), np.float32)
        for row, text in zip(rows, texts, strict=True):
            self.count(text, row)
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)

    async def aembed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        return self.embed(texts, what)

    def count(self, text: str, row: NDArray[np.float32]) -> None:
        """Make the vector of a text out of zeros, of any length but none."""
        raise NotImplementedError


@dataclass
class Words(Counting):
    """An embedder whose vectors count words: texts that share some are near. It may be reached again later."""

    dims: int = 64
    name: str = "words"
    failure: ClassVar[type[EmbeddingError]] = EmbeddingUnavailableError

    def count(self, text: str, row: NDArray[np.float32]) -> None:
        row[0] = 0.01
        for word in stemmed(text).split():
            row[1 + sum(word.encode("utf-8", "replace")) % (self.dims - 1)] += 1


@dataclass
class Letters(Counting):
    """An embedder whose vectors count letters: texts with the same letters are near."""

    dims: int = 26
    name: str = "letters"

    def count(self, text: str, row: NDArray[np.float32]) -> None:
        for letter in text.lower():
            if "a" <= letter <= "z":
                row[(ord(letter) - 97) % self.dims] += 1
        if not row.any():
            row[0] = 1e-3
