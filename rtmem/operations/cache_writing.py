"""Writing to the cache of answers: what may be stored, and what was said of a hit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec

from rtmem.errors import EmbeddingError, InvalidRequestError, RtmemError, WriteRefusedError
from rtmem.operations import cache_index
from rtmem.operations.cache_answers import UNWANTED, portable, unwanted
from rtmem.operations.cache_prompts import CacheScope, Prompt, Question, link, read_question
from rtmem.operations.cache_records import CacheDraft, Written
from rtmem.operations.cache_state import CacheContext, Deadline
from rtmem.operations.functions import call
from rtmem.operations.semantic_cache import DISTANCE_MAX, is_comparable
from rtmem.steps import Argument, Embed, Steps

_ENTRY_BYTES: Final = 700  # of an entry besides what is in it: its key, names of fields, its place in indexes and books
_TTL_MS_MAX: Final = 10**14
_TAGS_MAX: Final = 32
_TAG_CHARACTERS_MAX: Final = 512
_DRAWN_TIGHTER: Final = 0.9  # of the distance of a wrong hit: the next one must be clearly nearer
_ROUNDED: Final = 1e-6  # of a distance in the id of a hit; nothing is nearer than a wrong hit at 0, so it is the last
_MENDED_AT_ONCE: Final = 16
_NO_VECTOR: Final = "without a vector, as the embedder failed: it hits exactly only, until a later update embeds it"


def update(
    cache: CacheContext,
    prompt: Prompt,
    answer: Any,
    scope: CacheScope,
    *,
    tags: Collection[str] = (),
    ttl_ms: int | None = None,
    took_ms: int = 0,
    allow: Collection[str] = (),
) -> Steps[Written]:
    """Store an answer, in place of the one that is stored for this very question.

    Not stored are errors, refusals, what was truncated, calls of tools and empty answers, unless `allow` names the
    reason; what the policy refuses; and what was invalidated since the question was looked up here and not found.
    Nothing of Redis or the embedder is raised: `Written` says what happened. A failed embedding leaves an entry that is
    hit exactly, and one of the next updates in this process embeds it.

    Args:
        tags: what `invalidate` will find it by.
        ttl_ms: how long it lives; None: as [cache] ttl_ms says; 0: it stays.
        took_ms: how long the answer took to compute: what a hit saves, and what an entry is worth.

    Raises InvalidRequestError: no scope, no prompt, tags or a ttl that are none.

    Redis: 1 round trip, FCALL rtmem_v1_cache_put; 1 more the first time, and 1 to mend entries without a vector.
    """
    question = read_question(cache.keys.tenant, prompt, scope, cache.settings.text_characters_max)
    checked = check_properties(tags, ttl_ms, allow)
    began_us = cache.state.open.began_us(question.entry_id)
    written: Written = yield from store(cache, question, answer, scope, *checked, took_ms, began_us)
    return written


def check_properties(
    tags: Collection[str], ttl_ms: int | None, allow: Collection[str]
) -> tuple[tuple[str, ...], int | None, frozenset[str]]:
    """What an entry is given, as it is stored. Raises InvalidRequestError."""
    if isinstance(tags, str) or not all(isinstance(tag, str) and 0 < len(tag) <= _TAG_CHARACTERS_MAX for tag in tags):
        raise InvalidRequestError(f"tags are {tags!r:.100}: texts of 1 to {_TAG_CHARACTERS_MAX} characters")
    kept = tuple(dict.fromkeys(tags))
    if len(kept) > _TAGS_MAX:
        raise InvalidRequestError(f"there are {len(kept)} tags, at most {_TAGS_MAX} are possible")
    if ttl_ms is not None and not (type(ttl_ms) is int and 0 <= ttl_ms <= _TTL_MS_MAX):
        raise InvalidRequestError(f"ttl_ms is {ttl_ms!r}: whole milliseconds, 0 for an entry that stays")
    if isinstance(allow, str) or not set(allow) <= set(UNWANTED):
        raise InvalidRequestError(f"allow is {allow!r:.100}: some of {', '.join(UNWANTED)}")
    return kept, ttl_ms, frozenset(allow)


def store(
    cache: CacheContext,
    question: Question,
    answer: Any,
    scope: CacheScope,
    tags: tuple[str, ...],
    ttl_ms: int | None,
    allow: frozenset[str],
    took_ms: int,
    began_us: int | None,
    token: str = "",
) -> Steps[Written]:
    """`update` of what was checked. `token`: of a lease that is given back with it, if it is sent at all."""
    state, entry_id = cache.state, question.entry_id

    def refused(reason: str, detail: str = "") -> Written:
        state.counts.add(f"unstored_{reason}")
        return Written(stored=False, entry_id=entry_id, reason=reason, detail=detail)

    reason = unwanted(answer)
    if reason is not None and reason not in allow:
        return refused(reason)
    draft = CacheDraft(
        prompt=question.text,
        answer=answer,
        tags=tags,
        ttl_ms=cache.settings.ttl_ms if ttl_ms is None else ttl_ms,
        model=scope.model,
        principal=cache.principal,
    )
    try:
        draft = cache.policy(draft)
        tags, ttl_ms, _ = check_properties(draft.tags, draft.ttl_ms, ())
    except WriteRefusedError as exc:
        return refused("policy", str(exc))
    except Exception as exc:  # noqa: BLE001 - somebody else's policy: what it cannot look at is not stored
        return refused("policy", f"the policy failed with {type(exc).__name__}: {exc}")
    try:
        data = cache.serde.dumps(portable(draft.answer))
    except Exception as exc:  # noqa: BLE001 - what serialisers raise is not agreed upon
        return refused("unserialisable", f"{type(exc).__name__}: {exc}")
    if len(data) > cache.settings.answer_bytes_max:
        return refused("too_large", f"{len(data)} bytes, over answer_bytes_max ({cache.settings.answer_bytes_max})")
    if state.redis_pause.is_on:
        return refused("unavailable", "Redis failed a moment ago, and is left alone for pause_ms")
    deadline = Deadline(cache.settings.update_deadline_ms, state.clock)
    fields: list[Argument] = ["prompt", draft.prompt.encode("utf-8", "surrogatepass"), "answer", data]
    fields += ["tags", write_tags(tags), "model", scope.model.encode("utf-8", "surrogatepass")]
    fields += ["scope", question.scope]
    try:
        vector = yield from _vector(cache, question, draft.prompt, deadline)
        fields += vector or ()
        size = _ENTRY_BYTES + sum(len(field) for field in fields if isinstance(field, bytes | str))
        links = [link("s", scope.digest), link("m", scope.model), *(link("g", tag) for tag in tags)]
        usage = state.usage.take(cache.keys.tenant)
        args: list[Argument] = [entry_id, "" if began_us is None else began_us, cache.settings.question_ms_max * 1_000]
        args += [
            draft.ttl_ms,
            cache.settings.entries_max,
            cache.settings.bytes_max,
            size,
            max(0, int(took_ms)),
            token,
        ]
        args += [len(links), *links, len(usage), *usage, *fields]
        why = yield from call("rtmem_v1_cache_put", cache.function_keys, args, timeout_ms=deadline.left_ms)
    except RtmemError as exc:
        return refused("unavailable", f"{state.note(exc)}: {exc}")
    if why:
        return refused(why.decode(), "it was invalidated while it was computed")
    state.known.add(entry_id)
    state.counts.add("stored")
    if vector is None:
        cache.note("unembedded")
        state.unembedded.add(cache.keys.tenant, entry_id, draft.prompt)
        return Written(stored=True, entry_id=entry_id, detail=_NO_VECTOR)
    state.unembedded.discard(cache.keys.tenant, entry_id)
    if vector:
        yield from _mend(cache, deadline)
    return Written(stored=True, entry_id=entry_id)


def _vector(cache: CacheContext, question: Question, text: str, deadline: Deadline) -> Steps[list[Argument] | None]:
    """The field of a question's vector; empty if it cannot be compared, None if its embedding fails.

    The pause of look-ups does not count here: what they have no time for may do within the deadline of a write, and an
    entry would lack its vector for all its life.
    """
    index = cache.index
    if index is None or not is_comparable(cache, question) or not text.strip():
        return []
    if cache.state.writing_pause.is_on:
        return None
    if not (yield from cache_index.ensure(index, wait=True, timeout_ms=deadline.left_ms)):
        return []
    try:
        # Half of what is left: an embedder that hangs must leave time to store the answer without a vector.
        (vector,) = yield Embed((text,), "query", max(1, deadline.left_ms // 2))
    except RtmemError as exc:
        _note_embedding(cache, exc)
        return None
    return [index.vector_field, vector.tobytes()]


def _mend(cache: CacheContext, deadline: Deadline) -> Steps[None]:
    """Embed what this process stored without a vector, now that the embedder works. Nothing is raised.

    Redis: 1 round trip, FCALL rtmem_v1_cache_mend; none where there is nothing to mend.
    """
    index, unembedded, tenant = cache.index, cache.state.unembedded, cache.keys.tenant
    waiting = unembedded.some_of(tenant, _MENDED_AT_ONCE)
    if index is None or not waiting:
        return
    try:
        vectors = yield Embed(tuple(waiting.values()), "query", deadline.left_ms)
        args: list[Argument] = [index.vector_field]
        for (entry_id, text), vector in zip(waiting.items(), vectors, strict=True):
            args += (entry_id, text.encode("utf-8", "surrogatepass"), vector.tobytes())
        yield from call("rtmem_v1_cache_mend", cache.function_keys, args, timeout_ms=deadline.left_ms)
    except RtmemError as exc:
        _note_embedding(cache, exc)  # the next update tries again
        return
    for entry_id in waiting:
        unembedded.discard(tenant, entry_id)
        cache.note("mended")


def _note_embedding(cache: CacheContext, exc: RtmemError) -> None:
    cache.state.note(exc)
    if isinstance(exc, EmbeddingError):
        cache.state.writing_pause.begin()


def write_tags(tags: Sequence[str]) -> bytes:
    """What `read_tags` reads: as bytes, for a text of Python may hold what UTF-8 cannot."""
    return msgspec.msgpack.encode([tag.encode("utf-8", "surrogatepass") for tag in tags])


def report(cache: CacheContext, hit_id: str, correct: bool) -> Steps[bool]:
    """Say whether a hit was right.

    A wrong semantic hit draws the threshold of that entry tighter than its distance was (unless [cache] adaptive is
    off); a wrong exact hit drops the entry. False if the entry is not there any more, or holds another answer.

    Raises InvalidRequestError: no id of a hit. Errors of Redis.

    Redis: 1 round trip, FCALL rtmem_v1_cache_report.
    """
    entry_id, _, rest = hit_id.partition(".") if isinstance(hit_id, str) else ("", "", "")
    created, _, distance = rest.partition(".")
    try:
        tighter = "" if distance == "exact" else repr(max(0.0, float(distance)) * _DRAWN_TIGHTER - _ROUNDED)
    except ValueError:
        created = ""
    if not created.isdecimal() or not is_entry_id(entry_id):
        raise InvalidRequestError(f"hit_id is {hit_id!r:.100}: give the hit_id of a Hit")
    if tighter and not cache.settings.adaptive:
        tighter = str(DISTANCE_MAX)
    reply = yield from call(
        "rtmem_v1_cache_report",
        cache.function_keys,
        [entry_id, created, int(bool(correct)), tighter],
        timeout_ms=cache.settings.update_deadline_ms,
    )
    return bool(reply)


def is_entry_id(text: object) -> bool:
    """Whether it looks like an entry's id."""
    return isinstance(text, str) and len(text) == 32 and not set(text) - set("0123456789abcdef")
