"""What a write waits for, and the proof that it may be called durable.

    ack        what is proved when the call returns                      what takes the write away
    memory     Redis has executed it                                     a crash inside the window of appendfsync
    fsync      an fsync of the AOF that covers it has succeeded          loss of this server's disk
    replica    so many replicas have it: on their disks and on this      loss of all of them
               one where this server keeps an AOF (WAITAOF), in their
               memory where it does not (WAIT)

A write travels as always, and is readable at once. The proof comes after it, on a connection of its own, because
WAITAOF holds up everything behind it; all who wait for one share the next (`steps.Shared`, group commit):

    SET barrier      WAITAOF waits for the last write of *its own* connection, and that offset counts the writes of
                     everybody. So it must write, and after the write that is to be proved was answered. It also covers
                     a write that changed nothing because an earlier attempt had done it already.
    WAITAOF 1 0 50   again and again, until its numbers say that it is done, or the time is over.
    INFO             each time. After a failed fsync WAITAOF answers as if it had succeeded (Redis 8.2: the offset moves
                     on when nothing is left to sync, or with the next fsync that succeeds; 10 of 10 such writes were
                     lost): `aof_last_write_status` says so, but with other writers on the server only until that next
                     fsync. So one look at the end is not enough: see Watch. INFO also names who answers.

A rewrite of the AOF begins a new file, which has nothing to sync yet: WAITAOF then says at once that all is synced,
while the last writes to the old file still are not (Redis 8.2: flushAppendOnlyFile() does not count the fsync that
closes the old file; cut in that moment, ext4 lost 1 such write in 13 power cuts). So the INFO before the barrier and
the one behind it must tell of as many rewrites; else the barrier is set again, in the new file, whose fsync comes
after that of the old one.

That process must be the one that executed the write: a server that was restarted in between, or a master that took
over, can prove nothing about it. So each batch of a durable operation carries an INFO too.

What this cannot see: an fsync that fails in the very second in which an AOF rewrite starts, whose own fsync clears the
status; and one that failed while nobody looked, whose hole later writes lie behind. An embedded Redis is looked at
twice a second (server/recovery.py). Under `always` none of this arises: the server exits at a failed fsync, before it
answers.

Not in a Redis Cluster: WAITAOF speaks of one node, and redis-py gives no hold on which.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

from rtmem.errors import (
    CommandError,
    ConfigError,
    NotDurableError,
    PermissionDeniedError,
    PersistenceError,
    RtmemError,
    ServerError,
    ServerTooOldError,
)
from rtmem.settings import Ack
from rtmem.steps import Batch, Command, Request, Shared, Steps

R = TypeVar("R")

BARRIER_TTL_MS: Final = 60_000
STRENGTH: Final[dict[Ack, int]] = {"memory": 0, "fsync": 1, "replica": 2}
"""An ack may be replaced by a stronger one."""

LOOK_MS: Final = 50
_REMEMBERED_S: Final = 0.9
_REWRITE_PAUSE_S: Final = 8.0  # a rewrite forks the server; on a disk that is still sick it fails
_EXCHANGE_MS: Final = 2_000  # one step of waiting, with connecting and answering
_WHO: Final[Command] = ("INFO", "server", "replication")
_STATUS: Final[Command] = ("INFO", "server", "replication", "persistence")


class ServerId(NamedTuple):
    """One life of one server as a master."""

    run_id: str  # changes with every start
    replication_id: str  # changes when a replica becomes the master


@dataclass(slots=True)
class Watch:
    """What looking at INFO has told about failed fsyncs, by the clock of whoever looks.

    Under everysec Redis reports a failed fsync until the next one succeeds, which begins a second after the failed one
    began, at the earliest. So of two looks at most 900 ms apart, both at a moment when no fsync is under way, the
    second sees every failure of an fsync that began between them.

    And what a failed fsync has lost is a hole in the log, which no start gets past: an fsync that succeeds behind it
    proves nothing, until a rewrite that began after the failure has succeeded.
    """

    looked_s: float = -inf
    quiet_s: float = -inf  # the last look that found no fsync under way
    failed_s: float = -inf  # what was written before this may have been lost by a failure that was seen
    unseen_s: float = -inf  # what was written before this may have been lost by a failure that nobody saw
    broken: tuple[str, int] | None = None  # the log may have a hole: run_id, and how many rewrites had begun by then
    asked_s: float = -inf  # when a rewrite was asked for

    def note(self, fields: dict[str, str], began_s: float, ended_s: float) -> None:
        """Take in an INFO that was answered between the two times."""
        self.looked_s = max(self.looked_s, began_s)
        if fields.get("aof_last_write_status") != "ok":
            self.failed_s = max(self.failed_s, ended_s)
            self.broken = (fields.get("run_id", ""), int(fields.get("aof_rewrites", 0)))
        elif self.broken and _was_written_anew(fields, *self.broken):
            self.broken = None
        if ended_s - self.quiet_s > _REMEMBERED_S:
            self.unseen_s = max(self.unseen_s, ended_s - _REMEMBERED_S)
        if fields.get("aof_pending_bio_fsync", "0") == "0":
            self.quiet_s = max(self.quiet_s, began_s)

    def owes_rewrite(self, fields: dict[str, str], now_s: float) -> bool:
        """Whether to ask for a rewrite now: Redis has forgotten the failure, and so may all others have."""
        idle = fields.get("aof_rewrite_in_progress") == fields.get("aof_rewrite_scheduled") == "0"
        forgotten = self.broken is not None and fields.get("aof_last_write_status") == "ok"
        return forgotten and idle and now_s - self.asked_s > _REWRITE_PAUSE_S


def _was_written_anew(fields: dict[str, str], run_id: str, rewrites: int) -> bool:
    """Whether a rewrite that began later has succeeded; or another life of the server, or another server, answers."""
    if fields.get("run_id", "") != run_id:
        return True
    succeeded = fields.get("aof_rewrite_in_progress") == "0" and fields.get("aof_last_bgrewrite_status") == "ok"
    return succeeded and int(fields.get("aof_rewrites", 0)) > rewrites


@dataclass(slots=True)
class Promise:
    """What writes wait for. Shared by all who write through one driver: it remembers what the server can do."""

    ack: Ack
    replicas: int
    timeout_ms: int
    barrier: str  # keys.Keys.barrier
    waits_for_disk: bool | None = None  # None: the server was not asked yet
    watch: Watch = field(default_factory=Watch)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        if self.ack not in STRENGTH:
            raise ConfigError(f"ack is {self.ack!r}: use one of {', '.join(STRENGTH)}")
        if self.replicas < 1 or self.timeout_ms < 1:
            raise ConfigError(
                f"ack {self.ack!r} with replicas={self.replicas}, ack_timeout_ms={self.timeout_ms}: both are 1 or more"
            )

    @property
    def replicas_min(self) -> int:
        """How many replicas it has to count."""
        return self.replicas if self.ack == "replica" else 0

    def wait_command(self, *, disk: bool) -> Command:
        """A short wait for replicas, and for this server's disk if there is one to wait for."""
        if disk:
            return ("WAITAOF", 1, self.replicas_min, LOOK_MS)
        return ("WAIT", self.replicas_min, LOOK_MS)


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
                    seen.add(_server_of(_fields(info)))
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
    return Mark(_server_of(_fields(info)), since_s)


