"""Reading from the cache of answers: look up, and explain.

A wrong hit is worse than a miss. An answer is taken if it is of the same scope and the question is the very same, or
near enough, and then only if the guard finds nothing that tells the two apart and the judge, if there is one, agrees.
Whatever fails on the way is a miss. `lua/cache_v1/` has the layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from rtmem.errors import CorruptRecordError, RtmemError
from rtmem.operations import cache_index
from rtmem.operations.cache_answers import restored
from rtmem.operations.cache_index import Near
from rtmem.operations.cache_notes import UNKNOWN_US
from rtmem.operations.cache_prompts import CacheScope, Prompt, Question, read_question
from rtmem.operations.cache_records import Candidate, Explanation, Hit
from rtmem.operations.cache_state import CacheContext, Deadline
from rtmem.operations.functions import call
from rtmem.steps import Argument, Batch, Begin, Begun, Call, Command, Embed, Steps

_ROW: Final = ("answer", "created", "took", "tags")
_TIME: Final[Command] = ("TIME",)
DISTANCE_MAX: Final = 2.0


def lookup(cache: CacheContext, prompt: Prompt, scope: CacheScope) -> Steps[Hit | None]:
    """The answer to this question, or to one that asks the same.

    None if there is none, and also where Redis or the embedder fail, or need more than `lookup_deadline_ms`: nothing of
    that is raised (`counts` says what it was). A blocking embedder or judge cannot be interrupted; what comes too late
    is a miss.

    Raises InvalidRequestError: no scope, or no prompt.

    Redis: exact hit 1 round trip. Semantic hit, or a miss, 2, of which the first happens during the embedding: so 1
        after it; 1 more for an entry that was there a moment ago and has ended. None while Redis is left alone. 1 more
        every `usage_max` hits, and after each with `refresh_on_hit`.
    """
    question = read_question(cache.keys.tenant, prompt, scope, cache.settings.text_characters_max)
    return (yield from look(cache, question))


def look(cache: CacheContext, question: Question) -> Steps[Hit | None]:
    """`lookup` of a prompt that was read."""
    state = cache.state
    if state.redis_pause.is_on:
        state.counts.add("paused")
        state.open.ask(question.entry_id, UNKNOWN_US)
        return None
    hit, asked_us = None, UNKNOWN_US
    deadline = Deadline(cache.settings.lookup_deadline_ms, state.clock)
    try:
        if question.entry_id in state.known:
            # Nothing else, and no embedding: this is what most hits are.
            command = ("HMGET", cache.keys.entry(question.entry_id), *_ROW)
            (row,) = yield Batch((command,), timeout_ms=cache.settings.lookup_deadline_ms)
            hit = None if None in row else exact_hit(cache, question, row)
        if hit is None:
            hit, asked_us, begun = yield from _exact(cache, question, deadline)
            if hit is None and begun is not None:
                hit = yield from _near(cache, question, begun, deadline)
    except RtmemError as exc:
        state.note(exc)
    else:
        if hit is None:
            cache.note("miss")
    if hit is None:
        state.open.ask(question.entry_id, asked_us)  # an answer may be computed now
        return None
    state.counts.add(hit.kind)
    if state.usage.add(cache.keys.tenant, hit.entry_id, hit.saved_ms, hit.kind) or cache.settings.refresh_on_hit:
        yield from tell_usage(cache)
    return hit


def _exact(cache: CacheContext, question: Question, deadline: Deadline) -> Steps[tuple[Hit | None, int, Begun | None]]:
    """The answer to this very question, the time at the server, and the embedding that was begun meanwhile."""
    begun: Begun | None = None
    if compares(cache, question):
        (begun,) = yield Begin(Embed((question.text,), "query", deadline.left_ms))
    command = ("HMGET", cache.keys.entry(question.entry_id), *_ROW)
    row, time = yield Batch((command, _TIME), timeout_ms=deadline.left_ms)
    asked_us = int(time[0]) * 1_000_000 + int(time[1])
    if None not in row:
        return exact_hit(cache, question, row), asked_us, begun
    cache.state.known.discard(question.entry_id)
    return None, asked_us, begun


def compares(cache: CacheContext, question: Question) -> bool:
    """Whether a question is compared by meaning just now."""
    return is_comparable(cache, question) and not cache.state.embedder_pause.is_on


def is_comparable(cache: CacheContext, question: Question) -> bool:
    """Whether it can be, if the embedder works."""
    index = cache.index
    if index is None or cache.threshold is None or question.why_exact_only:
        return False
    return index.state.has_engine


def _near(cache: CacheContext, question: Question, begun: Begun, deadline: Deadline) -> Steps[Hit | None]:
    """The nearest answer that may be taken. A failed embedding is a miss."""
    index, threshold = cache.index, cache.threshold
    assert index is not None, "asked only where texts are compared"
    assert threshold is not None, "asked only where texts are compared"
    try:
        (vector,) = yield begun
    except RtmemError as exc:
        cache.state.note(exc)
        return None
    if not (yield from cache_index.ensure(index, wait=False, timeout_ms=deadline.left_ms)):
        cache.state.counts.add("no_engine")
        return None
    found = yield from cache_index.nearest(
        index, cache.keys.entries, question.scope, vector.tobytes(), threshold, deadline.left_ms
    )
    for near in found:
        candidate = yield from _weigh(cache, question.text, near, threshold, deadline)
        if candidate.taken:
            return _hit(cache, near.entry_id, near.row, candidate.prompt, near.distance)
        if candidate.refusal is not None:
            cache.note(f"refused_{getattr(candidate.refusal, 'reason', 'guard')}")  # somebody else's guard may say less
    return None


def _weigh(cache: CacheContext, asked: str, near: Near, threshold: float, deadline: Deadline) -> Steps[Candidate]:
    """Whether a near question's answer may be taken, and why not."""
    prompt = near.prompt.decode("utf-8", "surrogatepass")
    if cache.settings.adaptive and near.threshold is not None:
        threshold = min(threshold, near.threshold)
    refusal = judged = None
    taken = near.distance <= threshold
    if cache.guard is not None:
        try:
            refusal = cache.guard(asked, prompt)
        except Exception:  # noqa: BLE001 - somebody else's guard: what it cannot compare is not the same
            cache.state.counts.add("guard_failed")
            taken = False
        taken = taken and refusal is None
    if taken and cache.judge is not None:
        judged = yield from _ask_judge(cache, asked, prompt, near.row[0], deadline)
        taken = judged
    return Candidate(
        entry_id=near.entry_id, prompt=prompt, distance=near.distance, threshold=threshold, refusal=refusal,
        judged=judged, taken=taken,
    )  # fmt: skip


