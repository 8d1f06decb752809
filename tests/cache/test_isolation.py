"""No answer crosses a tenant, a model, or anything else that changes answers; whatever people write."""

from __future__ import annotations

from enum import Enum
from itertools import permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel, Field, SecretStr

from rtmem.cache import CacheScope
from rtmem.errors import ConfigError, InvalidRequestError
from rtmem.operations.cache_prompts import read_question
from tests.cache.colours import FRANCE, LIKE_FRANCE, SCOPE, World
from tests.callers import Caller

HOSTILE = [
    "a",
    "A",
    "a ",
    " a",
    "*",
    "a*",
    "a b",
    "{a}",
    "a}|@scope:{*",
    "a:b",
    "a|b",
    "a,b",
    "a.b",
    "a-b",
    "@a",
    "a\\",
    'a"',
    "a'",
    "a\nb",
    "a\x00",
    "a\x1fb",
    "é",
    "e\u0301",
    "🙂",
    "🙂🙂",
    "а",  # Cyrillic
    "\ud800",
]


@tool
def search(query: str) -> str:
    """Search the web."""
    return query


@tool
def searches(query: str, count: int) -> str:
    """Search the web."""
    return query


class City(BaseModel):
    name: str


class Town(BaseModel):
    name: str
    people: int


DIFFERENT: dict[str, list[Any]] = {
    "model": ["m", "M", "m ", "m2", "m|n", "*"],
    "parameters": [
        {},
        {"temperature": 0},
        {"temperature": 1},
        {"temperature": "0"},
        {"temperature": None},
        {"temperature": False},
        {"Temperature": 0},
        {"temperature": 0, "stop": ["a", "b"]},
        {"temperature": 0, "stop": ["a,b"]},
        {"temperature": 0, "stop": "a"},
        {"map": [["temperature", 0]]},
        {"logit_bias": {1: 2}},
        {"logit_bias": {"1": 2}},
    ],
    "system": [None, "", "Be brief.", "be brief.", "Be brief. "],
    "tools": [(), [search], [searches], [search, searches], [searches, search], [{"name": "search"}]],
    "response_format": [None, City, Town, {"type": "json_object"}, "json_object"],
    "conversation": ["context", "last_turn"],
}


@pytest.mark.parametrize("part", DIFFERENT)
def test_no_hit_across_any_part_of_a_scope(ann: Caller, part: str) -> None:
    scopes = [CacheScope(**{"model": "m", "parameters": {}, part: value}) for value in DIFFERENT[part]]
    assert len({scope.digest for scope in scopes}) == len(scopes)
    for number, scope in enumerate(scopes):
        assert ann.lookup(FRANCE, scope) is None
        assert ann.lookup(LIKE_FRANCE, scope) is None
        ann.update(FRANCE, f"answer {number}", scope)
    for number, scope in enumerate(scopes):
        assert ann.lookup(FRANCE, scope).answer == f"answer {number}"
        assert ann.lookup(LIKE_FRANCE, scope).answer == f"answer {number}"


def test_the_same_scope_written_in_another_order_is_the_same() -> None:
    pairs = [("temperature", 0), ("stop", ["a"]), ("top_p", 0.5)]
    digests = {CacheScope(model="m", parameters=dict(order)).digest for order in permutations(pairs)}
    assert len(digests) == 1
    same = [CacheScope(model="m", parameters={}, tools=tools, response_format=City) for tools in ([search], (search,))]
    assert same[0].digest == same[1].digest


CONTEXTS: list[Any] = [
    [HumanMessage(FRANCE)],
    [SystemMessage("Be brief."), HumanMessage(FRANCE)],
    [SystemMessage("Be long."), HumanMessage(FRANCE)],
    [SystemMessage("Be"), SystemMessage("brief."), HumanMessage(FRANCE)],
    [HumanMessage("Be brief."), HumanMessage(FRANCE)],
    [AIMessage("Be brief."), HumanMessage(FRANCE)],
    [HumanMessage("Be"), AIMessage("brief."), HumanMessage(FRANCE)],
    [AIMessage("Be"), HumanMessage("brief."), HumanMessage(FRANCE)],
    [HumanMessage("Be brief.", name="ann"), HumanMessage(FRANCE)],
    [HumanMessage(FRANCE, name="ann")],
    [AIMessage("", tool_calls=[{"name": "a", "args": {}, "id": "1"}]), HumanMessage(FRANCE)],
    [AIMessage("", tool_calls=[{"name": "b", "args": {}, "id": "1"}]), HumanMessage(FRANCE)],
    [ToolMessage("Be brief.", tool_call_id="1"), HumanMessage(FRANCE)],
    [HumanMessage("Hi"), SystemMessage("Be brief."), HumanMessage(FRANCE)],
    [SystemMessage("Be brief."), HumanMessage("Hi"), HumanMessage(FRANCE)],
    [HumanMessage(FRANCE), HumanMessage(FRANCE)],
]


