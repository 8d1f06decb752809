"""The HTTP side: commands, state, and the few other paths that the unmodified SDKs ask for.

A command that was understood but cannot be done is answered with status 200 and the protocol's error envelope: the
SDKs show its message to their caller, while of a 4xx they show the status only. Status codes are for what happens
before a command is understood: 400 not a command, 401 token, 413 too large, 422 id too long. A state that is asked for
by GET and that its own graph refuses is 409. A pointer that is not there, or is not one's own, is 404, one that has
expired 410, and one for which a principal has no room 507. What is not served at all is 404, or 405 where only the
method is not.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rtmem import __version__
from rtmem.errors import (
    GraphNotFoundError,
    IdTooLongError,
    InvalidRequestError,
    PointerExpiredError,
    PointerNotFoundError,
    QuotaExceededError,
    RtmemError,
    RunInProgressError,
    ServerError,
    StateUnreadableError,
    TooLargeError,
    UnauthorizedError,
    UnsupportedError,
)
from rtmem.gateway import protocol
from rtmem.gateway.pointers import PointerHttp, check_offload_bytes_min, whole, without_large_values
from rtmem.gateway.protocol import InputRespondParams, PrefetchParams, RunStartParams, StateGetParams
from rtmem.gateway.sse import EventStream
from rtmem.gateway.state import body_of
from rtmem.gateway.threads import LiveThread
from rtmem.keys import check_id

if TYPE_CHECKING:
    from rtmem.gateway.app import Gateway

Endpoint = Callable[[Request], Awaitable[Response]]


_STATUS: Final[tuple[tuple[type[RtmemError], int], ...]] = (
    (UnauthorizedError, 401),
    (GraphNotFoundError, 404),
    (PointerExpiredError, 410),
    (PointerNotFoundError, 404),
    (QuotaExceededError, 507),
    (RunInProgressError, 409),
    (StateUnreadableError, 409),
    (IdTooLongError, 422),
    (TooLargeError, 413),
    (InvalidRequestError, 400),
    (ServerError, 503),
)


class Http:
    """The endpoints of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def routes(self) -> list[Route]:
        return [
            Route("/ok", self.ok, methods=["GET"]),
            Route("/info", self.info, methods=["GET"]),
            Route("/assistants/search", self._typed(self.search_assistants), methods=["POST"]),
            Route("/assistants/{assistant_id}", self._typed(self.get_assistant), methods=["GET"]),
            Route("/threads", self._typed(self.create_thread), methods=["POST"]),
            Route("/threads/{thread_id}", self._typed(self.get_thread), methods=["GET"]),
            Route("/threads/{thread_id}/state", self._typed(self.get_state), methods=["GET"]),
            Route("/threads/{thread_id}/commands", self._typed(self.command), methods=["POST"]),
            Route("/threads/{thread_id}/stream/events", self._typed(self.stream_events), methods=["POST"]),
            *PointerHttp(self._gateway).routes(self._typed),
        ]

    async def refuse_unserved(self, request: Request, exc: Exception) -> Response:
        """Answer a path or a method that no route has, such as the SDKs' for what this gateway does not do."""
        served = ", ".join(f"{min(route.methods or {'GET'})} {route.path}" for route in self.routes())
        asked = f"{request.method} {request.url.path[:200]}"
        error = UnsupportedError(
            f"{asked} is not served here: use {served}, or WS /threads/{{thread_id}}/stream/events"
        )
        response = _raw(protocol.failure(None, error), getattr(exc, "status_code", 404))
        response.headers.update(getattr(exc, "headers", None) or {})
        return response

    async def own_fault(self, request: Request, exc: Exception) -> Response:
        """Answer a request that broke the gateway; the server logs `exc` with its traceback."""
        told = f"{type(exc).__name__}: a fault in the gateway, see its log"
        return _raw(protocol.failure(None, RtmemError(told)), 500)

    async def ok(self, request: Request) -> Response:
        """Is this process serving? (Not: is Redis there. An unreachable Redis is told to those who need it.)"""
        return _json({"ok": True})

    async def info(self, request: Request) -> Response:
        return _json(
            {"name": "rtmem", "version": __version__, "flags": {"assistants": True, "crons": False, "langsmith": False}}
        )

    async def search_assistants(self, request: Request) -> Response:
        self._gateway.principal(request)
        return _json([_assistant(name) for name in self._gateway.runs.assistant_ids])

    async def get_assistant(self, request: Request) -> Response:
        self._gateway.principal(request)
        assistant_id = path_id(request, "assistant_id")
        if assistant_id not in self._gateway.runs.assistant_ids:
            raise GraphNotFoundError(
                f"no assistant {assistant_id!r} is served here: POST /assistants/search lists them",
                assistant_id=assistant_id,
            )
        return _json(_assistant(assistant_id))

    async def create_thread(self, request: Request) -> Response:
        """A thread needs no creating: this answers what the SDKs expect, with a fresh id if none is asked for."""
        principal = self._gateway.principal(request)
        asked = protocol.decode_object(await self._body(request) or b"{}")
        thread_id = check_id(asked.get("thread_id") or str(uuid.uuid4()), "thread_id")
        thread = self._gateway.threads.get(principal, thread_id)
        return _json(await self._thread_body(thread))

    async def get_thread(self, request: Request) -> Response:
        return _json(await self._thread_body(self._thread(request)))

    async def get_state(self, request: Request) -> Response:
        thread = self._thread(request)
        asked = request.query_params.get("offload_bytes_min", "")
        least = check_offload_bytes_min(whole(request.query_params, "offload_bytes_min")) if asked else 0
        body = body_of(thread.thread_id, await self._gateway.runs.snapshot(thread))
        if least:
            body["values"] = await without_large_values(self._gateway, thread.principal, body["values"], least)
        return _json(body)

    async def command(self, request: Request) -> Response:
        """One command, as on the websocket, but for subscriptions, which need a stream to live on."""
        thread = self._thread(request)
        command = protocol.decode_command(await self._body(request))
        runs, params = self._gateway.runs, command.params
        try:
            match params:
                case RunStartParams():
                    run = await runs.start(thread, params)
                case InputRespondParams():
                    run = await runs.respond(thread, params)
                case StateGetParams():
                    return _raw(protocol.success(command.id, await self._gateway.state(thread, params)))
                case PrefetchParams():
                    return _raw(protocol.success(command.id, self._gateway.prefetch(thread, params)))
                case _:
                    raise UnsupportedError(f"{command.method} over HTTP: send it on WS /threads/<id>/stream/events")
        except RtmemError as exc:
            return _raw(protocol.failure(command.id, exc))
        return _raw(protocol.success(command.id, {"run_id": run.id}, applied_through_seq=run.after_seq))

    async def stream_events(self, request: Request) -> Response:
        """A subscription as server-sent events. See sse.py."""
        thread = self._thread(request)
        params = protocol.decode_object(await self._body(request))
        frame = protocol.encode({"id": 1, "method": "subscription.subscribe", "params": params})
        protocol.decode_command(frame)  # refused here it has a status; on the stream nobody would read the reply
        return EventStream(partial(self._gateway.connect, thread), frame.decode())

    def _typed(self, endpoint: Endpoint) -> Endpoint:
        """`endpoint`, its typed errors as responses, and a ticket for the websocket that may follow."""

        async def answer(request: Request) -> Response:
            try:
                response = await endpoint(request)
            except RtmemError as exc:
                status = next((code for kind, code in _STATUS if isinstance(exc, kind)), 500)
                response = _raw(protocol.failure(exc.data.get("command_id"), exc), status)
            if cookie := self._gateway.tokens.ticket_cookie(request.headers):
                response.headers["set-cookie"] = cookie
            return response

        return answer

    def _thread(self, request: Request) -> LiveThread:
        return self._gateway.threads.get(self._gateway.principal(request), path_id(request, "thread_id"))

    async def _thread_body(self, thread: LiveThread) -> dict[str, Any]:
        snapshot = await self._gateway.runs.snapshot(thread)
        at = (snapshot.created_at if snapshot is not None else None) or datetime.now(UTC).isoformat()
        waiting = {task.id: task.interrupts for task in snapshot.tasks if task.interrupts} if snapshot else {}
        status = "busy" if thread.run is not None else "interrupted" if waiting else "idle"
        return {
            "thread_id": thread.thread_id,
            "created_at": at,
            "updated_at": at,
            "metadata": {},
            "status": status,
            "values": snapshot.values if snapshot is not None else {},
            "interrupts": waiting,
        }

    async def _body(self, request: Request) -> bytes:
        """The body, never more of it than one frame may hold."""
        limit = self._gateway.settings.frame_bytes_max
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise TooLargeError(
                    f"a body of more than {limit} bytes: POST the large value to /pointers and send the id of its "
                    "pointer, or raise frame_bytes_max in [gateway]"
                )
        return bytes(body)


def path_id(request: Request | Any, name: str) -> str:
    """An id out of the undecoded path, so that `%2F` stays part of it. Raises InvalidRequestError."""
    raw = request.path_params[name]
    try:
        return unquote(raw, errors="strict")
    except UnicodeDecodeError as exc:
        raise InvalidRequestError(f"{name} {raw!r} is not UTF-8: percent-encode its UTF-8 bytes", what=name) from exc


def _assistant(name: str) -> dict[str, Any]:
    epoch = "1970-01-01T00:00:00+00:00"
    return {
        "assistant_id": name,
        "graph_id": name,
        "name": name,
        "config": {},
        "context": {},
        "metadata": {},
        "version": 1,
        "created_at": epoch,
        "updated_at": epoch,
    }


def _json(value: Mapping[str, Any] | list[Any]) -> Response:
    return _raw(protocol.encode(value))


def _raw(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json")
