"""Listening, and an orderly end."""

from __future__ import annotations

import signal
import socket
from typing import Any

import anyio
import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from rtmem.errors import ConfigError, PortTakenError
from rtmem.gateway.outbox import Outbox
from rtmem.gateway.server import listen
from rtmem.settings import Gateway
from tests.gateway.conftest import ServeGateway
from tests.gateway.process import GatewayProcess
from tests.gateway.raw import raw_client, text_in
from tests.gateway.test_resume import gateway_process, receive_tokens, words
from tests.gateway.waiting import PATIENCE_S

__all__ = ["gateway_process"]

pytestmark = pytest.mark.anyio


def test_a_taken_port_is_a_typed_error_with_the_port() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"127.0.0.1:{port}.*RTMEM_GATEWAY__PORT") as taken:
            listen(Gateway(port=port))
        assert taken.value.data["port"] == port


def test_a_host_that_is_not_ours_is_a_config_error() -> None:
    with pytest.raises(ConfigError):
        listen(Gateway(host="no such host", port=0))
    with pytest.raises(ConfigError, match="choose one of 0 to 65535"):
        listen(Gateway(port=99_999))


def test_an_address_of_another_machine_is_not_called_taken() -> None:
    with pytest.raises(ConfigError, match=r"203\.0\.113\.5:0: no network interface .*--host") as refused:
        listen(Gateway(host="203.0.113.5", port=0))
    assert not isinstance(refused.value, PortTakenError)


def test_accepted_sockets_hold_little_for_a_client_that_does_not_read() -> None:
    with listen(Gateway(port=0, send_buffer_bytes=32_768)) as listener, socket.socket() as client:
        client.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 2 * 32_768


async def test_sigterm_lets_a_run_end_then_closes_with_1012(gateway_process: GatewayProcess) -> None:
    async with raw_client(gateway_process.ws_url) as client:
        await client.subscribe()
        await client.start("slow", "hello 30")
        await receive_tokens(client, 2)
        gateway_process.signal(signal.SIGTERM)
        assert (await client.until_end())["event"] == "completed"
        assert text_in(client.events) == words(30)
        with pytest.raises(ConnectionClosed) as closed:
            await client.receive_for_ever()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
        assert await anyio.to_thread.run_sync(gateway_process.terminate) in (0, -signal.SIGTERM)


async def test_sigterm_refuses_new_runs_and_a_second_one_stops_what_takes_too_long(
    gateway_process: GatewayProcess,
) -> None:
    async with raw_client(gateway_process.ws_url) as client, raw_client(gateway_process.ws_url, "other") as other:
        await client.subscribe()
        await client.start("held", "hello 30")
        await receive_tokens(client, 2)
        gateway_process.signal(signal.SIGTERM)
        refused: dict[str, Any] = {}
        while refused.get("meta", {}).get("error_type") != "DrainingError":  # until the signal has arrived
            refused = await other.ask("run.start", assistant_id="chat")
        assert refused["meta"]["retryable"] is True
        gateway_process.signal(signal.SIGTERM)
        end = await client.until_end()
        assert end["event"] == "failed"
        assert "shutting down" in end["error"]
        assert end["resumable"] is True
    await anyio.to_thread.run_sync(gateway_process.terminate)
    await anyio.to_thread.run_sync(gateway_process.start)
    async with raw_client(gateway_process.ws_url) as client:
        await client.subscribe()
        await client.ask("run.start", assistant_id="chat", input=None)
        assert (await client.until_end())["event"] == "completed"
        assert len((await client.ask("state.get"))["result"]["values"]["messages"]) == 2


async def test_what_takes_longer_than_the_drain_is_stopped_and_told(serve_gateway: ServeGateway) -> None:
    async with serve_gateway(drain_timeout_ms=100) as served, raw_client(served.ws_url) as client:
        await client.subscribe()
        await client.start("held", "hello 30")
        served.stop.set()
        end = await client.until_end()
        assert end["event"] == "failed"
        assert "shutting down" in end["error"]


async def test_a_client_hears_how_its_run_ended_before_its_connection_does(
    serve_gateway: ServeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Outbox.get

    async def take_slowly(outbox: Outbox) -> bytes:
        frame = await take(outbox)
        await anyio.sleep(0.05)  # a writer whose turn comes late, as on a busy machine
        return frame

    monkeypatch.setattr(Outbox, "get", take_slowly)
    async with serve_gateway(drain_timeout_ms=1, close_timeout_ms=60_000) as served:
        async with raw_client(served.ws_url) as client:
            await client.subscribe()
            await client.start("held", "hello 30")
            served.stop.set()
            assert (await client.until_end())["event"] == "failed"


async def test_no_connection_is_accepted_after_sigterm(gateway_process: GatewayProcess) -> None:
    async with raw_client(gateway_process.ws_url) as client:
        await client.subscribe()
        await client.start("slow", "hello 60")
        await receive_tokens(client, 2)
        gateway_process.signal(signal.SIGTERM)

        async def connect_for_ever() -> None:
            async with httpx.AsyncClient() as http:
                while True:
                    await http.get(gateway_process.url + "/ok", headers={"connection": "close"})

        with anyio.fail_after(PATIENCE_S), pytest.raises(httpx.TransportError):
            await connect_for_ever()
        assert (await client.until_end())["event"] == "completed"
