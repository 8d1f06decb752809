"""Large values in and out over HTTP, so that they travel neither in frames nor in states.

    POST /pointers?thread_id=&ttl_ms=&name=     the body is the value; answers 201 and its Pointer
    GET  /pointers/{id}                         the value as it is stored; Range: bytes=... answers a part of it
    GET  /pointers/{id}?unit=&start=&count=     a Slice: characters, lines, items, rows or bytes

Text and JSON are told by the content type, anything else is bytes. A pointer is one's own or it is not there: somebody
else's id and one that never existed get the same 404.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Send

from rtmem.errors import (
    InvalidRequestError,
    MalformedFrameError,
    PointerExpiredError,
    PointerNotFoundError,
    RtmemError,
    TooLargeError,
)
from rtmem.gateway import protocol
from rtmem.operations.pointer_media import JSON
from rtmem.operations.pointers import Opened, open_pointer
from rtmem.records import Pointer

if TYPE_CHECKING:
    from rtmem.gateway.app import Gateway
    from rtmem.gateway.http import Endpoint
    from rtmem.pointers import AsyncPointers

_logger: Final = logging.getLogger(__name__)
_SLICE: Final = frozenset({"unit", "start", "count", "characters_max", "continuation"})
_STATE_BYTES_MIN: Final = 1_024
_SAFE: Final = {
    # A tool may have fetched a hostile page: no browser shall run it as if it were this gateway's.
    "content-disposition": "attachment",
    "x-content-type-options": "nosniff",
    "content-security-policy": "sandbox",
}


class PointerHttp:
    """The endpoints of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def routes(self, typed: Callable[[Endpoint], Endpoint]) -> list[Route]:
        return [
            Route("/pointers", typed(self.offload), methods=["POST"]),
            Route("/pointers/{pointer_id}", typed(self.read), methods=["GET"]),
        ]

    async def offload(self, request: Request) -> Response:
        """Store a body as a value. Raises TooLargeError, QuotaExceededError, InvalidRequestError."""
        principal, query = self._gateway.principal(request), request.query_params
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        body = await self._body(request)
        pointers = self._gateway.pointers.bind(principal)
        value = _value_of(body, media_type, pointers.settings.select_bytes_max)
        del body  # of text and JSON; bytes are a view of it
        pointer = await pointers.offload(
            value,
            thread_id=query.get("thread_id") or None,
            ttl_ms=whole(query, "ttl_ms"),
            media_type=media_type or None,
            name=query.get("name") or None,
        )
        headers = {"location": f"/pointers/{pointer.id}"}
        return Response(msgspec.json.encode(pointer), 201, headers, media_type="application/json")

    async def read(self, request: Request) -> Response:
        """A value, or a part of it.

        Raises:
            PointerNotFoundError, PointerExpiredError, QueryError, CorruptRecordError.
        """
        pointers = self._gateway.pointers.bind(self._gateway.principal(request))
        with _without_list():
            return await self._read(request, pointers)

    async def _read(self, request: Request, pointers: AsyncPointers) -> Response:
        pointer_id, query = request.path_params["pointer_id"], request.query_params
        if _SLICE & query.keys():
            unit: Any = query.get("unit", "characters")
            part = await pointers.slice(
                pointer_id,
                unit,
                whole(query, "start") or 0,
                whole(query, "count"),
                characters_max=whole(query, "characters_max"),
                continuation=query.get("continuation", ""),
            )
            return Response(protocol.encode(part), media_type="application/json")
        opened = await self._gateway.driver.run(open_pointer(pointers.scope, pointer_id))
        total = opened.manifest.total(0)
        headers = {**_SAFE, "accept-ranges": "bytes", "etag": f'"{opened.pointer.hash}"'}
        asked = _range_of(request.headers.get("range", ""), total)
        if asked is None:
            return Response(status_code=416, headers={**headers, "content-range": f"bytes */{total}"})
        first, stop = asked
        if stop - first < total:
            headers["content-range"] = f"bytes {first}-{stop - 1}/{total}"
        return _Download(
            self._parts(opened, first, stop),
            206 if stop - first < total else 200,
            {**headers, "content-length": str(stop - first)},
            media_type=opened.pointer.media_type,
        )

    async def _parts(self, opened: Opened, first: int, stop: int) -> AsyncIterator[bytes]:
        """The bytes first..stop, a batch of chunks at a time, at the pace of who reads them."""
        manifest = opened.manifest
        if first == stop:
            return
        numbers = range(manifest.chunk_at(first, 0), manifest.chunk_at(stop - 1, 0) + 1)
        for batch in manifest.batches(numbers.start, numbers.stop, opened.scope.settings.batch_bytes):
            for number, chunk in zip(batch, await self._gateway.driver.run(opened.chunks(batch)), strict=True):
                begin = manifest.begin(number, 0)
                yield chunk[max(0, first - begin) : stop - begin]

    async def _body(self, request: Request) -> bytearray:
        """The body, held once. Raises TooLargeError before more than the limit has been read."""
        limit = self._gateway.settings.upload_bytes_max
        declared = request.headers.get("content-length", "")
        body = bytearray()
        if not (declared.isdecimal() and int(declared) > limit):
            async for chunk in request.stream():
                if len(body) + len(chunk) > limit:
                    break
                body += chunk
            else:
                return body
        raise TooLargeError(
            f"a value of more than {limit} bytes: send it in parts, or raise upload_bytes_max in [gateway]",
            bytes_max=limit,
        )


