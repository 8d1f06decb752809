"""A graph that was built with a store is served with one in Redis, that of whoever runs it."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.memory import InMemoryStore
from langgraph_sdk import get_client

from rtmem.store import AsyncRedisStore
from tests.gateway.conftest import ServeGateway

pytestmark = pytest.mark.anyio


async def remember(state: MessagesState, runtime: Runtime[Any]) -> dict[str, Any]:
    store = runtime.store
    assert store is not None
    known = await store.asearch(("notes",))
    await store.aput(("notes",), f"{len(known)}", {"text": state["messages"][-1].text})
    return {"messages": [AIMessage(" and ".join(str(item.value["text"]) for item in known) or "nothing")]}


async def say(url: str, token: str, text: str) -> str:
    async with get_client(url=url, headers={"authorization": f"Bearer {token}"}) as client:
        async with client.threads.stream(assistant_id="notes") as thread:
            await thread.run.start(input={"messages": [{"role": "user", "content": text}]})
            answer: Any = await thread.output
            return str(answer["messages"][-1]["content"])


async def test_what_a_graph_stores_is_its_principals(
    serve_gateway: ServeGateway, redis_url: str, redis_client: redis.Redis
) -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("remember", remember)
    builder.add_edge(START, "remember")
    builder.add_edge("remember", END)
    mine = InMemoryStore()
    async with serve_gateway(graphs={"notes": builder.compile(store=mine)}) as served:
        assert await say(served.url, "token-of-alice", "tea") == "nothing"
        assert await say(served.url, "token-of-alice", "milk") == "tea"  # on another thread
        assert await say(served.url, "token-of-bob", "rum") == "nothing"
        assert await say(served.url, "token-of-alice", "salt") == "tea and milk"
    async with AsyncRedisStore.from_conn_string(redis_url, principal="bob") as store:
        assert [item.value for item in await store.asearch(())] == [{"text": "rum"}]
    assert mine.search(()) == []