def test_no_hit_across_what_was_said_before(ann: Caller) -> None:
    for number, prompt in enumerate(CONTEXTS):
        assert ann.lookup(prompt, SCOPE) is None, prompt
        assert ann.lookup([*prompt[:-1], prompt[-1].model_copy(update={"content": LIKE_FRANCE})], SCOPE) is None
        ann.update(prompt, f"answer {number}", SCOPE)
    for number, prompt in enumerate(CONTEXTS):
        assert ann.lookup(prompt, SCOPE).answer == f"answer {number}"
        like = [*prompt[:-1], prompt[-1].model_copy(update={"content": LIKE_FRANCE})]
        assert ann.lookup(like, SCOPE).answer == f"answer {number}"


def test_no_hit_across_tenants_whatever_their_names(ann: Caller) -> None:
    tenants = [ann.bind(name) for name in HOSTILE]
    for number, tenant in enumerate(tenants):
        assert tenant.lookup(FRANCE, SCOPE) is None
        assert tenant.lookup(LIKE_FRANCE, SCOPE) is None
        tenant.update(FRANCE, f"answer {number}", SCOPE, tags=["t"])
    for number, tenant in enumerate(tenants):
        assert tenant.lookup(LIKE_FRANCE, SCOPE).answer == f"answer {number}"
        assert [entry.prompt for entry in tenant.entries().entries] == [FRANCE]
    entry_id = tenants[0].entries().entries[0].entry_id
    assert tenants[1].invalidate(entry_id=entry_id) == 0
    assert tenants[1].invalidate(tag="t") == 1
    assert tenants[1].invalidate(everything=True) == 0
    assert all(tenant.lookup(FRANCE, SCOPE) is not None for tenant in (tenants[0], *tenants[2:]))


def test_questions_that_look_alike_are_told_apart_and_come_back_as_they_were(world: World) -> None:
    with world.open(embedder=False) as cache:
        questions = [*HOSTILE, "x" * 1_000_000, "x" * 999_999 + "X", FRANCE, FRANCE.lower(), ""]
        for number, question in enumerate(questions):
            assert cache.lookup(question, SCOPE) is None, question[:20]
            assert cache.update(question, f"answer {number}", SCOPE, tags=[question[:500] or "none"]).stored
        for number, question in enumerate(questions):
            hit = cache.lookup(question, SCOPE)
            assert (hit.answer, hit.prompt) == (f"answer {number}", question)
            assert cache.entry(hit.entry_id).prompt == question
        assert cache.invalidate(tag="*") == 1
        assert cache.invalidate(tag="a") == 1
        assert cache.lookup("a ", SCOPE) is not None


def test_hostile_questions_are_compared_without_harm(ann: Caller) -> None:
    ann.update(FRANCE, "Paris.", SCOPE)
    for question in (*HOSTILE, "a" * 1_000_000, "{" * 1_999, "\x00" * 1_999):
        found = ann.lookup(question, SCOPE)
        assert found is None or found.prompt.casefold() in "a b" or found.kind == "semantic"
        assert ann.update(question, "x", SCOPE).stored
        assert ann.lookup(question, SCOPE).kind == "exact"
    assert ann.counts.keys() <= {"exact", "semantic", "miss", "stored"}


def test_a_cache_that_is_nobodys_refuses_until_it_is_bound(world: World) -> None:
    with world.open(principal="") as nobodys:
        for call in (
            lambda: nobodys.lookup(FRANCE, SCOPE),
            lambda: nobodys.update(FRANCE, "Paris.", SCOPE),
            lambda: nobodys.get_or_compute(FRANCE, SCOPE, lambda: "Paris."),
            lambda: nobodys.explain(FRANCE, SCOPE),
            lambda: nobodys.invalidate(everything=True),
            lambda: nobodys.report(f"{'0' * 32}.1.exact", True),
            nobodys.stats,
            nobodys.entries,
            lambda: nobodys.entry("0" * 32),
        ):
            with pytest.raises(ConfigError, match=r'cache\.bind\("ann"\), or make it with principal='):
                call()
        assert not list(world.client.scan_iter("rtmem:c:*"))
        assert nobodys.bind("ann").update(FRANCE, "Paris.", SCOPE).stored
        assert nobodys.bind("ann").lookup(FRANCE, SCOPE).answer == "Paris."
        with pytest.raises(ConfigError):
            nobodys.bind("ann").bind("").lookup(FRANCE, SCOPE)


