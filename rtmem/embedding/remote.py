"""A model behind an OpenAI-compatible server: POST {base_url}/embeddings, in batches, retried until a deadline.

`_exchange` decides, and does no I/O: it yields what to send and how long to wait, so that both colours are one
algorithm.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import random
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import httpx
import msgspec
import numpy as np
from numpy.typing import NDArray

from rtmem.embedding.contract import PASSING, encodable, unit_rows
from rtmem.errors import ConfigError, EmbeddingError, EmbeddingUnavailableError
from rtmem.settings import Embedding
from rtmem.steps import R, TextKind

_SAID_CHARACTERS_MAX: Final = 300
"""Of a server's complaint, in an error."""

_CONNECTIONS_MAX: Final = 8

_PAUSE_S: Final = 0.1
"""Before the first retry, on average 150 ms; twice that before each one after."""


@dataclass(frozen=True, slots=True)
class _Post:
    body: bytes
    timeout_s: float


@dataclass(frozen=True, slots=True)
class _Pause:
    seconds: float


_Answer: TypeAlias = httpx.Response | httpx.TransportError | None
_Steps: TypeAlias = Generator[_Post | _Pause, _Answer, R]
_Exchange: TypeAlias = _Steps[NDArray[np.float32]]


class _Row(msgspec.Struct):
    embedding: list[float] | str  # a string is base64 of float32, which some servers prefer
    index: int = -1


class _Reply(msgspec.Struct):
    data: list[_Row]


