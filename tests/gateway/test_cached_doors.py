"""LangChain's and LangGraph's own caches behind a gateway: whose answers they give, by two real tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.globals import set_llm_cache
from langchain_core.messages import AIMessage
from langgraph.cache.memory import InMemoryCache
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import CachePolicy
from pydantic import Field

from rtmem import served as served_
from rtmem import settings as all_settings
from rtmem.agent.cache import CachedChatModel
from rtmem.cache import AsyncSemanticCache, SemanticCache
from rtmem.cache.langchain import LangChainCache
from rtmem.cache.nodes import NodeCache
from rtmem.errors import ConfigError
from tests.gateway.conftest import Served, ServeGateway
from tests.gateway.graphs import Graph, Parrot
from tests.gateway.raw import raw_client
from tests.gateway.test_python_sdk import said
from tests.gateway.waiting import eventually

pytestmark = pytest.mark.anyio

PATIENT: Any = {
    "settings": all_settings.Cache(lookup_deadline_ms=60_000, update_deadline_ms=60_000, pause_ms=0),
    "redis": all_settings.Redis(deadline_ms=60_000),
}
PLAN = "What is my plan?"


async def ask(served: Served, graph: str, name: str, text: str = PLAN, **more: Any) -> str:
    """What alice or bob is answered in a new thread."""
    async with raw_client(served.ws_url, str(uuid4()), token=f"token-of-{name}") as client:
        await client.subscribe()
        await client.ask("run.start", assistant_id=graph, input={**said(text), **more})
        end = await client.until_end()
        assert end["event"] == "completed", end
        await eventually(lambda: not served.gateway.runs.at_work)
        # Of a node that did not run, no message is told: the state has its answer.
        values = [each["params"]["data"] for each in client.events if each["method"] == "values"]
        return str(values[-1]["messages"][-1]["content"])


class Plans:
    """A graph that tells a user's plan out of the store, in a node that is cached by the text of the question."""

    def __init__(self, cache: Any, *, nested: bool = False, awaiting: bool = True) -> None:
        self.calls = 0
        policy = CachePolicy(ttl=600, key_func=lambda state: str([m.content for m in state["messages"]]))
        builder = StateGraph(MessagesState).add_edge(START, "plan")
        builder.add_node("plan", self._aplan if awaiting else self._plan, cache_policy=policy)
        self.graph: Graph = builder.compile(cache=cache)
        if nested:
            self.graph = StateGraph(MessagesState).add_node("in", self.graph).add_edge(START, "in").compile()

    async def _aplan(self, state: MessagesState, runtime: Runtime[None]) -> dict[str, Any]:
        assert runtime.store is not None
        item = await runtime.store.aget(("plan",), "now")
        return self._told(item)

    def _plan(self, state: MessagesState, runtime: Runtime[None]) -> dict[str, Any]:
        assert runtime.store is not None
        return self._told(runtime.store.get(("plan",), "now"))

    def _told(self, item: Any) -> dict[str, Any]:
        self.calls += 1
        return {"messages": [AIMessage("none" if item is None else str(item.value["text"]))]}


async def give_alice_a_plan(served: Served) -> None:
    store = await served.gateway.memories.store()
    await store.bind("alice").aput(("plan",), "now", {"text": "platinum"})


@pytest.fixture
async def nodes(redis_url: str) -> AsyncIterator[NodeCache]:
    async with NodeCache.from_conn_string(redis_url, **PATIENT) as cache:
        yield cache


# Nodes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("awaiting", [True, False])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("owner", ["", "somebody"])
async def test_what_a_node_returned_is_of_whoever_was_authenticated(
    serve_gateway: ServeGateway, nodes: NodeCache, nested: bool, awaiting: bool, owner: str
) -> None:
    plans = Plans(nodes.bind(owner), nested=nested, awaiting=awaiting)
    async with serve_gateway(graphs={"plans": plans.graph}) as served:
        await give_alice_a_plan(served)
        assert [await ask(served, "plans", name) for name in ("alice", "alice", "bob", "bob")] == [
            *("platinum", "platinum"),
            *("none", "none"),
        ]
        assert plans.calls == 2


async def test_what_nodes_return_for_everybody_stays_with_its_owner(
    serve_gateway: ServeGateway, redis_url: str
) -> None:
    async with NodeCache.from_conn_string(redis_url, principal="shared:plans", shared=True, **PATIENT) as cache:
        plans, inner = Plans(cache), Plans(cache, nested=True)
        async with serve_gateway(graphs={"plans": plans.graph, "inner": inner.graph}) as served:
            assert [await ask(served, "plans", name) for name in ("alice", "bob")] == ["none", "none"]
            assert [await ask(served, "inner", name, "Nested?") for name in ("alice", "bob")] == ["none", "none"]
        assert (plans.calls, inner.calls) == (1, 1)


