"""`python -m loadtest NAME`: run one of the project's own benchmarks. README.md says how to read a number."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

BENCHMARKS = {
    "checkpoint": "savers: latency against the floor and the peers, growth, round trips, event-loop stalls",
    "crash": "crash lab: power cuts, kills and broken disks, and what each of them takes away",
    "pointers": "pointers: tokens of an agent with and without them, and what they cost",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest", description=__doc__)
    commands = parser.add_subparsers(dest="name", required=True)
    for name, what in BENCHMARKS.items():
        benchmark = import_module(f"loadtest.{name}")
        benchmark.add_arguments(commands.add_parser(name, help=what, description=benchmark.__doc__))
    given = parser.parse_args()
    try:
        result: int = import_module(f"loadtest.{given.name}").main(given)
    except KeyboardInterrupt:
        # Its servers are stopped and its folders gone by now; a traceback would say nothing.
        return 130
    return result


if __name__ == "__main__":
    sys.exit(main())