def _ask_judge(cache: CacheContext, asked: str, prompt: str, answer: bytes, deadline: Deadline) -> Steps[bool]:
    assert cache.judge is not None, "asked only where there is one"
    arguments = (asked, prompt, read_answer(cache, answer))
    try:
        (verdict,) = yield Call(cache.judge, arguments, timeout_ms=deadline.left_ms, apart=True)
    except Exception:  # noqa: BLE001 - somebody else's judge: no verdict in time, no hit
        cache.state.counts.add("judge_failed")
        return False
    if not verdict:
        cache.note("refused_judge")
    return bool(verdict) and deadline.left_ms > 0


def exact_hit(cache: CacheContext, question: Question, row: Sequence[bytes]) -> Hit:
    """A hit of the question itself, out of answer, created, took and tags."""
    cache.state.known.add(question.entry_id)
    return _hit(cache, question.entry_id, row, question.text)


def _hit(cache: CacheContext, entry_id: str, row: Sequence[bytes], prompt: str, distance: float | None = None) -> Hit:
    asked_at = "exact" if distance is None else f"{distance:.6f}"
    try:
        created_us, saved_ms, tags = int(row[1]), int(row[2]), read_tags(row[3])
    except (ValueError, msgspec.MsgspecError) as exc:
        raise CorruptRecordError(f"cached answer {entry_id} was changed by somebody else: {exc}") from exc
    return Hit(
        answer=read_answer(cache, row[0]),
        kind="exact" if distance is None else "semantic",
        distance=distance or 0.0,
        prompt=prompt,
        saved_ms=saved_ms,
        created_ms=created_us // 1_000,
        tags=tags,
        entry_id=entry_id,
        hit_id=f"{entry_id}.{created_us}.{asked_at}",
    )


