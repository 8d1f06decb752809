"""A real model behind the demo graph, over a real socket: a small server that speaks OpenAI's chat completions."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from rtmem.agent import demo
from rtmem.agent.models import load_model
from rtmem.errors import ConfigError


class ChatCompletions(BaseHTTPRequestHandler):
    """Streams a tool call for the first request of a turn, and words once the tool has answered."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append(asked)  # type: ignore[attr-defined]
        last = asked["messages"][-1]
        deltas: list[dict[str, Any]]
        if last["role"] == "tool":
            deltas = [{"content": word} for word in ("It", " is", f" {last['content']}.")]
        elif "send" in last["content"]:
            deltas = _call("send_message", {"recipient": "Bob", "text": "hi"})
        else:
            deltas = _call("calculate", {"expression": "6 * 7"})
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        finish = "tool_calls" if "tool_calls" in deltas[0] else "stop"
        for delta in deltas:
            self._send(delta, None)
        self._send({}, finish)
        self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, delta: dict[str, Any], finish: str | None) -> None:
        choice = {"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": finish}
        chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "tiny", "choices": [choice]}
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the test's output is not an access log."""


def _call(name: str, arguments: dict[str, str]) -> list[dict[str, Any]]:
    text = json.dumps(arguments)
    head = {"index": 0, "id": f"call-{name}", "type": "function", "function": {"name": name, "arguments": text[:5]}}
    return [{"tool_calls": [head]}, {"tool_calls": [{"index": 0, "function": {"arguments": text[5:]}}]}]


@pytest.fixture
def model_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
    server = ThreadingHTTPServer(("127.0.0.1", 0), ChatCompletions)
    server.requests = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


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
