"""`python -m loadtest checkpoint`: rtmem's savers, their peers and the floor in one interleaved run."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
from redis.asyncio import Redis
from rich.console import Console

from loadtest.checkpoint import floor as floors
from loadtest.checkpoint.graphs import end_to_end, growth, on_the_wire
from loadtest.checkpoint.many_threads import many_threads
from loadtest.checkpoint.operations import Bench, get_latest, put_appended, put_whole, put_writes
from loadtest.checkpoint.savers import redis_peers, rtmem_kinds, subjects
from loadtest.checkpoint.targets import verdicts
from loadtest.servers import Server, redis_server
from rtmem.loadtest import Experiment, Report, describe_machine, peak_rss_bytes, versions_of, write_json
from rtmem.loadtest.console import Bar, progress_bar, show
from rtmem.loadtest.picture import write_picture

_MANY: Final = "many threads"
PACKAGES = (
    "rtmem",
    "langgraph",
    "langgraph-checkpoint",
    "redis",
    "hiredis",
    "langgraph-checkpoint-redis",
    "redisvl",
    "langgraph-checkpoint-plainredis",
    "langgraph-checkpoint-postgres",
    "psycopg",
    "langgraph-checkpoint-sqlite",
    "aiosqlite",
)


Step: TypeAlias = Callable[[Bench, Redis], Awaitable[Experiment]]


def names(given: argparse.Namespace) -> list[str]:
    """What `--only` chooses from."""
    return [*(name for name, _ in _steps(given)), _MANY]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.add_argument("--peers", action="store_true", help="with the other savers (extra `bench`)")
    parser.add_argument("--quick", action="store_true", help="under a minute: fewer rounds, the main sizes only")
    parser.add_argument("--full", action="store_true", help="more rounds, and 1,000,000 threads")
    parser.add_argument("--threads", type=int, default=0, help="many threads: how many (50,000; --full: 1,000,000)")
    every = ", ".join(names(argparse.Namespace(quick=False, peers=False)))
    parser.add_argument("--only", default="", help=f"only what has one of these in its name, by comma: {every}")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="order of turns and all content")
    parser.add_argument("--out", type=Path, default=Path("results"), help="where checkpoint.json and .png go")


def main(given: argparse.Namespace) -> int:
    """Run, print, write."""
    # A file or a pipe has no width of its own.
    console = Console(width=None if sys.stdout.isatty() else 150)
    report = anyio.run(_run, given, console)
    show(report, console)
    write_json(report, given.out / "checkpoint.json")
    write_picture(report, given.out / "checkpoint.png")
    console.print(f"written: {given.out / 'checkpoint.json'}, {given.out / 'checkpoint.png'}")
    return 0


async def _run(given: argparse.Namespace, console: Console) -> Report:
    started, begin = datetime.now(UTC), time.monotonic()
    machine = describe_machine()
    console.print(f"seed {given.seed} (repeat with --seed {given.seed})")
    notes: list[str] = []
    with redis_server() as server, progress_bar(console) as bar:
        experiments = await _experiments(given, server, bar, notes)
    return Report(
        title="Checkpoint savers" + (", quick run" if given.quick else ""),
        seed=given.seed,
        started_at=started.isoformat(timespec="seconds"),
        duration_s=round(time.monotonic() - begin, 1),
        machine=machine,
        versions={"redis-server": server.version} | versions_of(PACKAGES),
        peak_rss_bytes=peak_rss_bytes(),
        experiments=experiments,
        verdicts=verdicts(experiments),
        notes=notes,
    )


async def _experiments(given: argparse.Namespace, server: Server, bar: Bar, notes: list[str]) -> list[Experiment]:
    async with AsyncExitStack() as stack:
        connection = floors.client(server.url)
        stack.push_async_callback(connection.aclose)
        taking_part = await stack.enter_async_context(subjects(server, peers=given.peers, on_absent=notes.append))
        cold = await stack.enter_async_context(subjects(server, peers=False, cache=False, on_absent=notes.append))
        theirs = [subject for subject in taking_part if not subject.ours]
        bench = Bench(
            floor=floors.Floor(connection),
            server=server,
            subjects=taking_part,
            cold=[subject for subject in cold if subject.ours] + theirs,
            bar=bar,
            seed=given.seed,
            scale=0.25 if given.quick else 3 if given.full else 1,
            stall_operations=2 if given.quick else 5,
            notes=notes,
        )
        experiments = [await step(bench, connection) for name, step in _steps(given) if _wanted(given, name)]
        if _wanted(given, _MANY):
            many = given.threads or (1_000_000 if given.full else 5_000 if given.quick else 50_000)
            for kind in rtmem_kinds(cache=False):
                experiments += await many_threads(bench, kind, many)
        return experiments


def _wanted(given: argparse.Namespace, name: str) -> bool:
    return any(part in name for part in given.only.split(","))


def _measuring(measure: Callable[..., Awaitable[Experiment]], *arguments: Any, **options: Any) -> Step:
    return lambda bench, connection: measure(bench, *arguments, **options)


def _graph(measure: Callable[..., Awaitable[Experiment]], **options: Any) -> Step:
    return lambda bench, connection: measure(bench, connection, **options)


def _steps(given: argparse.Namespace) -> Iterator[tuple[str, Step]]:
    """What a run consists of, in its order, with the names that `--only` chooses from."""
    sizes = ("50 KB", "1 MB list") if given.quick else ("2 KB", "50 KB", "1 MB list", "1 MB string")
    crowds = () if given.quick else (32, 256)
    for size in sizes:
        yield f"aput whole {size}", _measuring(put_whole, size)
    yield "aput appended", _measuring(put_appended)
    yield "aput_writes", _measuring(put_writes)
    for size in sizes:
        yield f"aget latest {size}", _measuring(get_latest, size)
    yield "aget held", _measuring(get_latest, "1 MB list", held=True)
    for crowd in crowds:
        yield f"aput whole c={crowd}", _measuring(put_whole, "2 KB", concurrency=crowd)
        yield f"aput_writes c={crowd}", _measuring(put_writes, concurrency=crowd)
        yield f"aget latest c={crowd}", _measuring(get_latest, "2 KB", concurrency=crowd)
    yield "graph c=1", _graph(end_to_end, concurrency=1)
    if not given.quick:
        yield "graph c=32", _graph(end_to_end, concurrency=32)
    yield "growth", _graph(growth)
    kinds = rtmem_kinds() + (redis_peers() if given.peers else [])
    yield "wire", lambda bench, connection: on_the_wire(bench, bench.server, kinds)
