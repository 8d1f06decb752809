"""What is stored and asked in the benchmark: questions of people, and a crowd of made-up ones around them.

Questions of people are embedded by MiniLM in the measured time, as an application does it. They are of the dev half of
our labelled pairs: paraphrases that hit, so that a hit by meaning is one for everybody, and unrelated ones, which miss.
The crowd fills tenants; its vectors are known beforehand (see loadtest.memory.notes), so that filling takes seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadtest.cache_quality.sets import own
from loadtest.memory.verbs import Bench
from rtmem.cli.cache.comparing import EMBEDDED_AS
from rtmem.embedding import LocalEmbedder
from rtmem.operations.labelled_pairs import UNRELATED
from rtmem.operations.lexical_guard import compare
from rtmem.steps import TextKind

_MARGIN: Final = 0.9  # of the threshold: what hits does so whatever the last digits are
_ANSWER_WORDS: Final = 60


class Question(NamedTuple):
    """A question and its answer."""

    text: str
    answer: str


class Questions(NamedTuple):
    """What people ask."""

    stored: list[Question]  # their answers are in the cache
    asked: list[str]  # in other words, in the same order
    strange: list[str]  # nothing like that was asked


class Embedding:
    """MiniLM, but for texts whose vectors are known."""

    name = "all-MiniLM-L6-v2 int8, and known vectors"
    setting = "local"
    dims = LocalEmbedder.dims
    fingerprint = f"{LocalEmbedder.fingerprint}, and known"

    def __init__(self, model: LocalEmbedder) -> None:
        self._model = model
        self._known: dict[str, NDArray[np.float32]] = {}

    def learn(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """From now on these texts have these vectors: float32, shape (texts, dims), unit length."""
        self._known |= zip(texts, vectors, strict=True)

    def knowing(self, texts: Sequence[str]) -> Embedding:
        """The same, to whom these are known, too: what is measured around it has no embedding in it."""
        other = Embedding(self._model)
        other._known = dict(self._known)
        other.learn(texts, self.embed(texts, EMBEDDED_AS))
        return other

    def embed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        """See steps.Embedder."""
        if len(texts) == 1 and texts[0] in self._known:
            return self._known[texts[0]].reshape(1, self.dims)
        if all(text in self._known for text in texts):
            return np.stack([self._known[text] for text in texts])
        return self._model.embed(texts, what)

    async def aembed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        """See steps.Embedder."""
        if all(text in self._known for text in texts):
            return self.embed(texts, what)
        return await self._model.aembed(texts, what)


def questions(bench: Bench, model: LocalEmbedder, threshold: float, most: int) -> Questions:
    """Of the dev pairs, at most so many: paraphrases that hit with room to spare, and unrelated ones."""
    pairs = own("en", "dev", 0, 0).pairs
    same = [pair for pair in pairs if pair.same and compare(pair.second, pair.first) is None][: 4 * most]
    first, second = (model.embed([pair[side] for pair in same], EMBEDDED_AS) for side in (1, 2))
    near = 1 - np.einsum("ij,ij->i", first, second) <= _MARGIN * threshold
    hitting = [pair for pair, hits in zip(same, near.tolist(), strict=True) if hits][:most]
    return Questions(
        stored=[Question(pair.first, answer(bench)) for pair in hitting],
        asked=[pair.second for pair in hitting],
        strange=[pair.second for pair in pairs if pair.kind == UNRELATED][:most],
    )


def crowd(bench: Bench, embedding: Embedding, tenant: str, count: int) -> list[Question]:
    """Made-up questions of one tenant."""
    made = [Question(bench.texts.sentence(9), answer(bench)) for _ in range(count)]
    embedding.learn([question.text for question in made], bench.topics.draw(tenant, count, everything=True))
    return made


def answer(bench: Bench) -> str:
    """About 400 characters."""
    return bench.texts.sentence(_ANSWER_WORDS)