def barrier(promise: Promise, since: Mark) -> Steps[None]:
    """Return once everything that was written since `mark`, by anybody, is as durable as promised.

    Raises:
        NotDurableError: it is not proved, or another server answers than took the writes.

    Redis: 1 round trip per 50 ms until the next fsync, shared.
    """
    if promise.ack != "memory":
        yield from prepare(promise)
        yield from prove(promise, (since.server,), since.since_s)


# What the server can do ----------------------------------------------------------------------------------------------


def prepare(promise: Promise, *, consequence: str = "; nothing was written") -> Steps[bool]:
    """Ask the server, once, whether it can keep `promise`.

    Returns:
        Whether this server's disk is to be waited for.

    Raises:
        ConfigError: it cannot keep it; with the next step.
    """
    known = False if promise.ack == "memory" else promise.waits_for_disk
    if known is not None:
        return known
    try:
        _, info = yield Batch((("WAITAOF", 0, 0, 0), _STATUS), lane="durable")
    except ServerTooOldError as exc:
        problem = f"this server has no WAITAOF ({exc.data.get('reply', exc)}): it came with Redis 7.2 and Valkey 7.2"
        kind: type[ConfigError] = ServerTooOldError
    else:
        problem, kind = (yield from _why_nothing_is_synced(_fields(info))), ConfigError
    if problem and promise.ack == "fsync":
        raise kind(f"ack 'fsync': {problem}{consequence}", ack=promise.ack)
    promise.waits_for_disk = not problem
    return not problem


