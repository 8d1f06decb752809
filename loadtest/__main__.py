"""`python -m loadtest NAME`: run one of the project's own benchmarks. README.md says how to read a number."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import NoReturn

BENCHMARKS = {
    "cache": "cache: what a hit, a miss and an update cost beside raw commands, RedisVL and LangChain; a storm",
    "cache-quality": "cache: hits and false hits on labelled pairs, with the guard and without, beside RedisVL",
    "checkpoint": "savers: latency against the floor and the peers, growth, round trips, event-loop stalls",
    "crash": "crash lab: power cuts, kills and broken disks, and what each of them takes away",
    "index": "index of memory: FLAT, HNSW or a vector set: how long a restart takes, and a search",
    "memory": "long-term memory: its verbs beside raw commands and peers, and how its index grows",
    "pointers": "pointers: tokens of an agent with and without them, and what they cost",
    "recall": "long-term memory: how much of what answers a question is found, on LoCoMo",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest", description=__doc__)
    commands = parser.add_subparsers(dest="name", required=True)
    parsers = {name: commands.add_parser(name, help=what) for name, what in BENCHMARKS.items()}
    chosen = next((word for word in sys.argv[1:] if word in BENCHMARKS), None)
    if chosen is None:
        parser.parse_args()  # ends with the help, or with what is wrong
        return 2
    # Only this one: each needs packages of its own.
    benchmark = _imported(chosen, parsers[chosen])
    parsers[chosen].description = benchmark.__doc__
    benchmark.add_arguments(parsers[chosen])
    given = parser.parse_args()
    _check_only(given.only, benchmark.names(given), parsers[chosen])
    try:
        result: int = benchmark.main(given)
    except KeyboardInterrupt:
        # Its servers are stopped and its folders gone by now; a traceback would say nothing.
        return 130
    except ModuleNotFoundError as exc:  # peers are imported when their turn comes
        _refuse_without(exc, parsers[chosen])
    return result


def _imported(name: str, parser: argparse.ArgumentParser) -> ModuleType:
    try:
        return import_module(f"loadtest.{name.replace('-', '_')}")
    except ModuleNotFoundError as exc:
        _refuse_without(exc, parser)


def _refuse_without(missing: ModuleNotFoundError, parser: argparse.ArgumentParser) -> NoReturn:
    if str(missing.name).partition(".")[0] in ("loadtest", "rtmem"):
        raise missing
    parser.error(f"{missing.name} is not installed; the extra bench has it: pip install -e '.[bench]'")


def _check_only(only: str, names: Sequence[str], parser: argparse.ArgumentParser) -> None:
    """Refuse a part that would choose nothing: an empty report looks like a good one."""
    for part in only.split(","):
        if not any(part in name for name in names):
            parser.error(f"--only: nothing has {part!r} in its name: there are {', '.join(names)}")


if __name__ == "__main__":
    sys.exit(main())
