"""Bytes on the wire: one batch packed, its replies read. Shared by both drivers, so that they cannot differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import hiredis

from rtmem.drivers.translate import error_reply
from rtmem.errors import RtmemError, ServerError
from rtmem.steps import Argument, Batch, Command

Piece: TypeAlias = bytes | memoryview

NOTHING = object()
"""What a reader answers when it needs more bytes."""

_MULTI = hiredis.pack_command(("MULTI",))
_EXEC = hiredis.pack_command(("EXEC",))
LARGE_BYTES_MIN = 16 * 1024


class ErrorReply(Exception):
    """An error that Redis replied."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class ProtocolError(Exception):
    """The bytes are no replies of Redis; what follows them cannot be read either."""


def new_reader() -> Any:
    """A parser for RESP2 and RESP3 whose replies are raw: bytes, int, list, dict, None, ErrorReply."""
    return hiredis.Reader(protocolError=ProtocolError, replyError=ErrorReply, notEnoughData=NOTHING)


def pack(batch: Batch) -> Iterator[Piece]:
    """The bytes of `batch`, with MULTI and EXEC around them if it is atomic, in pieces to be sent one after the other.

    A large value is a piece of its own and is not copied, which would take 0.05 ms for 1 MB (hiredis: 0.2 ms). The next
    command is asked for when the pieces before it have been taken.
    """
    small: list[Piece] = [_MULTI] if batch.atomic else []
    for command in batch.commands:
        if _has_large(command):
            yield from _pack_around(command, small)
        else:
            packed: Any = command
            small.append(hiredis.pack_command(packed))
    if batch.atomic:
        small.append(_EXEC)
    yield small[0] if len(small) == 1 else b"".join(small)


def _has_large(command: Command) -> bool:
    for argument in command:
        kind = type(argument)
        if (kind is bytes or kind is memoryview) and len(argument) >= LARGE_BYTES_MIN:  # type: ignore[arg-type]
            return True
    return False


def _pack_around(command: Command, small: list[Piece]) -> Iterator[Piece]:
    """Append `command` to `small`, but its large values, each a piece behind all that comes before it."""
    small.append(b"*%d\r\n" % len(command))
    for argument in command:
        raw = _raw(argument)
        small.append(b"$%d\r\n" % len(raw))
        if len(raw) >= LARGE_BYTES_MIN:
            yield b"".join(small)
            yield raw
            small[:] = (b"\r\n",)
        else:
            small += (raw, b"\r\n")


def _raw(argument: Argument) -> Piece:
    if type(argument) is bytes:
        return argument
    if isinstance(argument, memoryview):
        # What somebody can still change while it is sent is copied.
        return argument.cast("B") if argument.readonly and argument.c_contiguous else argument.tobytes()
    return str(argument).encode()


def replies_expected(batch: Batch) -> int:
    """How many replies the server will send for `batch`."""
    return len(batch.commands) + 2 if batch.atomic else len(batch.commands)


def settle(batch: Batch, replies: list[Any]) -> list[Any]:
    """One raw reply per command of `batch`. Raises the first error among them, translated."""
    if batch.atomic:
        outcome = replies[-1]
        if isinstance(outcome, ErrorReply):
            # EXECABORT says that something was wrong; the command that was refused says what.
            _raise_first(replies[:-1])
            raise error_reply(outcome.text)
        replies = outcome
    _raise_first(replies)
    return replies


def _raise_first(replies: Iterable[Any]) -> None:
    for reply in replies:
        if type(reply) is ErrorReply:
            raise error_reply(reply.text)


def unasked(reply: Any, where: str) -> RtmemError:
    """The error for a reply that answers no command."""
    if type(reply) is ErrorReply:
        return error_reply(reply.text)
    return ServerError(f"Redis at {where} sent a reply that nobody asked for: please report this", where=where)


def is_push(reply: Any) -> bool:
    """Whether `reply` answers no command (RESP3 push)."""
    return isinstance(reply, hiredis.PushNotification)
