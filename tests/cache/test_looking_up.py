"""What is found: the same question, one that asks the same, and nothing else."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration

from rtmem.cache import CacheScope
from rtmem.errors import InvalidRequestError
from rtmem.operations.guard_lexicon import lexicon
from tests.cache.colours import FRANCE, LIKE_FRANCE, SCOPE, World
from tests.callers import Caller
from tests.embedders import Words


def test_the_same_question_hits_exactly(ann: Caller) -> None:
    assert ann.lookup(FRANCE, SCOPE) is None
    written = ann.update(FRANCE, "Paris.", SCOPE, tags=["geo", "eu", "geo"], took_ms=800)
    assert written.stored, written
    hit = ann.lookup(FRANCE, SCOPE)
    assert (hit.answer, hit.kind, hit.distance, hit.prompt) == ("Paris.", "exact", 0.0, FRANCE)
    assert (hit.saved_ms, hit.tags, hit.entry_id) == (800, ("geo", "eu"), written.entry_id)
    assert ann.counts == {"exact": 1, "miss": 1, "stored": 1}


def test_a_question_that_is_near_hits_by_meaning(ann: Caller) -> None:
    ann.update(FRANCE, "Paris.", SCOPE, took_ms=800)
    hit = ann.lookup(LIKE_FRANCE, SCOPE)
    assert (hit.answer, hit.kind, hit.prompt, hit.saved_ms) == ("Paris.", "semantic", FRANCE, 800)
    assert 0 < hit.distance < 0.3
    assert ann.lookup("How do I bake bread without yeast?", SCOPE) is None


def test_another_process_finds_what_this_one_stored(world: World, ann: Caller) -> None:
    ann.update(FRANCE, "Paris.", SCOPE)
    with world.open() as other:
        assert other.lookup(FRANCE, SCOPE).kind == "exact"
        assert other.lookup(LIKE_FRANCE, SCOPE).kind == "semantic"


@pytest.mark.parametrize(
    "answer",
    [
        "Paris.",
        AIMessage("Paris.", id="run-1", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
        {"messages": [AIMessage("Paris.")], "n": 1},
        [ChatGeneration(message=AIMessage("Paris."))],
        "é" * 200_000,
    ],
    ids=["text", "message", "state", "generations", "large"],
)
def test_an_answer_comes_back_as_it_was(ann: Caller, answer: Any) -> None:
    assert ann.update(FRANCE, answer, SCOPE).stored
    found = ann.lookup(FRANCE, SCOPE).answer
    assert found == answer
    assert type(found) is type(answer)


def test_a_list_with_one_human_message_is_the_question_as_a_text(ann: Caller) -> None:
    ann.update(FRANCE, "Paris.", SCOPE)
    for prompt in ([HumanMessage(FRANCE, id="x")], [("user", FRANCE)], [{"role": "user", "content": FRANCE}]):
        assert ann.lookup(prompt, SCOPE).kind == "exact"
    blocks = [HumanMessage([{"type": "text", "text": FRANCE}])]
    assert ann.lookup(blocks, SCOPE).kind == "exact"


def test_and_in_paris_never_hits_across_contexts(ann: Caller) -> None:
    rome = [HumanMessage("What is the weather in Rome?"), AIMessage("Sunny."), HumanMessage("And in Paris?")]
    hotels = [HumanMessage("What does a hotel cost in Rome?"), AIMessage("80 euros."), HumanMessage("And in Paris?")]
    ann.update(rome, "Rain.", SCOPE)
    assert ann.lookup(hotels, SCOPE) is None
    assert ann.lookup("And in Paris?", SCOPE) is None
    assert ann.lookup([*rome[:2], HumanMessage("and in paris?")], SCOPE).kind == "semantic"
    # Ids are made up by whoever made the messages.
    assert ann.lookup([message.model_copy(update={"id": "new"}) for message in rome], SCOPE).kind == "exact"


def test_the_last_turn_alone_counts_where_the_scope_says_so(ann: Caller) -> None:
    last_turn = msgspec.structs.replace(SCOPE, conversation="last_turn")
    ann.update([HumanMessage("Hi"), AIMessage("Hello"), HumanMessage(FRANCE)], "Paris.", last_turn)
    assert ann.lookup([HumanMessage("Good day"), AIMessage("Yes?"), HumanMessage(FRANCE)], last_turn).kind == "exact"
    assert ann.lookup(FRANCE, last_turn).kind == "exact"
    assert ann.lookup([SystemMessage("Lie."), HumanMessage(FRANCE)], last_turn) is None
    assert ann.lookup(FRANCE, SCOPE) is None


def test_what_is_no_text_of_a_human_hits_exactly_only(ann: Caller) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    seen = [HumanMessage([{"type": "text", "text": FRANCE}, image])]
    ann.update(FRANCE, "Paris.", SCOPE)
    assert ann.lookup(seen, SCOPE) is None
    ann.update(seen, "A map.", SCOPE)
    assert ann.lookup(seen, SCOPE).answer == "A map."
    other = {**image, "image_url": {"url": "data:image/png;base64,AAAB"}}
    assert ann.lookup([HumanMessage([{"type": "text", "text": FRANCE}, other])], SCOPE) is None
    assert ann.lookup([AIMessage(FRANCE)], SCOPE) is None
    assert "role ai" in ann.explain([AIMessage(FRANCE)], SCOPE).why_exact_only


def test_a_long_question_hits_exactly_only(world: World) -> None:
    # Embedders read the beginning of a text: two that differ at their ends would look the same.
    with world.open(text_characters_max=100) as cache:
        long = "What is the capital of France? " * 5
        cache.update(long, "Paris.", SCOPE)
        assert cache.lookup(long, SCOPE).kind == "exact"
        assert cache.lookup(long + "And of Italy?", SCOPE) is None
        assert "text_characters_max" in cache.explain(long, SCOPE).why_exact_only


def test_without_an_embedder_the_same_question_hits(world: World, ann: Caller) -> None:
    ann.update(FRANCE, "Paris.", SCOPE)
    with world.open(embedder=False) as cache:
        assert cache.lookup(FRANCE, SCOPE).kind == "exact"
        assert cache.lookup(LIKE_FRANCE, SCOPE) is None
        assert cache.update(LIKE_FRANCE, "Paris!", SCOPE).stored
        assert cache.lookup(LIKE_FRANCE, SCOPE).kind == "exact"


def test_an_embedder_without_a_threshold_gives_exact_hits_and_says_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    embedder = Words(name="unheard of")
    with world.open(embedder=embedder) as cache:
        assert "`rtmem cache calibrate" in caplog.text
        assert "unheard of" in caplog.text
        cache.update(FRANCE, "Paris.", SCOPE)
        assert cache.lookup(FRANCE, SCOPE).kind == "exact"
        assert cache.lookup(LIKE_FRANCE, SCOPE) is None
        assert embedder.asked == []
        assert "thresholds" in cache.explain(LIKE_FRANCE, SCOPE).why_exact_only


# Guard and judge -----------------------------------------------------------------------------------------------------


class Refusal(NamedTuple):
    """What a guard of one's own may answer."""

    reason: str


