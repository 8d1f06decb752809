"""Both arms answer right, and the arm with pointers keeps to its budget."""

from __future__ import annotations

import pytest

from loadtest.pointers.agents import passed_on
from loadtest.pointers.spending import NAIVE, OURS, handing_on, looking_inside, verdicts
from loadtest.pointers.tasks import grid_task


@pytest.mark.parametrize("seed", [7, 8])
def test_budgets_and_answers_hold_for_a_seed(redis_url: str, seed: int) -> None:
    # The naive arm of the real size takes most of a minute; here the grid is smaller, and the other arm the same.
    experiments = handing_on(redis_url, seed, shape=(20, 20, 20)) + looking_inside(redis_url, seed)
    assert [verdict for verdict in verdicts(experiments) if not verdict.passed] == []
    for experiment in experiments[1:5]:
        naive = experiment.row(NAIVE)
        assert naive is not None
        assert 6_000 < naive.facts["tokens"] < 6_800, experiment.name
    ours = experiments[0].row(OURS)
    assert ours is not None
    assert (ours.facts["resolved"], ours.facts["refetches"], ours.facts["model calls"]) == (1, 0, 3)


def test_the_script_has_nothing_but_its_messages() -> None:
    from langchain_core.messages import ToolMessage

    task = grid_task(7, (4, 4, 4))
    result = ToolMessage("[[[1.0]]]", tool_call_id="1")
    assert passed_on(result) == [[[1.0]]]
    assert task.script([result]) == [("find_peak", {"grid": [[[1.0]]]})]
