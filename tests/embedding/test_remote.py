"""A model behind a server: batches, retries inside a deadline, and errors that say what to do. Over real sockets."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio.to_thread
import numpy as np
import pytest

from rtmem.embedding import RemoteEmbedder
from rtmem.errors import ConfigError, EmbeddingError, EmbeddingUnavailableError
from rtmem.settings import Embedding
from rtmem.steps import TextKind
from tests.embedding.embedding_server import DIMS, Script, serving, vector

pytestmark = pytest.mark.anyio

Colour = Literal["sync", "async"]
BOTH_COLOURS = pytest.mark.parametrize("colour", ["sync", "async"])
KEY = "sk-secret"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    monkeypatch.setenv("MODEL_KEY", KEY)
    with serving() as script:
        yield script


def settings(script: Script, **changes: Any) -> Embedding:
    return Embedding(
        **{"base_url": script.url, "api_key_env": "MODEL_KEY", "dims": DIMS, "deadline_ms": 60_000, **changes}
    )


Ask = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def asking(colour: Colour, script: Script, **changes: Any) -> AsyncIterator[Ask]:
    """A function that embeds by an embedder of `colour`, which is closed afterwards."""
    embedder = RemoteEmbedder("tiny", settings(script, **changes))

    async def ask(texts: Sequence[str], what: TextKind = "document") -> Any:
        if colour == "async":
            return await embedder.aembed(texts, what)
        return await anyio.to_thread.run_sync(embedder.embed, texts, what)

    try:
        yield ask
    finally:
        await embedder.aclose()


def expected(*texts: str) -> Any:
    rows = np.array([vector(text) for text in texts], dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@BOTH_COLOURS
@pytest.mark.parametrize("as_numbers", [False, True], ids=["base64", "numbers"])
async def test_vectors_come_in_the_order_of_the_texts_and_of_unit_length(
    colour: Colour, as_numbers: bool, script: Script
) -> None:
    script.as_numbers, script.reverse = as_numbers, True
    async with asking(colour, script) as ask:
        vectors = await ask(["a", "bb", "cab"])
        assert (await ask([])).shape == (0, DIMS)
    assert vectors.dtype == np.float32
    assert np.allclose(vectors, expected("a", "bb", "cab"), atol=1e-6)
    (body,) = script.bodies
    assert (body["path"], body["model"], body["input"]) == ("/v1/embeddings", "tiny", ["a", "bb", "cab"])
    assert script.headers[0]["authorization"] == f"Bearer {KEY}"


@BOTH_COLOURS
async def test_many_texts_go_out_in_batches(colour: Colour, script: Script) -> None:
    texts = ["a" * n for n in range(1, 8)]
    async with asking(colour, script, request_texts_max=3) as ask:
        assert np.allclose(await ask(texts), expected(*texts), atol=1e-6)
    assert [len(body["input"]) for body in script.bodies] == [3, 3, 1]


@BOTH_COLOURS
async def test_prefixes_stand_in_front_of_texts_and_questions(colour: Colour, script: Script) -> None:
    async with asking(colour, script, document_prefix="passage: ", query_prefix="query: ") as ask:
        await ask(["a"])
        await ask(["a"], "query")
    assert [body["input"] for body in script.bodies] == [["passage: a"], ["query: a"]]


@BOTH_COLOURS
async def test_what_servers_refuse_or_json_cannot_hold_is_sent_as_something_else(
    colour: Colour, script: Script
) -> None:
    async with asking(colour, script) as ask:
        await ask(["", "\ud800", "a\0b"])
    assert script.bodies[0]["input"] == [" ", "?", "a\0b"]


@BOTH_COLOURS
async def test_without_a_key_none_is_sent(colour: Colour, script: Script) -> None:
    async with asking(colour, script, api_key_env="RTMEM_NO_SUCH_KEY") as ask:
        await ask(["a"])
    assert "authorization" not in script.headers[0]


@BOTH_COLOURS
@pytest.mark.parametrize(
    "failure",
    [
        "drop",
        (429, {"retry-after": "0"}, {"error": "slow down"}),
        (503, {"retry-after": "soon"}, b"busy"),
        (500, {}, b""),
    ],
    ids=["dropped", "429", "503", "500"],
)
async def test_what_may_pass_is_tried_again(colour: Colour, failure: Any, script: Script) -> None:
    script.next = [failure, failure]
    async with asking(colour, script) as ask:
        assert np.allclose(await ask(["a"]), expected("a"), atol=1e-6)
    assert len(script.bodies) == 3


@BOTH_COLOURS
async def test_only_the_batch_that_failed_is_sent_again(colour: Colour, script: Script) -> None:
    script.next = [None, (500, {}, b""), None]
    async with asking(colour, script, request_texts_max=1) as ask:
        await ask(["a", "b"])
    assert [body["input"] for body in script.bodies] == [["a"], ["b"], ["b"]]


@BOTH_COLOURS
async def test_a_server_that_stays_overloaded_is_given_up_at_the_deadline(colour: Colour, script: Script) -> None:
    script.always = (503, {}, b"busy")
    async with asking(colour, script, deadline_ms=700) as ask:
        with pytest.raises(
            EmbeddingUnavailableError, match=r"within 700 ms, attempts \d+, last: status 503 \(busy\)"
        ) as gave:
            await ask(["a"])
    assert gave.value.retryable
    assert len(script.bodies) >= 1


@BOTH_COLOURS
async def test_a_server_that_asks_for_more_patience_than_there_is_is_not_waited_for(
    colour: Colour, script: Script
) -> None:
    script.always = (429, {"retry-after": "3600"}, b"later")
    async with asking(colour, script) as ask:
        with pytest.raises(EmbeddingUnavailableError, match="attempts 1, last: status 429"):
            await ask(["a"])


@BOTH_COLOURS
async def test_a_server_that_hangs_is_given_up_at_the_deadline(colour: Colour, script: Script) -> None:
    script.always = "hang"
    async with asking(colour, script, deadline_ms=300) as ask:
        with pytest.raises(EmbeddingUnavailableError, match="within 300 ms"):
            await ask(["a"])
        script.release.set()


@BOTH_COLOURS
async def test_a_server_that_is_not_there_is_told(colour: Colour, script: Script) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        script.url = f"http://127.0.0.1:{nobody.getsockname()[1]}/v1"
        async with asking(colour, script, deadline_ms=300) as ask:
            with pytest.raises(EmbeddingUnavailableError, match=r"tiny at 127\.0\.0\.1"):
                await ask(["a"])


@BOTH_COLOURS
@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (400, "check the model's limits"),
        (401, "put a valid key into the variable MODEL_KEY"),
        (403, "may not use this model"),
        (404, "check base_url and the name of the model"),
        (413, "lower request_texts_max"),
        (302, "check the model's limits"),
    ],
)
async def test_a_refusal_is_final_and_says_what_to_do(colour: Colour, status: int, advice: str, script: Script) -> None:
    script.always = (status, {"location": script.url}, {"error": {"message": "no"}})
    async with asking(colour, script) as ask:
        with pytest.raises(EmbeddingError, match=f"refused 1 texts with status {status} .*no.*{advice}") as refused:
            await ask(["a"])
    assert not refused.value.retryable
    assert KEY not in str(refused.value)
    assert len(script.bodies) == 1


@BOTH_COLOURS
@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (b"<html>welcome</html>", "not that of an embeddings endpoint"),
        ({"data": [{"index": 0, "embedding": "%%%"}]}, "not that of an embeddings endpoint"),
        ({"data": [{"index": 0, "embedding": "AAA="}]}, "not that of an embeddings endpoint"),
        ({"data": []}, r"shape \(0,\) instead of \(1, 3\)"),
        ({"data": [{"index": 0, "embedding": [1.0, 2.0]}]}, r"shape \(1, 2\) instead of \(1, 3\)"),
        ({"data": [{"index": 0, "embedding": [0.0, 0.0, 0.0]}]}, "without direction"),
        ({"data": [{"index": at, "embedding": [1.0] * (3 - at)} for at in range(2)]}, "not rows of numbers"),
    ],
)
async def test_an_answer_that_is_none_is_told(colour: Colour, said: Any, complaint: str, script: Script) -> None:
    script.always = (200, {}, said)
    async with asking(colour, script) as ask:
        with pytest.raises(EmbeddingError, match=complaint):
            await ask(["a"])


async def test_a_cancelled_call_leaves_at_once_and_the_next_one_works(script: Script) -> None:
    embedder = RemoteEmbedder("tiny", settings(script))
    script.next = ["hang"]
    task = asyncio.create_task(embedder.aembed(["a"]))
    assert await anyio.to_thread.run_sync(script.begun.acquire)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not script.release.is_set()
    assert len(await embedder.aembed(["a"])) == 1
    await embedder.aclose()


async def test_an_embedder_that_was_closed_can_be_used_again(script: Script) -> None:
    embedder = RemoteEmbedder("tiny", settings(script))
    for _ in range(2):
        await embedder.aembed(["a"])
        await embedder.aclose()
    assert len(script.bodies) == 2


def test_one_embedder_serves_one_event_loop_after_another(script: Script) -> None:
    embedder = RemoteEmbedder("tiny", settings(script))

    async def once() -> None:
        await embedder.aembed(["a"])
        await embedder.aclose()

    asyncio.run(once())
    asyncio.run(once())
    gc.collect()  # warnings of sockets that nobody closed are errors here
    assert len(script.bodies) == 2


def test_the_size_of_its_vectors_must_be_given() -> None:
    with pytest.raises(ConfigError, match="dims is missing"):
        RemoteEmbedder("tiny", Embedding())


def test_whatever_changes_vectors_changes_the_fingerprint() -> None:
    base = Embedding(dims=3, base_url="http://here/v1")
    makes: list[tuple[str, Embedding]] = [
        ("tiny", base),
        ("large", base),
        ("tiny", Embedding(dims=4, base_url="http://here/v1")),
        ("tiny", Embedding(dims=3, base_url="http://there/v1")),
        ("tiny", Embedding(dims=3, base_url="http://here/v1", query_prefix="q: ")),
        ("tiny", Embedding(dims=3, base_url="http://here/v1", document_prefix="q: ")),
    ]
    assert len({RemoteEmbedder(*make).fingerprint for make in makes}) == len(makes)
    same = Embedding(dims=3, base_url="http://here/v1", deadline_ms=1, request_texts_max=1)
    assert RemoteEmbedder("tiny", same).fingerprint == RemoteEmbedder("tiny", base).fingerprint
