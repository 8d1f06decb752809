"""A small server that speaks OpenAI's embeddings, over a real socket, and fails when it is told to."""

from __future__ import annotations

import base64
import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DIMS = 3


def vector(text: str) -> list[float]:
    """What the server's model thinks of a text: its length, and how many a and b it has."""
    return [float(len(text)), float(text.count("a")), float(text.count("b"))]


@dataclass
class Script:
    """What was asked, and what is answered: None serves; or a status with headers and a body, "hang" or "drop"."""

    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    next: list[Any] = field(default_factory=list)
    always: Any = None
    as_numbers: bool = False  # as servers answer that know no base64
    reverse: bool = False
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    release: threading.Event = field(default_factory=threading.Event)
    url: str = ""


class Embeddings(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        script: Script = self.server.script  # type: ignore[attr-defined]
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        script.bodies.append({"path": self.path, **body})
        script.headers.append({name.lower(): value for name, value in self.headers.items()})
        script.begun.release()
        what = script.next.pop(0) if script.next else script.always
        if what == "hang":
            script.release.wait(60)
        if what in ("hang", "drop"):
            self.close_connection = True
            return
        status, headers, said = what or (200, {}, self._served(script, body["input"]))
        content = said if isinstance(said, bytes) else json.dumps(said).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _served(self, script: Script, texts: list[str]) -> dict[str, Any]:
        data = [
            {"object": "embedding", "index": at, "embedding": self._written(script, vector(text))}
            for at, text in enumerate(texts)
        ]
        if script.reverse:
            data.reverse()
        return {"object": "list", "data": data, "model": "tiny", "usage": {"prompt_tokens": 1, "total_tokens": 1}}

    def _written(self, script: Script, numbers: list[float]) -> Any:
        if script.as_numbers:
            return numbers
        return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the test's output is not an access log."""


@contextmanager
def serving() -> Iterator[Script]:
    """The server at work, by its script."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Embeddings)
    script = server.script = Script(url=f"http://127.0.0.1:{server.server_port}/v1")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield script
    finally:
        script.release.set()
        server.shutdown()
        server.server_close()
        thread.join()