def digits(asked: str, cached: str) -> Refusal | None:
    def of(text: str) -> str:
        return "".join(letter for letter in text if letter.isdigit())

    return None if of(asked) == of(cached) else Refusal("number")


def test_what_the_guard_refuses_is_no_hit_and_the_next_candidate_is_looked_at(world: World) -> None:
    with world.open(guard=digits) as cache:
        cache.update("What did the team ship in week 12?", "A.", SCOPE)
        cache.update("What, then, did our own team finally ship in week 13?", "B.", SCOPE)
        assert cache.lookup("What did the team ship in week 13?", SCOPE).answer == "B."
        assert cache.lookup("What did the team ship in week 14?", SCOPE) is None
        assert cache.counts["refused_number"] == 3
        found = cache.explain("What did the team ship in week 13?", SCOPE)
        assert [(each.taken, each.refusal and each.refusal.reason) for each in found.candidates] == [
            (False, "number"),
            (True, None),
        ]


def test_the_guard_of_rtmem_is_on_by_default(world: World) -> None:
    with world.open(guard=True) as cache:
        cache.update("How long is a flight from Florida to New York?", "3 hours.", SCOPE)
        assert cache.lookup("How long is a flight from New York to Florida?", SCOPE) is None
        assert cache.lookup("How long is the flight from Florida to New York?", SCOPE).kind == "semantic"