@contextmanager
def _without_list() -> Iterator[None]:
    """Says of a pointer that is not there what can be done over HTTP, which lists none."""
    try:
        yield
    except PointerExpiredError:
        raise
    except PointerNotFoundError as exc:
        message = (
            f"no pointer {exc.data['pointer']!r} of this token's principal: it was never made, or it was deleted: "
            "POST the value to /pointers again"
        )
        raise PointerNotFoundError(message, **exc.data) from exc


class _Download(StreamingResponse):
    """A value on its way out. One that ends in the middle (deleted, damaged, Redis away) ends the connection, so that
    its client does not take a part for the whole; what it was is a line in the log, and no traceback."""

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        except RtmemError as exc:
            _logger.warning("a download was broken off: %s", exc)


def _value_of(body: bytearray, media_type: str, json_bytes_max: int) -> Any:
    """What is stored of a body: text, JSON that can be looked into, or bytes. Raises MalformedFrameError."""
    is_json = media_type == JSON or media_type.endswith("+json")
    if not (is_json or media_type.startswith("text/")):
        return memoryview(body)
    try:
        # Beyond what `select` decodes, JSON is kept as the text that it is: its objects take ten times the memory.
        return msgspec.json.decode(body) if is_json and len(body) <= json_bytes_max else body.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise MalformedFrameError(
            f"the body is no {'JSON' if is_json else 'UTF-8 text'} ({exc}): send it as application/octet-stream"
        ) from exc


def whole(query: Mapping[str, str], name: str) -> int | None:
    """A number of a query; None if there is none. Raises InvalidRequestError."""
    text = query.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 17):
        raise InvalidRequestError(f"{name} is {text[:40]!r}: a whole number from 0 on")
    return int(text)


def _range_of(header: str, total: int) -> tuple[int, int] | None:
    """First byte and the one behind the last; all of them without a range, None for one that cannot be satisfied.

    Several ranges, and what is no range of bytes, are answered with the whole, as RFC 9110 (14.2) allows.
    """
    unit, equals, asked = header.replace(" ", "").partition("=")
    first, dash, last = asked.partition("-")
    numbers = [text for text in (first, last) if text]
    if unit != "bytes" or not equals or not dash or not numbers:
        return 0, total
    if not all(text.isascii() and text.isdecimal() and len(text) < 17 for text in numbers):
        return 0, total
    if not first:
        return (max(0, total - int(last)), total) if int(last) and total else None
    begin, end = int(first), int(last) + 1 if last else total
    if end <= begin:
        return (0, total) if last and int(last) < begin else None
    return (begin, min(end, total)) if begin < total else None


# States --------------------------------------------------------------------------------------------------------------


def check_offload_bytes_min(offload_bytes_min: int | None) -> int:
    """What a client asked for; 0 if nothing. Raises InvalidRequestError."""
    if offload_bytes_min is not None and offload_bytes_min < _STATE_BYTES_MIN:
        raise InvalidRequestError(f"offload_bytes_min is {offload_bytes_min}: at least {_STATE_BYTES_MIN} bytes")
    return offload_bytes_min or 0


async def without_large_values(gateway: Gateway, principal: str, values: Any, offload_bytes_min: int) -> Any:
    """A state in which every value of so many bytes of JSON or more is a pointer, for a client that asked for that.

    Raises:
        QuotaExceededError, TooLargeError.
    """
    if not isinstance(values, Mapping):
        return (await without_large_values(gateway, principal, {"state": values}, offload_bytes_min))["state"]
    pointers = gateway.pointers.bind(principal)
    told: dict[Any, Any] = {}
    for name, value in values.items():
        encoded = protocol.encode(value)
        if len(encoded) < offload_bytes_min:
            told[name] = value
            continue
        pointer = await pointers.offload(
            msgspec.json.decode(encoded), ttl_ms=gateway.settings.state_pointer_ttl_ms, name=f"state {name}"
        )
        told[name] = pointer_in_state(pointer)
    return told


def pointer_in_state(pointer: Pointer) -> dict[str, Any]:
    """What stands in the place of a value."""
    return {"type": "rtmem.pointer", **msgspec.to_builtins(pointer)}
