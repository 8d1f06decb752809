"""Tokens of a naive agent and of one with pointers, at the same task, and whether each answered right."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from loadtest.pointers.agents import Agent, Outcome
from loadtest.pointers.tasks import Task, grid_task, looking_tasks, small_tasks
from rtmem import settings
from rtmem.agent import PointerCounts, PointerMiddleware, ToolPointers
from rtmem.loadtest import Experiment, Measured, Verdict
from rtmem.pointers import Pointers

NAIVE, OURS = "naive", "rtmem pointers"
PAPER: dict[str, tuple[int, int]] = {"large": (20_822_181, 1_234), "small": (6_411, 841)}
"""Naive and with pointers, in arXiv 2511.22729: other tasks, a real model, and the naive arm failed at the large."""

GRID: tuple[int, int, int] = (88, 100, 100)
"""Of so many points, so that the naive arm spends about what the paper's did."""

_SHORT = settings.Pointers(inline_characters_max=2_000, preview_characters_max=240)
_PLAIN = settings.Pointers(compute_ms_max=60_000)  # a busy machine must not change what is counted
_LARGE_MAX, _SMALL_MAX = 1_300, 900


def handing_on(url: str, seed: int, *, shape: tuple[int, int, int] = GRID) -> list[Experiment]:
    """Documents that go from tool to tool: one of megabytes, and four of kilobytes."""
    large = grid_task(seed, shape)
    return [
        _experiment(f"{large.name}, from tool to tool", large, url, _SHORT, paper="large", wrapped=True),
        *(
            _experiment(f"{task.name}, from tool to tool", task, url, _SHORT, paper="small", wrapped=True)
            for task in small_tasks(seed)
        ),
    ]


def looking_inside(url: str, seed: int) -> list[Experiment]:
    """Documents that a model has to look into itself, with the settings as they are."""
    return [_experiment(f"looking inside: {task.name}", task, url, _PLAIN) for task in looking_tasks(seed)]


def verdicts(experiments: Sequence[Experiment]) -> list[Verdict]:
    """Whether the arm with pointers kept to its budget, and how many answers were wrong."""
    found = []
    for experiment in experiments:
        ours = experiment.row(OURS)
        if ours is not None and "from tool to tool" in experiment.name:
            target = _LARGE_MAX if experiment.name.startswith("molecule grid") else _SMALL_MAX
            found.append(Verdict.of(experiment.name, target=target, measured=ours.facts["tokens"], unit="tokens"))
    arms = [row for experiment in experiments for row in experiment.rows if row.contender in (NAIVE, OURS)]
    if arms:
        wrong = sum(1 - row.facts["right"] for row in arms)
        found.append(Verdict.of(f"wrong answers of {len(arms)}", target=0, measured=wrong, unit=""))
    return found


def _experiment(
    name: str, task: Task, url: str, limits: settings.Pointers, *, paper: str = "", wrapped: bool = False
) -> Experiment:
    naive = Agent(task.script, task.tools).run(task.question, "naive")
    # A principal of its own: what it stores is all that is there.
    with Pointers(url, principal=uuid4().hex, settings=limits) as pointers:
        ours, counts = _with_pointers(task, pointers, wrapped=wrapped)
    rows = [_row(NAIVE, naive, task), _row(OURS, ours, task, counts)]
    if paper:
        rows += [
            Measured(contender=f"paper, {arm}", facts={"tokens": float(tokens)})
            for arm, tokens in zip(("naive", "pointers"), PAPER[paper], strict=True)
        ]
    note = f"answer: {task.document.truth}"
    if paper:
        note += (
            f". Results above {limits.inline_characters_max:,} characters become pointers, with a preview of "
            f"{limits.preview_characters_max}; the model has no tools to look inside. The paper (arXiv 2511.22729) had "
            "other tasks and a real model."
        )
    return Experiment(
        name=name, baseline=NAIVE, concurrency=1, rounds=1, operations=1, rows=rows, note=note, fact="tokens"
    )


def _with_pointers(task: Task, pointers: Pointers, *, wrapped: bool) -> tuple[Outcome, PointerCounts]:
    if wrapped:
        edge = ToolPointers(pointers, tools=())
        *others, last = task.tools
        tools = [*(edge.wrap(tool) for tool in others), edge.wrap(last, by_pointer=(task.by_pointer,))]
        return Agent(task.script, tools).run(task.question, "pointers"), edge.counts
    middleware = PointerMiddleware(pointers)
    return Agent(task.script, task.tools, (middleware,)).run(task.question, "pointers"), middleware.counts


def _row(name: str, outcome: Outcome, task: Task, counts: PointerCounts | None = None) -> Measured:
    spent = outcome.spent
    facts = {
        "tokens": spent.tokens,
        "prompt": spent.prompt_tokens,
        "written": spent.completion_tokens,
        "largest prompt": spent.largest_prompt,
        "model calls": spent.calls,
        "right": int(outcome.answer == task.document.truth),
    }
    if counts is not None:
        facts |= {
            "bytes kept out": counts.bytes_kept_out,
            "resolved": counts.resolved,
            "refetches": counts.refetches,
            "dangling": counts.dangling,
        }
    return Measured(contender=name, facts={fact: float(number) for fact, number in facts.items()})
