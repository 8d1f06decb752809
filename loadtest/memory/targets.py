"""The targets that this project set itself for long-term memory, against what a run measured."""

from __future__ import annotations

from loadtest.memory import fuzz
from loadtest.memory.growth import BASE, INDEX, LARGE, SMALL
from loadtest.memory.stores import MEMORY, OURS
from loadtest.memory.verbs import EMBEDDING, RAW, WITH_SERDE
from loadtest.memory.wire import COUNTED
from loadtest.memory.wire import NAME as WIRE
from loadtest.memory.wire import TARGETS as ROUND_TRIPS_MAX
from rtmem.loadtest import Experiment, Verdict

RATIO_MAX = 1.3
RECALL_MIN = 0.95
GROWTH_MAX = 2.0
_NOT_PEERS = (RAW, WITH_SERDE, EMBEDDING, MEMORY, OURS)


def verdicts(experiments: list[Experiment]) -> list[Verdict]:
    """One for each target that took part in the run."""
    found: list[Verdict] = []
    for experiment in experiments:
        if experiment.name.startswith("search, hnsw"):
            found += _growth(experiment)
        elif experiment.baseline == RAW and experiment.name.startswith(("put", "search")):
            found += _ratios(experiment)
        elif experiment.name == INDEX:
            found += _recall(experiment)
        elif experiment.name == WIRE:
            found += _round_trips(experiment)
        elif experiment.name == fuzz.NAME:
            found += _fuzz(experiment)
    return found


def _ratios(experiment: Experiment) -> list[Verdict]:
    """To commands that were made beforehand, and to those that are made and decoded in the measured time."""
    row, serde = experiment.row(OURS), experiment.row(WITH_SERDE)
    peers = [peer for peer in experiment.rows if peer.contender not in _NOT_PEERS and peer.ratio is not None]
    best = min(peers, key=lambda peer: peer.ratio or 0.0, default=None)
    name = f"{experiment.name}, c={experiment.concurrency}: {OURS}"
    found = [
        Verdict.of(
            f"{name} / {RAW}",
            target=RATIO_MAX,
            measured=row.ratio if row else None,
            unit="x",
            best_other=f"{best.contender} {best.ratio:.2f}" if best else "",
        )
    ]
    if serde is not None:
        measured = row.ratio / serde.ratio if row and row.ratio and serde.ratio else None
        found.append(Verdict.of(f"{name} / {WITH_SERDE}", target=RATIO_MAX, measured=measured, unit="x"))
    return found


def _growth(experiment: Experiment) -> list[Verdict]:
    """Of each size to that of 10,000; where that took no part there is nothing to say."""
    if experiment.baseline != f"{BASE:,} items":
        return []
    return [
        Verdict.of(
            f"{experiment.name}: p50 among {row.contender} / {experiment.baseline}",
            target=GROWTH_MAX,
            measured=row.ratio,
            unit="x",
        )
        for row in experiment.rows
        if row.contender != experiment.baseline
    ]


def _recall(experiment: Experiment) -> list[Verdict]:
    return [
        Verdict.at_least(f"{name}@10: {row.contender}", target=RECALL_MIN, measured=row.facts.get(name), unit="")
        for row in experiment.rows
        for name in (SMALL, LARGE)
    ]


def _fuzz(experiment: Experiment) -> list[Verdict]:
    """Nothing may go wrong with any input."""
    name = f"{experiment.operations:,} hostile inputs"
    facts = {what: sum(row.facts.get(what, 0) for row in experiment.rows) for what in fuzz.WRONG}
    facts["errors"] = sum(row.errors for row in experiment.rows)
    return [Verdict.of(f"{name}: {what}", target=0, measured=many, unit="") for what, many in facts.items()]


def _round_trips(experiment: Experiment) -> list[Verdict]:
    counted = {row.contender: row.facts.get(COUNTED) for row in experiment.rows}
    return [
        Verdict.of(f"{COUNTED}: {name}", target=most, measured=counted.get(f"{OURS} {name}"), unit="")
        for name, most in ROUND_TRIPS_MAX.items()
    ]
