"""A small server that speaks OpenAI's chat completions, streaming, over a real socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


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


@contextmanager
def running() -> Iterator[ThreadingHTTPServer]:
    """The server at work; `server.requests` holds the bodies that it was sent."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), ChatCompletions)
    server.requests = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
