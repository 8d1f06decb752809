"""Models in this process: the same vector for the same text, whatever stands beside it, and a loop that goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rtmem.embedding import LocalEmbedder, MultilingualEmbedder
from rtmem.embedding.in_process import InProcess, verified
from rtmem.errors import EmbeddingError

pytestmark = pytest.mark.anyio

TEXTS = (
    "Ann lives in Oslo.",
    "",
    "Boats",
    "Ann moved from Rome to Oslo in the spring of 2021, and Bob stayed.",
    "Boats",
)
HOSTILE = (
    *("\0", "a\0b", "\ud800 half a pair", "\ufdfa" * 5_000, "\u200d\u0301" * 3_000, "\U0001f469\u200d\U0001f467" * 999),
    *("x" * 200_000, " " * 200_000, "[CLS] [SEP] [MASK] </s> <pad>", "\uffff\ufffe", "\r\n\t\x1b[2J"),
)


@pytest.fixture(params=[LocalEmbedder, MultilingualEmbedder], ids=["local", "multilingual"])
def embedder(request: pytest.FixtureRequest) -> Iterator[InProcess]:
    embedder: InProcess = request.param()
    yield embedder
    embedder.close()


def test_vectors_are_float32_rows_of_unit_length(embedder: InProcess) -> None:
    vectors = embedder.embed(TEXTS)
    assert (vectors.shape, vectors.dtype, vectors.flags.c_contiguous) == ((5, 384), np.float32, True)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert embedder.embed(()).shape == (0, 384)


async def test_a_text_has_the_same_vector_alone_in_a_batch_again_and_in_both_colours(embedder: InProcess) -> None:
    together = embedder.embed(TEXTS)
    alone = np.concatenate([embedder.embed([text]) for text in TEXTS])
    assert np.array_equal(together, alone)
    assert np.array_equal(together, await embedder.aembed(TEXTS))
    assert np.array_equal(embedder.embed(TEXTS[::-1]), together[::-1])


def test_meaning_is_nearer_than_words(embedder: InProcess) -> None:
    question, *texts = embedder.embed(["Where does Ann live?"], "query")[0], *embedder.embed(TEXTS)
    scores = [float(question @ text) for text in texts]
    assert max(scores) == scores[0]
    assert min(scores) in (scores[1], scores[2])


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_has_a_vector_too_and_harms_nothing(embedder: InProcess, text: str) -> None:
    before = embedder.embed(["Boats"])
    assert np.isfinite(embedder.embed([text])).all()
    assert np.array_equal(embedder.embed(["Boats"]), before)


def test_what_follows_a_nul_still_counts(embedder: InProcess) -> None:
    here, there = embedder.embed(["Ann lives in\0Oslo", "Ann lives in\0Rome"])
    assert not np.array_equal(here, there)


def test_questions_and_answers_differ_where_the_model_wants_it() -> None:
    local, multilingual = LocalEmbedder(), MultilingualEmbedder()
    assert np.array_equal(local.embed(["Oslo"], "query"), local.embed(["Oslo"], "document"))
    assert not np.array_equal(multilingual.embed(["Oslo"], "query"), multilingual.embed(["Oslo"], "document"))


def test_the_multilingual_model_compares_across_languages() -> None:
    embedder = MultilingualEmbedder()
    (question,) = embedder.embed(["Где живёт Аня?"], "query")
    oslo, boats = embedder.embed(["Ann lives in Oslo.", "Boats need paint."])
    assert question @ oslo > question @ boats


def test_each_model_has_a_fingerprint_of_its_own() -> None:
    assert LocalEmbedder().fingerprint == LocalEmbedder().fingerprint
    assert LocalEmbedder.fingerprint != MultilingualEmbedder.fingerprint


def test_weights_that_are_not_those_of_the_fingerprint_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    with pytest.raises(EmbeddingError, match="reinstall its package"):
        verified(file, "0" * 64, "m")
    file.write_bytes(b"other weights")
    with pytest.raises(EmbeddingError, match="another file than the one whose vectors are stored"):
        verified(file, "0" * 64, "m")
