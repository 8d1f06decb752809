"""A fact is written once, however often it is said, and comes back exactly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from rtmem import settings as all_settings
from rtmem.errors import IdTooLongError, InvalidRequestError, TooLargeError, WriteRefusedError
from rtmem.records import Fact, Principal
from tests.callers import Caller
from tests.embedders import Words
from tests.memory.colours import World

DAY_MS = 86_400_000
HOSTILE = [
    *(":", "{", "}", "{a}", "*", "?", "[a-z]", "|", ",", ".", "-", "@scope:{x}", "\\", '"', "'", "/", "a/b", "a%2Fb"),
    *("$now", "(a|b)=>[KNN 3 @v $x]", "will such cat", "\x00", "a\x1fb", "null", "ю" * 100, "👩‍👩‍👧", "mf_a", "%s"),
]


def test_a_fact_said_again_in_another_spelling_is_the_same_fact(ann: Caller) -> None:
    home = ann.write("Ann lives in Rome.", tags=["home"], importance=0.9, thread_id="t1")
    again = ann.write("  ann LIVES in\tRome. ", thread_id="t2")
    assert again.id == home.id
    assert (again.created_at_ms, again.valid_from_ms) == (home.created_at_ms, home.valid_from_ms)
    assert (again.tags, again.importance) == (("home",), 0.9)
    assert (again.times_seen, again.thread_id, again.text) == (2, "t2", "  ann LIVES in\tRome. ")
    assert ann.read(home.id) == again
    assert len(ann.query(ended=True).facts) == 1


def test_tags_and_importance_that_are_given_again_replace_the_old_ones(ann: Caller) -> None:
    ann.write("Ann paints.", tags=["hobby"], importance=0.2)
    again = ann.write("Ann paints.", tags=["art"], importance=0)
    assert (again.tags, again.importance) == (("art",), 0.0)
    assert ann.query(tags=["art"], importance_max=0).facts == (again,)
    assert ann.query(tags=["hobby"]).facts == ()


def test_all_that_is_written_comes_back(ann: Caller) -> None:
    fact = ann.write(
        "Ann has 3 cats.",
        kind="episodic",
        subject="Ann",
        predicate="has",
        object=3,
        value={"names": ["Mia", "Tom", None], "age": 1.5},
        importance=0.25,
        tags=["Pets", "home"],
        thread_id="t",
        message_id="m",
        position=7,
        document="d.md",
        writer="w",
        valid_from=datetime(2020, 1, 1, tzinfo=UTC),
        valid_to=4_000_000_000_000,
    )
    assert fact == ann.read(fact.id)
    assert fact == Fact(
        id=fact.id,
        text="Ann has 3 cats.",
        kind="episodic",
        subject="Ann",
        predicate="has",
        object=3,
        value={"names": ["Mia", "Tom", None], "age": 1.5},
        importance=0.25,
        tags=("Pets", "home"),
        thread_id="t",
        message_id="m",
        position=7,
        document="d.md",
        writer="w",
        principal="ann",
        valid_from_ms=1_577_836_800_000,
        valid_to_ms=4_000_000_000_000,
        created_at_ms=fact.created_at_ms,
        last_seen_ms=fact.created_at_ms,
    )


def test_hostile_texts_and_names_come_back_and_meet_nobody(ann: Caller) -> None:
    written = {}
    for text in HOSTILE:
        names = {"subject": text, "thread_id": text, "writer": text, "document": text}
        written[text] = ann.write(f"note {text}", **names, predicate="is", object=text, tags=[text], kind="episodic")
        ann.write(key=text, value={"of": text})
    assert len({fact.id for fact in written.values()}) == len(HOSTILE)
    for text, fact in written.items():
        assert ann.read(fact.id).text == f"note {text}"
        assert ann.read(text).value == {"of": text}
        for wanted in ({"tags": [text]}, {"subject": text}, {"object": text}, {"thread_id": text}, {"writer": text}):
            assert [found.id for found in ann.query(**wanted).facts] == [fact.id], wanted


def test_a_fact_without_text_says_subject_predicate_and_object(ann: Caller) -> None:
    assert ann.write(subject="Ann", predicate="likes", object="tea").text == "Ann likes tea"
    assert ann.write(key="units", value={"length": "km"}).text == 'units: {"length":"km"}'
    with pytest.raises(InvalidRequestError, match="give text"):
        ann.write(subject="Ann")


def test_objects_of_two_types_are_two_facts(ann: Caller) -> None:
    ids = {ann.write(subject="box", predicate="holds", object=thing).id for thing in (5, "5", 5.5, True, "True", 5.0)}
    assert len(ids) == 5  # 5 and 5.0 are equal
    assert [fact.object for fact in ann.query(object="5").facts] == ["5"]
    assert [fact.object for fact in ann.query(object=5).facts] == [5]
    assert [fact.object for fact in ann.query(object=True).facts] == [True]


def test_kinds_and_owners_have_ids_of_their_own(ann: Caller) -> None:
    said = "tea is ready"
    ids = {ann.write(said, kind=kind).id for kind in ("semantic", "episodic", "procedural", "preference")}
    ids.add(ann.bind("bob").write(said).id)
    ids.add(ann.bind("Ann").write(said).id)
    both = ann.bind(Principal(user="ann", teams=("ann",), application="ann"))
    ids.add(both.write(said, to="team:ann").id)
    ids.add(both.write(said, to="application").id)
    assert len(ids) == 8
    assert both.write(said).id in ids


def test_under_a_key_one_thing_is_true_at_a_time(ann: Caller) -> None:
    first = ann.write("Rome", key="city")
    assert ann.write("rome", key="city").id == first.id
    second = ann.write("Oslo", key="city")
    assert ann.read("city") == second
    old = ann.read(first.id)
    assert (old.superseded_by, second.supersedes) == (second.id, (first.id,))
    assert old.valid_to_ms == second.valid_from_ms
    third = ann.write("Rome", key="city")
    assert len({first.id, second.id, third.id}) == 3
    assert [fact.text for fact in ann.history(first.id)] == ["rome", "Oslo", "Rome"]
    assert [fact.text for fact in ann.query().facts] == ["Rome"]


def test_a_key_leads_to_nothing_once_what_it_led_to_is_over(ann: Caller) -> None:
    assert ann.read("city") is None
    fact = ann.write("Rome", key="city")
    ann.invalidate(fact, "moved")
    assert ann.read("city") is None
    ann.forget(ann.write("Oslo", key="city"))
    assert ann.read("city") is None
    ann.write("Paris", key="city", valid_from=1_000, valid_to=2_000)
    assert ann.read("city") is None
    ann.write("Bern", key="city", valid_to=4_000_000_000_000)
    assert ann.read("city").text == "Bern"
    ann.write("Bonn", key="town", valid_from=4_000_000_000_000)
    assert ann.read("town") is None


def test_keys_are_exact(ann: Caller) -> None:
    ann.write("lower", key="city")
    ann.write("upper", key="City")
    ann.write("space", key="city ")
    assert [ann.read(key).text for key in ("city", "City", "city ")] == ["lower", "upper", "space"]


def test_what_is_said_again_after_it_has_ended_is_believed_anew(ann: Caller) -> None:
    first = ann.write("Ann smokes.")
    ann.invalidate(first, "she gave up")
    second = ann.write("Ann smokes.")
    assert second.id == f"{first.id}.2"
    assert second.valid_from_ms >= ann.read(first.id).valid_to_ms
    assert second.times_seen == 1
    assert ann.write("ANN smokes.").id == second.id
    ann.forget(second)
    assert ann.write("Ann smokes.").id == f"{first.id}.3"
    assert [fact.invalidated_reason for fact in ann.history(second.id)] == ["she gave up", "", ""]


def test_what_was_true_for_a_time_can_be_true_once_more(ann: Caller) -> None:
    friday, monday = 1_700_000_000_000, 1_700_500_000_000
    first = ann.write("Ann is in Paris.", valid_from=friday, valid_to=friday + DAY_MS)
    assert ann.write("Ann is in Paris.", valid_from=friday, valid_to=friday + DAY_MS).id == first.id
    longer = ann.write("Ann is in Paris.", valid_from=friday, valid_to=friday + 2 * DAY_MS)
    assert (longer.id, longer.valid_to_ms) == (first.id, friday + 2 * DAY_MS)
    second = ann.write("Ann is in Paris.", valid_from=monday, valid_to=monday + DAY_MS)
    assert second.id == f"{first.id}.2"
    for time_ms, found in [(friday, [longer]), (friday + 3 * DAY_MS, []), (monday, [second]), (-DAY_MS, [])]:
        assert list(ann.query(valid_at=time_ms).facts) == found


@pytest.mark.parametrize(
    "wrong",
    [
        {"text": ""},
        {"text": " \t "},
        {"text": "half \ud800"},
        {"text": 5},
        {"kind": "opinion"},
        {"kind": ["semantic"]},
        {"importance": 1.1},
        {"importance": -0.1},
        {"importance": float("nan")},
        {"importance": True},
        {"tags": "home"},
        {"tags": [""]},
        {"tags": ["a" * 129]},
        {"tags": [5]},
        {"tags": [["a"]]},
        {"tags": 5},
        {"key": "mf_" + "a" * 26},
        {"position": "1"},
        {"thread_id": 5},
        {"object": float("inf")},
        {"object": ["a"]},
        {"value": object()},
        {"valid_from": datetime(2020, 1, 1)},
        {"valid_from": 1.5},
        {"valid_from": 10**17},
        {"valid_from": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))},
        {"valid_to": 1_000},
        {"valid_from": 1_000, "valid_to": 1_000},
    ],
)
def test_what_cannot_be_stored_is_refused_and_nothing_is_stored(ann: Caller, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        ann.write(**{"text": "fine", "subject": "s", "predicate": "p", **wrong})
    assert ann.query(ended=True).facts == ()


def test_sizes_have_limits(world: World) -> None:
    small = all_settings.Memory(text_characters_max=20, value_bytes_max=500, tags_max=2)
    with world.open(principal="ann", settings=small) as ann:
        for wrong in ({"text": "x" * 21}, {"text": "x", "value": "y" * 500}, {"text": "x", "tags": ["a", "b", "c"]}):
            with pytest.raises(TooLargeError):
                ann.write(**wrong)
        with pytest.raises(IdTooLongError):
            ann.write("x", key="k" * 513)
        fact = ann.write("x")
        with pytest.raises(TooLargeError):
            ann.update(fact, "y", reason="z" * 21)
        assert ann.query().facts == (fact,)


def test_each_kind_lives_as_long_as_its_retention(world: World) -> None:
    settings = all_settings.Memory(semantic_ttl_ms=0, episodic_ttl_ms=100_000, preference_ttl_ms=900_000)
    with world.open(principal="ann", settings=settings) as ann:
        for kind, ttl_ms in (("semantic", 0), ("episodic", 100_000), ("preference", 900_000)):
            key = ann.scope.keys.fact(ann.write("said", kind=kind).id)
            left_ms = world.client.pttl(key)
            assert left_ms == -1 if not ttl_ms else ttl_ms / 2 < left_ms <= ttl_ms
            world.client.pexpire(key, 5_000)
            ann.write("said", kind=kind)
            assert (world.client.pttl(key) == -1) if not ttl_ms else world.client.pttl(key) > ttl_ms / 2


def test_the_first_of_an_id_lasts_as_long_as_the_last(world: World) -> None:
    """It tells how many there were: without it the same would be believed twice."""
    settings = all_settings.Memory(episodic_ttl_ms=1_000_000, forgotten_ttl_ms=1_000)
    with world.open(principal="ann", settings=settings) as ann:
        first = ann.write("It rained.", kind="episodic")
        ann.invalidate(first, "it did not")
        key = ann.scope.keys.fact(first.id)
        world.client.pexpire(key, 5_000)
        second = ann.write("It rained.", kind="episodic")
        assert world.client.pttl(key) > 500_000
        ann.forget(first)
        assert world.client.pttl(key) > 500_000
        assert ann.write("It rained.", kind="episodic").id == second.id


def test_a_fact_whose_time_is_over_is_gone_everywhere(world: World) -> None:
    with world.open(principal="ann", embedder=Words()) as ann:
        fact = ann.write("It rained.", kind="episodic")
        world.client.pexpire(ann.scope.keys.fact(fact.id), 1)
        while world.client.exists(ann.scope.keys.fact(fact.id)):
            pass
        assert ann.read(fact.id) is None
        assert ann.history(fact.id) == ()
        assert ann.query(ended=True).facts == ()
        assert ann.retrieve("rained").hits == ()
        assert ann.write("It rained.", kind="episodic").id == fact.id


def test_the_policy_sees_a_fact_before_anybody_else_does(world: World) -> None:
    embedder = Words()

    def careful(fact: Fact, principal: Principal) -> Fact:
        if "password" in fact.text:
            raise WriteRefusedError("no passwords")
        assert principal.user == "ann"
        return Fact(id="", text=fact.text.replace("4111", "[card]"), kind=fact.kind, tags=("seen",))

    with world.open(principal="ann", embedder=embedder, policy=careful) as ann:
        with pytest.raises(WriteRefusedError):
            ann.write("her password is x")
        fact = ann.write("her card is 4111")
        assert (fact.text, fact.tags) == ("her card is [card]", ("seen",))
        with pytest.raises(WriteRefusedError):
            ann.update(fact, "her password is y")
        with pytest.raises(WriteRefusedError):
            ann.update(fact.id, "her password is y")
        assert ann.update(fact.id, "her new card is 4111").text == "her new card is [card]"
        assert not [text for texts in embedder.asked for text in texts if "password" in text or "4111" in text]
        assert not [key for key in world.client.scan_iter() if b"4111" in (world.client.dump(key) or b"")]


def test_what_a_policy_returns_is_checked_and_stays_in_its_scope(world: World) -> None:
    changed = {"text": "fine"}

    def policy(fact: Fact, principal: Principal) -> Fact:
        return Fact(id="x", key="other", **changed)

    whose = Principal(user="ann", teams=("blue",))
    with world.open(principal=whose, policy=policy) as ann:
        fact = ann.write("Rome", to="team:blue", key="city")
        assert (fact.text, fact.scope, fact.key) == ("fine", "team:blue", "city")
        for wrong in (
            {"text": ""},
            {"text": "x" * 9_000},
            {"text": "x", "kind": "opinion"},
            {"text": "x", "tags": (5,)},
            {"text": "x", "tags": ("a" * 129,)},
            {"text": "x", "tags": tuple(map(str, range(100)))},
            {"text": "x", "valid_to_ms": "later"},
        ):
            changed = wrong
            with pytest.raises(InvalidRequestError):
                ann.write("Rome")
        assert ann.query(ended=True).facts == (fact,)
    with world.open(principal=whose, policy=lambda fact, principal: None) as ann:
        with pytest.raises(InvalidRequestError, match="returned a NoneType"):
            ann.write("Rome")


def test_encrypted_facts_keep_their_identity(world: World) -> None:
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
    with world.open(principal="ann", embedder=Words(), serde=serde) as ann:
        fact = ann.write("Ann hides quartz.", key="k", value={"where": "under the bed"})
        assert ann.write("ann hides QUARTZ.", key="k", value={"where": "under the bed"}).id == fact.id
        assert ann.read("k").times_seen == 2
        assert [hit.fact.value for hit in ann.retrieve("Who hides quartz?").hits] == [{"where": "under the bed"}]
        stored = world.client.hget(ann.scope.keys.fact(fact.id), "v")
        assert b"bed" not in stored
        assert b"quartz" not in stored.lower()


def test_every_verb_is_counted(ann: Caller) -> None:
    fact = ann.write("Ann paints.")
    ann.retrieve("Who paints?")
    ann.retrieve("zebra")
    with pytest.raises(InvalidRequestError):
        ann.bind("bob").write("")
    ann.read(fact.id)
    counts = ann.counts
    assert (counts["write"].calls, counts["write"].errors, counts["write"].timeouts) == (2, 1, 0)
    assert (counts["retrieve"].calls, counts["retrieve"].abstained) == (2, 1)
    assert counts["retrieve"].tokens > 0
    assert 0 < counts["read"].latency_us_max == counts["read"].latency_us_total
