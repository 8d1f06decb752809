"""Who takes part: rtmem's store, LangGraph's others, a bare index of RedisVL, each as its documentation opens it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore

from loadtest.memory.notes import DIMS, KnownVectors, Note, Question
from loadtest.memory.raw import LIMIT
from loadtest.servers import Server, ServerMissingError, postgres_server
from rtmem import settings
from rtmem.steps import Embedder
from rtmem.store import AsyncRedisStore

OURS, MEMORY = "rtmem", "InMemoryStore"
FILL_BATCH = 64


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured, by verbs that take the same for all."""

    name: str
    put: Callable[[Note], Awaitable[object]]
    put_all: Callable[[Sequence[Note]], Awaitable[object]]
    get: Callable[[Note], Awaitable[object]]
    search: Callable[[Question], Awaitable[Sequence[object]]]
    list_namespaces: Callable[[str], Awaitable[object]] | None
    server_pid: int | None = None

    async def fill(self, notes: Sequence[Note]) -> None:
        """Write all notes, so many at a time."""
        for first in range(0, len(notes), FILL_BATCH):
            await self.put_all(notes[first : first + FILL_BATCH])


def of_store(name: str, store: BaseStore, server_pid: int | None) -> Subject:
    """Any BaseStore."""

    async def list_namespaces(tenant: str) -> object:
        return await store.alist_namespaces(prefix=(tenant,))

    async def search(question: Question) -> Sequence[object]:
        prefix = (question.tenant,)
        return await store.asearch(prefix, query=question.text, filter=question.filter, limit=LIMIT)

    return Subject(
        name,
        put=lambda note: store.aput(note.namespace, note.key, note.value),
        put_all=lambda notes: store.abatch([PutOp(each.namespace, each.key, each.value) for each in notes]),
        get=lambda note: store.aget(note.namespace, note.key),
        search=search,
        list_namespaces=list_namespaces,
        server_pid=server_pid,
    )


@asynccontextmanager
async def rtmem_store(
    url: str, embedder: Embedder, prefix: str, kept: settings.Store | None = None
) -> AsyncIterator[AsyncRedisStore]:
    """rtmem's store with its defaults, below a prefix of its own; its index is there."""
    kept = msgspec.structs.replace(kept or settings.Store(), prefix=prefix)
    index: Any = {"embed": embedder, "fields": ["text"]}
    async with AsyncRedisStore.from_conn_string(url, index=index, settings=kept) as store:
        await store.setup()
        yield store


@asynccontextmanager
async def subjects(
    server: Server, known: KnownVectors, ours: AsyncRedisStore, *, peers: bool, on_absent: Callable[[str], None]
) -> AsyncIterator[list[Subject]]:
    """All who take part, open and empty, but for ours; `on_absent` is told who cannot and why."""
    index: Any = {"dims": DIMS, "embed": known.as_lists, "fields": ["text"]}
    async with AsyncExitStack() as stack:
        found = [of_store(OURS, ours, server.pid), of_store(MEMORY, InMemoryStore(index=index), None)]
        if peers:
            found.append(await stack.enter_async_context(_redisvl(server, known)))
            on_absent(await _lg_redis(server, index))
            try:
                found.append(await stack.enter_async_context(_postgres(index)))
            except ServerMissingError as exc:
                on_absent(f"AsyncPostgresStore does not take part: {exc}")
        yield found


@asynccontextmanager
async def _redisvl(server: Server, known: KnownVectors) -> AsyncIterator[Subject]:
    """A bare AsyncSearchIndex: what one would write without a store. Notes by key, no times, no TTL, no namespaces
    but the tenant, and the value as JSON."""
    import orjson
    from redisvl.index import AsyncSearchIndex
    from redisvl.query import VectorQuery
    from redisvl.query.filter import Tag

    index = AsyncSearchIndex.from_dict(
        {
            "index": {"name": "bare", "prefix": "bare", "storage_type": "hash"},
            "fields": [
                {"name": "tenant", "type": "tag", "attrs": {"case_sensitive": True}},
                {"name": "kind", "type": "tag", "attrs": {"case_sensitive": True}},
                {"name": "stars", "type": "numeric"},
                {
                    "name": "vector",
                    "type": "vector",
                    "attrs": {"dims": DIMS, "distance_metric": "cosine", "algorithm": "flat", "datatype": "float32"},
                },
            ],
        },
        redis_url=server.url,
    )
    await index.create(overwrite=True)

    def row(note: Note) -> dict[str, Any]:
        vector = known.vector(note.value["text"]).tobytes()
        plain = {"id": f"{note.tenant}:{note.key}", "tenant": note.tenant, "value": orjson.dumps(note.value)}
        return {**plain, "kind": note.value["kind"], "stars": note.value["stars"], "vector": vector}

    async def put_all(notes: Sequence[Note]) -> object:
        return await index.load([row(note) for note in notes], id_field="id")

    async def get(note: Note) -> object:
        found = await index.fetch(f"{note.tenant}:{note.key}")
        return found and orjson.loads(found["value"])

    async def search(question: Question) -> Sequence[object]:
        clause = Tag("tenant") == question.tenant
        if question.filter:
            clause = clause & (Tag("kind") == question.filter["kind"])
        vector = known.vector(question.text).tobytes()
        query = VectorQuery(vector, "vector", return_fields=["value"], filter_expression=clause, num_results=LIMIT)
        return [orjson.loads(found["value"]) for found in await index.query(query)]

    try:
        yield Subject("RedisVL index", lambda note: put_all([note]), put_all, get, search, None, server.pid)
    finally:
        await index.disconnect()


async def _lg_redis(server: Server, index: Any) -> str:
    """Why the store of langgraph-checkpoint-redis takes no part; if it can be opened one day, so that we notice."""
    from langgraph.store.redis.aio import AsyncRedisStore as Theirs

    try:
        async with Theirs.from_conn_string(server.url, index=index) as store:
            await store.setup()
    except Exception as exc:  # noqa: BLE001  (whatever it raises is what there is to tell)
        return f"langgraph-checkpoint-redis's AsyncRedisStore does not take part, it cannot be opened: {exc!r:.160}"
    return "langgraph-checkpoint-redis's AsyncRedisStore can be opened here: let it take part"


@asynccontextmanager
async def _postgres(index: Any) -> AsyncIterator[Subject]:
    """LangGraph's AsyncPostgresStore as its documentation opens it: one connection, pgvector's HNSW.

    Raises:
        ServerMissingError: no Postgres with pgvector here.
    """
    from langgraph.store.postgres.aio import AsyncPostgresStore

    with postgres_server(vectors=True) as server:
        async with AsyncPostgresStore.from_conn_string(server.url, index=index) as store:
            await store.setup()
            yield of_store("AsyncPostgresStore", store, server.pid)
