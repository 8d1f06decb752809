"""Events over server-sent events: the same ones, and the same refusals. (The SDK's use of them: test_python_sdk.)"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest

from rtmem.settings import Redis
from tests.conftest import ServerFactory
from tests.gateway.conftest import Served, ServeGateway
from tests.gateway.process import GatewayProcess
from tests.gateway.raw import ALL_CHANNELS, ending, raw_client
from tests.gateway.test_resume import gateway_process, receive_tokens
from tests.gateway.waiting import PATIENCE_S, eventually

__all__ = ["gateway_process"]

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def streamed(url: str, **params: Any) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Frames of one subscription."""
    headers = {"authorization": "Bearer token-of-alice"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S) as client:
        async with client.stream("POST", "/threads/t/stream/events", json=params) as response:
            assert response.status_code == 200
            assert response.headers["content-type"].startswith("text/event-stream")

            async def frames() -> AsyncIterator[dict[str, Any]]:
                async for line in response.aiter_lines():
                    if line.startswith("data: "):
                        yield json.loads(line.removeprefix("data: "))

            yield frames()


async def until_end(frames: AsyncIterator[dict[str, Any]]) -> list[dict[str, Any]]:
    events = []
    async for frame in frames:
        events.append(frame)
        if ending([frame]) is not None:
            break
    return events


async def test_the_events_are_those_of_a_websocket(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served, raw_client(served.ws_url) as client:
        await client.subscribe()
        await client.start("slow", "hello 5")
        await client.until_end()
        async with streamed(served.url, channels=ALL_CHANNELS, since=0) as frames:
            assert await until_end(frames) == client.events
        async with streamed(served.url, channels=ALL_CHANNELS, since=client.events[4]["seq"]) as frames:
            assert await until_end(frames) == client.events[5:]


async def refused(served: Served, body: bytes, token: str = "token-of-alice") -> int:
    async with httpx.AsyncClient(base_url=served.url, headers={"x-api-key": token}) as client:
        return (await client.post("/threads/t/stream/events", content=body)).status_code


async def test_what_is_no_subscription_is_refused_with_a_status(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served:
        assert await refused(served, b"{") == 400
        assert await refused(served, b"{}") == 400
        assert await refused(served, b'{"channels": ["no"]}') == 400
        assert await refused(served, b'{"channels": []}', token="wrong") == 401


async def test_a_client_that_leaves_is_forgotten(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served:
        thread = served.gateway.threads.get("alice", "t")
        async with streamed(served.url, channels=["values"]):
            await eventually(lambda: thread.listeners)
        await eventually(lambda: not thread.listeners)


async def test_a_stream_that_cannot_be_read_says_so_and_breaks_off(
    serve_gateway: ServeGateway, redis_server: ServerFactory
) -> None:
    server = redis_server(modules=False)
    quick = Redis(deadline_ms=30_000, connect_timeout_ms=30_000, retries_max=1)
    async with serve_gateway(url=server.url, redis_settings=quick) as served:
        os.kill(server.pid, signal.SIGKILL)
        received: list[dict[str, Any]] = []

        async def read() -> None:
            async with streamed(served.url, channels=["values"]) as frames:
                async for frame in frames:
                    received.append(frame)

        with pytest.raises(httpx.RemoteProtocolError):
            await read()
    assert [frame["id"] for frame in received] == [1, None]
    assert received[-1]["meta"]["retryable"] is True


async def test_sigterm_breaks_streams_off_after_the_runs_have_ended(gateway_process: GatewayProcess) -> None:
    events: list[dict[str, Any]] = []
    listening = anyio.Event()

    async def read() -> None:
        async with streamed(gateway_process.url, channels=["lifecycle"]) as frames:
            listening.set()
            async for frame in frames:
                events.append(frame)

    async with raw_client(gateway_process.ws_url) as client:
        await client.subscribe()
        async with anyio.create_task_group() as tasks:

            async def start() -> None:
                await listening.wait()
                await client.start("slow", "hello 20")
                await receive_tokens(client, 2)
                gateway_process.signal(signal.SIGTERM)

            tasks.start_soon(start)
            with pytest.raises(httpx.TransportError):
                await read()
    end = ending(events)
    assert end is not None
    assert end["event"] == "completed"
    assert await anyio.to_thread.run_sync(gateway_process.terminate) in (0, -signal.SIGTERM)
