"""A server that speaks OpenAI's chat completions and completions, streaming or not, over a real socket."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
WAIT_S = 60


class ChatServer(ThreadingHTTPServer):
    """Answers, and remembers what it was asked."""

    daemon_threads = False  # joined at the end: no thread outlives its test

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Completions)
        self.requests: list[dict[str, Any]] = []
        self.gate = threading.Event()  # "hold" waits for it, between two words
        self.fail_next = 0  # so many requests get status 500
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Completions(BaseHTTPRequestHandler):
    server: ChatServer

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            self.server.requests.append(asked)
            number = len(self.server.requests)
            failing = self.server.fail_next > 0
            self.server.fail_next -= failing
        if failing:
            self._reply(500, {"error": {"message": "no", "type": "server_error"}})
        elif "prompt" in asked:
            choices = [{"index": 0, "text": f"Text {number}.", "finish_reason": "stop", "logprobs": None}]
            self._reply(200, {"id": "t1", "object": "text_completion", "created": 1, "model": "tiny"}, choices)
        else:
            text = str(asked["messages"][-1]["content"])
            calls, said, finish = _answer(number, text, asked)
            if asked.get("stream"):
                self._stream(calls, said, finish, text)
            else:
                self._whole(asked.get("n") or 1, calls, said, finish)

    def _whole(self, count: int, calls: list[dict[str, Any]], said: str, finish: str) -> None:
        choices = [
            {
                "index": at,
                "message": {"role": "assistant", "content": said or None, **({"tool_calls": calls} if calls else {})},
                "finish_reason": finish,
                "logprobs": None,
            }
            for at in range(count)
        ]
        self._reply(200, {"id": "c1", "object": "chat.completion", "created": 1, "model": "tiny"}, choices)

    def _reply(self, status: int, body: dict[str, Any], choices: list[dict[str, Any]] | None = None) -> None:
        data = json.dumps(body if choices is None else {**body, "choices": choices, "usage": USAGE}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, calls: list[dict[str, Any]], said: str, finish: str, text: str) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        deltas: list[dict[str, Any]] = [{"tool_calls": [{"index": 0, **call}]} for call in calls]
        deltas += [{"content": word} for word in re.findall(r"\s*\S+", said)]
        for at, delta in enumerate(deltas):
            if at == 1 and "hold" in text:
                self.server.gate.wait(WAIT_S)
            if at == 1 and "break" in text:
                self._send([], error={"message": "it broke", "type": "server_error"})
                return
            if at == 1 and "vanish" in text:
                return
            self._send([{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}])
        self._send([{"index": 0, "delta": {}, "finish_reason": finish}])
        self._send([], usage=USAGE)
        self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, choices: list[dict[str, Any]], **more: Any) -> None:
        chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "tiny", "choices": choices}
        try:
            self.wfile.write(b"data: " + json.dumps({**chunk, **more}).encode() + b"\n\n")
            self.wfile.flush()
        except ConnectionError:
            pass  # whoever asked has gone

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the test's output is not an access log."""


def _answer(number: int, text: str, asked: dict[str, Any]) -> tuple[list[dict[str, Any]], str, str]:
    """Calls of tools, words, and why it ends."""
    if asked.get("tools") and "tool" in text:
        function = {"name": asked["tools"][0]["function"]["name"], "arguments": json.dumps({"x": number})}
        return [{"id": f"call-{number}", "type": "function", "function": function}], "", "tool_calls"
    if "refuse" in text:
        return [], "I'm sorry, but I can't help with that.", "stop"
    if "format" in asked.get("response_format", {}).get("type", "") or "json" in str(asked.get("response_format", "")):
        return [], json.dumps({"x": number}), "stop"
    return [], f"Answer {number} to: {text[-200:]}", "length" if "cut" in text else "stop"


@contextmanager
def running() -> Iterator[ChatServer]:
    """The server at work."""
    server = ChatServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()
