"""What an index of many items costs and finds: search time, recall against exact search, bytes, building.

One index holds all tenants. Half of its items belong to tenants of 100, the other half to a single one: of 200,000,
a thousand of 100 and one of 100,000. Each size of each kind has a server of its own, and all take turns.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import anyio
import numpy as np
import redis
import redis.asyncio

from loadtest.memory.notes import Note, Question, Vectors, chunks
from loadtest.memory.raw import LIMIT
from loadtest.memory.stores import FILL_BATCH, rtmem_store
from loadtest.memory.verbs import Bench, tenant_name
from loadtest.servers import Server, redis_server
from rtmem import settings
from rtmem.loadtest import Contender, Experiment, Measured
from rtmem.operations import memory_queries
from rtmem.store import AsyncRedisStore

Kind = Literal["hnsw", "flat"]

BASE: Final = 10_000
INDEX, WAYS = "index", "ways to search an HNSW index"
SMALL, LARGE = "recall of 100", "recall of half"
_TENANT: Final = 100
_LARGE: Final = "large"
_FLAT_MAX: Final = 200_000  # above, nobody would wait for it
_QUESTIONS: Final = 50
_DRAWN: Final = 1_000
_WRITERS: Final = 2  # so that one makes its batch while Redis works on that of the other
_BYTES_AN_ITEM: Final = 6_500
_MEMORY_SHARE: Final = 0.8
_WAYS: Final = (
    "",
    "HYBRID_POLICY ADHOC_BF",
    *(f"HYBRID_POLICY BATCHES EF_RUNTIME {ef}" for ef in (10, 32, 64, 128, 256)),
)


@dataclass(slots=True)
class Filled:
    """An index with so many items, on a server of its own."""

    kind: Kind
    items: int
    server: Server
    store: AsyncRedisStore
    facts: dict[str, float] = field(default_factory=dict)
    small: list[tuple[Question, set[str]]] = field(default_factory=list)  # and the keys that exact search finds
    large: list[tuple[Question, set[str]]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.items:,} items"


async def growth(bench: Bench, largest: int) -> list[Experiment]:
    """Search, recall and cost of indexes of some sizes up to `largest` items."""
    experiments: list[Experiment] = []
    rows: list[Measured] = []
    efs: list[Measured] = []
    for kind in ("flat", "hnsw"):
        sizes = [size for size in _sizes(bench, largest) if kind == "hnsw" or size <= _FLAT_MAX]
        async with AsyncExitStack() as stack:
            filled = [await stack.enter_async_context(_filled(bench, kind, size)) for size in sizes]
            for each in filled:
                each.facts[SMALL] = await _recall(each, each.small)
                each.facts[LARGE] = await _recall(each, each.large)
            for what, asked in (("of 100", "small"), ("of half of all", "large")):
                contenders = [_searching(each, getattr(each, asked)) for each in filled]
                name = f"search, {kind}, a tenant {what}"
                experiments.append(await bench.measure(name, contenders, operations=20, baseline=filled[0].name))
            if kind == "hnsw":
                efs = [Measured(contender=how or "as the store asks", facts=_asked_so(filled, how)) for how in _WAYS]
            rows += [Measured(contender=f"{kind}, {each.name}", facts=each.facts) for each in filled]
    note = (
        f"recall@{LIMIT} against exact search by numpy; B: growth of used_memory an item, keys and values included; "
        "build: from empty, through the store"
    )
    whole = {"baseline": "", "concurrency": 1, "rounds": 1, "operations": _QUESTIONS}
    experiments.append(Experiment(name=INDEX, rows=rows, fact="B an item", note=note, **whole))  # type: ignore[arg-type]
    note = (
        "the large tenant: recall, and median us of a query. ADHOC_BF compares with each item of the scope, BATCHES "
        "walks the graph; unless it is told, the engine chooses by the size of the index and the share of the scope"
    )
    experiments.append(Experiment(name=WAYS, rows=efs, note=note, **whole))  # type: ignore[arg-type]
    return experiments


def _sizes(bench: Bench, largest: int) -> list[int]:
    fits = int(_memory_bytes() * _MEMORY_SHARE / _BYTES_AN_ITEM)
    if largest > fits:
        bench.notes.append(f"growth: {largest:,} items would not fit into memory, {fits:,} do")
        largest = fits
    wanted = [BASE, _FLAT_MAX]
    return (
        [*(size for size in wanted if size < largest), largest] if largest > BASE else [max(200, largest // 4), largest]
    )


def _memory_bytes() -> int:
    """What one server may take: an embedded one is limited to half of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


# Filling -------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _filled(bench: Bench, kind: Kind, items: int) -> AsyncIterator[Filled]:
    with redis_server() as server:
        async with rtmem_store(server.url, bench.known, "growth", settings.Store(vectors=kind)) as store:
            found = Filled(kind, items, server, store)
            await _fill(bench, found)
            yield found


