"""A client of our own: plain frames, so that a test sees exactly what is on the wire."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import anyio
from websockets.asyncio.client import ClientConnection, connect

from tests.gateway.waiting import PATIENCE_S

ALL_CHANNELS = ["values", "updates", "messages", "tools", "lifecycle", "input", "checkpoints", "tasks", "custom"]
ENDS = ("completed", "failed", "interrupted")


class RawClient:
    """One websocket; commands are numbered from 1."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[dict[str, Any]] = []
        self.replies: dict[int | None, dict[str, Any]] = {}
        self._commands = 0

    async def receive(self) -> dict[str, Any]:
        """The next frame, filed under events or replies."""
        with anyio.fail_after(PATIENCE_S):
            frame: dict[str, Any] = json.loads(await self.socket.recv())
        if frame["type"] == "event":
            self.events.append(frame)
        else:
            self.replies[frame["id"]] = frame
        return frame

    async def receive_for_ever(self) -> None:
        """Until the connection ends, which raises ConnectionClosed."""
        while True:
            await self.receive()

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its reply; events that come before it are kept."""
        self._commands += 1
        await self.socket.send(json.dumps({"id": self._commands, "method": method, "params": params}))
        while self._commands not in self.replies:
            await self.receive()
        return self.replies[self._commands]

    async def subscribe(self, channels: list[str] | None = None, **params: Any) -> str:
        reply = await self.ask("subscription.subscribe", channels=channels or ALL_CHANNELS, **params)
        return str(reply["result"]["subscription_id"])

    async def start(self, assistant_id: str, text: str) -> dict[str, Any]:
        return await self.ask(
            "run.start", assistant_id=assistant_id, input={"messages": [{"role": "user", "content": text}]}
        )

    async def until_end(self) -> dict[str, Any]:
        """Receive until the root says how its run ended; that lifecycle data."""
        while (end := ending(self.events)) is None:
            await self.receive()
        return end

    def forget(self) -> None:
        self.events.clear()


def ending(events: list[dict[str, Any]]) -> dict[str, Any] | None:
    for event in events:
        if event["method"] == "lifecycle" and not event["params"]["namespace"]:
            data: dict[str, Any] = event["params"]["data"]
            if data["event"] in ENDS:
                return data
    return None


def text_in(events: list[dict[str, Any]]) -> str:
    """What the deltas among `events` say."""
    parts = []
    for event in events:
        data = event["params"]["data"]
        if event["method"] == "messages" and data["event"] == "content-block-delta":
            parts.append(data["delta"]["text"])
    return "".join(parts)


def seqs_of(events: list[dict[str, Any]]) -> list[int]:
    return [event["seq"] for event in events]


@asynccontextmanager
async def raw_client(
    ws_url: str,
    thread_id: str = "t",
    *,
    token: str | None = "token-of-alice",
    query: str = "",
    cookie: str | None = None,
    **options: Any,
) -> AsyncIterator[RawClient]:
    headers = {"authorization": f"Bearer {token}"} if token is not None else {}
    if cookie is not None:
        headers["cookie"] = cookie
    url = f"{ws_url}/threads/{quote(thread_id, safe='')}/stream/events{query}"
    options = {"max_size": None, "open_timeout": PATIENCE_S, "close_timeout": 0.5, **options}
    async with connect(url, additional_headers=headers, **options) as socket:
        yield RawClient(socket)