class RemoteEmbedder:
    """`model` of the server at `settings.base_url`. Extra `embedding-remote`.

    Its key is read from the environment when the embedder is made; only the variable's name is a setting, and no error
    shows the key. Redirects are not followed, for the key would follow them.
    """

    def __init__(self, model: str, settings: Embedding) -> None:
        if not settings.dims:
            raise ConfigError(
                f"[embedding] dims is missing, the size of the vectors of remote model {model!r}: the "
                "index is made before the first text is sent"
            )
        self.name = f"{model} at {httpx.URL(settings.base_url).host}"
        self.setting = f"remote:{model}"
        self.dims = settings.dims
        self.fingerprint = msgspec.json.encode(
            ("remote", settings.base_url, model, settings.document_prefix, settings.query_prefix, settings.dims)
        ).decode()
        self._model = model
        self._settings = settings
        key = os.environ.get(settings.api_key_env, "")
        self._options: dict[str, Any] = {
            "headers": {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})},
            "limits": httpx.Limits(max_connections=_CONNECTIONS_MAX),
            # Here, once: reading the certificates takes 20 ms, and a client is made on each event loop.
            "verify": httpx.create_ssl_context() if settings.base_url.startswith("https:") else False,
        }
        self._url = settings.base_url.rstrip("/") + "/embeddings"
        self._client: httpx.Client | None = None
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()

    def embed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        """See steps.Embedder."""
        if self._client is None:
            self._client = httpx.Client(**self._options)
        exchange = self._exchange(texts, what)
        answer: _Answer = None
        try:
            while True:
                asked = exchange.send(answer)
                answer = None
                if isinstance(asked, _Pause):
                    time.sleep(asked.seconds)
                    continue
                try:
                    answer = self._client.post(self._url, content=asked.body, timeout=asked.timeout_s)
                except httpx.TransportError as exc:
                    answer = exc
        except StopIteration as stop:
            vectors: NDArray[np.float32] = stop.value
            return vectors

    async def aembed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        """See steps.Embedder."""
        loop = asyncio.get_running_loop()
        if (client := self._clients.get(loop)) is None:
            # Connections belong to the event loop on which they were made.
            client = self._clients[loop] = httpx.AsyncClient(**self._options)
        exchange = self._exchange(texts, what)
        answer: _Answer = None
        try:
            while True:
                asked = exchange.send(answer)
                answer = None
                if isinstance(asked, _Pause):
                    await asyncio.sleep(asked.seconds)
                    continue
                try:
                    async with asyncio.timeout(asked.timeout_s):
                        answer = await client.post(self._url, content=asked.body, timeout=None)
                except TimeoutError:
                    answer = httpx.ReadTimeout("no answer")
                except httpx.TransportError as exc:
                    answer = exc
        except StopIteration as stop:
            vectors: NDArray[np.float32] = stop.value
            return vectors

    def _exchange(self, texts: Sequence[str], what: TextKind) -> _Exchange:
        prefix = self._settings.query_prefix if what == "query" else self._settings.document_prefix
        deadline = time.monotonic() + self._settings.deadline_ms / 1000
        step = self._settings.request_texts_max
        batches = []
        for start in range(0, len(texts), step):
            # Many servers refuse an empty text, and with it the whole batch.
            batch = [encodable(prefix + text) or " " for text in texts[start : start + step]]
            batches.append(self._vectors((yield from self._answered(batch, deadline)), len(batch)))
        return np.concatenate(batches) if batches else np.empty((0, self.dims), np.float32)

    def _answered(self, batch: list[str], deadline: float) -> _Steps[httpx.Response]:
        """The server's answer to one batch, after as many attempts as the deadline allows."""
        # Numbers as text would take three times as many bytes, and ten times as long to read, on the event loop.
        body = msgspec.json.encode({"model": self._model, "input": batch, "encoding_format": "base64"})
        attempts = 0
        answer: _Answer = None
        while (left_s := deadline - time.monotonic()) > 0:
            answer = yield _Post(body, left_s)
            attempts += 1
            if isinstance(answer, httpx.Response):
                if answer.is_success:
                    return answer
                if answer.status_code not in PASSING:
                    raise self._refused(answer, len(batch))
            pause_s = max(_retry_after_s(answer), _PAUSE_S * 2.0 ** min(attempts, 6) * random.uniform(0.5, 1.0))
            if time.monotonic() + pause_s >= deadline:
                break
            yield _Pause(pause_s)
        raise self._unavailable(answer, attempts)

    def _vectors(self, answer: httpx.Response, count: int) -> NDArray[np.float32]:
        try:
            rows = msgspec.json.decode(answer.content, type=_Reply).data
            if all(row.index >= 0 for row in rows):
                rows.sort(key=lambda row: row.index)
            vectors = [_numbers(row.embedding) for row in rows]
        except (msgspec.DecodeError, binascii.Error, ValueError) as exc:
            raise EmbeddingError(
                f"model {self.name!r}: the answer is not that of an embeddings endpoint ({exc}): check base_url",
                model=self.name,
            ) from exc
        return unit_rows(vectors, count, self.dims, self.name)

    def _refused(self, answer: httpx.Response, count: int) -> EmbeddingError:
        advice = {
            401: f"put a valid key into the variable {self._settings.api_key_env}",
            403: f"the key in {self._settings.api_key_env} may not use this model",
            404: "check base_url and the name of the model",
            413: "lower request_texts_max",
        }.get(answer.status_code, "check the model's limits")
        return EmbeddingError(
            f"model {self.name!r} refused {count} texts with status {answer.status_code} "
            f"({answer.text[:_SAID_CHARACTERS_MAX]}): {advice}",
            model=self.name,
            status=answer.status_code,
        )

    def _unavailable(self, answer: _Answer, attempts: int) -> EmbeddingUnavailableError:
        if isinstance(answer, httpx.Response):
            found = f"status {answer.status_code} ({answer.text[:_SAID_CHARACTERS_MAX]})"
        else:
            found = f"{type(answer).__name__}: {answer}" if answer is not None else "no answer"
        error = EmbeddingUnavailableError(
            f"model {self.name!r} gave no vectors within {self._settings.deadline_ms} ms, attempts {attempts}, last: "
            f"{found}: try again later, or raise deadline_ms",
            model=self.name,
        )
        error.__cause__ = answer if isinstance(answer, Exception) else None
        return error

    def close(self) -> None:
        """Close the connections of blocking calls."""
        if self._client is not None:
            self._client.close()
            self._client = None

    async def aclose(self) -> None:
        """Close the connections of this event loop, and those of blocking calls."""
        self.close()
        if (client := self._clients.pop(asyncio.get_running_loop(), None)) is not None:
            await client.aclose()


def _numbers(embedding: list[float] | str) -> NDArray[np.float32]:
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
    return np.array(embedding, dtype=np.float32)


def _retry_after_s(answer: _Answer) -> float:
    if not isinstance(answer, httpx.Response):
        return 0.0
    try:
        return max(0.0, float(answer.headers.get("retry-after", "0")))
    except ValueError:  # a date
        return 0.0
