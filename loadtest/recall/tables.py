"""The tables of the report, its verdicts and its notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadtest.recall.findings import KNOWN, OTHER_PERSON, OTHER_TALK, Found
from loadtest.recall.locomo import ANSWERABLE, CATEGORIES
from loadtest.recall.scoring import DEPTHS, interval, mean_at, separation
from loadtest.recall.ways import BM25, OURS, STORE, goodness, grid, recall_of, ways
from rtmem.loadtest import Experiment, Latency, Measured, Verdict
from rtmem.loadtest.console import Bar
from rtmem.settings import Retrieval

HELD_OUT, CHOSEN_ON, ALL, KINDS, DOUBT, TIME, CHOICE = PARTS = (
    *("held out", "chosen on", "all conversations", "kinds of questions", "nothing known", "time", "choice"),
)
TARGETS: Final = {5: 0.58, 10: 0.67, 20: 0.75}
_CHOICES_SHOWN: Final = 12
_ANSWERED: Final = 0.99  # of the questions with an answer, by the threshold that is chosen for LoCoMo


def experiments(found: Found, seed: int) -> list[Experiment]:
    """Everything but the choice of settings."""
    return [
        _recall(HELD_OUT, found, found.held_out, seed),
        _recall(CHOSEN_ON, found, found.chosen_on, seed),
        _recall(ALL, found, found.names, seed),
        _kinds(found),
        _doubt(found),
        _time(found),
    ]


def verdicts(made: Sequence[Experiment]) -> list[Verdict]:
    """Whether the conversations that nothing was chosen on reach the targets."""
    (held_out,) = (each for each in made if each.name.startswith(HELD_OUT))
    ours = [row for row in held_out.rows if row.contender in (OURS, STORE)]
    return [
        Verdict.at_least(
            f"{row.contender}: R@{depth}, {HELD_OUT}", target=target, measured=row.facts[_at(depth)], unit=""
        )
        for row in ours
        for depth, target in TARGETS.items()
    ]


def notes(found: Found) -> list[str]:
    """What a reader must know to trust the figures."""
    return [
        f"settings were chosen on {', '.join(found.chosen_on)} and judged on {', '.join(found.held_out)}",
        "LoCoMo (Maharana et al., ACL 2024), CC BY-NC 4.0; a turn is remembered as speaker, date, text and caption of "
        "its picture; questions without readable evidence are left out",
        "rtmem: Memory.retrieve, rtmem store: RedisStore.search with ranking hybrid, each with a tenant for each "
        "conversation, in one index; the other ways rank the lists that Memory finds, 100 candidates each; vectors by "
        "all-MiniLM-L6-v2 int8",
        "R@10 - BM25: 95 % of the differences lie there when questions are drawn anew 10,000 times (paired bootstrap)",
    ]


def _experiment(name: str, count: int, rows: list[Measured], note: str = "", baseline: str = BM25) -> Experiment:
    return Experiment(name=name, baseline=baseline, concurrency=1, rounds=1, operations=count, rows=rows, note=note)


def _recall(part: str, found: Found, names: Sequence[str], seed: int) -> Experiment:
    questions = found.of(names)
    recalled = {name: recall_of(name, settings, questions) for name, settings in ways().items()}
    base = recalled[BM25][:, 9]
    rows = []
    for name, each in recalled.items():
        facts = _facts(each)
        if name != BM25:
            facts["R@10 - BM25, low"], facts["R@10 - BM25, high"] = interval(each[:, 9], base, seed)
        rows.append(Measured(contender=name, facts=facts))
    return _experiment(f"{part}: {', '.join(names)}", len(questions), rows)


def _facts(recalled: NDArray[np.float64]) -> dict[str, float]:
    return {_at(depth): mean_at(recalled, depth) for depth in DEPTHS}


def _at(depth: int) -> str:
    return f"R@{depth:>2}"  # columns stand in the order of their names


def _kinds(found: Found) -> Experiment:
    rows = []
    for names, told in ((found.held_out, HELD_OUT), (found.names, "all")):
        for category in ANSWERABLE:
            questions = [asked for asked in found.of(names) if asked.category == category]
            for way in (BM25, OURS) if questions else ():
                facts = _facts(recall_of(way, ways()[way], questions)) | {"questions": float(len(questions))}
                rows.append(Measured(contender=f"{told}, {category} {CATEGORIES[category]}, {way}", facts=facts))
    return _experiment(KINDS, len(found.asked), rows)


def _doubt(found: Found) -> Experiment:
    rows = []
    known = found.doubts(KNOWN, found.held_out)
    chosen = float(np.quantile(found.doubts(KNOWN, found.chosen_on), 1 - _ANSWERED))
    for kind in (OTHER_TALK, OTHER_PERSON):
        others = found.doubts(kind, found.held_out)
        for threshold in (Retrieval().confidence_min, round(chosen, 2)):
            split = separation(known, others, threshold)
            facts = {"AUC": split.auc, "answered": split.kept, "refused": split.refused, "precision": split.precision}
            facts["questions"] = float(len(others))
            rows.append(Measured(contender=f"{HELD_OUT}, {kind}, below {threshold}", facts=facts))
    return _experiment(
        DOUBT,
        sum(map(len, found.sure.values())),
        rows,
        "answered: share of the questions with an answer that get one; refused: share of the others that get none; "
        "precision: share of the refused that have none. The first threshold is the default, for facts of a few words; "
        f"the second answers {_ANSWERED:.0%} of the questions of '{CHOSEN_ON}'. A question {OTHER_PERSON} is about "
        "what the wrong one of the two said (category 5): no search can tell, whoever reads the hits must.",
        baseline="",
    )


def _time(found: Found) -> Experiment:
    return _experiment(
        f"{TIME} of a retrieval",
        len(found.took_us),
        [Measured(contender=OURS, latency=Latency.of(found.took_us))],
        "Memory.retrieve: both searches in one round trip, ranking, framing; without the embedding of the question",
        baseline="",
    )


def choice(found: Found, bar: Bar) -> Experiment:
    """The best of the grid on the conversations that settings are chosen on, and where the defaults stand."""
    questions = found.of(found.chosen_on)
    tried: list[tuple[float, str, dict[str, float]]] = []
    all_settings = [Retrieval(), *grid()]
    bar.announce(len(all_settings))
    bar.describe("choose settings")
    for number, settings in enumerate(all_settings):
        recalled = recall_of(CHOICE, settings, questions)
        name = (
            f"weight {settings.vector_weight}, window {settings.window}, sharpness {settings.sharpness:g}, "
            f"smoothing {settings.smoothing} span {settings.smoothing_span}" + (" (defaults)" if not number else "")
        )
        tried.append((goodness(recalled), name, _facts(recalled)))
        bar.step()
    best = sorted(tried, reverse=True)[:_CHOICES_SHOWN]
    if tried[0] not in best:
        best.append(tried[0])
    rows = [Measured(contender=name, facts=facts | {"mean": mean}) for mean, name, facts in best]
    return _experiment(f"{CHOICE} among {len(tried)}", len(questions), rows, baseline="")
