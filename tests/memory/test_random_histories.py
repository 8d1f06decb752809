"""Whatever is written, changed and forgotten, in whatever order: what is true when is as in a plain dict."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rtmem import settings as all_settings
from rtmem.errors import FactConflictError, FactNotFoundError, InvalidRequestError, ServerUnavailableError
from rtmem.operations.fact_items import base_of
from rtmem.records import Fact, Principal
from tests.callers import Caller
from tests.checkpoint.colours import Loop
from tests.embedders import Words
from tests.memory.colours import World
from tests.wire import Wire

EXAMPLES = int(os.environ.get("RTMEM_HISTORIES", "30"))
EVERYTHING = all_settings.Retrieval(confidence_min=0, items_max=1_000, tokens_max=1_000_000, window=1_000)
CITIES = ("Rome", "Oslo", "Bern")
PLACES = (("ann", "user"), ("ann", "team:blue"), ("Ann", "user"))
BEGIN_MS, STEP_MS = 1_600_000_000_000, 1_000

# What to do, where, with which city, and two numbers that choose among what is there and when.
Step = tuple[str, int, int, int, int]
ACTIONS = ["write"] * 5 + ["update"] * 5 + ["invalidate", "forget", "key", "key", "until", "forget all"]
ACTIONS += ["broken write", "broken update", "broken invalidate"]
steps = st.lists(
    st.tuples(
        st.sampled_from(ACTIONS), st.integers(0, 2), st.integers(0, 2), st.integers(0, 9), st.integers(-2, 2)
    ),
    max_size=16,
)  # fmt: skip


@dataclass
class Belief:
    """What should be there."""

    id: str
    owner: tuple[str, str]
    text: str
    key: str
    start: int
    end: float
    ended: bool = False
    forgotten: bool = False
    successor: str = ""

    def holds(self, at: int) -> bool:
        return not self.forgotten and self.start <= at < self.end


@dataclass
class Model:
    """A plain list of beliefs, and the rules of the verbs in Python."""

    beliefs: list[Belief] = field(default_factory=list)

    def last(self, owner: tuple[str, str], text: str, key: str) -> Belief | None:
        """The last that was made of one content, or under one key, unless it has ended."""
        same = [each for each in self.beliefs if (each.owner, each.key) == (owner, key) and (key or each.text == text)]
        return same[-1] if same and not (same[-1].ended or same[-1].forgotten) else None

    def of(self, fact_id: str) -> Belief:
        return next(each for each in self.beliefs if each.id == fact_id)

    def add(self, owner: tuple[str, str], fact: Fact, text: str, key: str, start: int, end: float) -> Belief:
        """A new belief; its id must be new too."""
        assert fact.id not in {each.id for each in self.beliefs}
        belief = Belief(fact.id, owner, text, key, start, end)
        self.beliefs.append(belief)
        return belief

    def write(self, owner: tuple[str, str], fact: Fact, text: str, key: str, start: int, end: float | None) -> None:
        old = self.last(owner, text, key)
        if old and old.text == text and (old.end > start or old.start == start):
            assert fact.id == old.id
            old.start, old.end = start, old.end if end is None else end
            return
        new = self.add(owner, fact, text, key, start, float("inf") if end is None else end)
        if old and old.text != text:
            self.finish(old, start, new.id)

    def update(self, old: Belief, fact: Fact, text: str, start: int) -> None:
        there = self.last(old.owner, text, old.key)
        if there is old and old.text == text:
            assert fact.id == old.id
            old.start = start
            return
        if there and there is not old and there.end > start:
            assert fact.id == there.id
            there.start = start
        else:
            there = self.add(old.owner, fact, text, old.key, start, float("inf"))
        self.finish(old, start, there.id)

    @staticmethod
    def finish(old: Belief, at: int, successor: str) -> None:
        old.end, old.ended, old.successor = min(old.end, max(at, old.start)), True, successor


class History:
    """Does the same to the memory and to the model, in turns by a blocking and an awaiting one."""

    def __init__(self, colours: tuple[dict[str, Caller], ...], wires: list[Wire]) -> None:
        self.colours, self.wires, self.model, self.now = colours, wires, Model(), BEGIN_MS

    def do(self, step: Step) -> None:
        action, place, city, which, shift = step
        self.now += STEP_MS
        kind = action.removeprefix("broken ")
        if kind != action:
            for wire in self.wires:
                wire.cut(which % 2, after=bool(shift % 2))
        try:
            self.act(kind, PLACES[place], CITIES[city], which, self.now + shift * STEP_MS * 3)
        finally:
            for wire in self.wires:
                wire.left = -1

    def act(self, kind: str, place: tuple[str, str], city: str, which: int, at: int) -> None:
        memory = self.colours[which % len(self.colours)][place[0]]
        text = f"alpha {city}"
        if kind in ("write", "key", "until"):
            key = "home" if kind == "key" else ""
            end = at + 5 * STEP_MS if kind == "until" else None
            old = self.model.last(place, text, key)
            options = {"key": key, "to": place[1], "valid_from": at, "valid_to": end}
            if old and old.text == text and old.end > at and (end is None and at >= old.end):
                return
            fact = twice(lambda: memory.write(text, **options))
            self.model.write(place, fact, text, key, at, end)
            return
        candidates = [each for each in self.model.beliefs if each.owner == place]
        if not candidates:
            return
        old = candidates[which % len(candidates)]
        if kind == "update":
            self.update(memory, old, text, at)
        elif kind == "invalidate":
            self.invalidate(memory, old, at)
        elif kind == "forget":
            assert memory.forget(old.id) == int(not old.forgotten)
            old.forgotten = True
        else:
            chain = {fact.id for fact in memory.history(old.id) if fact.forgotten_at_ms is None}
            assert memory.forget(old.id, history=True) == len(chain)
            for each in self.model.beliefs:
                each.forgotten = each.forgotten or each.id in chain

    def update(self, memory: Caller, old: Belief, text: str, at: int) -> None:
        def change() -> Fact:
            return twice(lambda: memory.update(old.id, text, reason=str(self.now), valid_from=at))  # type: ignore[no-any-return]

        if old.forgotten:
            with pytest.raises(FactNotFoundError):
                change()
            return
        there = self.model.last(old.owner, text, old.key)
        clash = old.key and there is not None and there is not old
        target = old if there is old and old.text == text else there
        if not old.ended and not clash and target is not None and target.end <= at and (
            target is old or target.end > at
        ):  # fmt: skip
            with pytest.raises(InvalidRequestError, match="true at no time"):
                change()
            return
        successor = self.model.of(old.successor) if old.ended and old.successor else None
        if successor and successor.text == text and not (successor.ended or successor.forgotten):
            assert change().id == successor.id
            return
        if old.ended or clash:
            with pytest.raises(FactConflictError) as caught:
                change()
            assert caught.value.data["current"] == (old.successor if old.ended else there.id)  # type: ignore[union-attr]
            return
        self.model.update(old, change(), text, at)

    def invalidate(self, memory: Caller, old: Belief, at: int) -> None:
        if old.forgotten or old.ended:
            with pytest.raises(FactNotFoundError if old.forgotten else FactConflictError):
                twice(lambda: memory.invalidate(old.id, str(self.now), at=at))
            return
        twice(lambda: memory.invalidate(old.id, str(self.now), at=at))
        self.model.finish(old, at, "")

    def check(self) -> None:
        """What is true when, of everybody; and that chains hang together."""
        beliefs = self.model.beliefs
        starts = {each.start for each in beliefs}
        moments = sorted(starts | {int(each.end) for each in beliefs if each.end < float("inf")})
        for name, memory in self.colours[0].items():
            mine = [each for each in beliefs if each.owner[0] == name]
            for at in (*moments, *(moment - 1 for moment in moments[::3])):
                wanted = sorted(each.id for each in mine if each.holds(at))
                assert sorted(fact.id for fact in memory.query(valid_at=at, limit=1_000).facts) == wanted
                assert sorted(hit.fact.id for hit in memory.retrieve("alpha", as_of=at).hits) == wanted
            living = sorted(each.id for each in mine if not each.forgotten)
            assert sorted(fact.id for fact in memory.query(ended=True, limit=1_000).facts) == living
            for each in mine:
                self.check_fact(memory, each)

    def check_fact(self, memory: Caller, belief: Belief) -> None:
        fact = memory.read(belief.id)
        chain = {found.id: found for found in memory.history(belief.id)}
        assert chain[belief.id] == fact
        if belief.forgotten:
            assert (fact.text, fact.forgotten_at_ms is None) == ("", False)
            return
        assert (fact.text, fact.key, fact.scope) == (belief.text, belief.key, belief.owner[1])
        assert (fact.valid_from_ms, fact.valid_to_ms or float("inf")) == (belief.start, belief.end)
        assert (fact.ended_at_ms is not None, fact.superseded_by or "") == (belief.ended, belief.successor)
        if belief.successor:
            assert belief.id in chain[belief.successor].supersedes
        assert {found.id for found in chain.values()} >= {
            each.id for each in self.model.beliefs if base_of(each.id) == base_of(belief.id)
        }


def twice(change: Any) -> Any:
    """A change; asked for again if its wire broke."""
    try:
        return change()
    except ServerUnavailableError:
        return change()


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=steps)
def test_any_history_is_as_in_a_plain_dict(
    redis_client: Any, redis_url: str, event_loop_thread: Loop, steps: list[Step]
) -> None:
    redis_client.flushdb()
    blocking = World(redis_url, redis_client, event_loop_thread, awaiting=False, protocol=3)
    awaiting = World(redis_url, redis_client, event_loop_thread, awaiting=True, protocol=2)
    options: dict[str, Any] = {"embedder": Words(), "retrieval": EVERYTHING}
    with blocking.open(**options) as one, awaiting.open(**options) as other:
        people = [Principal(user="ann", teams=("blue",)), Principal(user="Ann")]
        colours = tuple({who.user: memory.bind(who) for who in people} for memory in (one, other))
        for memories in colours:  # the index is made
            memories["ann"].query()
        history = History(colours, [Wire(one.owner), Wire(other.owner)])
        for step in steps:
            history.do(step)
        history.check()
