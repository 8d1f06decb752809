"""The same events over server-sent events: POST /threads/{id}/stream/events, the SDKs' default transport.

One request is one subscription, with the parameters of `subscription.subscribe` as its body. It is served by the same
`Connection` as a websocket: this response only plays a websocket whose client has sent one command and then listens.
Replies are left out (the SDKs expect events), an error without an id is passed on, and a connection that the gateway
gives up is broken off without an end, which the SDKs take for a reason to come back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rtmem.gateway.connection import Connection, Message
from rtmem.gateway.connection import Receive as ConnectionReceive
from rtmem.gateway.connection import Send as ConnectionSend

ConnectionFactory = Callable[[ConnectionReceive, ConnectionSend], Connection]

_REPLY: Final = '{"type":"success"'
_HEADERS: Final = {
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # a proxy that collects events would undo them
}


class EventStream(Response):
    """A response that lasts as long as its client listens."""

    def __init__(self, connect: ConnectionFactory, subscribe: str) -> None:
        super().__init__(headers=_HEADERS, media_type="text/event-stream")
        # A stream has no length; Starlette has counted the body it was not given.
        del self.headers["content-length"]
        self._connect = connect
        self._subscribe: str | None = subscribe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

        async def receive_frame() -> Message:
            if self._subscribe is not None:
                frame, self._subscribe = self._subscribe, None
                return {"type": "websocket.receive", "text": frame}
            while (await receive())["type"] != "http.disconnect":
                continue  # the rest of a body that has been read
            return {"type": "websocket.disconnect"}

        async def send_frame(message: Any) -> None:
            if message["type"] == "websocket.send" and not message["text"].startswith(_REPLY):
                await send({"type": "http.response.body", "body": _event(message["text"]), "more_body": True})

        await self._connect(receive_frame, send_frame).serve()


def _event(frame: str) -> bytes:
    # JSON has no line break outside its escapes, so one data line holds it.
    return b"event: message\ndata: " + frame.encode() + b"\n\n"
