"""Bytes on the wire, without a server: what is packed, what is read back, which error a batch ends with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hiredis
import pytest

from rtmem.drivers import wire
from rtmem.errors import CommandError, ServerError, ServerFullError
from rtmem.steps import Batch, Command


def read(*chunks: bytes) -> list[Any]:
    reader = wire.new_reader()
    replies = []
    for chunk in chunks:
        reader.feed(chunk)
        while (reply := reader.gets()) is not wire.NOTHING:
            replies.append(reply)
    return replies


def packed(*commands: Command, atomic: bool = False) -> bytes:
    return b"".join(wire.pack(Batch(commands, atomic=atomic)))


def test_a_batch_is_its_commands_one_after_the_other() -> None:
    assert packed(("SET", b"\x00", 1)) == b"*3\r\n$3\r\nSET\r\n$1\r\n\x00\r\n$1\r\n1\r\n"
    two = packed(("PING",), ("PING",))
    assert two == b"*1\r\n$4\r\nPING\r\n" * 2
    assert packed(("PING",), ("PING",), atomic=True) == b"*1\r\n$5\r\nMULTI\r\n" + two + b"*1\r\n$4\r\nEXEC\r\n"


@pytest.mark.parametrize("size", [0, 16 * 1024 - 1, 16 * 1024, 1_000_000])
@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("kind", [bytes, memoryview, lambda raw: memoryview(bytearray(raw))])
def test_a_large_value_is_packed_like_a_small_one(size: int, atomic: bool, kind: Callable[[bytes], Any]) -> None:
    raw = b"\xff" * size
    value = kind(raw)
    commands: tuple[Command, ...] = (
        ("SET", "é", value, "PX", 5),
        ("HSET", "h", 1, value),
        ("MSET", "a", value, b"b", value),
    )
    expected = b"".join(
        hiredis.pack_command(tuple(raw if part is value else part for part in command)) for command in commands
    )
    if atomic:
        expected = b"*1\r\n$5\r\nMULTI\r\n" + expected + b"*1\r\n$4\r\nEXEC\r\n"
    assert packed(*commands, atomic=atomic) == expected


def test_a_large_value_is_sent_from_where_it_lies_unless_somebody_can_change_it() -> None:
    value, changeable = b"x" * 16 * 1024, bytearray(16 * 1024)
    pieces = list(wire.pack(Batch((("SET", "a", value, "PX", 1), ("SET", "b", memoryview(changeable))))))
    assert pieces[1] is value
    changeable[0] = 1
    assert pieces[3] == bytes(16 * 1024)


def test_as_many_replies_are_expected_as_redis_sends() -> None:
    commands = (("PING",), ("PING",), ("PING",))
    assert wire.replies_expected(Batch(commands)) == 3
    assert wire.replies_expected(Batch(commands, atomic=True)) == 5


def test_replies_are_the_same_however_they_are_cut() -> None:
    stream = b"+OK\r\n:1\r\n$3\r\na\r\n\r\n*2\r\n$-1\r\n_\r\n%1\r\n+f\r\n,1.5\r\n#t\r\n-ERR x\r\n"
    whole = read(stream)
    assert whole[:6] == [b"OK", 1, b"a\r\n", [None, None], {b"f": 1.5}, True]
    assert isinstance(whole[6], wire.ErrorReply)
    for cut in range(len(stream)):
        pieces = read(stream[:cut], stream[cut:])
        assert pieces[:6] == whole[:6]
        assert pieces[6].text == "ERR x"


def test_a_push_is_told_from_a_reply() -> None:
    push, reply = read(b">2\r\n+invalidate\r\n*1\r\n+k\r\n*1\r\n+k\r\n")
    assert wire.is_push(push)
    assert not wire.is_push(reply)


def test_the_first_error_of_a_batch_is_raised() -> None:
    replies = read(b"+OK\r\n-OOM command not allowed\r\n-ERR later\r\n")
    with pytest.raises(ServerFullError, match="OOM"):
        wire.settle(Batch((("A",), ("B",), ("C",))), replies)


def test_an_atomic_batch_is_answered_with_what_exec_returned() -> None:
    batch = Batch((("INCR", "a"), ("INCR", "b")), atomic=True)
    assert wire.settle(batch, read(b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n:2\r\n")) == [1, 2]
    with pytest.raises(CommandError, match="WRONGTYPE"):
        wire.settle(batch, read(b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n-WRONGTYPE x\r\n"))


def test_an_aborted_transaction_says_which_command_was_refused() -> None:
    batch = Batch((("SET", "a", 1), ("SET", "b", 1)), atomic=True)
    with pytest.raises(ServerFullError):
        wire.settle(batch, read(b"+OK\r\n-OOM full\r\n+QUEUED\r\n-EXECABORT discarded\r\n"))
    with pytest.raises(CommandError, match="EXECABORT"):
        wire.settle(batch, read(b"+OK\r\n+QUEUED\r\n+QUEUED\r\n-EXECABORT discarded\r\n"))


def test_what_is_no_redis_is_said_to_be_none() -> None:
    with pytest.raises(wire.ProtocolError, match="Protocol error"):
        read(b"HTTP/1.1 400 Bad Request\r\n")


def test_a_reply_that_nobody_asked_for_becomes_an_error() -> None:
    (last_word,) = read(b"-ERR max number of clients reached\r\n")
    assert "maxclients" in str(wire.unasked(last_word, "here"))
    assert isinstance(wire.unasked(b"OK", "here"), ServerError)
