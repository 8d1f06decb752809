"""Behind a gateway, what the demo was told in one thread it knows in the next."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from rtmem.agent import demo
from rtmem.agent.recall import Recall, Served
from rtmem.memory import AsyncMemory
from rtmem.settings import Recall as Policy

pytestmark = pytest.mark.anyio


class Demo:
    """The demo graph behind what plays a gateway."""

    def __init__(self, recall: Recall) -> None:
        self.recall = recall
        self.graph = demo.graph(InMemorySaver(), across_threads=True)

    async def say(self, thread_id: str, text: Any, principal: str = "ann") -> str:
        served = Served(principal, lambda: self.recall.bind(principal))
        given = text if isinstance(text, Command) else {"messages": [HumanMessage(text)]}
        config: Any = {"configurable": {"thread_id": thread_id, "__rtmem_served": served}}
        result = await self.graph.ainvoke(given, config)
        asked = result.get("__interrupt__")
        return "?" if asked else str(result["messages"][-1].text)


def recall_at(memory: AsyncMemory) -> Recall:
    return Recall(memory, Policy(tool_deadline_ms=60_000))


async def test_threads_of_one_person_share_what_is_known_and_others_do_not(
    redis_url: str, redis_client: redis.Redis
) -> None:
    async with AsyncMemory(redis_url) as memory:
        agent = Demo(recall_at(memory))
        await agent.say("t1", "My name is Ann and I like tea")
        assert await agent.say("t2", "what do you know about me?") == "Your name is Ann. You like tea."
        assert (await agent.say("t3", "who am I?", "bob")).startswith("I do not know your name yet")
        await agent.say("t2", "I like jazz. Forget my name.")
        assert await agent.say("t1", "what do you know about me?") == "You like tea; jazz."
        assert await agent.say("t2", "forget everything") == "?"
        await agent.say("t2", Command(resume="yes"))
        assert (await agent.say("t1", "what do you know about me?")).startswith("I know nothing about you yet")
        assert (await memory.bind("ann").query(ended=True)).facts == ()


async def test_without_memory_the_thread_knows_and_says_that_only_it_does(
    redis_url: str, redis_client: redis.Redis
) -> None:
    async with AsyncMemory("redis://127.0.0.1:1/0") as away, AsyncMemory(redis_url) as memory:
        agent = Demo(recall_at(away))
        said = await agent.say("t1", "My name is Ann")
        assert said.endswith("(Only this conversation knows that for now: long-term memory cannot be used.)")
        assert await agent.say("t1", "who am I?") == "Your name is Ann."
        agent.recall = recall_at(memory)  # it has come back
        assert await agent.say("t1", "who am I?") == "Your name is Ann."
        assert await agent.say("t2", "who am I?") == "Your name is Ann."


async def test_behind_no_gateway_facts_stay_in_their_thread() -> None:
    graph = demo.graph(InMemorySaver(), across_threads=True)
    for thread_id, known in (("t1", True), ("t2", False)):
        config: Any = {"configurable": {"thread_id": thread_id}}
        if known:
            await graph.ainvoke({"messages": [HumanMessage("My name is Ann")]}, config)
        result = await graph.ainvoke({"messages": [HumanMessage("who am I?")]}, config)
        assert ("Ann" in str(result["messages"][-1].text)) == known
