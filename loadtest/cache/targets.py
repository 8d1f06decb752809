"""The targets that this project set itself for the speed of the cache, against what a run measured."""

from __future__ import annotations

from loadtest.cache.contenders import OURS
from loadtest.cache.storm import CALLS_MAX
from loadtest.cache.storm import NAME as STORM
from loadtest.cache.verbs import EXACT, MEANING, MISS, SEARCH
from loadtest.cache.wire import AFTER, COUNTED, TARGETS
from loadtest.cache.wire import NAME as WIRE
from rtmem.loadtest import Experiment, Verdict

RATIO_MAX = 1.2
MISS_MAX = 1.05  # of a hit by meaning: the same, but for the noise of a run


def verdicts(experiments: list[Experiment]) -> list[Verdict]:
    """One for each target that took part in the run."""
    found: list[Verdict] = []
    for experiment in experiments:
        if experiment.name.startswith((EXACT, MEANING)):
            found.append(_ratio(experiment))
        if experiment.name.startswith(MEANING):
            found.append(_miss(experiment))
        if experiment.name == WIRE:
            found += _round_trips(experiment)
        if experiment.name == STORM:
            found += _storms(experiment)
    return found


def _ratio(experiment: Experiment) -> Verdict:
    row = experiment.row(OURS)
    others = [
        other
        for other in experiment.rows
        if other.ratio is not None and not other.contender.startswith((OURS, "raw", "embedding"))
        if not other.contender.endswith(MISS)
    ]
    best = min(others, key=lambda other: other.ratio or 0.0, default=None)
    return Verdict.of(
        f"{experiment.name}: {OURS} / {experiment.baseline}",
        target=RATIO_MAX,
        measured=row.ratio if row else None,
        unit="x",
        best_other=f"{best.contender} {best.ratio:.2f}" if best else "",
    )


def _miss(experiment: Experiment) -> Verdict:
    """Each to the raw commands with the same texts, because longer texts take longer to embed."""
    hit, miss, raw = (experiment.row(name) for name in (OURS, f"{OURS}{MISS}", f"{SEARCH}{MISS}"))
    ratios = [each.ratio for each in (hit, miss, raw) if each is not None and each.ratio]
    measured = ratios[1] / ratios[2] / ratios[0] if len(ratios) == 3 else None
    return Verdict.of(f"{experiment.name}: a miss / a hit", target=MISS_MAX, measured=measured, unit="x")


def _round_trips(experiment: Experiment) -> list[Verdict]:
    found = []
    for name, (most, most_after) in TARGETS.items():
        row = experiment.row(f"{OURS} {name}")
        facts = row.facts if row else {}
        found.append(Verdict.of(f"{COUNTED}: {name}", target=most, measured=facts.get(COUNTED), unit=""))
        if most_after and most_after != most:
            found.append(
                Verdict.of(f"{COUNTED} {AFTER}: {name}", target=most_after, measured=facts.get(AFTER), unit="")
            )
    return found


def _storms(experiment: Experiment) -> list[Verdict]:
    found = []
    for name, most in CALLS_MAX.items():
        row = experiment.row(f"{OURS}: {name}")
        found.append(
            Verdict.of(
                f"{STORM}, {name}: calls of the model",
                target=most,
                measured=row.facts.get("model calls") if row else None,
                unit="",
            )
        )
    return found