@pytest.mark.parametrize("nested", [False, True])
async def test_a_cache_that_knows_no_users_is_told_to_its_owner(
    serve_gateway: ServeGateway, caplog: pytest.LogCaptureFixture, nested: bool
) -> None:
    async with serve_gateway(graphs={"plans": Plans(InMemoryCache(), nested=nested).graph}):
        assert (
            caplog.text.count("assistant 'plans': its nodes are cached by InMemoryCache, which cannot tell users") == 1
        )


def test_what_is_for_everybody_is_not_among_what_is_a_users(cache: SemanticCache, redis_url: str) -> None:
    for owner in ("", "alice"):
        for make in (
            lambda: LangChainCache(cache.bind(owner), shared=True),  # noqa: B023 - called at once
            lambda: CachedChatModel(Counted(), cache.bind(owner), model_name="parrot", shared=True),  # noqa: B023
            lambda: NodeCache(redis_url, principal=owner, shared=True),  # noqa: B023
        ):
            with pytest.raises(ConfigError, match=r"bind it to a name that begins with 'shared:'"):
                make()


# Models --------------------------------------------------------------------------------------------------------------


class Counted(Parrot):
    """A model that knows what it was asked."""

    calls: list[str] = Field(default_factory=list, exclude=True)

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.calls.append(str(messages[-1].text))
        return super()._generate(messages, *args, **kwargs)


def chat(model: Any, how: str) -> Graph:
    async def awaiting(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def blocking(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    async def in_a_bare_thread(state: MessagesState) -> dict[str, Any]:
        with ThreadPoolExecutor(1) as pool:  # without the context of the run
            answer = await asyncio.get_running_loop().run_in_executor(pool, model.invoke, state["messages"])
        return {"messages": [answer]}

    node = {"awaiting": awaiting, "blocking": blocking, "bare": in_a_bare_thread}[how]
    return StateGraph(MessagesState).add_node("model", node).add_edge(START, "model").compile()


@pytest.fixture
def cache(redis_url: str) -> Iterator[SemanticCache]:
    with SemanticCache(redis_url, **PATIENT) as cache:
        yield cache
        set_llm_cache(None)


async def calls_of(serve_gateway: ServeGateway, model: Any, how: str) -> int:
    """How often the model was called for alice, alice, bob, bob, who ask the same."""
    async with serve_gateway(graphs={"chat": chat(model, how)}) as served:
        for name in ("alice", "alice", "bob", "bob"):
            assert PLAN in await ask(served, "chat", name)
    return len((model.model if isinstance(model, CachedChatModel) else model).calls)


@pytest.mark.parametrize("owner", ["", "somebody"])
@pytest.mark.parametrize("how", ["awaiting", "blocking"])
async def test_answers_behind_the_cache_of_the_process_are_of_whoever_was_authenticated(
    serve_gateway: ServeGateway, cache: SemanticCache, how: str, owner: str
) -> None:
    set_llm_cache(LangChainCache(cache.bind(owner)))
    assert await calls_of(serve_gateway, Counted(disable_streaming=True), how) == 2


async def test_so_they_are_with_a_cache_that_awaits(serve_gateway: ServeGateway, redis_url: str) -> None:
    async with AsyncSemanticCache(redis_url, **PATIENT) as cache:
        model = Counted(cache=LangChainCache(cache), disable_streaming=True)
        assert await calls_of(serve_gateway, model, "awaiting") == 2


@pytest.mark.parametrize("how", ["awaiting", "blocking"])
async def test_answers_for_everybody_stay_with_their_owner(
    serve_gateway: ServeGateway, cache: SemanticCache, how: str
) -> None:
    everybodys = cache.bind("shared:faq")
    shared = LangChainCache(everybodys, shared=True)
    assert await calls_of(serve_gateway, Counted(cache=shared, disable_streaming=True), how) == 1
    other = CachedChatModel(Counted(), everybodys, model_name="parrot", shared=True)
    assert await calls_of(serve_gateway, other, how) == 1
    own = CachedChatModel(Counted(), cache, model_name="parrot")
    assert await calls_of(serve_gateway, own, how) == 2


@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_call_in_a_thread_that_knows_of_no_run_is_not_cached(
    serve_gateway: ServeGateway, cache: SemanticCache, wrapped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    served_._Gateways.warned = False
    model: Any = Counted(cache=LangChainCache(cache))
    if wrapped:
        model = CachedChatModel(Counted(), cache, model_name="parrot")
    assert await calls_of(serve_gateway, model, "bare") == 4
    assert caplog.text.count("whose answer that is cannot be told, so it is not cached") == 1
