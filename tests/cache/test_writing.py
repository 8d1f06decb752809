"""What is stored, for how long, and what is not."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from msgspec.structs import replace

from rtmem.cache import CacheDraft, CacheScope
from rtmem.errors import InvalidRequestError, WriteRefusedError
from rtmem.operations.lexical_guard import Refusal
from tests.cache.colours import FRANCE, LIKE_FRANCE, SCOPE, World
from tests.callers import Caller
from tests.drivers.processes import eventually
from tests.embedders import Words

TOOL_CALL = {"name": "search", "args": {}, "id": "1"}
UNWANTED: dict[str, tuple[Any, str]] = {
    "error": (AIMessage("x", response_metadata={"error": {"code": 500}}), "error"),
    "refusal": ("I'm sorry, but I can't help with that.", "refusal"),
    "refusal, Russian": ("К сожалению, я не могу помочь с этим запросом.", "refusal"),
    "length": (AIMessage("Paris is", response_metadata={"finish_reason": "length"}), "truncated"),
    "max_tokens": (AIMessage("Paris is", response_metadata={"stop_reason": "max_tokens"}), "truncated"),
    "filtered": (AIMessage("Paris is", response_metadata={"finish_reason": "content_filter"}), "truncated"),
    "tool call": (AIMessage("", tool_calls=[TOOL_CALL]), "tool_calls"),
    "empty": ("", "empty"),
}


@pytest.mark.parametrize(("answer", "reason"), UNWANTED.values(), ids=UNWANTED)
def test_what_nobody_else_should_get_is_not_stored_unless_asked(ann: Caller, answer: Any, reason: str) -> None:
    written = ann.update(FRANCE, answer, SCOPE)
    assert (written.stored, written.reason) == (False, reason)
    assert ann.lookup(FRANCE, SCOPE) is None
    assert ann.counts[f"unstored_{reason}"] == 1
    assert ann.update(FRANCE, answer, SCOPE, allow=[reason]).stored
    assert ann.lookup(FRANCE, SCOPE).answer == answer


def test_a_second_answer_takes_the_place_of_the_first(ann: Caller) -> None:
    ann.update(FRANCE, "Lyon.", SCOPE, tags=["old"])
    ann.update(FRANCE, "Paris.", SCOPE, tags=["new"])
    assert ann.lookup(FRANCE, SCOPE).answer == "Paris."
    assert ann.lookup(LIKE_FRANCE, SCOPE).answer == "Paris."
    assert ann.stats().entries == 1
    assert ann.invalidate(tag="old") == 0
    assert ann.invalidate(tag="new") == 1


def test_the_policy_may_change_and_refuse_what_is_stored(world: World) -> None:
    seen: list[CacheDraft] = []

    def policy(draft: CacheDraft) -> CacheDraft:
        seen.append(draft)
        if "password" in draft.prompt:
            raise WriteRefusedError("no secrets")
        if "crash" in draft.prompt:
            raise RuntimeError("a bug")
        return replace(draft, answer=draft.answer.replace("ann@example.com", "[mail]"), tags=(*draft.tags, "checked"))

    with world.open(policy=policy) as cache:
        assert cache.update(FRANCE, "Ask ann@example.com.", SCOPE, tags=["a"], ttl_ms=60_000).stored
        hit = cache.lookup(FRANCE, SCOPE)
        assert (hit.answer, hit.tags) == ("Ask [mail].", ("a", "checked"))
        assert (seen[0].principal, seen[0].model, seen[0].ttl_ms, seen[0].tags) == ("ann", "gpt-test", 60_000, ("a",))
        refused = cache.update("What is my password?", "123", SCOPE)
        assert (refused.stored, refused.reason, refused.detail) == (False, "policy", "no secrets")
        failed = cache.update("crash", "x", SCOPE)
        assert (failed.stored, failed.reason) == (False, "policy")
        assert "RuntimeError" in failed.detail


def test_a_changed_prompt_is_what_is_embedded_and_shown_and_the_question_still_hits(world: World) -> None:
    embedder = Words()
    secret = "What does card 4111 1111 cost?"
    with world.open(policy=lambda draft: replace(draft, prompt="What does a card cost?"), embedder=embedder) as cache:
        cache.update(secret, "10.", SCOPE)
        assert embedder.asked == [("What does a card cost?",)]
        assert cache.entries().entries[0].prompt == "What does a card cost?"
        assert cache.lookup(secret, SCOPE).kind == "exact"
        for key in world.client.keys("*"):
            if world.client.type(key) == b"hash":
                assert b"4111" not in b"".join(world.client.hvals(key))


def test_what_cannot_be_written_or_is_too_large_is_reported(world: World) -> None:
    with world.open(answer_bytes_max=1_000, compress_bytes_min=0) as cache:
        large = cache.update(FRANCE, "x" * 2_000, SCOPE)
        assert (large.stored, large.reason) == (False, "too_large")
        assert "answer_bytes_max" in large.detail
        odd = cache.update(FRANCE, [lambda: 0], SCOPE)
        assert (odd.stored, odd.reason) == (False, "unserialisable")
        assert cache.lookup(FRANCE, SCOPE) is None


def test_an_entry_ends_with_its_own_ttl_and_a_hit_does_not_refresh_it(world: World, ann: Caller) -> None:
    first = ann.update(FRANCE, "Paris.", SCOPE, ttl_ms=50_000)
    ann.update("Who wrote Faust?", "Goethe.", SCOPE)
    ann.update("How many legs has a spider?", "Eight.", SCOPE, ttl_ms=0)
    left = {entry.prompt: entry.expires_in_ms for entry in ann.entries().entries}
    assert left[FRANCE] <= 50_000
    assert 50_000 < left["Who wrote Faust?"] <= 86_400_000
    assert left["How many legs has a spider?"] is None
    key = ann.context.keys.entry(first.entry_id)
    world.client.pexpire(key, 30_000)
    ann.lookup(FRANCE, SCOPE)
    ann.lookup(LIKE_FRANCE, SCOPE)
    ann.stats()  # tells Redis of the hits
    assert world.client.pttl(key) <= 30_000


def test_a_hit_begins_the_ttl_anew_where_that_is_asked_for(world: World) -> None:
    with world.open(refresh_on_hit=True) as cache:
        key = cache.context.keys.entry(cache.update(FRANCE, "Paris.", SCOPE, ttl_ms=50_000).entry_id)
        for question in (FRANCE, LIKE_FRANCE):
            world.client.pexpire(key, 10_000)
            assert cache.lookup(question, SCOPE) is not None
            assert 10_000 < world.client.pttl(key) <= 50_000
        stays = cache.context.keys.entry(cache.update("Faust?", "Goethe.", SCOPE, ttl_ms=0).entry_id)
        cache.lookup("Faust?", SCOPE)
        assert world.client.pttl(stays) == -1


def test_what_has_expired_is_never_served_and_its_records_are_swept(world: World, ann: Caller) -> None:
    key = ann.context.keys.entry(ann.update(FRANCE, "Paris.", SCOPE, ttl_ms=1, tags=["t"]).entry_id)
    eventually(lambda: not world.client.exists(key))
    assert ann.lookup(FRANCE, SCOPE) is None
    assert ann.lookup(LIKE_FRANCE, SCOPE) is None
    assert (ann.stats().entries, ann.entries().entries) == (0, ())
    ann.update("Who wrote Faust?", "Goethe.", SCOPE)
    books = ann.context.keys.books
    assert world.client.zcard(books + "created") == world.client.hlen(books + "records") == 1
    assert world.client.zcard(books + "links") == 2
    assert ann.stats().bytes == ann.entries().entries[0].bytes


def test_an_embedding_that_fails_leaves_an_entry_that_hits_exactly(world: World) -> None:
    embedder = Words(broken=True)
    with world.open(embedder=embedder, pause_ms=0) as cache:
        assert cache.update(FRANCE, "Paris.", SCOPE).stored
        assert cache.lookup(FRANCE, SCOPE).kind == "exact"
        embedder.broken = False
        assert cache.lookup(LIKE_FRANCE, SCOPE) is None
        cache.update(FRANCE, "Paris.", SCOPE)
        assert cache.lookup(LIKE_FRANCE, SCOPE).kind == "semantic"


@pytest.mark.parametrize(
    "options",
    [
        {"tags": "geo"},
        {"tags": [""]},
        {"tags": [3]},
        {"tags": ["x" * 513]},
        {"tags": [str(n) for n in range(33)]},
        {"ttl_ms": -1},
        {"ttl_ms": 1.5},
        {"ttl_ms": True},
        {"allow": "error"},
        {"allow": ["everything"]},
    ],
    ids=str,
)
def test_properties_that_are_none_are_errors(ann: Caller, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        ann.update(FRANCE, "Paris.", SCOPE, **options)
    with pytest.raises(InvalidRequestError):
        ann.get_or_compute(FRANCE, SCOPE, lambda: "Paris.", **{**options})


# Room ----------------------------------------------------------------------------------------------------------------


def test_the_least_valuable_go_first(world: World) -> None:
    with world.open(entries_max=3, embedder=False) as cache:
        cache.update("slow", "a", SCOPE, took_ms=60_000)
        cache.update("quick", "b", SCOPE, took_ms=10)
        cache.update("often", "c", SCOPE, took_ms=10)
        for _ in range(50):
            cache.lookup("often", SCOPE)
        cache.update("new", "d", SCOPE, took_ms=10)
        kept = {entry.prompt for entry in cache.entries().entries}
        assert kept == {"slow", "often", "new"}
        assert cache.lookup("quick", SCOPE) is None
        stats = cache.stats()
        assert (stats.entries, stats.evicted, stats.hits) == (3, 1, 50)


def test_what_was_valuable_once_does_not_stay_for_ever(world: World) -> None:
    # The inflation of GreedyDual: each eviction lifts what comes in later.
    with world.open(entries_max=4, embedder=False) as cache:
        cache.update("old favourite", "a", SCOPE, took_ms=30)
        for _ in range(5):
            cache.lookup("old favourite", SCOPE)
        for number in range(60):
            cache.update(f"new {number}", "b", SCOPE, took_ms=100)
        assert cache.lookup("old favourite", SCOPE) is None


def test_bytes_are_limited_too_and_counted_exactly(world: World) -> None:
    with world.open(bytes_max=30_000, compress_bytes_min=0) as cache:
        for number in range(40):
            assert cache.update(f"question {number}", "x" * 2_000, SCOPE).stored
        stats = cache.stats()
        assert 20_000 < stats.bytes <= 30_000
        assert stats.bytes == sum(entry.bytes for entry in cache.entries(limit=100).entries)
        assert stats.entries + stats.evicted == 40
        cache.invalidate(everything=True)
        assert cache.stats().bytes == 0


def test_limits_are_each_tenant_s_own(world: World) -> None:
    with world.open(entries_max=2, embedder=False) as ann:
        bob = ann.bind("bob")
        for number in range(5):
            ann.update(f"{number}", "a", SCOPE)
        bob.update("mine", "b", SCOPE)
        assert (ann.stats().entries, bob.stats().entries) == (2, 1)
        assert bob.lookup("mine", SCOPE) is not None


# Usage and reports ---------------------------------------------------------------------------------------------------


def test_hits_are_told_to_redis_in_time_and_at_the_end(world: World) -> None:
    with world.open() as reader, world.open(usage_max=3) as cache:
        cache.update(FRANCE, "Paris.", SCOPE, took_ms=100)
        cache.lookup(FRANCE, SCOPE)
        cache.lookup(LIKE_FRANCE, SCOPE)
        assert reader.stats().hits == 0
        cache.lookup(FRANCE, SCOPE)
        assert (reader.stats().hits, reader.stats().saved_ms) == (3, 300)
        cache.bind("bob").update("x", "y", SCOPE)
        cache.bind("bob").lookup("x", SCOPE)
        cache.lookup(FRANCE, SCOPE)
    with world.open() as reader:
        assert reader.stats().hits == 4
        assert reader.bind("bob").stats().hits == 1


def test_how_look_ups_ended_is_counted_for_the_tenant_by_all_its_programs(world: World) -> None:
    def other_number(asked: str, cached: str) -> Any:
        return Refusal("number", asked, cached) if asked[-1] != cached[-1] else None

    for _ in range(2):
        with world.open(guard=other_number) as cache:
            cache.update("How far is 1", "Near.", SCOPE)
            cache.lookup("How far is 1", SCOPE)
            cache.lookup("How is far 1", SCOPE)
            cache.lookup("How far is 2", SCOPE)
            cache.lookup("Something else", SCOPE)
            cache.explain("How far is 3", SCOPE)
            cache.bind("bob").lookup("How far is 1", SCOPE)
    with world.open() as reader:
        found = reader.stats()
        assert (found.exact, found.semantic, found.misses, found.refused) == (2, 2, 4, {"number": 2})
        assert found.hits == 4
        others = reader.bind("bob").stats()
        assert (others.exact, others.misses, others.refused) == (0, 2, {})


def test_a_wrong_hit_that_is_reported_does_not_happen_again(ann: Caller) -> None:
    ann.update(FRANCE, "Paris.", SCOPE)
    hit = ann.lookup(LIKE_FRANCE, SCOPE)
    assert ann.report(hit.hit_id, False)
    assert ann.lookup(LIKE_FRANCE, SCOPE) is None
    assert ann.lookup("what is the capital of france", SCOPE).kind == "semantic"  # nearer: as before
    assert ann.entries().entries[0].threshold < hit.distance
    ann.update(FRANCE, "Paris!", SCOPE)  # it is about the question, not about its answer
    assert ann.lookup(LIKE_FRANCE, SCOPE) is None
    assert ann.stats().reported_wrong == 1
    (near,) = ann.explain(LIKE_FRANCE, SCOPE).candidates  # and says why
    assert near.threshold < near.distance < ann.settings.thresholds["words"]
    assert not near.taken


def test_a_wrong_hit_at_no_distance_does_not_happen_again_either(ann: Caller) -> None:
    ann.update("Is Polish hard?", "A language.", SCOPE)
    hit = ann.lookup("is polish hard", SCOPE)  # the embedder does not tell them apart
    assert (hit.kind, hit.distance) == ("semantic", pytest.approx(0, abs=1e-5))
    assert ann.report(hit.hit_id, False)
    assert ann.lookup("is polish hard", SCOPE) is None
    assert ann.lookup("Is Polish hard?", SCOPE).kind == "exact"


def test_a_right_hit_that_is_reported_is_counted(ann: Caller) -> None:
    ann.update(FRANCE, "Paris.", SCOPE)
    hit = ann.lookup(LIKE_FRANCE, SCOPE)
    assert ann.report(hit.hit_id, True)
    assert ann.lookup(LIKE_FRANCE, SCOPE) is not None
    assert ann.stats().reported_right == 1


def test_a_wrong_exact_hit_that_is_reported_drops_the_entry(ann: Caller) -> None:
    ann.update(FRANCE, "Lyon.", SCOPE)
    assert ann.report(ann.lookup(FRANCE, SCOPE).hit_id, False)
    assert ann.lookup(FRANCE, SCOPE) is None


def test_a_report_about_an_answer_that_was_replaced_or_of_another_tenant_does_nothing(ann: Caller) -> None:
    ann.update(FRANCE, "Lyon.", SCOPE)
    old = ann.lookup(FRANCE, SCOPE).hit_id
    ann.update(FRANCE, "Paris.", SCOPE)
    assert not ann.report(old, False)
    assert not ann.bind("bob").report(ann.lookup(FRANCE, SCOPE).hit_id, False)
    assert ann.lookup(FRANCE, SCOPE).answer == "Paris."
    for wrong in (None, "", "x", f"{'0' * 32}.1.far", "0.1.exact", "*.1.exact"):
        with pytest.raises(InvalidRequestError):
            ann.report(wrong, False)


def test_without_adaptive_thresholds_a_report_is_counted_only(world: World) -> None:
    with world.open(adaptive=False) as cache:
        cache.update(FRANCE, "Paris.", SCOPE)
        assert cache.report(cache.lookup(LIKE_FRANCE, SCOPE).hit_id, False)
        assert cache.lookup(LIKE_FRANCE, SCOPE).kind == "semantic"
        assert cache.stats().reported_wrong == 1


# For people ----------------------------------------------------------------------------------------------------------


def test_entries_come_in_pages_newest_first(ann: Caller) -> None:
    for number in range(7):
        ann.update(f"question {number}", f"answer {number}", SCOPE, tags=["all", f"t{number % 2}"], took_ms=number)
    other = CacheScope(model="other", parameters={})
    ann.update("of another model", "x", other)
    seen: list[str] = []
    continuation = ""
    while True:
        page = ann.entries(limit=3, continuation=continuation)
        seen += [entry.prompt for entry in page.entries]
        continuation = page.continuation
        if not continuation:
            break
    assert seen == ["of another model", *(f"question {number}" for number in reversed(range(7)))]
    assert {entry.prompt for entry in ann.entries(tag="t1").entries} == {f"question {n}" for n in (1, 3, 5)}
    assert [entry.prompt for entry in ann.entries(model="other").entries] == ["of another model"]
    assert len(ann.entries(scope=SCOPE).entries) == 7
    first, rest = ann.entries(tag="all", limit=4), []
    rest = ann.entries(tag="all", limit=4, continuation=first.continuation).entries
    assert len({entry.entry_id for entry in (*first.entries, *rest)}) == 7
    entry = ann.entry(first.entries[0].entry_id)
    assert (entry.model, entry.answer) == ("gpt-test", entry.prompt.replace("question", "answer"))
    assert ann.entry("0" * 32) is None
    assert ann.bind("bob").entry(first.entries[0].entry_id) is None
    for wrong in ({"limit": 0}, {"limit": 10**6}, {"continuation": "x"}, {"tag": "a", "model": "b"}, {"tag": 3}):
        with pytest.raises(InvalidRequestError):
            ann.entries(**wrong)


def test_a_change_of_embedder_begins_a_fresh_index_and_leaves_exact_hits(world: World, ann: Caller) -> None:
    ann.update(FRANCE, "Paris.", SCOPE)
    with world.open(embedder=Words(dims=32)) as other:
        assert other.lookup(FRANCE, SCOPE).kind == "exact"
        assert other.lookup(LIKE_FRANCE, SCOPE) is None
        other.update(LIKE_FRANCE, "Paris, again.", SCOPE)
        assert other.lookup("What's the capital city of France?", SCOPE).answer == "Paris, again."
        stats = other.stats()
        assert (stats.index, stats.has_index) == ("rtmem:cache:words32", True)
        assert stats.stale_indexes == ("rtmem:cache:words64",)
    assert ann.lookup("What, is the capital of France?", SCOPE).answer == "Paris."
