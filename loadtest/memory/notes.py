"""What is remembered and asked for in the benchmark: notes of tenants, and vectors that lie as those of texts do.

Vectors are a mixture of Gaussians on the sphere: a hundred topics around one common direction, and in each a spread
that a few directions have most of, as in every embedding of texts. With these numbers the nearest, tenth and hundredth
of 4,124 documents have a cosine of .64, .55 and .40 to a question; MiniLM's of LoCoMo's turns have .64, .52 and .39.
Uniform vectors would have no neighbours worth finding, and an approximate index would look worse or better than it is.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtmem.steps import TextKind

DIMS: Final = 384
KINDS: Final = ("fact", "preference", "episode", "procedure")
_TOPICS: Final = 100
_TOPICS_OF_A_TENANT: Final = 8
_COMMON, _SPREAD, _DECAY = 0.5, 1.3, 0.45
_WORDS: Final = 3_000

Vectors = NDArray[np.float32]
Namespace = tuple[str, ...]


class Note(NamedTuple):
    """One item of memory."""

    tenant: str
    key: str
    value: dict[str, Any]

    @property
    def namespace(self) -> Namespace:
        return (self.tenant, "notes")


class Question(NamedTuple):
    """One search of a tenant's notes."""

    tenant: str
    text: str
    filter: dict[str, Any] | None = None


class Topics:
    """Where vectors come from. A large tenant talks about everything, a small one about a few topics."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        source = np.random.default_rng(seed)
        self._spectrum = np.arange(1, DIMS + 1) ** -_DECAY
        self._spectrum /= np.linalg.norm(self._spectrum)
        # A basis of its own, so that no number of a vector is more telling than another.
        self._basis = np.linalg.qr(source.normal(size=(DIMS, DIMS)))[0]
        self._centres = self._directions(source, _TOPICS)
        self._common = _COMMON * self._directions(source, 1)

    def _directions(self, source: np.random.Generator, count: int) -> NDArray[np.float64]:
        drawn = source.normal(size=(count, DIMS)) * self._spectrum
        return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))

    def draw(self, tenant: str, count: int, part: int = 0, *, everything: bool = False) -> Vectors:
        """`count` vectors of `tenant`; the same for the same `part`: float32, shape (count, DIMS), unit length."""
        own = random.Random(f"{self._seed} {tenant}")
        topics = range(_TOPICS) if everything else own.sample(range(_TOPICS), _TOPICS_OF_A_TENANT)
        source = np.random.default_rng([self._seed, own.getrandbits(32), part])
        chosen = source.choice(np.array(topics), size=count)
        drawn = self._common + self._centres[chosen]
        drawn = drawn + _SPREAD * source.normal(size=(count, DIMS)) * self._spectrum
        drawn = drawn @ self._basis
        return np.ascontiguousarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), dtype=np.float32)


class Texts:
    """Sentences of made-up words, of which some are frequent, and notes that carry them. No two are the same."""

    def __init__(self, seed: int) -> None:
        self._source = random.Random(f"{seed} texts")
        syllables = [first + second for first in "bdfghklmnprst" for second in ("a", "e", "i", "o", "u", "an", "er")]
        self._words = ["".join(self._source.choices(syllables, k=self._source.randint(2, 4))) for _ in range(_WORDS)]
        self._weights = [1 / (rank + 10) for rank in range(_WORDS)]
        self._made = 0

    def sentence(self, words: int) -> str:
        """So many words, the last of them a number that no other sentence has."""
        self._made += 1
        return " ".join([*self._source.choices(self._words, self._weights, k=words - 1), f"n{self._made}"])

    def note(self, tenant: str, key: str) -> Note:
        """About 90 characters of text, and what an application knows besides."""
        value = {
            "text": self.sentence(14),
            "kind": self._source.choice(KINDS),
            "stars": self._source.randint(1, 5),
            "source": {"thread": f"thread-{self._source.randint(1, 9)}", "message": self._made},
        }
        return Note(tenant, key, value)

    def question(self, tenant: str, wanted: dict[str, Any] | None = None) -> Question:
        """Of the length that people ask."""
        return Question(tenant, self.sentence(7), wanted)


class KnownVectors:
    """An embedder that was told all vectors beforehand: what is measured around it has no embedding in it."""

    name = "known vectors"
    dims = DIMS

    def __init__(self, seed: int) -> None:
        self.fingerprint = f"known{seed}"
        self._vectors: dict[str, NDArray[np.float32]] = {}

    def learn(self, texts: Sequence[str], vectors: Vectors) -> None:
        """From now on these texts have these vectors."""
        self._vectors |= zip(texts, vectors, strict=True)

    def forget(self, texts: Sequence[str]) -> None:
        """A million vectors are nothing to keep."""
        for text in texts:
            del self._vectors[text]

    def vector(self, text: str) -> NDArray[np.float32]:
        return self._vectors[text]

    def embed(self, texts: Sequence[str], what: TextKind = "document") -> Vectors:
        """See steps.Embedder."""
        if len(texts) == 1:
            return self._vectors[texts[0]].reshape(1, DIMS)  # stacking one takes 10 us that nobody else pays
        return np.stack([self._vectors[text] for text in texts])

    async def aembed(self, texts: Sequence[str], what: TextKind = "document") -> Vectors:
        """See steps.Embedder."""
        return self.embed(texts, what)

    async def as_lists(self, texts: Sequence[str]) -> list[list[float]]:
        """As LangChain's embedders answer."""
        return [self._vectors[text].tolist() for text in texts]


def chunks(count: int, size: int) -> Iterator[range]:
    """0 .. count in pieces of at most `size`."""
    for first in range(0, count, size):
        yield range(first, min(first + size, count))
