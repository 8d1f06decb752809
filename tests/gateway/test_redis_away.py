"""Redis goes away in the middle of things: clients are told, the process lives, and goes on when Redis is back."""

from __future__ import annotations

import os
import signal
from typing import Any

import anyio
import pytest
import redis
from starlette.websockets import WebSocketDisconnect
from websockets.exceptions import ConnectionClosed

from rtmem.settings import Redis
from tests.conftest import ServerFactory
from tests.gateway.conftest import ServeGateway
from tests.gateway.raw import raw_client, text_in
from tests.gateway.test_resume import receive_tokens
from tests.gateway.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio

# A Redis that is gone refuses connections at once; the deadline is for a machine that is slow.
QUICK = Redis(deadline_ms=30_000, connect_timeout_ms=30_000, retries_max=1)


async def test_a_run_fails_typed_and_the_thread_goes_on_when_redis_is_back(
    serve_gateway: ServeGateway, redis_server: ServerFactory
) -> None:
    server = redis_server(profile="durable", modules=False)
    async with serve_gateway(url=server.url, redis_settings=QUICK) as served:
        async with raw_client(served.ws_url) as client:
            await client.subscribe()
            await client.start("chat", "first")
            await client.until_end()
            client.forget()
            await client.start("slow", "hello 1000")
            await receive_tokens(client, 5)
            os.kill(server.pid, signal.SIGKILL)
            end = await client.until_end()
            assert end["event"] == "failed"
            assert "ServerUnavailableError" in end["error"] or "DeadlineExceededError" in end["error"]
            assert end["resumable"] is True
            refused = await client.ask("run.start", assistant_id="chat", input=None)
            assert refused["type"] == "error"
            assert refused["meta"]["retryable"] is True
            async with raw_client(served.ws_url) as other:
                # A stream that cannot be read says so without being asked, and closes for a retry.
                await other.socket.send(
                    '{"id": 1, "method": "subscription.subscribe", "params": {"channels": ["values"]}}'
                )
                with pytest.raises(ConnectionClosed) as closed:
                    await other.receive_for_ever()
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == 1013
                assert other.replies[None]["meta"]["retryable"] is True
            seen = client.events

            await anyio.to_thread.run_sync(
                lambda: redis_server(data_dir=server.data_dir, profile="durable", modules=False)
            )
            async with raw_client(served.ws_url) as again:
                # The end that Redis could not take was kept and is in the log now, as it was told.
                await again.subscribe(since=seen[3]["seq"])
                await again.until_end()
                assert again.events == seen[4:]
            client.forget()
            await client.ask("run.start", assistant_id="chat", input=None)
            assert (await client.until_end())["event"] == "completed"
            messages = (await client.ask("state.get"))["result"]["values"]["messages"]
            assert [message["type"] for message in messages] == ["human", "ai", "human", "ai"]
            assert text_in(client.events).startswith("You said hello 1000")


async def test_a_full_redis_fails_a_run_that_can_be_resumed_when_there_is_room(
    serve_gateway: ServeGateway, redis_server: ServerFactory
) -> None:
    server = redis_server(modules=False)
    async with serve_gateway(url=server.url) as served, raw_client(served.ws_url) as client:
        await client.subscribe()
        await client.start("slow", "hello 1000")
        await receive_tokens(client, 5)
        with redis.Redis.from_url(server.url) as admin:
            admin.config_set("maxmemory", 1)
            end = await client.until_end()
            assert end["event"] == "failed"
            assert "ServerFullError" in end["error"]
            assert "raise maxmemory" in end["error"]
            assert end["resumable"] is True
            refused = await client.ask("run.start", assistant_id="chat", input=None)
            assert refused["type"] == "error"
            assert refused["meta"]["error_type"] == "ServerFullError"
            read = (await client.ask("state.get"))["result"]["values"]["messages"]
            assert [message["type"] for message in read] == ["human"]
            admin.config_set("maxmemory", 0)
        client.forget()
        await client.ask("run.start", assistant_id="chat", input=None)
        # The end that Redis could not take comes first, and is in the log before the new run.
        assert (await client.until_end())["event"] == "completed"
        messages = (await client.ask("state.get"))["result"]["values"]["messages"]
        assert [message["type"] for message in messages] == ["human", "ai"]


async def test_a_client_that_has_gone_gets_no_close_frame(
    serve_gateway: ServeGateway, redis_server: ServerFactory
) -> None:
    server = redis_server(modules=False)
    async with serve_gateway(url=server.url, redis_settings=QUICK) as served:
        os.kill(server.pid, signal.SIGKILL)
        subscribe = '{"id": 1, "method": "subscription.subscribe", "params": {"channels": ["values"]}}'
        frames = [{"type": "websocket.receive", "text": subscribe}, {"type": "websocket.disconnect", "code": 1006}]
        tried: list[str] = []
        sent = anyio.Event()

        async def receive() -> dict[str, Any]:
            if len(frames) == 1:
                await sent.wait()
            return frames.pop(0)

        async def send(message: dict[str, Any]) -> None:
            tried.append(message["type"])
            sent.set()
            raise WebSocketDisconnect(1006)

        gateway = served.gateway
        await gateway.connect(gateway.threads.get("alice", "t"), receive, send).serve()
        assert "websocket.close" not in tried


async def test_ok_is_answered_without_redis(serve_gateway: ServeGateway, redis_server: ServerFactory) -> None:
    import httpx

    server = redis_server(modules=False)
    async with serve_gateway(url=server.url, redis_settings=QUICK) as served:
        os.kill(server.pid, signal.SIGKILL)
        async with httpx.AsyncClient(base_url=served.url, headers=served.auth, timeout=PATIENCE_S) as http:
            assert (await http.get("/ok")).status_code == 200
            response = await http.get("/threads/t/state")
            assert response.status_code == 503
            assert response.json()["meta"]["retryable"] is True