def _why_nothing_is_synced(fields: dict[str, str]) -> Steps[str]:
    if fields.get("aof_enabled") != "1":
        return (
            "this Redis keeps no AOF, so nothing reaches its disk: CONFIG SET appendonly yes (and appendonly yes in "
            "its redis.conf), or `rtmem up --profile balanced`"
        )
    try:
        (reply,) = yield Batch((("CONFIG", "GET", "appendfsync"),))
    except (PermissionDeniedError, ServerTooOldError, CommandError):
        return ""  # hosted servers often forbid CONFIG; then WAITAOF itself will tell
    policy = dict(reply) if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
    if policy.get(b"appendfsync") == b"no":
        return (
            "this Redis has appendfsync no, so it never waits for its disk and has nothing to prove: "
            "CONFIG SET appendfsync everysec (and in its redis.conf), or always"
        )
    return ""


# The proof -----------------------------------------------------------------------------------------------------------


class _Proof(NamedTuple):
    """What a server has confirmed of everything it had executed before."""

    server: ServerId
    disk: bool  # it was asked for its own disk too
    local_fsyncs: int  # 1: its own disk
    replicas: int
    connected: int  # how many replicas it had at the end, whatever they have confirmed


def prove(promise: Promise, since: Collection[ServerId], since_s: float) -> Steps[None]:
    """Return once everything that the servers `since` had executed is as durable as promised; `prepare` comes first.

    Args:
        since_s: when the first of these writes was sent, by the promise's clock.

    Raises:
        NotDurableError: it is not proved; what was written stays and is readable.

    Redis: 1 round trip per 50 ms of waiting, shared with all who wait.
    """
    try:
        (proof,) = yield Shared(id(promise), partial(_wait, promise))
    except PersistenceError as exc:
        raise _not_durable(promise, f"writing to its disk has failed ({exc})", fsync_failed=True) from exc
    except (ServerError, ConfigError) as exc:
        promise.waits_for_disk = None  # perhaps another server answers now: ask again what it can do
        raise _not_durable(promise, f"the proof broke off ({exc})") from exc
    _judge(promise, proof, since, since_s)


def _wait(promise: Promise) -> Steps[_Proof]:
    """Wait, in short steps, until the server has confirmed what was promised, or the time is over."""
    ends_s = promise.clock() + promise.timeout_ms / 1_000
    # Another proof that breaks off, now or later, forgets what the server can do. Without knowing it a proof would not
    # wait for any disk, so it is asked again; and what this one waits for does not change under way.
    disk = yield from prepare(promise, consequence="")
    barrier = (("INFO", "persistence"), ("SET", promise.barrier, "", "PX", BARRIER_TTL_MS))
    behind: tuple[int, str] | None = None  # the connection and the AOF file that the barrier was written to
    while True:
        began_s = promise.clock()
        client, *before, counted, info = yield Batch(
            (("CLIENT", "ID"), *(barrier if behind is None else ()), promise.wait_command(disk=disk), _STATUS),
            lane="durable",
            timeout_ms=_EXCHANGE_MS,
        )
        fields = _fields(info)
        promise.watch.note(fields, began_s, promise.clock())
        if behind is None:
            behind = (client, _rewrites(_fields(before[0])))
        local, replicas = (int(number) for number in counted) if disk else (0, int(counted))
        if behind != (client, _rewrites(fields)):
            # A batch may find itself on another connection than the last one: WAITAOF then knows nothing of the
            # barrier. Or a rewrite has begun.
            behind, local, replicas = None, 0, 0
        if disk and promise.watch.owes_rewrite(fields, promise.clock()):
            promise.watch.asked_s = promise.clock()
            yield from _ask_for_rewrite()
        enough = local >= disk and replicas >= promise.replicas_min
        if enough or promise.clock() >= ends_s:
            return _Proof(_server_of(fields), disk, local, replicas, int(fields.get("connected_slaves", 0)))


