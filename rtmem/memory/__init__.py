"""Facts: long-term memory that keeps why it changed its mind.

    with Memory.from_conn_string(url, principal="ann", embedder=embedder) as memory:
        home = memory.write("Ann lives in Rome.", subject="Ann", predicate="lives in", object="Rome", tags=["home"])
        memory.update(home, object="Oslo", reason="she has moved")      # Rome is kept, and ended
        memory.retrieve("where does she live?").text()                  # for a prompt, as untrusted data
        memory.history(home.id)                                         # Rome, why no longer, Oslo
        memory.write(key="units", value={"length": "km"}, kind="preference")
        memory.read("units").value                                      # by key: exact, never searched

`AsyncMemory` has the same verbs, awaited.

    verb                                                     answers          round trips, embedding not counted
    write(text, *, kind, subject, predicate, object, key,    Fact             1
          value, importance, tags, to, thread_id,
          message_id, position, document, writer,
          valid_from, valid_to)
    update(fact, text, *, object, value, reason,             Fact             1; 2 with an id, where the first happens
           importance, tags, valid_from, valid_to,                            during the embedding
           and where it is from, as write)
    invalidate(fact, reason, *, at)                          Fact             1
    forget(fact, *, history)                                 how many         1
    read(id or key, *, of)                                   Fact or None     1
    history(fact)                                            tuple of Fact    1
    query(*, scopes, kinds, tags, subject, predicate,        FactPage         1
          object, thread_id, document, writer,
          importance_min, importance_max, created_from,
          created_to, valid_at, ended, limit, continuation)
    retrieve(question, *, k, tokens_max, kinds, tags,        RetrievedFacts   1
             scopes, as_of, explain)
    reembed(limit)                                           how many         2 per 64

    RetrievedFacts  .hits (each .fact .score .explanation) .abstained .confidence .tokens .left_out .index_ready
                    .by_meaning .text()

The first call makes the index: 1 round trip more. `fact` is a Fact or its id. Times are aware datetimes or Unix
milliseconds.

Who asks is bound in the object (`memory.bind(...)`), and is a user's name or a `Principal` with teams and an
application; nothing in a message can change it. Facts go to the user's own scope, or, with `to`, to `team:NAME` or
`application`. Queries see all scopes of the principal at once. Of a team that one does not belong to nobody learns
whether it exists, and of somebody else's fact neither.

Errors: FactNotFoundError, FactConflictError (ended meanwhile), ScopeNotFoundError, WriteRefusedError (the policy),
InvalidRequestError, TooLargeError, QueryError, ModuleMissingError (no query engine), EmbedderMismatchError, and those
of Redis. A failed embedding is none: the fact is stored, found by its words, and `reembed` gives it its vector later.
"""

from rtmem.embedding.extras import imported

imported("redisvl.schema", "memory")  # says which extra is missing, where it is

from rtmem.counts import VerbCounts  # noqa: E402
from rtmem.memory.aio import AsyncMemory  # noqa: E402
from rtmem.memory.sync import Memory  # noqa: E402
from rtmem.operations.fact_scope import WritePolicy  # noqa: E402
from rtmem.operations.fact_search import FactHit, RetrievedFacts  # noqa: E402
from rtmem.records import Fact, FactPage, Principal  # noqa: E402

__all__ = [
    "AsyncMemory",
    "Fact",
    "FactHit",
    "FactPage",
    "Memory",
    "Principal",
    "RetrievedFacts",
    "VerbCounts",
    "WritePolicy",
]