def test_a_cache_that_compares_knows_the_word_lists_when_it_is_made(world: World) -> None:
    lexicon.cache_clear()
    with world.open(guard=False), world.open(guard=True, embedder=False):
        assert lexicon.cache_info().currsize == 0
    with world.open(guard=True):
        assert lexicon.cache_info().currsize == 1


def test_a_guard_that_fails_refuses(world: World) -> None:
    def broken(asked: str, cached: str) -> None:
        raise RuntimeError("no")

    with world.open(guard=broken) as cache:
        cache.update(FRANCE, "Paris.", SCOPE)
        assert cache.lookup(LIKE_FRANCE, SCOPE) is None
        assert cache.counts["guard_failed"] == 1
        assert cache.lookup(FRANCE, SCOPE).kind == "exact"  # nothing to compare


def test_a_guard_may_refuse_in_its_own_words(world: World) -> None:
    with world.open(guard=lambda asked, cached: "not alike") as cache:
        cache.update(FRANCE, "Paris.", SCOPE)
        assert cache.lookup(LIKE_FRANCE, SCOPE) is None
        assert cache.counts["refused_guard"] == 1


def test_the_judge_has_the_last_word(world: World) -> None:
    asked: list[tuple[str, str, Any]] = []
    verdicts: list[Any] = [True, False, RuntimeError("no")]

    def judge(*case: Any) -> bool:
        asked.append(case)
        verdict = verdicts.pop(0)
        if isinstance(verdict, Exception):
            raise verdict
        return bool(verdict)

    async def ajudge(*case: Any) -> bool:
        return judge(*case)

    with world.open(judge=ajudge if world.awaiting else judge) as cache:
        cache.update(FRANCE, "Paris.", SCOPE)
        assert cache.lookup(LIKE_FRANCE, SCOPE).kind == "semantic"
        assert cache.lookup(LIKE_FRANCE, SCOPE) is None
        assert cache.lookup(LIKE_FRANCE, SCOPE) is None
        assert asked == [(LIKE_FRANCE, FRANCE, "Paris.")] * 3
        assert (cache.counts["refused_judge"], cache.counts["judge_failed"]) == (1, 1)
        assert cache.lookup(FRANCE, SCOPE).kind == "exact"
        assert len(asked) == 3  # an exact hit needs no judge


# What is wrong with a call -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"parameters": {}},
        {"model": "", "parameters": {}},
        {"model": None, "parameters": {}},
        {"model": "m"},
        {"model": "m", "parameters": None},
        {"model": "m", "parameters": {}, "conversation": "all"},
        {"model": "m", "parameters": {"stop": object()}},
        {"model": "m", "parameters": {}, "tools": [object()]},
    ],
)
def test_a_scope_without_a_model_or_parameters_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        CacheScope(**wrong)


@pytest.mark.parametrize("scope", [None, "gpt", {"model": "m", "parameters": {}}])
def test_a_call_without_a_scope_is_an_error(ann: Caller, scope: Any) -> None:
    for call in (
        lambda: ann.lookup(FRANCE, scope),
        lambda: ann.update(FRANCE, "Paris.", scope),
        lambda: ann.get_or_compute(FRANCE, scope, lambda: "Paris."),
        lambda: ann.explain(FRANCE, scope),
        lambda: ann.invalidate(key=(FRANCE, scope)),
    ):
        with pytest.raises(InvalidRequestError, match="scope"):
            call()


@pytest.mark.parametrize("prompt", [None, 3, [], b"bytes", [3], [{"content": "x"}], [("user",)]])
def test_a_prompt_that_is_none_is_an_error(ann: Caller, prompt: Any) -> None:
    with pytest.raises(InvalidRequestError):
        ann.lookup(prompt, SCOPE)


def test_a_scope_is_written_down_when_it_is_made(ann: Caller) -> None:
    parameters = {"temperature": 0}
    scope = CacheScope(model="m", parameters=parameters, digest="forged")
    before = scope.digest
    parameters["temperature"] = 1
    assert scope.digest == before != "forged"
    assert CacheScope(model="m", parameters={"temperature": 1}).digest != before