def _rewrites(fields: dict[str, str]) -> str:
    return fields.get("aof_rewrites", "")


def _ask_for_rewrite() -> Steps[None]:
    # Another one has just begun, or it is not ours to ask: acks are refused until one has succeeded.
    with suppress(CommandError, PermissionDeniedError):
        yield Batch((("BGREWRITEAOF",),), lane="durable")


def _judge(promise: Promise, proof: _Proof, since: Collection[ServerId], since_s: float) -> None:
    """Refuse whatever is less than the promise."""
    known = {"local_fsyncs": proof.local_fsyncs, "replicas": proof.replicas}
    if others := [server for server in since if server != proof.server]:
        what = f"the server that executed it ({others[0].run_id[:8]}) was restarted or replaced"
        raise _not_durable(promise, what, server_changed=True)
    if proof.disk and since_s <= promise.watch.failed_s:
        raise _not_durable(promise, "an fsync or a write of the AOF has failed meanwhile", fsync_failed=True, **known)
    if proof.disk and promise.watch.broken:
        what = (
            "an fsync or a write of the AOF had failed before, so the AOF may have a hole, and a start after a power "
            "cut ends there; BGREWRITEAOF, which is asked for where that is allowed, writes it anew"
        )
        raise _not_durable(promise, what, fsync_failed=True, **known)
    if proof.local_fsyncs < proof.disk:
        what = f"no fsync has finished within {promise.timeout_ms} ms; `rtmem doctor` looks at the disk"
        raise _not_durable(promise, what, **known)
    if proof.disk and since_s < promise.watch.unseen_s:
        what = (
            "an fsync, the server or this process was so slow that a failure would not have been noticed (Redis "
            "forgets one after a second); appendfsync always does not have this gap"
        )
        raise _not_durable(promise, what, **known)
    if proof.replicas < promise.replicas_min:
        how = "with an AOF of their own (appendonly yes) " if proof.disk else ""
        few = proof.connected < promise.replicas
        mend = (
            "connect more of them, or ask for fewer (replicas=)" if few else "`INFO replication` tells how far each is"
        )
        what = (
            f"{proof.replicas} of {promise.replicas} replicas {how}have confirmed it in {promise.timeout_ms} ms, and "
            f"{proof.connected} are connected to this server: {mend}"
        )
        raise _not_durable(promise, what, **known)


def look(promise: Promise) -> Steps[None]:
    """Look once whether the disk has failed. Who proves many writes at once looks at least every half second from the
    first one on; a look that another has just taken counts too.

    Redis: 1 round trip, or none.
    """
    began_s = promise.clock()
    if promise.waits_for_disk is not False and began_s - promise.watch.looked_s > LOOK_MS / 1_000:
        (info,) = yield Batch((_STATUS,))
        promise.watch.note(_fields(info), began_s, promise.clock())


def _not_durable(promise: Promise, what: str, **known: Any) -> NotDurableError:
    return NotDurableError(
        f"ack {promise.ack!r} is not proved: {what}. The write was executed and is readable, but a crash may take it "
        "away: write it again, or check that it is there",
        ack=promise.ack,
        written=True,
        **known,
    )


def _fields(info: Any) -> dict[str, str]:
    text = info.decode("utf-8", "replace") if isinstance(info, bytes) else str(info)
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line and not line.startswith("#"))


def _server_of(fields: dict[str, str]) -> ServerId:
    return ServerId(fields.get("run_id", ""), fields.get("master_replid", ""))
