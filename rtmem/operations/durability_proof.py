"""The proof that what was written is on a disk, or on replicas, as was promised.

It comes after the write, on a connection of its own, because WAITAOF holds up everything behind it; all who wait for
one share the next (`steps.Shared`, group commit):

    SET barrier      WAITAOF waits for the last write of *its own* connection, and that offset counts the writes of
                     everybody. So it must write, and after the write that is to be proved was answered. It also covers
                     a write that changed nothing because an earlier attempt had done it already.
    WAITAOF 1 0 50   again and again, until its numbers say that it is done, or the time is over.
    INFO             each time, for what WAITAOF does not say (aof_watch.py), and for who answers.

A rewrite of the AOF begins a new file, which has nothing to sync yet: WAITAOF then says at once that all is synced,
while the last writes to the old file still are not (Redis 8.2: flushAppendOnlyFile() does not count the fsync that
closes the old file; cut in that moment, ext4 lost 1 such write in 13 power cuts). So the INFO before the barrier and
the one behind it must tell of as many rewrites; else the barrier is set again, in the new file, whose fsync comes
after that of the old one.

Not in a Redis Cluster: WAITAOF speaks of one node, and redis-py gives no hold on which.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from rtmem.errors import (
    CommandError,
    ConfigError,
    NotDurableError,
    PermissionDeniedError,
    PersistenceError,
    ServerError,
    ServerTooOldError,
)
from rtmem.operations.aof_watch import ServerId, Watch, fields_of, server_of
from rtmem.settings import Ack
from rtmem.steps import Batch, Command, Shared, Steps

BARRIER_TTL_MS: Final = 60_000
STRENGTH: Final[dict[Ack, int]] = {"memory": 0, "fsync": 1, "replica": 2}
"""An ack may be replaced by a stronger one."""

LOOK_MS: Final = 50
_EXCHANGE_MS: Final = 2_000  # one step of waiting, with connecting and answering
_STATUS: Final[Command] = ("INFO", "server", "replication", "persistence")


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
        problem, kind = (yield from _why_nothing_is_synced(fields_of(info))), ConfigError
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
        fields = fields_of(info)
        promise.watch.note(fields, began_s, promise.clock())
        if behind is None:
            behind = (client, _rewrites(fields_of(before[0])))
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
            return _Proof(server_of(fields), disk, local, replicas, int(fields.get("connected_slaves", 0)))


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
        promise.watch.note(fields_of(info), began_s, promise.clock())


def _not_durable(promise: Promise, what: str, **known: Any) -> NotDurableError:
    return NotDurableError(
        f"ack {promise.ack!r} is not proved: {what}. The write was executed and is readable, but a crash may take it "
        "away: write it again, or check that it is there",
        ack=promise.ack,
        written=True,
        **known,
    )
