"""Facts by what they say: `retrieve` by words and meaning, `query` by exact properties. Only of the asker's own scopes.

Nothing that somebody wrote is ever query syntax: scopes, tags and properties are hashes, numbers and words are PARAMS.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from rtmem.errors import CorruptRecordError, EmbeddingError, InvalidRequestError, QueryError
from rtmem.operations import retrieval, text_query, vector_index
from rtmem.operations.fact_filters import Filters
from rtmem.operations.fact_items import Moment, moment_ms, read_row
from rtmem.operations.fact_scope import FactScope
from rtmem.operations.functions import call
from rtmem.operations.retrieval import Candidate, Signals
from rtmem.records import Fact, FactKind, FactPage, Scalar
from rtmem.steps import Argument, Embed, Steps

PAGE_MAX: Final = 1_000
_CONTINUATION: Final = re.compile(r"([0-9]{1,16})-([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class FactHit:
    """A fact that answers a question, and how well."""

    fact: Fact
    score: float  # 0..1
    explanation: Signals | None = None  # what made the score, if it was asked for


@dataclass(frozen=True, slots=True)
class RetrievedFacts:
    """What is known about a question: nothing is an answer too."""

    hits: tuple[FactHit, ...]
    abstained: bool  # nothing is known that answers it, or it is too unlikely
    confidence: float  # 0..1, that the answer is among what was found
    tokens: int  # about what `text()` costs
    left_out: int  # hits that did not fit into k and tokens_max
    index_ready: bool  # False: the engine still reads memory back after a restart, and there may be more
    by_meaning: bool  # False: the embedding failed, or there is no embedder: only the words were compared
    framing: str  # of the hits, as untrusted data

    def text(self) -> str:
        """The facts for a prompt, framed as data that nobody has to obey."""
        return self.framing


# By words and meaning ------------------------------------------------------------------------------------------------


def retrieve(
    scope: FactScope,
    question: str,
    *,
    k: int | None = None,
    tokens_max: int | None = None,
    kinds: Iterable[FactKind] | None = None,
    tags: Iterable[str] | None = None,
    scopes: Iterable[str] | None = None,
    as_of: Moment | None = None,
    explain: bool = False,
) -> Steps[RetrievedFacts]:
    """What is known about a question, of the principal and of all teams and the application it belongs to.

    By words and by meaning, the two fused, lifted by neighbours in a thread, weighed with recency and importance, and
    bounded. If the embedding fails, the words alone decide.

    Args:
        k, tokens_max: at most so many facts, in a text of so many tokens; from [retrieval].
        kinds: one of these. tags: all of these. scopes: only these.
        as_of: only what was true then, as far as is known today; now.
        explain: every hit with what made its score.

    Raises:
        InvalidRequestError, ScopeNotFoundError: nothing was asked.
        ModuleMissingError: this Redis cannot search. EmbedderMismatchError: its vectors are another embedder's.

    Redis: 1 round trip after the embedding, FCALL rtmem_v1_facts_find; 1 more the first time.
    """
    if not isinstance(question, str):
        raise InvalidRequestError(f"a question is a {type(question).__name__}: a string")
    for name, bound in (("k", k), ("tokens_max", tokens_max)):
        if bound is not None and (type(bound) is not int or bound < 0):
            raise InvalidRequestError(f"{name} is {bound!r}: a whole number, 0 or more")
    settings, time_ms = scope.retrieval, moment_ms(as_of, "as_of")
    filters = Filters.of(scope, scopes=scopes, kinds=kinds, tags=tags)
    clauses = filters.at(time_ms)
    vector = yield from _query_vector(scope, question)
    words = text_query.query(question, clauses, words_max=settings.words_max)
    queries = [] if words is None else [_by_words(scope, words, settings.window)]
    if vector is not None:
        queries.append(_by_meaning(scope, clauses, vector, settings.window))
    if not queries:
        found = Found((), {}, 0)
    else:
        found = yield from _find(scope, queries, "" if time_ms is None else time_ms, with_vectors=vector is not None)
    candidates, lists = found.candidates(), list(found.lists)
    by_text = by_vector = []
    if words is not None:
        by_text = [(candidates[fact_id], words.bm25(score)) for fact_id, score in lists.pop(0) if fact_id in candidates]
    if vector is not None:
        by_vector = [
            (candidates[fact_id], 1.0 - distance) for fact_id, distance in lists.pop(0) if fact_id in candidates
        ]
    if vector is None or not all(fact.embedded for fact in found.facts.values()):
        # Words make a third of what is likely; where there is no meaning they are all there is to tell by.
        settings = msgspec.structs.replace(settings, confidence_min=settings.confidence_min / 3)
    ranked = retrieval.retrieve(
        question,
        by_text,
        by_vector,
        found.time_ms,
        settings,
        embedder=scope.index.embedder_name,
        items_max=k,
        tokens_max=tokens_max,
    )
    return RetrievedFacts(
        hits=tuple(FactHit(hit.candidate.value, hit.score, hit.signals if explain else None) for hit in ranked.hits),
        abstained=not ranked.known,
        confidence=ranked.confidence,
        tokens=ranked.tokens,
        left_out=ranked.left_out,
        index_ready=scope.index.state.is_ready,
        by_meaning=vector is not None,
        framing=ranked.framing,
    )


def _query_vector(scope: FactScope, question: str) -> Steps[bytes | None]:
    if scope.embedder is None or not question.strip():
        return None
    try:
        (vector,) = yield Embed((question,), "query")
    except EmbeddingError:
        return None
    raw: bytes = vector.tobytes()
    return raw if vector.any() else None


def _by_words(scope: FactScope, words: text_query.TextQuery, window: int) -> list[Argument]:
    params: list[Argument] = [part for name_and_word in words.params for part in name_and_word]
    head: tuple[Argument, ...] = ("NOCONTENT", "WITHSCORES", "SCORER", "BM25STD", "VERBATIM", "LIMIT", 0, window)
    return [scope.index.alias, words.query, *head, *_tail(*params)]


def _by_meaning(scope: FactScope, clauses: str, vector: bytes, window: int) -> list[Argument]:
    text = f"({clauses})=>[KNN {window} @{scope.index.vector_field} $vector AS distance]"
    head: tuple[Argument, ...] = ("RETURN", 1, "distance", "SORTBY", "distance", "ASC", "LIMIT", 0, window)
    return [scope.index.alias, text, *head, *_tail("vector", vector)]


def _tail(*params: Argument) -> tuple[Argument, ...]:
    # Without TIMEOUT 0 the engine answers after half a second with what it has until then, and does not say so. The
    # last word is the time, which the function fills in.
    return ("DIALECT", 2, "TIMEOUT", 0, "PARAMS", len(params) + 2, *params, "now", 0)


# By exact properties -------------------------------------------------------------------------------------------------


def query(
    scope: FactScope,
    *,
    scopes: Iterable[str] | None = None,
    kinds: Iterable[FactKind] | None = None,
    tags: Iterable[str] | None = None,
    subject: str | None = None,
    predicate: str | None = None,
    object: Scalar | None = None,
    thread_id: str | None = None,
    document: str | None = None,
    writer: str | None = None,
    importance_min: float | None = None,
    importance_max: float | None = None,
    created_from: Moment | None = None,
    created_to: Moment | None = None,
    valid_at: Moment | None = None,
    ended: bool = False,
    limit: int = 20,
    continuation: str = "",
) -> Steps[FactPage]:
    """Facts with exactly these properties, of all scopes of the principal, the last created first.

    Names and texts are compared as people read them (case, spaces, Unicode form do not count), ids as they are.

    Args:
        tags: all of these. kinds: one of these. scopes: only these.
        object: by value and type: "5" is not 5.
        created_from, created_to: from .. to, without to.
        valid_at: what was true then; now.
        ended: also what is not, or no longer, true.
        limit: at most so many, up to 1,000. A page has fewer where facts are not true yet; `continuation` tells whether
            there is more.
        continuation: of the page before, with the same arguments.

    Raises:
        InvalidRequestError, QueryError, ScopeNotFoundError: nothing was asked. ModuleMissingError: as `retrieve`.

    Redis: 1 round trip; 1 more the first time.
    """
    if type(limit) is not int or not 1 <= limit <= PAGE_MAX:
        raise QueryError(f"limit is {limit!r}: from 1 to {PAGE_MAX}")
    if valid_at is not None and ended:
        raise QueryError("valid_at asks for what was true at a time, ended for all: give one of them")
    filters = Filters.of(
        scope,
        scopes=scopes,
        kinds=kinds,
        tags=tags,
        subject=subject,
        predicate=predicate,
        object=object,
        thread_id=thread_id,
        document=document,
        writer=writer,
        importance_min=importance_min,
        importance_max=importance_max,
        created_from=created_from,
        created_to=created_to,
    )
    time_ms = moment_ms(valid_at, "valid_at")
    clauses = filters.clauses if ended else filters.at(time_ms)
    last_us, given = _open_continuation(continuation)
    if continuation:
        clauses += f" @created:[-inf {last_us}]"
    order: tuple[Argument, ...] = ("RETURN", 1, "created", "SORTBY", "created", "DESC", "LIMIT", given, limit + 1)
    words: list[Argument] = [scope.index.alias, clauses, *order, *_tail()]
    when: Argument = "any" if ended else "" if time_ms is None else time_ms
    found = yield from _find(scope, [words], when, with_vectors=False)
    page = found.lists[0][:limit]
    return FactPage(
        facts=tuple(found.facts[fact_id] for fact_id, _ in page if fact_id in found.facts),
        continuation=_next(page, last_us, given) if len(found.lists[0]) > limit else "",
        index_ready=scope.index.state.is_ready,
    )


def _open_continuation(continuation: str) -> tuple[int, int]:
    """When the last one was created, and how many of that moment were given."""
    if not continuation:
        return 0, 0
    found = _CONTINUATION.fullmatch(continuation) if isinstance(continuation, str) else None
    if found is None:
        raise QueryError(f"continuation is {continuation!r:.60}: what the page before had, or nothing")
    return int(found[1]), int(found[2])


def _next(page: Sequence[tuple[str, float]], last_us: int, given: int) -> str:
    created = [int(created_us) for _, created_us in page]
    same = created.count(created[-1])
    return f"{created[-1]}-{same + given if created[-1] == last_us else same}"


# Both ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """What queries led to."""

    lists: Sequence[Sequence[tuple[str, float]]]  # id and score, of each query
    facts: dict[str, Fact]  # those that are valid
    time_ms: int  # when it was

    def candidates(self) -> dict[str, Candidate]:
        """The facts as `retrieval` takes them."""
        return {fact_id: _candidate(fact) for fact_id, fact in self.facts.items()}


def _candidate(fact: Fact) -> Candidate:
    return Candidate(
        id=fact.id,
        text=fact.text,
        value=fact,
        thread=f"{fact.scope}/{fact.thread_id}" if fact.thread_id else "",
        position=fact.position,
        time_ms=fact.valid_from_ms,
        importance=fact.importance,
    )


def _find(
    scope: FactScope, queries: Sequence[Sequence[Argument]], when: Argument, *, with_vectors: bool
) -> Steps[Found]:
    """What several queries lead to. Redis: 1 round trip; more where the index was lost."""
    index = scope.index

    def ask() -> Steps[Any]:
        due = index.state.is_due()
        args: list[Argument] = [index.fingerprint if with_vectors else "", when, int(due)]
        for words in queries:
            args += [len(words), *words]
        reply = yield from call("rtmem_v1_facts_find", scope.function_keys, args)
        if due:
            index.state.is_ready, index.state.looked_s = reply[0] == b"1", index.state.clock()
        return reply

    _, time_ms, lists, rows = yield from vector_index.with_index(index, ask)
    facts: dict[str, Fact] = {}
    for row in rows:
        fact = read_row(scope.serde, row, scope.labels)
        if fact is None:
            raise CorruptRecordError(f"the index led to fact {row[0]!r} outside of the scopes that were asked for")
        facts[fact.id] = fact
    pairs = [[(each[n].decode("ascii"), float(each[n + 1] or 0)) for n in range(0, len(each), 2)] for each in lists]
    return Found(pairs, facts, int(time_ms))