@pytest.mark.parametrize("whole", [0, 1, -7, 10**6])
def test_equal_numbers_are_one_scope(whole: int) -> None:
    of_int, of_float = (CacheScope(model="m", parameters={"temperature": each}) for each in (whole, float(whole)))
    assert of_int.digest == of_float.digest
    for other in (whole + 0.5, bool(whole), str(whole), float("inf")):
        assert CacheScope(model="m", parameters={"temperature": other}).digest != of_int.digest


def test_nobody_reads_a_principal_or_a_tag_out_of_a_key(world: World, ann: Caller) -> None:
    ann.bind("secret-principal").update(FRANCE, "Paris.", SCOPE, tags=["secret-tag"])
    keys = world.client.keys("*")
    assert keys
    assert not any(b"secret" in key for key in keys)
    books = ann.bind("secret-principal").context.keys.books
    assert not any(b"secret" in member for member in world.client.zrange(books + "links", 0, -1))
    assert all(key.startswith((b"rtmem:c:e:{", b"rtmem:c:t:{")) for key in keys)


def test_an_entry_among_the_keys_of_another_tenant_is_not_taken(world: World, ann: Caller) -> None:
    key = ann.context.keys.entry(ann.update(FRANCE, "Paris.", SCOPE).entry_id)
    other = ann.context.bound("bob").keys
    world.client.hset(other.entry("0" * 32), mapping=world.client.hgetall(key))
    world.client.delete(key)
    assert ann.lookup(LIKE_FRANCE, SCOPE) is None


TEXTS = st.text(max_size=30)
MESSAGES = st.lists(st.tuples(st.sampled_from(["human", "ai", "system"]), TEXTS), max_size=3)


@hypothesis_settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases=st.lists(st.tuples(TEXTS, MESSAGES, TEXTS, TEXTS), min_size=2, max_size=6, unique_by=repr))
def test_different_questions_never_share_an_id(cases: list[Any]) -> None:
    ids: dict[str, Any] = {}
    for model, before, text, tenant in cases:
        scope = CacheScope(model=model or "m", parameters={"stop": text})
        question = read_question(tenant or "t", [*before, ("human", text)], scope, 100)
        seen = (model or "m", before, text, tenant or "t")
        assert ids.setdefault(question.entry_id, seen) == seen


def _callback() -> Any:
    def clean(text: str) -> str:
        return text

    return clean


class Level(Enum):
    LOW = 1


class Hidden(BaseModel):
    secret: SecretStr = SecretStr("a")


class Excluded(BaseModel):
    top_k: int = Field(1, exclude=True)


@pytest.mark.parametrize("value", [lambda text: text, _callback(), [].append, Level, object, Hidden()])
def test_what_has_but_a_name_to_tell_it_apart_is_no_parameter(value: Any) -> None:
    for parts in ({"parameters": {"hook": value}}, {"parameters": {}, "response_format": value}):
        with pytest.raises(InvalidRequestError, match="cannot be written down"):
            CacheScope(model="m", **parts)


def test_what_a_model_of_pydantic_leaves_out_of_its_dumps_is_compared() -> None:
    scopes = [CacheScope(model="m", parameters={"options": Excluded(top_k=number)}) for number in (1, 2)]
    assert scopes[0].digest != scopes[1].digest


def test_all_that_a_model_sees_of_earlier_messages_is_their_context() -> None:
    def asked(*before: BaseMessage) -> str:
        question = read_question("ann", [*before, HumanMessage("Go on.")], CacheScope(model="m", parameters={}), 2_000)
        return question.scope

    call: Any = {"name": "search", "id": "1", "error": None}
    contexts = [
        [ToolMessage("none", tool_call_id="1")],
        [ToolMessage("none", tool_call_id="1", status="error")],
        [AIMessage("", invalid_tool_calls=[{**call, "args": "{"}])],
        [AIMessage("", invalid_tool_calls=[{**call, "args": "["}])],
        [AIMessage("")],
        [AIMessage("", additional_kwargs={"audio": {"data": "a"}})],
        [AIMessage("", additional_kwargs={"audio": {"data": "b"}})],
        [AIMessage("x" * 5_000)],
        [AIMessage("x" * 5_001)],
    ]
    assert len({asked(*before) for before in contexts}) == len(contexts)
    noted = {"refusal": None, "__function_call_ids__": {"1": "fc_1"}}
    assert asked(AIMessage("", additional_kwargs=noted)) == asked(AIMessage(""))
