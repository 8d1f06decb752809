"""Long-term memory as LangGraph's BaseStore: by namespace and key, by filters, by meaning.

    with RedisStore.from_conn_string(url, index={"embed": embedder, "fields": ["text"]}) as store:
        ann = store.bind("ann")                                     # whose items; never read from a namespace
        ann.put(("notes", "food"), "nuts", {"text": "Ann is allergic to nuts.", "kind": "health"}, ttl=60)
        ann.get(("notes", "food"), "nuts").value
        ann.search(("notes",), query="what may she eat?", filter={"kind": {"$in": ["health", "diet"]}})

`AsyncRedisStore` has the same verbs, awaited (`aput`, `aget`, ...). All of BaseStore's verbs, and

    bind(principal)    the same connections, another principal's items
    setup()            make the index, or add what it lacks; the first search or write does it too
    reembed(limit)     give vectors to items whose embedding failed; how many have them now
    run(steps)         an operation of your own over the same connections
    index_ready        whether the last search saw all there is; also of what a search answers, a `SearchResults`

    round trips, embedding not counted: get, put, delete, search, list_namespaces 1; a batch at most 2. More for a
    search whose filter the server cannot decide (operations/memory_search.py), and once to make the index.

Errors: LangGraph's InvalidNamespaceError; InvalidRequestError and TooLargeError for a value; QueryError for what cannot
be asked; EmbeddingError for a query, never for an item; EmbedderMismatchError; ModuleMissingError where there is no
query engine (get, put and delete work without); NotDurableError with `ack`; and those of Redis.

What is different from InMemoryStore on purpose is a table in README.md, and `tests/store/test_like_in_memory.py`
compares the rest.
"""

from rtmem.embedding.extras import imported

imported("redisvl.schema", "memory")  # says which extra is missing, where it is

from rtmem.operations.memory_search import SearchResults  # noqa: E402
from rtmem.store.aio import AsyncRedisStore  # noqa: E402
from rtmem.store.sync import RedisStore  # noqa: E402

__all__ = ["AsyncRedisStore", "RedisStore", "SearchResults"]
