"""Clients that stall, flood or trickle cost little, and then only their own connection."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
from typing import Any

import anyio
import pytest
from websockets.exceptions import ConnectionClosed

from tests.gateway.conftest import Served, ServeGateway
from tests.gateway.graphs import chat
from tests.gateway.raw import RawClient, raw_client, text_in
from tests.gateway.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.anyio


def connected(served: Served, receive_buffer_bytes: int | None = None) -> socket.socket:
    connection = socket.socket()
    if receive_buffer_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    host, port = served.url.removeprefix("http://").split(":")
    connection.settimeout(PATIENCE_S)
    connection.connect((host, int(port)))
    return connection


async def opened(served: Served, *, receive_buffer_bytes: int | None = None) -> socket.socket:
    """A bare socket that has shaken hands as a websocket client."""

    def shake() -> socket.socket:
        connection = connected(served, receive_buffer_bytes)
        connection.sendall(
            b"GET /threads/t/stream/events HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            b"Authorization: Bearer token-of-alice\r\n\r\n"
        )
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(1)
        assert answer.startswith(b"HTTP/1.1 101"), answer
        return connection

    return await anyio.to_thread.run_sync(shake)


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True) -> bytes:
    """A masked client frame (the mask is zero: the payload as it is)."""
    head = bytes([(0x80 if fin else 0) | opcode])
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else bytes([0x80 | 126]) + struct.pack("!H", size)
    return head + length + b"\0\0\0\0" + payload


def text(method: str, **params: Any) -> bytes:
    return frame(1, json.dumps({"id": 1, "method": method, "params": params}).encode())


async def sent(connection: socket.socket, data: bytes) -> None:
    await anyio.to_thread.run_sync(connection.sendall, data)


async def closed_with(connection: socket.socket) -> int | None:
    """The code of the close frame that ends what the server sends; None if it ends without one."""

    def drain() -> bytes:
        received = b""
        try:
            while chunk := connection.recv(65_536):
                received = (received + chunk)[-4_096:]
        except ConnectionError:
            pass
        return received

    received = await anyio.to_thread.run_sync(drain)
    connection.close()
    at = received.rfind(b"\x88")
    return None if at < 0 or at + 4 > len(received) else int(struct.unpack("!H", received[at + 2 : at + 4])[0])


def was_reset(connection: socket.socket) -> bool:
    """Has the server ended the connection without waiting for what we have not read?"""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


async def start_talking(served: Served, words: int) -> None:
    async with raw_client(served.ws_url) as starter:
        await starter.start("chat", f"hello {words}")


def connections_of(served: Served) -> int:
    return len(served.gateway.threads.get("alice", "t").listeners)


async def test_a_reader_that_stops_is_closed_and_the_others_read_on(serve_gateway: ServeGateway) -> None:
    options: dict[str, Any] = {"outbox_bytes_max": 50_000, "send_buffer_bytes": 16_384}
    # Long enough for a reader that only has to share a busy machine.
    timeouts = {"close_timeout_ms": 300, "stall_timeout_ms": 1_500}
    async with serve_gateway(graphs={"chat": chat(0.0002)}, **options, **timeouts) as served:
        stalled = await opened(served, receive_buffer_bytes=4_096)
        await sent(stalled, text("subscription.subscribe", channels=["messages", "values"]))
        await eventually(lambda: connections_of(served) == 1)
        async with raw_client(served.ws_url) as reader:
            await reader.subscribe(["messages", "lifecycle"])
            await reader.start("chat", "hello 3000")
            # The connection is gone although its client has not read a byte of its close frame.
            await eventually(lambda: connections_of(served) == 1)
            assert (await reader.until_end())["event"] == "completed"
            assert text_in(reader.events).endswith("word2999")
        # Aborted, not left waiting for a client that may never read: what was buffered for it is freed.
        await eventually(lambda: was_reset(stalled))
        stalled.close()


async def test_a_client_that_breaks_off_while_it_is_written_to_is_no_fault_of_the_gateways(
    serve_gateway: ServeGateway, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve_gateway() as served:
        async with raw_client(served.ws_url) as client:
            await client.subscribe(["lifecycle"])
            await client.start("chat", "x" * 1_000_000)
            await client.until_end()
        breaking = await opened(served, receive_buffer_bytes=4_096)
        subscribe = b'{"id": 1, "method": "subscription.subscribe", "params": {"channels": ["values"], "since": 0}}'
        with breaking:
            breaking.sendall(frame(1, subscribe) + frame(1, b'{"id": 2, "method": "state.get"}') * 4)
            thread = served.gateway.threads.get("alice", "t")
            await eventually(lambda: bool(thread.listeners))
            await anyio.to_thread.run_sync(breaking.recv, 1_000)  # the gateway is writing
            breaking.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await eventually(lambda: not thread.listeners)
        async with raw_client(served.ws_url) as client:
            assert (await client.ask("state.get"))["type"] == "success"
        assert "Exception in ASGI application" not in caplog.text


async def test_an_event_stream_that_nobody_reads_is_reset(serve_gateway: ServeGateway) -> None:
    options: dict[str, Any] = {"outbox_bytes_max": 50_000, "send_buffer_bytes": 8_192}
    timeouts = {"close_timeout_ms": 300, "stall_timeout_ms": 300}
    async with serve_gateway(graphs={"chat": chat(0.0002)}, **options, **timeouts) as served:
        stalled = connected(served, 4_096)
        body = b'{"channels": ["messages", "values"]}'
        await sent(
            stalled,
            b"POST /threads/t/stream/events HTTP/1.1\r\nHost: x\r\nX-Api-Key: token-of-alice\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body),
        )
        await eventually(lambda: connections_of(served) == 1)
        await start_talking(served, 3_000)
        await eventually(lambda: connections_of(served) == 0)
        await eventually(lambda: was_reset(stalled))
        stalled.close()


async def test_a_stalled_reader_that_wakes_is_told_4429_and_resumes(serve_gateway: ServeGateway) -> None:
    options: dict[str, Any] = {"outbox_bytes_max": 50_000, "send_buffer_bytes": 8_192}
    timeouts = {"close_timeout_ms": 60_000, "stall_timeout_ms": 300}
    async with serve_gateway(graphs={"chat": chat(0.0002)}, **options, **timeouts) as served:
        async with raw_client(served.ws_url, max_queue=1) as slow:
            await slow.subscribe(["messages", "lifecycle"])
            await start_talking(served, 3_000)
            await eventually(lambda: connections_of(served) == 0)
            with pytest.raises(ConnectionClosed) as closed:
                await slow.receive_for_ever()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4429
        assert "reconnect with `since`" in closed.value.rcvd.reason
        async with raw_client(served.ws_url) as again:
            await again.subscribe(["messages", "lifecycle"], since=slow.events[-1]["seq"])
            await again.until_end()
        assert text_in(slow.events + again.events) == "You said hello 3000:" + "".join(
            f" word{n}" for n in range(3_000)
        )


async def test_a_slow_reader_gets_everything_from_the_log_in_little_memory(serve_gateway: ServeGateway) -> None:
    options: dict[str, Any] = {"outbox_bytes_max": 50_000, "send_buffer_bytes": 8_192}
    async with serve_gateway(graphs={"chat": chat(0.0002)}, **options) as served:
        async with raw_client(served.ws_url, max_queue=1) as slow:
            await slow.subscribe(["lifecycle"])
            await slow.subscribe(["messages", "lifecycle"])
            (connection,) = served.gateway.threads.get("alice", "t").listeners
            await start_talking(served, 3_000)
            waiting_bytes: list[int] = []
            while not (slow.events and slow.events[-1]["params"]["data"].get("event") == "completed"):
                await slow.receive()
                waiting_bytes.append(connection._outbox.size_bytes)
                await anyio.sleep(0.0005)
        assert text_in(slow.events) == "You said hello 3000:" + "".join(f" word{n}" for n in range(3_000))
        seqs = [event["seq"] for event in slow.events]
        assert seqs == sorted(set(seqs))
        assert max(waiting_bytes) < 50_000 + 16_384


async def test_one_large_state_is_no_slow_reader(serve_gateway: ServeGateway) -> None:
    async with serve_gateway(outbox_bytes_max=20_000) as served, raw_client(served.ws_url) as client:
        await client.subscribe(["values", "lifecycle"], since=0)
        await client.start("slow", "x" * 200_000 + " 3")
        assert (await client.until_end())["event"] == "completed"


async def test_a_flood_of_pings_that_reads_nothing_is_aborted(serve_gateway: ServeGateway) -> None:
    async with serve_gateway(send_buffer_bytes=8_192) as served:
        flooder = await opened(served, receive_buffer_bytes=4_096)
        await sent(flooder, text("subscription.subscribe", channels=["values"]))
        await eventually(lambda: connections_of(served) == 1)
        pings = frame(9, os.urandom(125)) * 1_000

        def flood() -> None:
            try:
                for _ in range(100):
                    flooder.sendall(pings)
            except (ConnectionError, TimeoutError):
                return

        await anyio.to_thread.run_sync(flood)
        await eventually(lambda: connections_of(served) == 0)
        flooder.close()


async def test_a_message_of_endless_empty_fragments_is_closed_with_1009(serve_gateway: ServeGateway) -> None:
    async with serve_gateway(fragments_max=100) as served:
        connection = await opened(served)
        await sent(connection, frame(1, b"{", fin=False) + frame(0, fin=False) * 200)
        assert await closed_with(connection) == 1009


async def test_a_message_in_fragments_is_one_command(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served, raw_client(served.ws_url) as client:
        await client.socket.send(iter(['{"id": 1, "met', 'hod": "state.get"}']))
        assert (await client.receive())["result"] == {"values": {}}


@pytest.mark.parametrize("sent_bytes", [b"", b"GET / HTTP/1.1\r\nX: "], ids=["nothing", "half a header"])
async def test_headers_that_do_not_come_are_not_waited_for(serve_gateway: ServeGateway, sent_bytes: bytes) -> None:
    async with serve_gateway(header_timeout_ms=200) as served:
        host, port = served.url.removeprefix("http://").split(":")
        async with await anyio.connect_tcp(host, int(port)) as stream:
            if sent_bytes:
                await stream.send(sent_bytes)
            with anyio.fail_after(PATIENCE_S), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await stream.receive()


async def test_headers_that_do_not_end_are_cut_off(serve_gateway: ServeGateway) -> None:
    async with serve_gateway(header_bytes_max=10_000) as served:
        host, port = served.url.removeprefix("http://").split(":")
        async with await anyio.connect_tcp(host, int(port)) as stream:

            async def send_headers() -> None:
                await stream.send(b"GET / HTTP/1.1\r\n")
                for number in range(10_000):
                    await stream.send(b"X-%d: %s\r\n" % (number, b"x" * 100))
                await stream.receive()

            with anyio.fail_after(PATIENCE_S), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await send_headers()


async def test_a_kept_alive_connection_serves_many_requests(serve_gateway: ServeGateway) -> None:
    async with serve_gateway(header_timeout_ms=1_500) as served:
        host, port = served.url.removeprefix("http://").split(":")
        async with await anyio.connect_tcp(host, int(port)) as stream:
            for pause_s in (1.7, 0):  # longer than headers may take: between requests nobody waits for any
                await stream.send(b"GET /ok HTTP/1.1\r\nHost: x\r\n\r\n")
                with anyio.fail_after(PATIENCE_S):
                    answer = await stream.receive()
                    while b'{"ok":true}' not in answer:
                        answer += await stream.receive()
                await anyio.sleep(pause_s)


async def test_compression_is_not_negotiated(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served, raw_client(served.ws_url, compression="deflate") as client:
        assert client.socket.response is not None
        assert "Sec-WebSocket-Extensions" not in client.socket.response.headers


async def test_a_silent_peer_is_closed_after_an_unanswered_ping(serve_gateway: ServeGateway) -> None:
    async with serve_gateway(ping_interval_ms=100) as served:
        connection = await opened(served)
        await sent(connection, text("subscription.subscribe", channels=["values"]))
        await anyio.to_thread.run_sync(connection.recv, 1_000)  # it was there
        await eventually(lambda: connections_of(served) == 0)
        connection.close()


async def test_a_client_that_answers_pings_stays(serve_gateway: ServeGateway) -> None:
    async with serve_gateway(ping_interval_ms=1_000) as served, raw_client(served.ws_url) as client:
        await client.subscribe()
        await anyio.sleep(2.2)  # who does not answer the ping after one second is closed after two
        await started(client)


async def started(client: RawClient) -> None:
    await client.start("chat", "hello")
    assert (await client.until_end())["event"] == "completed"
