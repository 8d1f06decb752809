"""Facts as steps: write, read, update, invalidate, forget, history. `fact_search.py` finds them.

Nothing that was believed is overwritten by something else: `update` ends the old fact and begins the new one, and
`history` tells why. All that must be true together is one function call (`lua/facts_v1.lua`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from rtmem.errors import (
    EmbeddingError,
    FactConflictError,
    FactNotFoundError,
    InvalidRequestError,
)
from rtmem.keys import check_id
from rtmem.operations import memory_vectors, vector_index
from rtmem.operations.fact_drafts import Draft, changed, checked_tags, checked_text, sentence
from rtmem.operations.fact_items import (
    ID,
    READ_FIELDS,
    Moment,
    id_of,
    moment_ms,
    read_row,
)
from rtmem.operations.fact_scope import FactScope, accept_all
from rtmem.operations.functions import call
from rtmem.records import Fact, FactKind, Scalar
from rtmem.steps import Batch, Begin, Embed, Steps

# Writing -------------------------------------------------------------------------------------------------------------


def write(
    scope: FactScope,
    text: str | None = None,
    *,
    kind: FactKind = "semantic",
    subject: str | None = None,
    predicate: str | None = None,
    object: Scalar | None = None,
    key: str = "",
    value: Any = None,
    importance: float | None = None,
    tags: Iterable[str] | None = None,
    to: str = "user",
    thread_id: str = "",
    message_id: str = "",
    position: int | None = None,
    document: str = "",
    writer: str = "",
    valid_from: Moment | None = None,
    valid_to: Moment | None = None,
) -> Steps[Fact]:
    """Remember something; once, however often it is said.

    The same content of the same owner is the same fact: a repetition updates wording, provenance and `last_seen_ms`,
    and keeps `created_at_ms`, when it is valid, and importance and tags unless they are given. Said again after it had
    ended, it is believed anew, under its id with a number behind it.

    Args:
        text: a sentence; without it, subject, predicate and object, or key and value make one.
        key: what `read` finds it by. Under a key one thing is true at a time: another content supersedes the last.
        value: data that comes back as it was given.
        importance: 0..1; 0.5 if it is new and nothing is said.
        to: the scope: user, application or team:NAME.
        position: of its message in its thread.
        valid_from, valid_to: when it is true; from now on.

    Raises:
        InvalidRequestError, TooLargeError, IdTooLongError: it cannot be stored.
        ScopeNotFoundError: not a scope of this principal.
        WriteRefusedError: by the write policy.
        EmbedderMismatchError: the memory holds another embedder's vectors.

    Redis: 1 round trip after the embedding; 1 more the first time. If the embedding fails, the fact is stored without
        a vector and marked (`embedded` is False).
    """
    fact = Fact(
        id="",
        text=text if text is not None else sentence(key, value, subject, predicate, object),
        kind=kind,
        scope=to,
        key=key,
        subject=subject,
        predicate=predicate,
        object=object,
        value=value,
        importance=0.5 if importance is None else importance,
        tags=checked_tags(scope, tags or ()),
        thread_id=thread_id,
        message_id=message_id,
        position=position,
        document=document,
        writer=writer,
        principal=scope.principal.user,
        valid_from_ms=moment_ms(valid_from, "valid_from") or 0,
        valid_to_ms=moment_ms(valid_to, "valid_to"),
    )
    draft = Draft(scope, fact, importance is not None, tags is not None, valid_from is not None)
    yield from _ready(scope)
    vector = yield from _vector(scope, draft.fact.text)
    reply = yield from call("rtmem_v1_facts_write", scope.function_keys, draft.args(vector))
    return (yield from _written(scope, draft.fact, reply))


def update(
    scope: FactScope,
    fact: str | Fact,
    text: str | None = None,
    *,
    object: Scalar | None = None,
    value: Any = None,
    reason: str = "",
    importance: float | None = None,
    tags: Iterable[str] | None = None,
    thread_id: str = "",
    message_id: str = "",
    position: int | None = None,
    document: str = "",
    writer: str = "",
    valid_from: Moment | None = None,
    valid_to: Moment | None = None,
) -> Steps[Fact]:
    """Believe something else from now on: the old fact ends, and the new one follows it, in one step.

    What is not given is as in the old fact. Of several who update one fact at the same time, one succeeds: the others'
    reason spoke of a fact that is believed no more, so they are told what is believed instead, and decide. Who says
    what is believed already, or sends the same again, succeeds and changes nothing.

    Args:
        fact: what is believed no more. A Fact saves a round trip against its id.
        text: what is true instead; without it, made from subject, predicate and `object`, or key and `value`.
        reason: why; `history` tells it.
        valid_from: since when; the old one was true until then.

    Returns:
        The new fact.

    Raises:
        FactNotFoundError: none of this principal has this id.
        FactConflictError: it has ended already; `data["current"]` is the id of what superseded it, or "".
        and as `write`.

    Redis: 1 round trip after the embedding; with an id 1 more, at the same time as the embedding of `text`.
    """
    fact_id = _id(fact)
    reason = checked_text(scope, reason, "reason", may_be_empty=True)
    begun = None
    if isinstance(fact, Fact):
        old = fact
    else:
        if text is not None and scope.embedder is not None and scope.policy is accept_all:
            (begun,) = yield Begin(Embed((checked_text(scope, text, "text"),)))
        found = yield from read(scope, fact_id)
        if found is None or found.forgotten_at_ms is not None:
            raise _not_found(fact_id)
        old = found
    new = changed(scope, old, text, object, value)
    new = msgspec.structs.replace(
        new,
        importance=old.importance if importance is None else importance,
        tags=old.tags if tags is None else checked_tags(scope, tags),
        thread_id=thread_id,
        message_id=message_id,
        position=position,
        document=document,
        writer=writer,
        principal=scope.principal.user,
        valid_from_ms=moment_ms(valid_from, "valid_from") or 0,
        valid_to_ms=moment_ms(valid_to, "valid_to"),
    )
    draft = Draft(scope, new, True, True, valid_from is not None)
    yield from _ready(scope)
    vector = yield from _vector(scope, draft.fact.text, begun)
    args = (fact_id, reason, *draft.args(vector))
    reply = yield from call("rtmem_v1_facts_update", scope.function_keys, args)
    return (yield from _written(scope, draft.fact, reply, fact_id))


def invalidate(scope: FactScope, fact: str | Fact, reason: str, *, at: Moment | None = None) -> Steps[Fact]:
    """Believe something no more, with nothing in its place. It stays in the history.

    Args:
        reason: why; `history` tells it.
        at: until when it was true; until now. Until a moment to come it is found, and can be changed no more: `write`
            what will be true.

    Returns:
        The fact as it is now.

    Raises:
        FactNotFoundError, FactConflictError: as `update`.

    Redis: 1 round trip.
    """
    fact_id = _id(fact)
    until = moment_ms(at, "at")
    reason = checked_text(scope, reason, "reason", may_be_empty=True)
    args = (*scope.scope_args(), fact_id, reason, "" if until is None else until)
    reply = yield from call("rtmem_v1_facts_invalidate", scope.function_keys, args)
    return _told(scope, reply, fact_id)


def forget(scope: FactScope, fact: str | Fact, *, history: bool = False) -> Steps[int]:
    """Remove a fact: text, vector, record. That something was there, and when it went, stays for `forgotten_ttl_ms`.

    Args:
        history: what it superseded and what superseded it, too.

    Returns:
        How many facts were forgotten; 0 if there was none.

    Redis: 1 round trip.
    """
    settings = scope.settings
    fact_id = _id_or_none(fact)
    if fact_id is None:
        return 0
    args = (*scope.scope_args(), fact_id, int(history), settings.history_max, settings.forgotten_ttl_ms)
    return int((yield from call("rtmem_v1_facts_forget", scope.function_keys, args)))


# Reading -------------------------------------------------------------------------------------------------------------


def read(scope: FactScope, key: str, *, of: str = "user") -> Steps[Fact | None]:
    """A fact by its id, whatever became of it; or what is true now under a key. Exact: nothing is searched.

    Args:
        key: an id (`mf_...`) of any scope of this principal, or the key that `write` was given.
        of: the scope that the key belongs to.

    Returns:
        The fact, or None. Of a forgotten one there is only `forgotten_at_ms`.

    Redis: 1 round trip.
    """
    if isinstance(key, str) and ID.fullmatch(key):
        scope.tags()
        (row,) = yield Batch((("HMGET", scope.keys.fact(key), *READ_FIELDS),))
        return read_row(scope.serde, [key, *row], scope.labels)
    if not check_id(key, "key"):
        raise InvalidRequestError("key is empty: give an id, or the key that the fact was written with")
    fact_id = id_of(scope.owner(of), Fact(id="", text="", key=key))
    row = yield from call("rtmem_v1_facts_by_key", scope.function_keys, (fact_id,))
    return None if row is None else read_row(scope.serde, row, scope.labels)


def history(scope: FactScope, fact: str | Fact) -> Steps[tuple[Fact, ...]]:
    """All that led to a fact and all that came of it, the oldest first: what was believed when, and why no longer.

    `invalidated_reason` and `superseded_by` of each tell why it ended. A forgotten one tells only when it went. What
    has outlived its ttl is not there. At most `history_max`.

    Redis: 1 round trip.
    """
    fact_id = _id_or_none(fact)
    if fact_id is None:
        return ()
    args = (*scope.scope_args(), fact_id, scope.settings.history_max)
    rows = yield from call("rtmem_v1_facts_history", scope.function_keys, args)
    facts = [found for row in rows if (found := read_row(scope.serde, row, scope.labels)) is not None]
    return tuple(sorted(facts, key=_chronological(facts)))


def _chronological(facts: Sequence[Fact]) -> Any:
    """By creation; of two that were made in one millisecond, the superseded one first."""
    depth: dict[str, int] = {}
    by_id = {fact.id: fact for fact in facts}
    for fact in facts:
        path: list[str] = []
        at: str | None = fact.id
        while at in by_id and at not in depth and at not in path:
            path.append(at)
            at = by_id[at].superseded_by
        known = depth.get(at, 0) if at is not None else 0
        for n, each in enumerate(reversed(path), 1):
            depth[each] = known - n
    return lambda fact: (fact.created_at_ms, depth[fact.id], fact.id)


# Vectors that failed to come -----------------------------------------------------------------------------------------


def reembed(scope: FactScope, limit: int = 1_000) -> Steps[int]:
    """Embed facts whose embedding failed when they were written. Returns how many have their vectors now.

    Args:
        limit: how many at most. Call it until it returns 0.

    Raises:
        EmbeddingError: nothing could be embedded. A fact that cannot be, beside others, stays without.

    Redis: 2 round trips for each 64 facts.
    """
    if scope.embedder is None:
        raise InvalidRequestError("this memory has no embedder: open it with embedder=...")
    clauses = f"@scope:{{{'|'.join(scope.tags())}}}"
    return (
        yield from memory_vectors.reembed(
            scope.index, clauses, limit, (), lambda row: [scope.serde.loads(row[2])["text"]]
        )
    )


# Steps that several verbs take ---------------------------------------------------------------------------------------


def _ready(scope: FactScope) -> Steps[None]:
    """The index is there before the first fact; without a query engine facts can still be read by id and key."""
    if not scope.index.state.known:
        yield from vector_index.setup(scope.index)


def _vector(scope: FactScope, text: str, begun: Any = None) -> Steps[bytes | None]:
    """The vector of a text; None if it failed, b"" if the text has no direction."""
    if scope.embedder is None:
        return None
    try:
        (vector,) = yield (Embed((text,)) if begun is None else begun)
    except EmbeddingError:
        return None
    return cast(bytes, vector.tobytes()) if vector.any() else b""


def _written(scope: FactScope, fact: Fact, reply: list[Any], fact_id: str = "") -> Steps[Fact]:
    if reply[0] == b"interval":
        raise InvalidRequestError(
            f"{fact.text[:60]!r} would be true at no time: it ends ({fact.valid_to_ms}) before it begins; give "
            "valid_from too"
        )
    told = _told(scope, reply, fact_id)
    if reply[1] == 0 and scope.index.state.has_engine:
        yield from vector_index.setup(scope.index)  # somebody flushed the database, the index with it
    return told


def _told(scope: FactScope, reply: list[Any], fact_id: str) -> Fact:
    if reply[0] == b"none":
        raise _not_found(fact_id)
    if reply[0] == b"conflict":
        current = reply[1].decode("ascii")
        instead = f"superseded by {current}: read that, and update it if it is still wrong" if current else (
            "invalidated, or true only until a time that is over: write what is true"
        )  # fmt: skip
        raise FactConflictError(f"fact {fact_id} is believed no more: {instead}", fact=fact_id, current=current)
    fact = read_row(scope.serde, reply[3], scope.labels)
    assert fact is not None, f"a function wrote {reply[3][0]!r} outside of the scopes of its caller"
    return fact


def _id(fact: object) -> str:
    fact_id = _id_or_none(fact)
    if fact_id is None:
        raise _not_found(fact)
    return fact_id


def _id_or_none(fact: object) -> str | None:
    fact_id = fact.id if isinstance(fact, Fact) else fact
    return fact_id if isinstance(fact_id, str) and ID.fullmatch(fact_id) else None


def _not_found(fact: object) -> FactNotFoundError:
    fact_id = fact.id if isinstance(fact, Fact) else fact
    shown = fact_id[:60] if isinstance(fact_id, str) else f"<{type(fact_id).__name__}>"
    return FactNotFoundError(
        f"no fact {shown!r} for this principal: it was never written, or it was forgotten; `query` shows those there "
        "are",
        fact=shown,
    )
