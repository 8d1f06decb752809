"""What is believed changes in one step, with a reason, and the chain of changes can be asked for."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest

from rtmem.errors import FactConflictError, FactNotFoundError, InvalidRequestError
from rtmem.memory import AsyncMemory, Memory
from rtmem.records import Fact
from tests.callers import Caller
from tests.embedders import Words
from tests.memory.colours import World

NO_ID = "mf_" + "a" * 26


def test_an_update_ends_the_old_fact_where_the_new_one_begins(ann: Caller) -> None:
    rome = ann.write("Ann lives in Rome.", kind="preference", tags=["home"], importance=0.7)
    oslo = ann.update(rome.id, "Ann lives in Oslo.", reason="she said so", thread_id="t9")
    old = ann.read(rome.id)
    assert old.valid_to_ms == oslo.valid_from_ms
    assert (old.invalidated_reason, old.superseded_by, old.ended_at_ms) == ("she said so", oslo.id, oslo.created_at_ms)
    assert (oslo.kind, oslo.tags, oslo.importance, oslo.thread_id) == ("preference", ("home",), 0.7, "t9")
    assert (oslo.supersedes, oslo.valid_to_ms, oslo.ended_at_ms) == ((rome.id,), None, None)
    assert ann.query().facts == (oslo,)
    assert [hit.fact for hit in ann.retrieve("Ann lives").hits] == [oslo]
    assert ann.history(rome.id) == ann.history(oslo.id) == (old, oslo)


def test_an_update_by_object_keeps_what_it_is_about(ann: Caller) -> None:
    rome = ann.write("She lives in Rome!", subject="Ann", predicate="lives in", object="Rome")
    oslo = ann.update(rome, object="Oslo")
    assert (oslo.subject, oslo.predicate, oslo.object, oslo.text) == ("Ann", "lives in", "Oslo", "Ann lives in Oslo")
    assert ann.write(subject="ann", predicate="Lives in", object="oslo").id == oslo.id
    told = ann.update(oslo.id, "She is on the road.")
    assert (told.subject, told.object) == ("ann", None)


def test_an_update_may_tell_since_when(ann: Caller) -> None:
    rome = ann.write("Rome", valid_from=1_000)
    oslo = ann.update(rome, "Oslo", valid_from=5_000, valid_to=9_000)
    assert ann.read(rome.id).valid_to_ms == oslo.valid_from_ms == 5_000
    for time_ms, texts in [(999, []), (1_000, ["Rome"]), (4_999, ["Rome"]), (5_000, ["Oslo"]), (9_000, [])]:
        assert [fact.text for fact in ann.query(valid_at=time_ms).facts] == texts


def test_an_update_since_before_the_old_fact_leaves_it_no_time(ann: Caller) -> None:
    """It was never true."""
    rome = ann.write("Rome", valid_from=5_000)
    ann.update(rome, "Oslo", valid_from=1_000)
    assert ann.read(rome.id).valid_to_ms == 5_000
    assert [fact.text for fact in ann.query(valid_at=5_000).facts] == ["Oslo"]


def test_what_was_going_to_be_is_updated_from_then_on(ann: Caller) -> None:
    rome = ann.write("Ann lives in Rome.", valid_from=4_000_000_000_000)
    oslo = ann.update(rome, "Ann lives in Oslo.", reason="other plans")
    assert oslo.valid_from_ms == ann.read(rome.id).valid_to_ms == 4_000_000_000_000
    assert ann.query().facts == ()
    assert ann.query(valid_at=4_000_000_000_000).facts == (oslo,)


def test_an_update_by_key_leads_to_the_new_fact(ann: Caller) -> None:
    old = ann.write(key="units", value={"length": "miles"})
    new = ann.update(old.id, value={"length": "km"}, reason="he asked")
    assert ann.read("units") == new
    assert new.text == 'units: {"length":"km"}'
    assert [fact.value for fact in ann.history(old)] == [{"length": "miles"}, {"length": "km"}]


def test_an_update_to_the_same_in_other_words_is_the_same_fact(ann: Caller) -> None:
    fact = ann.write("Ann paints.")
    again = ann.update(fact, "ANN  paints.", reason="nothing", importance=0.9)
    assert (again.id, again.text, again.importance, again.ended_at_ms) == (fact.id, "ANN  paints.", 0.9, None)
    assert len(ann.history(fact)) == 1


def test_an_update_to_what_is_believed_already_joins_both(ann: Caller) -> None:
    rome, oslo = ann.write("Rome"), ann.write("Oslo")
    joined = ann.update(rome, "Oslo", reason="only one")
    assert joined.id == oslo.id
    assert joined.supersedes == (rome.id,)
    also = ann.update(ann.write("Bern"), "oslo")
    assert {fact.text for fact in ann.history(also)} == {"Rome", "oslo", "Bern"}  # some of one millisecond: no order
    assert len(ann.query().facts) == 1


def test_there_and_back_is_three_facts(ann: Caller) -> None:
    rome = ann.write("Rome")
    oslo = ann.update(rome, "Oslo", reason="1")
    back = ann.update(oslo, "Rome", reason="2")
    assert back.id == f"{rome.id}.2"
    assert ann.update(back, "Oslo", reason="3").id == f"{oslo.id}.2"
    chain = [(fact.text, fact.invalidated_reason) for fact in ann.history(oslo)]
    assert chain == [("Rome", "1"), ("Oslo", "2"), ("Rome", "3"), ("Oslo", "")]


def test_what_has_ended_cannot_be_updated_and_the_error_names_what_is_believed(ann: Caller) -> None:
    rome = ann.write("Rome")
    oslo = ann.update(rome, "Oslo")
    with pytest.raises(FactConflictError) as caught:
        ann.update(rome, "Bern")
    assert caught.value.data == {"fact": rome.id, "current": oslo.id}
    with pytest.raises(FactConflictError) as caught:
        ann.invalidate(rome.id, "no")
    assert caught.value.data["current"] == oslo.id
    ann.invalidate(oslo, "unknown")
    with pytest.raises(FactConflictError) as caught:
        ann.update(oslo, "Bern")
    assert caught.value.data["current"] == ""
    assert len(ann.history(rome)) == 2


def test_the_same_change_sent_twice_happens_once(ann: Caller) -> None:
    rome = ann.write("Rome")
    oslo = ann.update(rome, "Oslo", reason="moved")
    assert ann.update(rome, "Oslo", reason="moved") == oslo
    gone = ann.invalidate(oslo, "left")
    assert ann.invalidate(oslo, "left") == gone
    assert len(ann.history(rome)) == 2
    city = ann.write("Rome", key="city")
    ann.update(city, "Oslo", reason="moved")
    ann.update(city, "Oslo", reason="moved")
    with pytest.raises(FactConflictError):
        ann.update(city, "Bern", reason="moved")
    assert len(ann.history(city)) == 2


def test_who_says_what_is_believed_instead_by_now_is_right(ann: Caller) -> None:
    rome = ann.write("Rome")
    oslo = ann.update(rome, "Oslo", reason="one")
    assert ann.update(rome, "OSLO", reason="other") == oslo
    ann.update(oslo, "Bern")
    with pytest.raises(FactConflictError) as caught:  # by now it is not
        ann.update(rome, "Oslo", reason="third")
    assert caught.value.data["current"] == oslo.id


def test_of_one_key_only_the_last_fact_can_be_updated(ann: Caller) -> None:
    old = ann.write("Paris", key="city", valid_from=1_000, valid_to=2_000)
    new = ann.write("Paris", key="city")
    assert new.id == f"{old.id}.2"
    with pytest.raises(FactConflictError) as caught:
        ann.update(old, "Rome")
    assert caught.value.data["current"] == new.id
    assert ann.read("city") == new


def test_invalidated_at_a_time_it_was_true_until_then(ann: Caller) -> None:
    fact = ann.write("Rome", valid_from=1_000)
    gone = ann.invalidate(fact, "found out late", at=2_000)
    assert (gone.valid_to_ms, gone.invalidated_reason, gone.superseded_by) == (2_000, "found out late", None)
    assert ann.query(valid_at=1_999).facts == (gone,)
    assert ann.query(valid_at=2_000).facts == ()
    early = ann.invalidate(ann.write("Oslo", valid_from=1_000), "never", at=10)
    assert early.valid_to_ms == 1_000


@pytest.mark.parametrize("fact", [NO_ID, f"{NO_ID}.2", "", "mf_", "x", "*", None, 5])
def test_what_is_not_there_is_not_found(ann: Caller, fact: Any) -> None:
    for change in (lambda: ann.update(fact, "x"), lambda: ann.invalidate(fact, "x")):
        with pytest.raises(FactNotFoundError, match="it was never written, or it was forgotten"):
            change()
    assert ann.forget(fact) == 0
    assert ann.history(fact) == ()


def test_an_update_needs_something_new(ann: Caller) -> None:
    fact = ann.write("Rome")
    with pytest.raises(InvalidRequestError, match="nothing to update"):
        ann.update(fact, reason="why not")
    with pytest.raises(InvalidRequestError, match="give text"):
        ann.update(fact, object="Oslo")


# Forgetting ----------------------------------------------------------------------------------------------------------


def test_forgotten_is_forgotten_everywhere(ann: Caller, world: World) -> None:
    fact = ann.write(
        "Ann hides quartz.", subject="quartzS", predicate="quartzP", object="quartzO", value="quartzV",
        tags=["quartzT"], thread_id="quartzI", document="quartzD", writer="quartzW",
    )  # fmt: skip
    assert ann.forget(fact) == 1
    assert ann.forget(fact) == 0
    assert ann.query(ended=True).facts == ()
    assert ann.retrieve("quartz").abstained
    for key in world.client.scan_iter():
        kind = world.client.type(key)
        if kind == b"hash":
            stored = world.client.hgetall(key)
            assert b"quartz" not in b"".join((*stored, *stored.values())).lower()
            assert not [name for name in stored if name.startswith(b"vector") or name in (b"s", b"eq", b"tags", b"tg")]
    (left,) = ann.history(fact)
    assert left == Fact(
        id=fact.id, text="", created_at_ms=fact.created_at_ms, forgotten_at_ms=left.forgotten_at_ms, last_seen_ms=0
    )
    assert ann.read(fact.id) == left
    assert left.forgotten_at_ms >= fact.created_at_ms


def test_a_history_tells_that_something_was_forgotten_and_not_what(ann: Caller) -> None:
    rome = ann.write("Rome")
    oslo = ann.update(rome, "Oslo", reason="because of Eve")
    bern = ann.update(oslo, "Bern", reason="moved")
    ann.forget(oslo)
    chain = ann.history(bern)
    assert [fact.text for fact in chain] == ["Rome", "", "Bern"]
    assert [fact.forgotten_at_ms is None for fact in chain] == [True, False, True]
    assert chain == ann.history(rome) == ann.history(oslo)
    with pytest.raises(FactNotFoundError):
        ann.update(oslo.id, "x")
    with pytest.raises(FactNotFoundError):
        ann.update(oslo, "x")


def test_a_whole_chain_can_be_forgotten(ann: Caller) -> None:
    rome = ann.write("Rome")
    ann.update(ann.update(rome, "Oslo"), "Rome")
    beside = ann.write("Bern")
    assert ann.forget(rome, history=True) == 3
    assert ann.query(ended=True).facts == (beside,)
    assert {fact.text for fact in ann.history(rome)} == {""}


# Many at once --------------------------------------------------------------------------------------------------------


def follow(memory: Any, fact: Fact, text: str) -> Fact:
    """Update what is believed, whatever that is by now."""
    current = fact.id
    while True:
        try:
            updated: Fact = memory.update(current, text, reason=text)
        except FactConflictError as exc:
            current = exc.data["current"]
        else:
            return updated


def check_chain(memory: Any, first: Fact, length: int) -> None:
    chain = memory.history(first.id)
    assert len(chain) == length
    assert [fact.superseded_by for fact in chain] == [*(fact.id for fact in chain[1:]), None]
    assert [fact.supersedes for fact in chain] == [(), *((fact.id,) for fact in chain[:-1])]
    for old, new in pairwise(chain):
        assert old.valid_to_ms == new.valid_from_ms
        assert old.invalidated_reason == new.text
    assert memory.query().facts == (chain[-1],)
    for time_ms in {fact.valid_from_ms for fact in chain}:
        assert len(memory.query(valid_at=time_ms).facts) == 1


def test_of_20_updates_at_once_one_succeeds_and_the_others_are_told_what_is_believed(world: World) -> None:
    with world.open(principal="ann", embedder=Words()) as ann:
        rome = ann.write("Rome")

        def one(number: int) -> Fact | str:
            try:
                return ann.update(rome, f"city {number}", reason=f"city {number}")  # type: ignore[no-any-return]
            except FactConflictError as exc:
                return str(exc.data["current"])

        with ThreadPoolExecutor(20) as pool:
            results = list(pool.map(one, range(20)))
        (winner,) = [result for result in results if isinstance(result, Fact)]
        assert [result for result in results if isinstance(result, str)] == [winner.id] * 19
        check_chain(ann, rome, 2)


def test_20_updates_at_once_that_follow_each_other_make_one_chain(world: World) -> None:
    with world.open(principal="ann") as ann:
        rome = ann.write("Rome")
        with ThreadPoolExecutor(20) as pool:
            list(pool.map(lambda number: follow(ann, rome, f"city {number}"), range(20)))
        check_chain(ann, rome, 21)


@pytest.mark.anyio
async def test_tasks_of_one_loop_make_one_chain_too(redis_url: str) -> None:
    somebody = str(uuid4())
    async with AsyncMemory(redis_url, principal=somebody) as ann:
        rome = await ann.write("Rome")

        async def one(number: int) -> None:
            current = rome.id
            while True:
                try:
                    await ann.update(current, f"city {number}", reason=f"city {number}")
                except FactConflictError as exc:
                    current = exc.data["current"]
                else:
                    return

        await asyncio.gather(*map(one, range(20)))
    with Memory(redis_url, principal=somebody) as witness:
        check_chain(witness, rome, 21)


def test_many_who_write_one_fact_at_once_write_one(world: World) -> None:
    with world.open(principal="ann", embedder=Words()) as ann, ThreadPoolExecutor(16) as pool:
        written = list(pool.map(lambda number: ann.write("Ann paints.", thread_id=str(number)), range(40)))
        assert len({fact.id for fact in written}) == 1
        assert sorted(fact.times_seen for fact in written) == list(range(1, 41))
        keyed = list(pool.map(lambda number: ann.write(f"city {number}", key="city"), range(20)))
        chain = ann.history(keyed[0])
        assert len(chain) == 20
        assert [fact.superseded_by for fact in chain] == [*(fact.id for fact in chain[1:]), None]
        assert ann.read("city") == chain[-1]
