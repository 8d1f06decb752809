"""What was invalidated is gone, and what was computed before it does not come back."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from rtmem.cache import CacheScope
from rtmem.errors import InvalidRequestError
from rtmem.operations import cache_notes
from tests.cache.colours import FRANCE, LIKE_FRANCE, SCOPE, World
from tests.callers import Caller
from tests.wire import Wire

OTHER = CacheScope(model="other", parameters={})
CONTEXT = [("human", "Hi"), ("ai", "Hello"), ("human", FRANCE)]


def fill(cache: Caller) -> None:
    assert cache.update(FRANCE, "Paris.", SCOPE, tags=["geo", "eu"]).stored
    assert cache.update(CONTEXT, "Paris.", SCOPE, tags=["chat"]).stored
    assert cache.update(FRANCE, "Paris.", OTHER, tags=["geo"]).stored


def left(cache: Caller) -> int:
    found = [cache.lookup(prompt, scope) for prompt in (FRANCE, CONTEXT) for scope in (SCOPE, OTHER)]
    count = sum(hit is not None for hit in found)
    assert count == cache.stats().entries == len(cache.entries().entries)
    return count


SELECTIONS: dict[str, tuple[dict[str, Any], int]] = {
    "key": ({"key": (FRANCE, SCOPE)}, 1),
    "key with a context": ({"key": (CONTEXT, SCOPE)}, 1),
    "tag": ({"tag": "geo"}, 2),
    "part of a tag": ({"tag": "ge"}, 0),
    "scope, all its conversations": ({"scope": SCOPE}, 2),
    "another scope": ({"scope": replace(SCOPE, system="x")}, 0),
    "model": ({"model": "gpt-test"}, 2),
    "everything": ({"everything": True}, 3),
    "age": ({"older_than_ms": 0}, 3),
    "an age that nothing has": ({"older_than_ms": 3_600_000}, 0),
    "tag and age": ({"tag": "geo", "older_than_ms": 3_600_000}, 0),
    "model and age": ({"model": "other", "older_than_ms": 0}, 1),
}


@pytest.mark.parametrize(("selection", "count"), SELECTIONS.values(), ids=SELECTIONS)
def test_what_is_selected_is_gone_and_nothing_else(ann: Caller, selection: dict[str, Any], count: int) -> None:
    fill(ann)
    assert left(ann) == 3
    assert ann.invalidate(**selection) == count
    assert left(ann) == 3 - count
    assert ann.invalidate(**selection) == 0


def test_one_entry_by_its_id(ann: Caller) -> None:
    fill(ann)
    hit = ann.lookup(LIKE_FRANCE, SCOPE)
    assert ann.invalidate(entry_id=hit.entry_id) == 1
    assert ann.lookup(LIKE_FRANCE, SCOPE) is None
    assert left(ann) == 2


@pytest.mark.parametrize(
    "selection",
    [
        {},
        {"everything": False},
        {"tag": "a", "model": "b"},
        {"tag": "a", "everything": True},
        {"older_than_ms": -1},
        {"older_than_ms": 1.5},
        {"tag": 3},
        {"model": b"m"},
        {"scope": "m"},
        {"entry_id": "*"},
        {"entry_id": "0" * 31},
        {"key": (FRANCE, None)},
    ],
    ids=str,
)
def test_not_exactly_one_selection_is_an_error_and_nothing_is_gone(ann: Caller, selection: dict[str, Any]) -> None:
    fill(ann)
    with pytest.raises(InvalidRequestError):
        ann.invalidate(**selection)
    assert left(ann) == 3


def test_thousands_go_too(world: World) -> None:
    with world.open(embedder=False) as cache:
        for number in range(2_100):
            cache.update(f"{number}", "x", SCOPE, tags=["t"])
        cache.update("kept", "x", OTHER)
        assert cache.invalidate(tag="t") == 2_100
        assert cache.stats().entries == 1
        books = cache.context.keys.books
        assert world.client.zcard(books + "links") == 2
        assert world.client.hlen(books + "records") == 1


def test_no_index_is_asked(world: World, ann: Caller) -> None:
    fill(ann)
    world.client.execute_command("FT.DROPINDEX", ann.context.index.name)
    assert ann.invalidate(tag="geo") == 2
    assert ann.invalidate(everything=True) == 1
    assert world.client.keys("rtmem:c:e:*") == []


@pytest.mark.parametrize(
    "selection",
    [{"key": (FRANCE, SCOPE)}, {"tag": "geo"}, {"scope": SCOPE}, {"model": "gpt-test"}, {"everything": True}],
    ids=lambda selection: next(iter(selection)),
)
def test_an_answer_that_was_under_way_is_not_stored_after_it(ann: Caller, selection: dict[str, Any]) -> None:
    assert ann.lookup(FRANCE, SCOPE) is None
    ann.invalidate(**selection)  # there is nothing yet, and yet it counts
    late = ann.update(FRANCE, "Paris.", SCOPE, tags=["geo"])
    assert (late.stored, late.reason) == (False, "invalidated")
    assert ann.lookup(FRANCE, SCOPE) is None
    assert ann.update(FRANCE, "Paris, still.", SCOPE, tags=["geo"]).stored  # asked after it
    assert ann.lookup(FRANCE, SCOPE).answer == "Paris, still."


def test_an_answer_to_something_else_that_was_under_way_is_stored(ann: Caller) -> None:
    ann.lookup(FRANCE, SCOPE)
    ann.invalidate(tag="other")
    ann.invalidate(model="other")
    ann.invalidate(key=(LIKE_FRANCE, SCOPE))
    ann.invalidate(older_than_ms=3_600_000)
    ann.bind("bob").invalidate(everything=True)
    assert ann.update(FRANCE, "Paris.", SCOPE, tags=["geo"]).stored


def test_what_was_not_looked_up_before_is_new_and_is_stored(ann: Caller) -> None:
    ann.invalidate(everything=True)
    assert ann.update(FRANCE, "Paris.", SCOPE).stored


def test_an_answer_of_another_process_that_was_invalidated_is_refused_too(world: World, ann: Caller) -> None:
    with world.open() as other:
        ann.lookup(FRANCE, SCOPE)
        other.invalidate(tag="geo")
        assert ann.update(FRANCE, "Paris.", SCOPE, tags=["geo"]).reason == "invalidated"


def test_an_answer_that_is_computed_during_an_invalidation_goes_to_its_caller_only(world: World, ann: Caller) -> None:
    with world.open() as other:

        def compute() -> str:
            assert other.owner.invalidate(tag="geo") == 0
            return "Paris."

        async def acompute() -> str:
            assert await other.owner.invalidate(tag="geo") == 0
            return "Paris."

        outcome = ann.get_or_compute(FRANCE, SCOPE, acompute if world.awaiting else compute, tags=["geo"])
    assert outcome.answer == "Paris."
    assert (outcome.written.stored, outcome.written.reason) == (False, "invalidated")
    assert ann.lookup(FRANCE, SCOPE) is None


def test_who_waits_for_an_answer_that_is_invalidated_gets_a_new_one(world: World) -> None:
    with world.open() as ann, world.open() as other:
        computing, go_on = threading.Event(), threading.Event()
        outcomes: list[Any] = []
        answers = iter(["stale", "fresh", "too many"])

        def compute() -> str:
            computing.set()
            assert go_on.wait(60)
            return next(answers)

        async def acompute() -> str:
            return await anyio.to_thread.run_sync(compute)

        def ask(cache: Caller) -> None:
            mine = acompute if world.awaiting else compute
            outcomes.append(cache.get_or_compute(FRANCE, SCOPE, mine, tags=["geo"]))

        threads = [threading.Thread(target=ask, args=(cache,)) for cache in (ann, other)]
        threads[0].start()
        assert computing.wait(60)
        threads[1].start()
        ann.invalidate(tag="geo")
        go_on.set()
        for thread in threads:
            thread.join(60)
        assert sorted(outcome.answer for outcome in outcomes) == ["fresh", "stale"]
        assert ann.lookup(FRANCE, SCOPE).answer == "fresh"


def test_an_answer_that_took_longer_than_floors_are_kept_is_not_stored(world: World) -> None:
    with world.open(question_ms_max=1) as cache:
        cache.lookup(FRANCE, SCOPE)
        world.client.blpop(["never there"], timeout=0.01)  # the server's own clock goes on
        assert cache.update(FRANCE, "Paris.", SCOPE).reason == "invalidated"


def test_floors_do_not_pile_up(world: World) -> None:
    with world.open(question_ms_max=1) as cache:
        for number in range(50):
            cache.invalidate(tag=str(number))
        world.client.blpop(["never there"], timeout=0.01)  # the server's own clock goes on
        cache.invalidate(tag="last")
        assert world.client.zcard(cache.context.keys.books + "floors") <= 1


def test_of_several_who_were_asked_the_same_none_stores_what_is_stale(ann: Caller) -> None:
    ann.lookup(FRANCE, SCOPE)
    ann.lookup(FRANCE, SCOPE)
    assert ann.update(FRANCE, "Paris.", SCOPE).stored
    ann.invalidate(everything=True)
    assert ann.update(FRANCE, "Paris.", SCOPE).reason == "invalidated"  # of the second one
    assert ann.lookup(FRANCE, SCOPE) is None
    assert ann.update(FRANCE, "Paris.", SCOPE).stored


def test_a_look_up_that_failed_counts_as_asked_before_everything(world: World) -> None:
    with world.open(retries_max=0, pause_ms=0) as cache:
        wire = Wire(cache.owner)
        wire.cut(0, after=False)
        assert cache.lookup(FRANCE, SCOPE) is None
        cache.invalidate(tag="geo")
        assert cache.update(FRANCE, "Paris.", SCOPE, tags=["geo"]).reason == "invalidated"


def test_a_computed_answer_leaves_nothing_open(ann: Caller) -> None:
    for number in range(3):
        assert ann.get_or_compute(f"{number}", SCOPE, lambda: "x").written.stored
    with pytest.raises(ZeroDivisionError):
        ann.get_or_compute("fails", SCOPE, lambda: 1 // 0)
    assert not ann.context.state.open._asked


def test_more_open_questions_than_are_remembered_are_refused_where_anything_was_invalidated(
    ann: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_notes, "OPEN_MAX", 2)
    for number in range(4):
        ann.lookup(f"{number}", SCOPE)
    ann.invalidate(tag="geo")
    assert ann.update("0", "x", SCOPE, tags=["geo"]).reason == "invalidated"
    assert ann.update("1", "x", SCOPE, tags=["other"]).stored


@pytest.mark.parametrize("key", [FRANCE, "ab", (FRANCE,), (FRANCE, SCOPE, 1), 7])
def test_a_key_that_is_none_is_told_what_a_key_is(ann: Caller, key: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"^key is .*: \(prompt, scope\)"):
        ann.invalidate(key=key)