def read_answer(cache: CacheContext, stored: bytes) -> Any:
    """An answer as it was given. Raises CorruptRecordError for one that cannot be read."""
    try:
        return restored(cache.serde.loads(stored))
    except RtmemError:
        raise
    except Exception as exc:  # what serialisers raise is not agreed upon
        raise CorruptRecordError(
            f"a cached answer of {len(stored)} bytes cannot be read ({type(exc).__name__}: {exc}): was it written with "
            "another serialiser, or a class that is not there any more?"
        ) from exc


@lru_cache(maxsize=1024)
def read_tags(stored: bytes) -> tuple[str, ...]:
    """Tags as they are stored."""
    found = msgspec.msgpack.decode(stored, type=list[bytes]) if stored else ()
    return tuple(tag.decode("utf-8", "surrogatepass") for tag in found)


def tell_usage(cache: CacheContext, tenant: str | None = None) -> Steps[None]:
    """Tell Redis of hits that were counted here, for this tenant or another. Nothing is raised.

    Redis: 1 round trip, FCALL rtmem_v1_cache_used; none without hits.
    """
    keys = cache.keys if tenant is None else cache.all_keys.cache_of(tenant)
    usage = cache.state.usage.take(keys.tenant)
    if not usage:
        return
    args: list[Argument] = [int(cache.settings.refresh_on_hit), *usage]
    try:
        yield from call(
            "rtmem_v1_cache_used", (keys.entries, keys.books), args, timeout_ms=cache.settings.lookup_deadline_ms
        )
    except RtmemError as exc:
        cache.state.note(exc)


def tell_all_usage(cache: CacheContext) -> Steps[None]:
    """The same for all tenants; at the end, for what is not told by then is lost."""
    for tenant in cache.state.usage.tenants:
        yield from tell_usage(cache, tenant)


def explain(cache: CacheContext, prompt: Prompt, scope: CacheScope) -> Steps[Explanation]:
    """What is stored near a question, and why it is a hit or none. Counts as no use.

    Raises InvalidRequestError; EmbeddingError and those of Redis, for whoever asks why wants to know.

    Redis: 2 round trips.
    """
    question = read_question(cache.keys.tenant, prompt, scope, cache.settings.text_characters_max)
    return (yield from explain_question(cache, question))


def explain_question(cache: CacheContext, question: Question) -> Steps[Explanation]:
    """`explain` of a prompt that was read."""
    deadline = Deadline(cache.settings.update_deadline_ms, cache.state.clock)
    (exact,) = yield Batch((("EXISTS", cache.keys.entry(question.entry_id)),), timeout_ms=deadline.left_ms)
    why = question.why_exact_only
    found: list[Near] = []
    index, threshold = cache.index, cache.threshold
    if index is None:
        why = why or "the cache has no embedder"
    elif threshold is None:
        why = why or f"[cache] thresholds has none for embedder {index.embedder_name!r}"
    if not why and index is not None:
        (vector,) = yield Embed((question.text,), "query", deadline.left_ms)
        if (yield from cache_index.ensure(index, wait=True, timeout_ms=deadline.left_ms)):
            found = yield from cache_index.nearest(
                index,
                cache.keys.entries,
                question.scope,
                vector.tobytes(),
                DISTANCE_MAX,
                deadline.left_ms,
                learned=False,
            )
        else:
            why = "this Redis has no query engine"
    candidates: list[Candidate] = []
    for near in found:
        candidates.append((yield from _weigh(cache, question.text, near, threshold or 0.0, deadline)))
    return Explanation(
        entry_id=question.entry_id, scope=question.scope, exact=bool(exact), threshold=threshold, why_exact_only=why,
        candidates=tuple(candidates),
    )  # fmt: skip
