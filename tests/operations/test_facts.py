"""Facts, driven by hand: what each verb asks for, and what it makes of every answer and failure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from rtmem import settings as all_settings
from rtmem.errors import (
    CommandError,
    CorruptRecordError,
    DeadlineExceededError,
    EmbeddingUnavailableError,
    FactConflictError,
    FactNotFoundError,
    ModuleMissingError,
    ServerFullError,
)
from rtmem.keys import Keys, fact_scope_tag, scope_tag
from rtmem.operations import fact_search, facts
from rtmem.operations.fact_items import READ_FIELDS, content_of
from rtmem.operations.fact_scope import FactScope
from rtmem.operations.serde import Serde
from rtmem.operations.vector_index import Index
from rtmem.records import Fact, Principal
from rtmem.steps import Batch, Embed
from tests.embedders import Words
from tests.scripted import play

SERDE = Serde(JsonPlusSerializer(), 0)
ID = "mf_" + "a" * 26
VECTOR = np.ones(64, np.float32) / 8
FAILED = EmbeddingUnavailableError("no model today")


def scope_of(*, embedder: Any = None, known: bool = True, user: str = "ann") -> FactScope:
    keys = Keys()
    index = Index(keys, all_settings.Store(), embedder)
    index.state.known = index.state.is_ready = known
    index.state.looked_s = 1e18
    return FactScope(Principal(user=user), keys, SERDE, index)


def row(text: str = "Rome", user: str = "ann", fact_id: str = ID, **changes: Any) -> list[Any]:
    fields: dict[str, Any] = dict.fromkeys(READ_FIELDS)
    fields |= {
        "scope": fact_scope_tag("user", user).encode(),
        "v": SERDE.dumps(content_of(Fact(id="", text=text))),
        "created": b"5000000",
        "u": b"5000000 0 0",
        "tg": b"\x90",
        "importance": b"0.5",
        "valid_from": b"5000",
        "valid_to": b"9007199254740991",
        "seen": b"5000 1",
    }
    return [fact_id.encode(), *(fields | changes).values()]


def command(request: Any) -> tuple[Any, ...]:
    assert isinstance(request, Batch)
    (only,) = request.commands
    return only


def test_a_write_embeds_its_text_and_calls_one_function() -> None:
    told, asked = play(facts.write(scope_of(embedder=Words()), "Rome"), [[VECTOR], [[b"ok", 1, 1, row()]]])
    assert (told.text, told.valid_from_ms, told.valid_to_ms) == ("Rome", 5_000, None)
    assert asked[0] == Embed(("Rome",))
    sent = command(asked[1])
    assert sent[:5] == ("FCALL", "rtmem_v1_facts_write", 2, "rtmem:memory", "rtmem:m:")
    assert sent[5] == fact_scope_tag("user", "ann")
    assert VECTOR.tobytes() in sent


def test_a_write_whose_embedding_fails_goes_on_without_a_vector() -> None:
    _, asked = play(facts.write(scope_of(embedder=Words()), "Rome"), [FAILED, [[b"ok", 1, 1, row()]]])
    sent = command(asked[1])
    assert b"" in sent
    assert "bare\x1funembedded" in sent


def test_the_first_write_makes_the_index_and_one_after_a_flush_too() -> None:
    made = [[b"1", b"0", b"rtmem:memory:1", 0]]
    _, asked = play(facts.write(scope_of(known=False), "Rome"), [made, [[b"ok", 1, 1, row()]]])
    assert [command(each)[1] for each in asked] == ["rtmem_v1_memories_setup", "rtmem_v1_facts_write"]
    _, asked = play(facts.write(scope_of(), "Rome"), [[[b"ok", 0, 1, row()]], made])
    assert [command(each)[1] for each in asked] == ["rtmem_v1_facts_write", "rtmem_v1_memories_setup"]


@pytest.mark.parametrize("failure", [ServerFullError("full"), DeadlineExceededError("late")])
def test_a_failure_of_redis_is_the_callers(failure: Exception) -> None:
    for steps in (
        facts.write(scope_of(), "x"),
        facts.invalidate(scope_of(), ID, "x"),
        facts.forget(scope_of(), ID),
        facts.read(scope_of(), ID),
        facts.read(scope_of(), "a key"),
        facts.history(scope_of(), ID),
        facts.update(scope_of(), Fact(id=ID, text="x"), "y"),
        facts.update(scope_of(), ID, "y"),
        fact_search.query(scope_of()),
        fact_search.retrieve(scope_of(), "x"),
    ):
        with pytest.raises(type(failure)):
            play(steps, [failure])


def test_an_update_with_an_id_embeds_while_it_reads() -> None:
    scope = scope_of(embedder=Words())
    script = [row()[1:], [VECTOR], [[b"ok", 1, 1, row("Oslo")]]]
    script[0] = [script[0]]
    _, asked = play(facts.update(scope, ID, "Oslo", reason="moved"), script)
    assert command(asked[0])[:2] == ("HMGET", f"rtmem:m:{{{ID}}}")
    assert asked[1] == Embed(("Oslo",))
    assert command(asked[2])[5:7] == (ID, "moved")
    script = [[row()[1:]], FAILED, [[b"ok", 1, 1, row("Oslo")]]]
    _, asked = play(facts.update(scope, ID, "Oslo"), script)
    assert "bare\x1funembedded" in command(asked[2])


def test_answers_of_an_update_are_told_apart() -> None:
    fact = Fact(id=ID, text="Rome")
    with pytest.raises(FactNotFoundError):
        play(facts.update(scope_of(), fact, "Oslo"), [[[b"none"]]])
    with pytest.raises(FactConflictError) as caught:
        play(facts.update(scope_of(), fact, "Oslo"), [[[b"conflict", b"mf_other"]]])
    assert caught.value.data["current"] == "mf_other"
    with pytest.raises(FactNotFoundError):
        play(facts.update(scope_of(), ID, "Oslo"), [[[None] * len(READ_FIELDS)]])


def test_a_row_of_somebody_else_is_no_fact() -> None:
    foreign = row(user="bob")
    assert play(facts.read(scope_of(), ID), [[foreign[1:]]])[0] is None
    assert play(facts.read(scope_of(), "key"), [[foreign]])[0] is None
    assert play(facts.history(scope_of(), ID), [[[foreign, row()]]])[0] == (
        play(facts.read(scope_of(), ID), [[row()[1:]]])[0],
    )
    with pytest.raises(CorruptRecordError, match="outside"):
        play(fact_search.query(scope_of()), [[[b"", b"5000", [[ID.encode(), b"1"]], [foreign]]]])


@pytest.mark.parametrize("field", ["v", "seen", "importance", "tg", "valid_from", "created"])
def test_a_row_that_makes_no_sense_is_named(field: str) -> None:
    for broken in (None, b"\xff\xff"):
        with pytest.raises(CorruptRecordError):
            play(facts.read(scope_of(), ID), [[row(**{field: broken})[1:]]])


def test_no_query_goes_without_a_scope() -> None:
    empty = [[b"", b"5000", [[], []], []]]
    scope = scope_of(embedder=Words())
    tag = fact_scope_tag("user", "ann")
    _, (embedded, found) = play(fact_search.retrieve(scope, "where is Ann?"), [[VECTOR], empty])
    assert embedded == Embed(("where is Ann?",), "query")
    texts = [word for word in command(found) if isinstance(word, str) and "@scope" in word]
    assert len(texts) == 2
    assert all(f"@scope:{{{tag}}}" in text for text in texts)
    _, (found,) = play(fact_search.query(scope, tags=["x"]), [[[b"", b"5000", [[]], []]]])
    (text,) = [word for word in command(found) if isinstance(word, str) and "@scope" in word]
    assert f"@scope:{{{tag}}}" in text


def test_a_retrieval_whose_embedding_fails_asks_for_the_words() -> None:
    found, asked = play(
        fact_search.retrieve(scope_of(embedder=Words()), "Rome"),
        [FAILED, [[b"", b"5000", [[ID.encode(), b"3000000"]], [row()]]]],
    )
    assert [hit.fact.text for hit in found.hits] == ["Rome"]
    assert not found.by_meaning
    assert "KNN" not in str(command(asked[1]))


def test_a_question_without_words_asks_for_nothing() -> None:
    assert play(fact_search.retrieve(scope_of(embedder=Words()), " "), [])[0].abstained
    assert play(fact_search.retrieve(scope_of(), "?!"), [])[0].abstained


def test_a_lost_index_is_made_again_and_asked_again() -> None:
    lost = CommandError("rtmem:memory: no such index")
    made = [[b"1", b"0", b"rtmem:memory:1", 0]]
    page, asked = play(fact_search.query(scope_of()), [lost, made, [[b"", b"5000", [[]], []]]])
    assert page.facts == ()
    assert command(asked[1])[1] == "rtmem_v1_memories_setup"
    with pytest.raises(ModuleMissingError):
        play(fact_search.query(scope_of(known=False)), [[[]]])


def test_scopes_of_facts_and_of_items_have_no_tag_in_common() -> None:
    names = ["ann", "fact:user", "fact:user/ann", "user", ""]
    of_facts = {fact_scope_tag(kind, name) for kind in ("user", "team", "application") for name in names}
    of_items = {scope_tag(name, path) for name in names for path in ((), ("ann",), ("user", "ann"), ("fact:user",))}
    assert not of_facts & of_items
    assert len(of_facts) == 15
