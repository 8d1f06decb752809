"""Bytes on the wire: one batch packed, its replies read. Shared by both drivers, so that they cannot differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import hiredis

from rtmem.drivers.translate import error_reply
from rtmem.errors import RtmemError, ServerError
from rtmem.steps import Batch

NOTHING = object()
"""What a reader answers when it needs more bytes."""

_MULTI = hiredis.pack_command(("MULTI",))
_EXEC = hiredis.pack_command(("EXEC",))
_EMPTY = b"$0\r\n\r\n"
_LARGE_BYTES_MIN = 16 * 1024


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


def pack(batch: Batch) -> bytes:
    """The bytes of `batch`, with MULTI and EXEC around them if it is atomic."""
    commands: Any = batch.commands
    if len(commands) == 1 and not batch.atomic and not _ends_large(commands[0]):
        alone: bytes = hiredis.pack_command(commands[0])
        return alone
    packed: list[bytes] = [_MULTI] if batch.atomic else []
    for command in commands:
        if _ends_large(command):
            # hiredis copies a value of 1 MB several times (0.2 ms); the join below copies it once (0.05 ms).
            start = hiredis.pack_command((*command[:-1], b""))
            packed += (start[: -len(_EMPTY)], b"$%d\r\n" % len(command[-1]), command[-1], b"\r\n")
        else:
            packed.append(hiredis.pack_command(command))
    if batch.atomic:
        packed.append(_EXEC)
    return b"".join(packed)


def _ends_large(command: Sequence[Any]) -> bool:
    last = command[-1]
    return type(last) is bytes and len(last) >= _LARGE_BYTES_MIN


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
