"""Facts are written once, superseded with a reason, and what was believed stays to be asked for."""

from __future__ import annotations

from tests.memory.colours import Caller


def test_a_fact_said_again_in_other_spelling_is_the_same_fact(ann: Caller) -> None:
    home = ann.write("Ann lives in Rome.", tags=["home"], importance=0.9, thread_id="t1")
    again = ann.write("  ann LIVES in\tRome. ", thread_id="t2")
    assert again.id == home.id
    assert (again.created_at_ms, again.valid_from_ms) == (home.created_at_ms, home.valid_from_ms)
    assert (again.tags, again.importance) == (("home",), 0.9)
    assert (again.times_seen, again.thread_id, again.text) == (2, "t2", "  ann LIVES in\tRome. ")
    assert ann.read(home.id) == again
    assert len(ann.query(ended=True).facts) == 1
