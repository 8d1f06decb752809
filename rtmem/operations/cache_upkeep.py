"""The cache of a tenant as a whole: what is invalidated, what there is, and what it was good for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rtmem.errors import InvalidRequestError
from rtmem.operations.cache_prompts import CacheScope, Prompt, link, read_question
from rtmem.operations.cache_records import CacheEntry, CachePage, CacheStats
from rtmem.operations.cache_state import CacheContext
from rtmem.operations.cache_writing import is_entry_id
from rtmem.operations.functions import call
from rtmem.operations.semantic_cache import read_answer, read_tags, tell_usage
from rtmem.steps import Steps

_AT_ONCE: Final = 1_000  # entries that one call of the function frees, some 10 ms
_LIMIT_MAX: Final = 1_000
_AGE_MS_MAX: Final = 10**13
EVERYTHING: Final = "*"
_REFUSED: Final = b"=refused_"


def invalidate(
    cache: CacheContext,
    *,
    key: tuple[Prompt, CacheScope] | None = None,
    entry_id: str | None = None,
    tag: str | None = None,
    scope: CacheScope | None = None,
    model: str | None = None,
    older_than_ms: int | None = None,
    everything: bool = False,
) -> Steps[int]:
    """Drop entries of this tenant: one, those of a tag, a scope or a model, or all; with `older_than_ms`, the old ones.

    Nothing of them is served once this returns. An answer that was being computed when this began is not stored
    afterwards: its `update` says "invalidated". No index is asked, so none can miss an entry.

    Args:
        key: a prompt and its scope. scope: as it was given; entries of all conversations in it.
        older_than_ms: only entries that were stored so long ago; alone, of all the tenant's.

    Returns:
        How many entries are gone.

    Raises InvalidRequestError: not exactly one of these was given. Errors of Redis: some entries may be left then.

    Redis: 1 round trip for each 1,000 entries, FCALL rtmem_v1_cache_invalidate.
    """
    what = _what(cache, key, entry_id, tag, scope, model, older_than_ms, everything)
    floors_us = cache.settings.question_ms_max * 1_000
    gone: int = 0
    began = start = b""
    while True:
        freed, began, *more = yield from call(
            "rtmem_v1_cache_invalidate",
            cache.function_keys,
            [what, (older_than_ms or 0) * 1_000, floors_us, began, start, _AT_ONCE],
            timeout_ms=cache.settings.update_deadline_ms,
        )
        gone += freed
        if not more or more[0] is None:
            return gone
        (start,) = more


def _what(
    cache: CacheContext,
    key: tuple[Prompt, CacheScope] | None,
    entry_id: str | None,
    tag: str | None,
    scope: CacheScope | None,
    model: str | None,
    older_than_ms: int | None,
    everything: bool,
) -> str:
    """What is meant, as the function names it."""
    if older_than_ms is not None and not (type(older_than_ms) is int and 0 <= older_than_ms <= _AGE_MS_MAX):
        raise InvalidRequestError(f"older_than_ms is {older_than_ms!r:.100}: whole milliseconds")
    given = [key is not None, entry_id is not None, tag is not None, scope is not None, model is not None, everything]
    if sum(given) != 1 and not (older_than_ms is not None and not any(given)):
        raise InvalidRequestError(
            "what is to be invalidated? give one of key, entry_id, tag, scope, model or everything=True; "
            "older_than_ms alone, or beside one of them"
        )
    if key is not None:
        if not isinstance(key, tuple | list) or len(key) != 2:
            raise InvalidRequestError(f"key is {key!r:.100}: (prompt, scope), as the answer was stored")
        question = read_question(cache.keys.tenant, key[0], key[1], cache.settings.text_characters_max)
        return f"e:{question.entry_id}"
    if entry_id is not None:
        return f"e:{checked_entry_id(entry_id)}"
    return filed_under(tag, scope, model)


def filed_under(tag: str | None, scope: CacheScope | None, model: str | None) -> str:
    """A tag, a scope or a model, as functions name it; all entries without. Raises InvalidRequestError."""
    if scope is not None and not isinstance(scope, CacheScope):
        raise InvalidRequestError(f"scope is a {type(scope).__name__}: give a CacheScope")
    for name, text in (("tag", tag), ("model", model)):
        if text is not None and not isinstance(text, str):
            raise InvalidRequestError(f"{name} is a {type(text).__name__}: a text")
    if scope is not None:
        return link("s", scope.digest)
    if tag is not None:
        return link("g", tag)
    return EVERYTHING if model is None else link("m", model)


def checked_entry_id(entry_id: str) -> str:
    """`entry_id`. Raises InvalidRequestError if it is none."""
    if not is_entry_id(entry_id):
        raise InvalidRequestError(f"entry_id is {entry_id!r:.100}: 32 hexadecimal digits, as a Hit has them")
    return entry_id


def stats(cache: CacheContext) -> Steps[CacheStats]:
    """What this tenant has in the cache. Redis: 1 round trip, and 1 if there are hits that Redis was not told of."""
    yield from tell_usage(cache)
    index = "" if cache.index is None else cache.index.name
    entries, over, totals, indexes = yield from call(
        "rtmem_v1_cache_stats", cache.function_keys, [cache.all_keys.cache_index("")], read_only=True
    )
    found = dict(zip(totals[::2], totals[1::2], strict=True))
    names = {name.decode("utf-8", "replace") for name in indexes}

    def total(name: bytes) -> int:
        return int(found.get(name, 0))

    return CacheStats(
        entries=entries - over,
        entries_max=cache.settings.entries_max,
        bytes=total(b"bytes"),
        bytes_max=cache.settings.bytes_max,
        hits=total(b"hits"),
        saved_ms=total(b"saved_ms"),
        exact=total(b"=exact"),
        semantic=total(b"=semantic"),
        misses=total(b"=miss"),
        refused={
            name.removeprefix(_REFUSED).decode("utf-8", "replace"): int(number)
            for name, number in sorted(found.items())
            if name.startswith(_REFUSED)
        },
        evicted=total(b"evicted"),
        unembedded=total(b"=unembedded"),
        mended=total(b"=mended"),
        reported_right=total(b"right"),
        reported_wrong=total(b"wrong"),
        index=index,
        has_index=index in names,
        stale_indexes=tuple(sorted(names - {index})),
    )


def entries(
    cache: CacheContext,
    *,
    tag: str | None = None,
    scope: CacheScope | None = None,
    model: str | None = None,
    limit: int = 20,
    continuation: str = "",
) -> Steps[CachePage]:
    """A page of this tenant's entries, without their answers: newest first; in no order below a tag, scope or model.

    Raises InvalidRequestError. Redis: 1 round trip, FCALL rtmem_v1_cache_list.
    """
    if type(limit) is not int or not 1 <= limit <= _LIMIT_MAX:
        raise InvalidRequestError(f"limit is {limit!r:.100}: 1 to {_LIMIT_MAX}")
    what = filed_under(tag, scope, model)
    if sum(each is not None for each in (tag, scope, model)) > 1:
        raise InvalidRequestError("give one of tag, scope and model")
    if not isinstance(continuation, str) or (what == EVERYTHING and continuation and not continuation.isdecimal()):
        raise InvalidRequestError(f"continuation is {continuation!r:.100}: the one of the page before")
    following, *rows = yield from call(
        "rtmem_v1_cache_list", cache.function_keys, [what, continuation, limit], read_only=True
    )
    return CachePage(entries=tuple(map(_entry, rows)), continuation=following.decode())


def entry(cache: CacheContext, entry_id: str) -> Steps[CacheEntry | None]:
    """One entry with its answer. Raises InvalidRequestError. Redis: 1 round trip, FCALL rtmem_v1_cache_entry."""
    row = yield from call("rtmem_v1_cache_entry", cache.function_keys, [checked_entry_id(entry_id)], read_only=True)
    return _entry(row[:-1], read_answer(cache, row[-1])) if row else None


def _entry(row: Sequence[Any], answer: Any = None) -> CacheEntry:
    entry_id, prompt, model, created, took, tags, scope, threshold, left_ms, hits, size = row
    return CacheEntry(
        entry_id=entry_id.decode(),
        prompt=prompt.decode("utf-8", "surrogatepass"),
        model=model.decode("utf-8", "surrogatepass"),
        created_ms=int(created) // 1_000,
        took_ms=int(took),
        tags=read_tags(tags),
        scope=scope.decode(),
        threshold=float(threshold) if threshold else None,
        expires_in_ms=None if left_ms < 0 else left_ms,
        hits=hits,
        bytes=size,
        answer=answer,
    )