async def _fill(bench: Bench, filled: Filled) -> None:
    small = max(1, filled.items // 2 // _TENANT)
    large = filled.items - small * _TENANT
    _ask(bench, filled, small)
    notes = _notes(bench, filled, small, large)
    what = f"filling {filled.kind} with {filled.name}"
    bench.bar.describe(what)
    bench.bar.announce(small + len(list(chunks(large, _DRAWN))))
    client = redis.asyncio.Redis.from_url(filled.server.url)
    before = (await client.info("memory"))["used_memory"]
    begin = time.monotonic()

    async def write() -> None:
        for made in notes:
            bench.bar.describe(what)
            for part in chunks(len(made), FILL_BATCH):
                from_part = [made[number] for number in part]
                await filled.store.abatch(_puts(from_part))
            bench.known.forget([note.value["text"] for note in made])
            bench.bar.step()

    async with anyio.create_task_group() as tasks:
        for _ in range(_WRITERS):
            tasks.start_soon(write)
    filled.facts["build s"] = time.monotonic() - begin
    filled.facts["B an item"] = ((await client.info("memory"))["used_memory"] - before) / filled.items
    await client.aclose()


def _puts(notes: Sequence[Note]) -> list[Any]:
    from langgraph.store.base import PutOp

    return [PutOp(note.namespace, note.key, note.value) for note in notes]


def _notes(bench: Bench, filled: Filled, small: int, large: int) -> Iterator[list[Note]]:
    """All notes, many at a time, with their vectors known; what exact search finds among them is noted on the way."""
    asked_small = {question.tenant: exact for question, exact in filled.small}
    for tenant in map(tenant_name, range(small)):
        vectors = bench.topics.draw(tenant, _TENANT)
        made = _named(bench, tenant, range(_TENANT), vectors)
        if tenant in asked_small:
            question = next(question for question, _ in filled.small if question.tenant == tenant)
            nearest = np.argsort(-(vectors @ bench.known.vector(question.text)))[:LIMIT]
            asked_small[tenant].update(f"note-{number}" for number in nearest)
        yield made
    queries = bench.known.embed([question.text for question, _ in filled.large])
    best: Vectors = np.full((len(queries), LIMIT), -np.inf, dtype=np.float32)
    where = np.zeros((len(queries), LIMIT), dtype=np.int64)
    for part, numbers in enumerate(chunks(large, _DRAWN)):
        vectors = bench.topics.draw(_LARGE, len(numbers), part, everything=True)
        made = _named(bench, _LARGE, numbers, vectors)
        scores = np.concatenate([best, queries @ vectors.T], axis=1)
        places = np.concatenate([where, np.broadcast_to(np.array(numbers), (len(queries), len(numbers)))], axis=1)
        order = np.argsort(-scores, axis=1)[:, :LIMIT]
        best, where = np.take_along_axis(scores, order, axis=1), np.take_along_axis(places, order, axis=1)
        yield made
    for (_, exact), row in zip(filled.large, where, strict=True):
        exact.update(f"note-{number}" for number in row)


def _named(bench: Bench, tenant: str, numbers: Sequence[int], vectors: Vectors) -> list[Note]:
    made = [bench.texts.note(tenant, f"note-{number}") for number in numbers]
    bench.known.learn([note.value["text"] for note in made], vectors)
    return made


def _ask(bench: Bench, filled: Filled, small: int) -> None:
    """Questions of some small tenants, and of the large one."""
    tenants = [tenant_name(number * small // min(small, _QUESTIONS)) for number in range(min(small, _QUESTIONS))]
    filled.small = [(bench.texts.question(tenant), set()) for tenant in tenants]
    filled.large = [(bench.texts.question(_LARGE), set()) for _ in range(_QUESTIONS)]
    for part, (question, _) in enumerate([*filled.small, *filled.large], 10**6):
        vector = bench.topics.draw(question.tenant, 1, part, everything=question.tenant == _LARGE)
        bench.known.learn([question.text], vector)


# Asking --------------------------------------------------------------------------------------------------------------


async def _recall(filled: Filled, asked: Sequence[tuple[Question, set[str]]]) -> float:
    shares = []
    for question, exact in asked:
        found = await filled.store.asearch((question.tenant,), query=question.text, limit=LIMIT)
        shares.append(len({item.key for item in found} & exact) / len(exact))
    return float(np.mean(shares))


def _searching(filled: Filled, asked: Sequence[tuple[Question, set[str]]]) -> Contender:
    async def search(question: Question) -> object:
        return await filled.store.asearch((question.tenant,), query=question.text, limit=LIMIT)

    return Contender(filled.name, search, lambda number: asked[number % len(asked)][0], filled.server.pid)


def _asked_so(filled: Sequence[Filled], how: str) -> dict[str, float]:
    """Recall in the large tenant and time of a query, of each size, with words about how to search."""
    facts: dict[str, float] = {}
    for each in filled:
        scope = each.store.scope
        clause = memory_queries.scope_clause(scope.principal, (_LARGE,))
        knn = f"({clause})=>[KNN {LIMIT} @{scope.index.vector_field} $vector {how} AS distance]"
        shares, took_us = [], []
        with redis.Redis.from_url(each.server.url, protocol=2) as client:
            for question, exact in each.large:
                assert scope.embedder is not None
                vector = scope.embedder.embed([question.text])[0].tobytes()
                order = ("SORTBY", "distance", "ASC", "RETURN", 1, "k", "DIALECT", 2, "LIMIT", 0, LIMIT)
                begin = time.perf_counter_ns()
                found: Any = client.execute_command(
                    "FT.SEARCH", scope.index.alias, knn, *order, "PARAMS", 2, "vector", vector
                )
                took_us.append((time.perf_counter_ns() - begin) / 1000)
                keys = {row[row.index(b"k") + 1].decode() for row in found[2::2]}
                shares.append(len(keys & exact) / len(exact))
        facts[f"recall, {each.name}"] = float(np.mean(shares))
        facts[f"us, {each.name}"] = float(np.median(took_us))
    return facts
