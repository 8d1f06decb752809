"""The targets that this project set itself, against what a run measured."""

from __future__ import annotations

from collections.abc import Iterable

from loadtest.checkpoint.operations import BASELINE
from rtmem.loadtest import Experiment, Measured, Verdict

OURS = ("rtmem full", "rtmem shallow")
_NOT_PEERS = ("floor", BASELINE, "floor saver", "memory", *OURS)


def verdicts(experiments: list[Experiment]) -> list[Verdict]:
    """One verdict per target and saver, in the order in which the targets were set."""
    named = {(experiment.name, experiment.concurrency): experiment for experiment in experiments}
    found: list[Verdict] = []
    for name, target in (
        ("aput, whole state new, 50 KB", 1.3),
        ("aput, whole state new, 1 MB list", 1.3),
        ("aput, whole state new, 1 MB string", 1.3),
        ("aput, one message appended to 1 MB list", 0.3),
        ("aput_writes, 2 KB", 1.2),
        ("aget_tuple, latest, 2 KB", 1.3),
        ("aget_tuple, latest, 50 KB", 1.3),
        ("aget_tuple, latest, 1 MB list", 1.3),
        ("aget_tuple, latest, 1 MB string", 1.3),
        ("aget_tuple, head already held, 1 MB list", 0.8),
    ):
        found += _ratios(named.get((name, 1)), target)
    found += _facts(named, "on the wire (RT: round trips)", "held get B", 300, "B on the wire, head held")
    for concurrency in (1, 32):
        found += _graph(named.get(("3-node graph, one turn of 20", concurrency)))
    found += _growth(named.get(("growth, 200 super-steps", 1)))
    found += _facts(
        named, "on the wire (RT: round trips)", "delta RT", 2, "round trips, 60 messages in a delta channel"
    )
    for experiment in experiments:
        if experiment.name.startswith("many threads"):
            found += [
                Verdict.of(f"{experiment.name}, {row.contender}", target=1.2, measured=row.ratio, unit="x")
                for row in experiment.rows
                if row.contender != experiment.baseline
            ]
    for name in ("aput, whole state new, 1 MB list", "aget_tuple, latest, 1 MB list"):
        found += _stalls(named.get((name, 1)))
    return found


def _ours(experiment: Experiment) -> Iterable[Measured]:
    return (row for row in experiment.rows if row.contender in OURS)


def _best_peer(experiment: Experiment) -> str:
    peers = [row for row in experiment.rows if row.contender not in _NOT_PEERS and row.ratio is not None]
    best = min(peers, key=lambda row: row.ratio or 0.0, default=None)
    return f"{best.contender} {best.ratio:.2f}" if best is not None else ""


def _ratios(experiment: Experiment | None, target: float) -> list[Verdict]:
    if experiment is None:
        return []
    return [
        Verdict.of(
            f"{experiment.name}: {row.contender} / {experiment.baseline}",
            target=target,
            measured=row.ratio,
            unit="x",
            best_other=_best_peer(experiment),
        )
        for row in _ours(experiment)
    ]


def _graph(experiment: Experiment | None) -> list[Verdict]:
    if experiment is None:
        return []
    found = []
    memory = experiment.row("memory")
    for row in _ours(experiment):
        name = f"{experiment.name}, c={experiment.concurrency}: {row.contender}"
        found.append(Verdict.of(f"{name} / floor saver", target=1.2, measured=row.ratio, unit="x"))
        to_memory = row.ratio / memory.ratio if row.ratio and memory and memory.ratio else None
        peers = [peer.ratio for peer in experiment.rows if peer.contender not in _NOT_PEERS and peer.ratio]
        best = f"{min(peers) / memory.ratio:.2f}" if peers and memory and memory.ratio else ""
        found.append(Verdict.of(f"{name} / InMemorySaver", target=1.6, measured=to_memory, unit="x", best_other=best))
    return found


def _growth(experiment: Experiment | None) -> list[Verdict]:
    if experiment is None:
        return []
    found = []
    for row in _ours(experiment):
        shallow = "shallow" in row.contender
        peers = [
            peer.facts["bytes"]
            for peer in experiment.rows
            if peer.contender not in _NOT_PEERS and ("shallow" in peer.contender) == shallow
        ]
        best = f"{min(peers) / 1e6:.2f} MB" if peers else ""
        found.append(
            Verdict.of(
                f"{experiment.name}: {row.contender}",
                target=0.1 if shallow else 0.5,
                measured=row.facts["bytes"] / 1e6,
                unit="MB",
                best_other=best,
            )
        )
    return found


def _facts(named: dict[tuple[str, int], Experiment], name: str, fact: str, target: float, what: str) -> list[Verdict]:
    experiment = named.get((name, 1))
    if experiment is None:
        return []
    peers = [row.facts[fact] for row in experiment.rows if row.contender not in _NOT_PEERS and fact in row.facts]
    best = f"{min(peers):,.0f}" if peers else ""
    return [
        Verdict.of(f"{what}: {row.contender}", target=target, measured=row.facts.get(fact), unit="", best_other=best)
        for row in _ours(experiment)
        if fact in row.facts or "full" in row.contender
    ]


def _stalls(experiment: Experiment | None) -> list[Verdict]:
    if experiment is None:
        return []
    return [
        Verdict.of(
            f"event loop stalled without GC, {experiment.name}: {row.contender}",
            target=5,
            measured=row.stall_without_gc_ms,
            unit="ms",
        )
        for row in _ours(experiment)
    ]
