"""What a write waits for.

    ack        what is proved when the call returns                      what takes the write away
    memory     Redis has executed it                                     a crash inside the window of appendfsync
    fsync      an fsync of the AOF that covers it has succeeded          loss of this server's disk
    replica    so many replicas have it: on their disks and on this      loss of all of them
               one where this server keeps an AOF (WAITAOF), in their
               memory where it does not (WAIT)

A write travels as always, and is readable at once; the proof comes after it (durability_proof.py). The process that
proves it must be the one that executed it: a server that was restarted in between, or a master that took over, can
prove nothing about it. So each batch of a durable operation carries an INFO too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

from msgspec.structs import replace

from rtmem.errors import RtmemError
from rtmem.operations.aof_watch import ServerId, fields_of, server_of
from rtmem.operations.durability_proof import Promise, prepare, prove
from rtmem.steps import Batch, Command, Request, Steps

R = TypeVar("R")

_WHO: Final[Command] = ("INFO", "server", "replication")


def durably(steps: Steps[R], promise: Promise) -> Steps[R]:
    """An operation, and then the proof that all it wrote is as durable as promised.

    Raises:
        NotDurableError: written and readable, but not proved; `data` tells what is known.
        ConfigError: this server can prove nothing of the kind; nothing was written.

    Redis: the operation's round trips, then 1 that lasts until the next fsync, shared with all who wait. Before the
        first one 2 more, to ask what the server can do.
    """
    if promise.ack == "memory":
        return (yield from steps)
    try:
        yield from prepare(promise)
    except BaseException:
        steps.close()
        raise
    seen: set[ServerId] = set()
    since_s = promise.clock()
    result = yield from _noting_servers(steps, seen)
    yield from prove(promise, seen, since_s)
    return result


def _noting_servers(steps: Steps[R], seen: set[ServerId]) -> Steps[R]:
    """`steps`, with the server that answered each batch added to `seen`."""
    try:
        request: Request = next(steps)
        while True:
            noted = isinstance(request, Batch) and bool(request.commands)
            try:
                replies = yield _with_who(request)
            except RtmemError as exc:
                request = steps.throw(exc)
            else:
                if noted:
                    *replies, info = replies
                    seen.add(server_of(fields_of(info)))
                request = steps.send(replies)
    except StopIteration as stop:
        result: R = stop.value
        return result
    finally:
        steps.close()


def _with_who(request: Request) -> Request:
    if isinstance(request, Batch) and request.commands:
        return replace(request, commands=(*request.commands, _WHO))
    return request


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment from which on writes are to be proved together."""

    server: ServerId
    since_s: float


def mark(promise: Promise) -> Steps[Mark]:
    """The beginning of a series of writes, by whichever saver, that `barrier` will prove. Until then somebody has to
    `look`. Raises ConfigError if this server can prove nothing of the kind."""
    yield from prepare(promise)
    since_s = promise.clock()
    (info,) = yield Batch((_WHO,))
    return Mark(server_of(fields_of(info)), since_s)


def barrier(promise: Promise, since: Mark) -> Steps[None]:
    """Return once everything that was written since `mark`, by anybody, is as durable as promised.

    Raises:
        NotDurableError: it is not proved, or another server answers than took the writes.

    Redis: 1 round trip per 50 ms until the next fsync, shared.
    """
    if promise.ack != "memory":
        yield from prepare(promise)
        yield from prove(promise, (since.server,), since.since_s)
