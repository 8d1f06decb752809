"""Facts belong to a user, a team or an application; who belongs to what is bound, and nothing in a call changes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rtmem.errors import (
    FactConflictError,
    FactNotFoundError,
    IdTooLongError,
    InvalidRequestError,
    RtmemError,
    ScopeNotFoundError,
)
from rtmem.memory import Memory
from rtmem.records import Fact, Principal
from rtmem.store import RedisStore
from tests.callers import Caller
from tests.embedders import Words
from tests.memory.colours import World
from tests.wire import Wire

NAMES = [
    *("ann", "Ann", "ANN", "ann ", " ann", "an", "anna", "ann/", "user", "team:ann", "application", "a:b", "a/b"),
    *("a%2Fb", "*", "{", "|", "ann|bob", "ann\x1fbob", "ann\x00", "ß", "ss", "é", "e\u0301", "\ud800", "ю" * 256),
]


def people(memory: Caller) -> list[Caller]:
    return [memory.bind(Principal(**{role: name})) for name in NAMES for role in ("user", "application")] + [
        memory.bind(Principal(teams=(name,))) for name in NAMES
    ]


def place(memory: Caller) -> str:
    return next(iter(memory.scope.owners))


def test_no_name_leads_into_the_memory_of_another(world: World) -> None:
    with world.open(embedder=Words()) as memory:
        everybody = people(memory)
        written = [(who, who.write("the same secret", to=place(who))) for who in everybody]
        keyed = [(who, who.write("the same secret", key="k", to=place(who))) for who in everybody]
        assert len({fact.id for _, fact in written + keyed}) == 2 * len(everybody)
        for (who, fact), (_, profile) in zip(written, keyed, strict=True):
            mine = {fact.id, profile.id}
            assert {found.id for found in who.query(ended=True).facts} == mine
            assert {hit.fact.id for hit in who.retrieve("same secret").hits} == mine
            assert who.read("k", of=place(who)).id == profile.id
            assert [found.id for found in who.history(fact)] == [fact.id]
        (first, _), *others = written
        for _, foreign in others:
            assert first.read(foreign.id) is None
            assert first.history(foreign.id) == ()
            assert first.forget(foreign.id) == 0
        for who, fact in written:
            assert who.forget(fact) == 1
            assert len(who.query(ended=True).facts) == 1


VERBS: list[tuple[str, Callable[[Any, str], Any]]] = [
    ("read", lambda memory, fact: memory.read(fact)),
    ("update", lambda memory, fact: memory.update(fact, "x", reason="y")),
    ("invalidate", lambda memory, fact: memory.invalidate(fact, "y")),
    ("forget", lambda memory, fact: memory.forget(fact)),
    ("forget all", lambda memory, fact: memory.forget(fact, history=True)),
    ("history", lambda memory, fact: memory.history(fact)),
]


def asked(memory: Caller, verb: Callable[[Any, str], Any], fact_id: str) -> tuple[Any, ...]:
    """Everything that an asker and a listener on the wire can see: commands, answers and words, without the id."""
    wire = Wire(memory.owner)
    try:
        answer = repr(verb(memory, fact_id))
    except RtmemError as exc:
        answer = f"{type(exc).__name__}: {exc} {exc.data}"
    sent = [[str(part).replace(fact_id, "<id>") for part in command] for b in wire.batches for command in b.commands]
    return answer.replace(fact_id, "<id>"), sent, len(wire.batches)


@pytest.mark.parametrize("verb", [verb for _, verb in VERBS], ids=[name for name, _ in VERBS])
def test_somebody_elses_fact_and_one_that_never_was_look_the_same(ann: Caller, verb: Callable[[Any, str], Any]) -> None:
    bob = ann.bind(Principal(user="bob", teams=("blue",), application="app"))
    foreign = [bob.write("mine"), bob.write("ours", to="team:blue"), bob.write("all of us", to="application")]
    ended = bob.write("was")
    bob.invalidate(ended, "over")
    gone = bob.write("gone")
    bob.forget(gone)
    chains = [bob.history(fact) for fact in (*foreign, ended, gone)]
    absent = asked(ann, verb, "mf_" + "a" * 26)
    for fact in (*foreign, ended, gone):
        assert asked(ann, verb, fact.id) == absent
    assert [bob.history(fact) for fact in (*foreign, ended, gone)] == chains


def test_a_fact_object_of_somebody_else_gives_no_right(ann: Caller) -> None:
    fact = ann.write("Ann's")
    bob = ann.bind(Principal(user="bob", teams=("blue",)))
    for forged in (fact, Fact(id=fact.id, text="x", scope="team:blue")):
        with pytest.raises(FactNotFoundError):
            bob.update(forged, "Bob's")
        with pytest.raises(FactNotFoundError):
            bob.invalidate(forged, "x")
    with pytest.raises(ScopeNotFoundError):
        bob.update(Fact(id=fact.id, text="x", scope="team:red"), "Bob's")
    assert ann.query().facts == (fact,)


def test_a_team_one_does_not_belong_to_and_one_that_does_not_exist_look_the_same(ann: Caller) -> None:
    ann.bind(Principal(user="bob", teams=("blue",), application="app")).write("ours", to="team:blue")
    wire = Wire(ann.owner)
    for call in (
        lambda to: ann.write("x", to=to),
        lambda to: ann.query(scopes=[to]),
        lambda to: ann.retrieve("ours", scopes=[to]),
        lambda to: ann.read("key", of=to),
    ):
        told = set()
        for to in ("team:blue", "team:gray", "application", "team:", "Team:blue", "user:bob"):
            with pytest.raises(ScopeNotFoundError) as caught:
                call(to)
            told.add(str(caught.value).replace(repr(to), "<scope>"))
        assert len(told) == 1
    assert wire.take() == 0


def test_one_query_sees_the_user_the_teams_and_the_application(ann: Caller) -> None:
    rich = Principal(user="ann", teams=("blue", "Blue"), application="app")
    memory = ann.bind(rich)
    where = ["user", "team:blue", "team:Blue", "application"]
    written = {to: memory.write(f"plan of {to}", to=to) for to in where}
    wire = Wire(memory.owner)
    assert {hit.fact.scope: hit.fact for hit in memory.retrieve("plan").hits} == written
    assert {fact.scope: fact for fact in memory.query().facts} == written
    assert wire.take() == 2
    for to, fact in written.items():
        assert memory.query(scopes=[to]).facts == (fact,)
        assert memory.read(fact.id) == fact
    mate = ann.bind(Principal(user="bob", teams=("blue",)))
    assert mate.query().facts == (written["team:blue"],)
    changed = mate.update(written["team:blue"], "better plan", reason="we talked")
    assert (changed.principal, changed.scope) == ("bob", "team:blue")
    assert memory.history(changed)[0].invalidated_reason == "we talked"
    assert ann.query().facts == (written["user"],)


def test_an_update_stays_in_its_scope(ann: Caller) -> None:
    memory = ann.bind(Principal(user="ann", teams=("blue",)))
    mine, ours = memory.write("Rome"), memory.write("Rome", to="team:blue")
    assert memory.update(ours, "Oslo").scope == "team:blue"
    assert memory.update(mine.id, "Oslo").scope == "user"
    with pytest.raises(FactConflictError):
        memory.update(mine, "Bern")


@pytest.mark.parametrize("principal", ["", Principal()])
def test_without_a_scope_nothing_is_read_or_written(world: World, principal: Any) -> None:
    with world.open(principal="ann") as ann:
        fact = ann.write("secret", key="k")
        nobody = ann.bind(principal)
        for call in (
            lambda: nobody.write("x"),
            lambda: nobody.read(fact.id),
            lambda: nobody.read("k"),
            lambda: nobody.query(),
            lambda: nobody.retrieve("secret"),
            lambda: nobody.history(fact),
            lambda: nobody.forget(fact),
            lambda: nobody.update(fact, "x"),
            lambda: nobody.invalidate(fact, "x"),
            lambda: ann.query(scopes=[]),
            lambda: ann.retrieve("secret", scopes=()),
        ):
            with pytest.raises((InvalidRequestError, ScopeNotFoundError)):
                call()
        assert ann.query().facts == (fact,)


@pytest.mark.parametrize(
    "principal", [None, 5, b"ann", Principal(teams="blue"), Principal(teams=("",)), Principal(user=5)]  # type: ignore[arg-type]
)  # fmt: skip
def test_who_is_no_principal_is_refused(ann: Caller, principal: Any) -> None:
    with pytest.raises(InvalidRequestError):
        ann.bind(principal)


def test_names_have_a_limit(ann: Caller) -> None:
    with pytest.raises(IdTooLongError):
        ann.bind("x" * 513)
    with pytest.raises(InvalidRequestError, match="at most 64"):
        ann.bind(Principal(teams=tuple(map(str, range(65)))))


def test_the_store_and_the_facts_of_one_name_do_not_see_each_other(redis_client: Any, redis_url: str) -> None:
    """One index, one embedder, and no key or scope in common."""
    with (
        Memory(redis_url, principal="ann", embedder=Words()) as memory,
        RedisStore(redis_url, principal="ann", index=Words()) as store,
    ):
        fact = memory.write("tea is ready", key="tea")
        store.put(("facts",), fact.id, {"text": "tea is an item"})
        store.put(("tea",), "tea", {"text": "tea too"})
        assert {item.key for item in store.search(())} == {fact.id, "tea"}
        assert store.list_namespaces() == [("facts",), ("tea",)]
        assert {item.key for item in store.search((), query="tea")} == {fact.id, "tea"}
        assert memory.query(ended=True).facts == (fact,)
        assert [hit.fact for hit in memory.retrieve("tea ready").hits] == [fact]
        store.delete(("facts",), fact.id)
        assert memory.read("tea") == fact
        memory.forget(fact)
        assert len(store.search(())) == 1
