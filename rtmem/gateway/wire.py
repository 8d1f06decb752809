"""uvicorn's two protocol classes, closed where a hostile or stalled client could hold them open.

What each override is for was seen to happen with uvicorn 0.54 (tests/gateway/test_wire.py keeps seeing it):

- A client that stops reading: `send` waits, and a close waits behind it for ever. Here a close does not wait, and a
  connection that has not ended `close_timeout_ms` after it is aborted.
- A client that pings and does not read: pongs pile up without end (166 MB seen). Here it is aborted.
- A message of endless empty fragments: here it is closed with 1009.
- A request whose headers never end: here it has `header_timeout_ms` and `header_bytes_max`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from rtmem.settings import Gateway


def protocol_classes(settings: Gateway) -> tuple[type[asyncio.Protocol], type[asyncio.Protocol]]:
    """(http, ws) classes for uvicorn's Config with these limits."""
    http = type("HttpProtocol", (_HttpProtocol,), {"settings": settings})
    ws = type("WebSocketProtocol", (_WebSocketProtocol,), {"settings": settings})
    return http, ws


def reset(transport: asyncio.Transport) -> None:
    """End a connection now, with what is buffered for it here and in the kernel.

    A socket that is closed with data to send lives on in the kernel until its peer reads or a long timeout ends it;
    without a linger time it is reset.
    """
    # An OSError: it has just ended by itself.
    if (connection := transport.get_extra_info("socket")) is not None:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class _WebSocketProtocol(WebSocketsSansIOProtocol):
    settings: Gateway

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(high=self.settings.send_buffer_bytes)
        self._fail = self.conn.fail
        self.conn.fail = self._tell_way_out  # type: ignore[method-assign]

    def _tell_way_out(self, code: int, reason: str = "") -> None:
        """websockets says how large a frame was; its sender needs to know where to send it instead."""
        if code == CloseCode.MESSAGE_TOO_BIG and not reason.startswith("more than"):
            reason = f"over {self.settings.frame_bytes_max} bytes: POST the value to /pointers, send its pointer's id"
        self._fail(code, reason)

    async def send(self, message: Any) -> None:
        if message["type"] != "websocket.close":
            await super().send(message)
            return
        # uvicorn would first wait until the client has read what is buffered.
        self.writable.set()
        await super().send(message)
        self._abort_soon()

    def shutdown(self) -> None:
        super().shutdown()
        self._abort_soon()

    def _abort_soon(self) -> None:
        """uvicorn's own timer closes the transport, which waits for its buffer to be read. An abort does not."""
        if self.close_timer is not None:
            self.close_timer.cancel()
        self.close_timer = self.loop.call_later(self.settings.close_timeout_ms / 1_000, reset, self.transport)

    def handle_ping(self) -> None:
        super().handle_ping()
        if self.transport.get_write_buffer_size() > 2 * self.settings.send_buffer_bytes + 64 * 1024:
            reset(self.transport)

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= self.settings.fragments_max:
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, f"more than {self.settings.fragments_max} fragments")
            self.handle_parser_exception()
            return
        super().handle_cont(event)


class _HttpProtocol(HttpToolsProtocol):
    settings: Gateway
    _header_bytes = 0
    _header_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None
    _in_headers = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        self._header_bytes += len(data)
        super().data_received(data)
        if self._in_headers and self._header_bytes > self.settings.header_bytes_max:
            reset(self.transport)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_headers()

    def on_headers_complete(self) -> None:
        self._stop_expecting()
        super().on_headers_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        # A response that nobody reads, such as an event stream: uvicorn would close it, which waits for the reader.
        wait_ms = self.settings.stall_timeout_ms + self.settings.close_timeout_ms
        self._stall_timer = self.loop.call_later(wait_ms / 1_000, reset, self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall_timer()

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def shutdown(self) -> None:
        super().shutdown()
        # Every run has ended by now; what is still open is an event stream whose client will come back.
        self.loop.call_later(self.settings.close_timeout_ms / 1_000, reset, self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_expecting()
        self._stop_stall_timer()
        super().connection_lost(exc)

    def _expect_headers(self) -> None:
        self._stop_expecting()
        self._in_headers = True
        self._header_bytes = 0
        self._header_timer = self.loop.call_later(self.settings.header_timeout_ms / 1_000, reset, self.transport)

    def _stop_expecting(self) -> None:
        self._in_headers = False
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
