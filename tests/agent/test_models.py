"""A real model behind the demo graph, over a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from rtmem.agent import demo
from rtmem.agent.models import load_model
from rtmem.errors import ConfigError
from tests.agent import openai_server


@pytest.fixture
def model_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
    with openai_server.running() as server:
        yield server


@pytest.mark.anyio
async def test_the_demo_graph_talks_through_a_real_model(model_server: ThreadingHTTPServer) -> None:
    model = load_model("openai:tiny", f"http://127.0.0.1:{model_server.server_port}/v1")
    graph = demo.graph(InMemorySaver(), model=model)
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}

    async def tokens(given: Any) -> list[str]:
        stream = graph.astream(given, config, stream_mode="messages")
        said = [str(message.text) async for message, _ in stream if isinstance(message, AIMessageChunk)]
        return [token for token in said if token]

    asked = HumanMessage("My name is Ann. How much is six times seven?")
    assert await tokens({"messages": [asked]}) == ["It", " is", " 42."]
    # The memory step needs no model, and the model is told what is known.
    assert (await graph.aget_state(config)).values["facts"] == {"name": ["Ann"]}
    first = model_server.requests[0]  # type: ignore[attr-defined]
    assert '{"name": ["Ann"]}' in first["messages"][0]["content"]
    assert {tool["function"]["name"] for tool in first["tools"]} == {"calculate", "current_time", "send_message"}

    assert await tokens({"messages": [HumanMessage("send it")]}) == []
    assert (await graph.aget_state(config)).interrupts[0].value["question"] == "Send to Bob: hi"
    assert await tokens(Command(resume="yes"))
    assert (await graph.aget_state(config)).values["outbox"] == [{"recipient": "Bob", "text": "hi"}]


@pytest.mark.parametrize("name", ["", "tiny", "nobody:tiny"])
def test_a_name_that_leads_to_no_model_gets_the_next_step(name: str) -> None:
    with pytest.raises(ConfigError, match="use provider:name"):
        load_model(name)


def test_a_missing_key_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        load_model("openai:tiny")
