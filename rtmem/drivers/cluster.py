"""Drivers for Redis Cluster: a driver for each master, and a map of slots that says whose turn it is.

So everything that one Redis is promised (few writes, lanes, deadlines, transactions) holds for each node.
redis-py's own cluster client is not used: it sends a large FCALL twice (COMMAND GETKEYS first), knows no deadline for a
call, and its transactions are either never redirected or also sent again after a lost connection.

A batch whose commands share a node goes out as one pipeline; otherwise the nodes are asked one after the other, in the
order of the commands. `atomic` holds per slot: what must be true together shares a hash tag, as the keys of a thread
do, and what is only derived from it (an index in another slot) follows in a transaction of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import redis
from msgspec.structs import replace
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from rtmem.drivers import clients
from rtmem.drivers.aio import AsyncDriver
from rtmem.drivers.sync import SyncDriver
from rtmem.errors import (
    CommandError,
    ConfigError,
    DeadlineExceededError,
    ReadOnlyReplicaError,
    RtmemError,
    ServerError,
    ServerUnavailableError,
)
from rtmem.settings import Redis
from rtmem.steps import Batch, Command

REDIRECTIONS_MAX: Final = 8
NODE_CHANGED: Final = (ServerUnavailableError, DeadlineExceededError, ReadOnlyReplicaError)

_KEYLESS: Final = frozenset(
    {"ACL", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "DBSIZE", "ECHO", "FLUSHALL", "FLUSHDB", "FUNCTION", "INFO"}
    | {"PING", "SCAN", "SCRIPT", "TIME"}
)
_EVERYWHERE: Final = frozenset(("FLUSHALL", "FLUSHDB", "FUNCTION", "SCRIPT"))
_KEYS_COUNTED: Final = frozenset(("EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO", "FCALL", "FCALL_RO"))
_KEY_AFTER_SUBCOMMAND: Final = frozenset(("MEMORY", "OBJECT", "XGROUP", "XINFO"))


@dataclass(frozen=True, slots=True)
class Ask:
    """A batch for one node."""

    node: str  # host:port
    batch: Batch


Asks: TypeAlias = Generator[Ask, list[Any], list[Any]]


class Router:
    """Which node to ask, for both colours: yields Asks, is sent their replies, returns those of the whole batch."""

    def __init__(self, seeds: Sequence[str]) -> None:
        self.seeds = tuple(seeds)
        self._owners: list[str] = []  # by slot
        self._stale = True

    def forget(self) -> None:
        """Ask the cluster anew who owns what: a node did not answer, or was demoted."""
        # Any node that was seen may know the way when the seeds are gone. The map stays until there is a new one:
        # others are reading it.
        self.seeds = tuple(dict.fromkeys((*self.seeds, *self._owners)))
        self._stale = True

    def answer(self, batch: Batch) -> Asks:
        """The replies to `batch`, gathered from the nodes that own its keys; follows redirections."""
        if batch.lane == "durable":
            raise ConfigError(
                "a Redis Cluster cannot prove a write: WAITAOF speaks of one node. Keep ack 'memory' with appendfsync "
                "always on its nodes, or use one server (redis+sentinel:// for failover)"
            )
        if self._stale:
            yield from self._learn_owners()
        replies: list[Any] = [None] * len(batch.commands)
        missing = list(range(len(batch.commands)))
        redirections = 0
        while missing:
            now = self._next(batch, missing)
            commands = tuple(batch.commands[at] for at in now)
            try:
                found = yield from self._part(replace(batch, commands=commands))
            except ConfigError as exc:
                # Refused, not executed. What stood before it in the same part may have been, so a part of a batch
                # that is not idempotent is a single command or a transaction.
                redirections += 1
                slot, owner, asking = _redirection(exc)
                if redirections > REDIRECTIONS_MAX:
                    raise ServerUnavailableError(
                        f"the Redis Cluster sent a batch around {REDIRECTIONS_MAX} times: check CLUSTER SLOTS on all "
                        "nodes",
                        reply=exc.data["reply"],
                    ) from exc
                if not asking:
                    self._owners[slot] = owner
                    continue
                found = yield from _asking(owner, replace(batch, commands=commands), exc)
            for at, reply in zip(now, found, strict=True):
                replies[at] = reply
            missing = [at for at in missing if at not in now]
        return replies

    def _next(self, batch: Batch, missing: list[int]) -> list[int]:
        """The commands that go out together with the first that is missing: same node, or same slot if atomic."""
        first = batch.commands[missing[0]]
        if not (batch.idempotent or batch.atomic) or _name(first) in _EVERYWHERE or _name(first) == "SCAN":
            return missing[:1]
        home = self._home(first, batch.atomic)
        # What has no key (TIME) goes where the others go: any node knows, and asking two takes two round trips.
        return [at for at in missing if self._home(batch.commands[at], batch.atomic, home) == home]

    def _home(self, command: Command, atomic: bool, others: str | int | None = None) -> str | int:
        slot = slot_of(command)
        if slot is None:
            if _name(command) in _EVERYWHERE or _name(command) == "SCAN":
                return _name(command)
            return self._owners[0] if others is None else others
        return slot if atomic else self._owners[slot]

    def _part(self, batch: Batch) -> Asks:
        command = batch.commands[0]
        if _name(command) in _EVERYWHERE:
            found = []
            for node in self._masters():
                found = yield Ask(node, batch)
            return found
        if _name(command) == "SCAN":
            return (yield from self._scan(batch))
        slot = slot_of(command)
        return (yield Ask(self._owners[0 if slot is None else slot], batch))

    def _scan(self, batch: Batch) -> Asks:
        # A cursor belongs to one node. The caller's first step is therefore all of them, with no second.
        (scan,) = batch.commands
        keys: list[bytes] = []
        for node in self._masters():
            cursor = b"0"
            while True:
                ((cursor, page),) = yield Ask(node, replace(batch, commands=(("SCAN", cursor, *scan[2:]),)))
                keys += page
                if cursor == b"0":
                    break
        return [[b"0", keys]]

    def _masters(self) -> list[str]:
        return list(dict.fromkeys(self._owners))

    def _learn_owners(self) -> Generator[Ask, list[Any], None]:
        error: RtmemError = ServerUnavailableError("the URL of the Redis Cluster names no node: add host:port")
        for node in self.seeds:
            try:
                (ranges,) = yield Ask(node, Batch((("CLUSTER", "SLOTS"),)))
            except CommandError as exc:
                raise ConfigError(f"Redis at {node} is no Redis Cluster ({exc}): use redis:// for it") from exc
            except ServerError as exc:
                error = exc
                continue
            owners = _owners_of(ranges, node)
            if owners:
                self._owners, self._stale = owners, False
                return
            error = ServerUnavailableError(
                f"the Redis Cluster at {node} has slots that no node serves: wait for it, or repair it (CLUSTER INFO)"
            )
        raise error


def slot_of(command: Command) -> int | None:
    """The slot of the first key of `command`; None where it has no key."""
    name = _name(command)
    if name in _KEYLESS:
        return None
    if name in _KEYS_COUNTED:
        at = 3 if int(command[2]) else None
    elif name in ("XREAD", "XREADGROUP"):
        at = next(at for at, word in enumerate(command) if str(word).upper() == "STREAMS") + 1
    else:
        at = 2 if name in _KEY_AFTER_SUBCOMMAND else 1
    if at is None or at >= len(command):
        return None
    key = command[at]
    return key_slot(key if isinstance(key, bytes) else str(key).encode())


def _name(command: Command) -> str:
    return str(command[0]).upper()


def _owners_of(ranges: Any, asked: str) -> list[str]:
    """The owner of each slot out of CLUSTER SLOTS; empty if one has none."""
    owners = [""] * REDIS_CLUSTER_HASH_SLOTS
    for first, last, (host, port, *_), *_ in ranges:
        # A node that does not know its own name says nothing: it is the one that was asked.
        owner = f"{host.decode() if host else asked.rpartition(':')[0]}:{port}"
        owners[first : last + 1] = [owner] * (last + 1 - first)
    return [] if "" in owners else owners


def _redirection(exc: ConfigError) -> tuple[int, str, bool]:
    """Slot, node and whether it is for once only, out of `MOVED 3999 127.0.0.1:6381` or `ASK ...`; else raises."""
    kind, *where = str(exc.data.get("reply", "")).split()
    if kind not in ("MOVED", "ASK"):
        raise exc
    return int(where[0]), where[1], kind == "ASK"


def _asking(node: str, batch: Batch, cause: ConfigError) -> Asks:
    """Ask the node that a slot is moving to; each command needs its own ASKING in front."""
    if batch.atomic:
        # MULTI would take the one ASKING; a moment later the slot has arrived.
        raise ServerUnavailableError(
            f"Redis Cluster: a slot is moving to {node}, transactions wait for it: try again", reply=""
        ) from cause
    pairs = tuple(word for command in batch.commands for word in (("ASKING",), command))
    return (yield Ask(node, replace(batch, commands=pairs)))[1::2]


class SyncClusterDriver(SyncDriver):
    """Runs operations against a Redis Cluster, blocking."""

    def __init__(self, url: str, settings: Redis) -> None:
        self.settings = settings
        self._url, seeds = _plain_url(url)
        self._router = Router(seeds)
        self._nodes: dict[str, SyncDriver] = {}
        self._node(seeds[0])  # a URL that cannot be read is known at once

    def _attempt(self, batch: Batch, deadline: float) -> list[Any]:
        asks = self._router.answer(batch)
        try:
            ask = next(asks)
            while True:
                try:
                    replies = self._node(ask.node)._attempt(ask.batch, deadline)
                except RtmemError as exc:
                    ask = asks.throw(exc)
                else:
                    ask = asks.send(replies)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def _node(self, address: str) -> SyncDriver:
        if address not in self._nodes:
            self._nodes[address] = SyncDriver(_at(clients.sync_pool(self._url, self.settings), address), self.settings)
        return self._nodes[address]

    def _learn_from(self, exc: RtmemError) -> None:
        if isinstance(exc, NODE_CHANGED):
            self._router.forget()

    def close(self) -> None:
        """Close every connection; one that is in use is closed when its call ends."""
        for node in self._nodes.values():
            node.close()


class AsyncClusterDriver(AsyncDriver):
    """Runs operations against a Redis Cluster, awaiting."""

    def __init__(self, url: str, settings: Redis) -> None:
        self.settings = settings
        self._url, seeds = _plain_url(url)
        self._router = Router(seeds)
        self._nodes: dict[str, AsyncDriver] = {}
        self._node(seeds[0])

    async def _attempt(self, batch: Batch, deadline: float) -> list[Any]:
        asks = self._router.answer(batch)
        try:
            ask = next(asks)
            while True:
                try:
                    replies = await self._node(ask.node)._attempt(ask.batch, deadline)
                except RtmemError as exc:
                    ask = asks.throw(exc)
                else:
                    ask = asks.send(replies)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def _node(self, address: str) -> AsyncDriver:
        if address not in self._nodes:
            pool = _at(clients.async_pool(self._url, self.settings), address)
            self._nodes[address] = AsyncDriver(pool, self.settings)
        return self._nodes[address]

    def _learn_from(self, exc: RtmemError) -> None:
        if isinstance(exc, NODE_CHANGED):
            self._router.forget()

    async def aclose(self) -> None:
        """Close every connection. What was already written is executed by the server; its callers get an error."""
        for node in self._nodes.values():
            await node.aclose()


def _plain_url(url: str) -> tuple[str, tuple[str, ...]]:
    """A redis:// URL with the options of `url` (rediss:// with ?ssl=true), and its nodes."""
    parts = urlsplit(url)
    credentials, at, hosts = parts.netloc.rpartition("@")
    if parts.path not in ("", "/", "/0"):
        raise ConfigError(f"Redis URL {clients.redact(url)!r}: a cluster has no database but 0; leave it out")
    try:
        addresses = [urlsplit(f"//{host}") for host in hosts.split(",")]
        seeds = tuple(f"{address.hostname or 'localhost'}:{address.port or 6379}" for address in addresses)
    except ValueError:
        raise ConfigError(f"Redis URL {clients.redact(url)!r}: expected redis+cluster://host:7000,host2:7000") from None
    options = [option for option in parts.query.split("&") if option]
    kept = [option for option in options if option not in ("ssl=true", "ssl=1")]
    scheme = "redis" if kept == options else "rediss"
    return f"{scheme}://{credentials}{at}{hosts.split(',')[0]}{'?' if kept else ''}{'&'.join(kept)}", seeds


def _at(pool: redis.ConnectionPool, address: str) -> redis.ConnectionPool:
    host, _, port = address.rpartition(":")
    pool.connection_kwargs |= {"host": host, "port": int(port)}
    return pool
