"""One kind of index at a time: filled through the store, its server stopped and started again, then searched.

The vectors lie in clusters, as those of texts do: in random ones nothing is near, and every index looks bad.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import redis
from langgraph.store.base import PutOp
from numpy.typing import NDArray

from rtmem import settings
from rtmem.loadtest import Experiment, Latency, Measured
from rtmem.loadtest.console import Bar
from rtmem.operations.memory_state import look
from rtmem.server import embedded
from rtmem.server.embedded import Embedded
from rtmem.steps import TextKind
from rtmem.store import RedisStore

KINDS: Final = ("flat", "hnsw", "vector set")

_DIMS: Final = 384
_CLUSTERS: Final = 200
_SPREAD: Final = 0.6  # of a cluster against the distance of clusters
_QUERIES: Final = 200
_NEAREST: Final = 10
_BATCH: Final = 500
_START_TIMEOUT_MS: Final = 1_800_000
_NAMESPACE: Final = ("loadtest",)
_SET: Final = "loadtest:vectors"


class Drawn:
    """An embedder whose vectors were drawn before: the text is a number, a question is one with a `q`."""

    name = "drawn"
    fingerprint = "drawn384"
    dims = _DIMS

    def __init__(self, size: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        centres = random.standard_normal((_CLUSTERS, _DIMS), np.float32)
        self.items = _unit(centres[random.integers(_CLUSTERS, size=size)], random)
        self.questions = _unit(centres[random.integers(_CLUSTERS, size=_QUERIES)], random)

    def embed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        """See steps.Embedder."""
        drawn = [self.questions[int(text[1:])] if text[0] == "q" else self.items[int(text)] for text in texts]
        return np.stack(drawn)

    async def aembed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        """See steps.Embedder."""
        return self.embed(texts, what)

    def nearest(self) -> list[set[int]]:
        """What is nearest to each question, exactly."""
        return [set(np.argsort(-(self.items @ question))[:_NEAREST].tolist()) for question in self.questions]


def _unit(centres: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
    rows = centres + _SPREAD * random.standard_normal(centres.shape, np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def restarts(kinds: Sequence[str], size: int, seed: int, bar: Bar) -> tuple[Experiment, str]:
    """All kinds with `size` items, and the version of the server."""
    drawn = Drawn(size, seed)
    exact = drawn.nearest()
    rows, version = [], ""
    for kind in kinds:
        bar.describe(f"{kind}, {size:,} items")
        row, version = _measured(kind, drawn, exact)
        rows.append(row)
        bar.step()
    experiment = Experiment(
        name=f"{size:,} items",
        baseline=KINDS[0],
        concurrency=1,
        rounds=1,
        operations=_QUERIES,
        rows=rows,
        note="ms up: until the server answers; ms whole: until a search sees everything. Searched: the 10 nearest, by "
        "RedisStore.search with the embedding done, or by VSIM. Each kind has a server of its own (profile balanced), "
        "one after the other. A vector set holds no values.",
    )
    return experiment, version


@dataclass(frozen=True, slots=True)
class Filled:
    """An index at work."""

    find: Callable[[int], set[int]]  # the nearest to a question
    ready: Callable[[], bool]  # whether a search sees everything


def _measured(kind: str, drawn: Drawn, exact: Sequence[set[int]]) -> tuple[Measured, str]:
    folder = tempfile.mkdtemp(prefix="rtmem-loadtest-")
    try:
        with _server(folder) as server, redis.Redis.from_url(server.url) as client, _opened(kind, server, drawn) as _:
            before = _used_bytes(client)
            began = time.monotonic()
            (_fill_set if kind == "vector set" else _fill_store)(kind, server, drawn)
            fill_s = time.monotonic() - began
            each_bytes = (_used_bytes(client) - before) / len(drawn.items)
            version = str(client.info("server")["redis_version"])
            # As after a day of work: a log that was rewritten, and not the record of how the index was filled.
            client.bgrewriteaof()
            while client.info("persistence")["aof_rewrite_in_progress"]:
                time.sleep(0.05)
        began = time.monotonic()
        with _server(folder) as server:
            up_s = time.monotonic() - began
            with _opened(kind, server, drawn) as filled:
                while not filled.ready():
                    time.sleep(0.01)
                whole_s = time.monotonic() - began
                took, recalls = _searched(filled, exact)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    facts = {
        "ms up": up_s * 1_000,
        "ms whole": whole_s * 1_000,
        "us to insert": fill_s * 1e6 / len(drawn.items),
        "bytes each": each_bytes,
        "recall@10": sum(recalls) / len(recalls),
    }
    return Measured(contender=kind, latency=Latency.of(took), facts=facts), version


@contextmanager
def _server(folder: str) -> Iterator[Embedded]:
    made = settings.Server(data_dir=folder, profile="balanced", start_timeout_ms=_START_TIMEOUT_MS)
    with embedded.start(made) as server:
        yield server


@contextmanager
def _opened(kind: str, server: Embedded, drawn: Drawn) -> Iterator[Filled]:
    with redis.Redis.from_url(server.url) as client, _store(kind, server, drawn) as store:
        if kind == "vector set":
            yield Filled(lambda n: _find_in_set(client, drawn, n), lambda: True)
            return

        def ready() -> bool:
            index = store.run(look(store.scope.index)).index
            return index is not None and index.ready and index.documents == len(drawn.items)

        yield Filled(lambda n: {int(item.key) for item in store.search(_NAMESPACE, query=f"q{n}", limit=10)}, ready)


def _store(kind: str, server: Embedded, drawn: Drawn) -> RedisStore:
    chosen: Any = "hnsw" if kind == "hnsw" else "flat"
    index: Any = {"embed": drawn, "dims": _DIMS, "fields": ["text"]}
    return RedisStore(
        server.url,
        index=index,
        settings=settings.Store(vectors=chosen),
        principal="loadtest",
        # A batch into HNSW takes longer than anybody should wait for a single answer.
        connection_args={"deadline_ms": 600_000},
    )


def _fill_store(kind: str, server: Embedded, drawn: Drawn) -> None:
    with _store(kind, server, drawn) as store:
        for first in range(0, len(drawn.items), _BATCH):
            last = min(first + _BATCH, len(drawn.items))
            store.batch([PutOp(_NAMESPACE, str(n), {"text": str(n), "n": n}) for n in range(first, last)])


def _fill_set(_kind: str, server: Embedded, drawn: Drawn) -> None:
    with redis.Redis.from_url(server.url, socket_timeout=600) as client:
        for first in range(0, len(drawn.items), _BATCH):
            with client.pipeline(transaction=False) as pipe:
                for n in range(first, min(first + _BATCH, len(drawn.items))):
                    pipe.execute_command("VADD", _SET, "FP32", drawn.items[n].tobytes(), str(n))
                pipe.execute()


def _find_in_set(client: redis.Redis, drawn: Drawn, n: int) -> set[int]:
    question = drawn.questions[n].tobytes()
    found: Any = client.execute_command("VSIM", _SET, "FP32", question, "COUNT", _NEAREST)  # type: ignore[no-untyped-call]
    return {int(each) for each in found}


def _searched(filled: Filled, exact: Sequence[set[int]]) -> tuple[list[float], list[float]]:
    """How long each search took, in us, and how much of the exact answer it had."""
    took, recalls = [], []
    filled.find(0)  # connections are made, names are cached
    for n, right in enumerate(exact):
        began = time.perf_counter_ns()
        found = filled.find(n)
        took.append((time.perf_counter_ns() - began) / 1_000)
        recalls.append(len(found & right) / len(right))
    return took, recalls


def _used_bytes(client: redis.Redis) -> int:
    # The engine's own memory is not in used_memory: what the process takes is.
    return int(client.info("memory")["used_memory_rss"])
