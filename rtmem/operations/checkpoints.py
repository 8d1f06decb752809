"""put, put_writes and get_tuple, of the full and of the shallow saver: one round trip each.

What the bytes look like and what each step does at the server is told in `lua/checkpoints_v1.lua`.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_metadata,
    writes_sort_key,
)

from rtmem import settings as all_settings
from rtmem.errors import CorruptRecordError, InvalidRequestError
from rtmem.keys import Keys, ThreadKeys, check_id
from rtmem.operations.functions import call
from rtmem.operations.heads import Channel, Head, HeadKey, Heads
from rtmem.operations.serde import Serde
from rtmem.operations.sharing import Cut, ListImage, digest, image_of, is_shareable, numbers_of, print_of, ranges_text
from rtmem.operations.sharing import split as split_list
from rtmem.steps import Argument, Command, Compute, Steps

NAMESPACE_BYTES_MAX: Final = 16 * 1024  # a namespace grows by about 45 bytes with every nested subgraph
_SEEN_MAX: Final = 10_000


@dataclass(slots=True)
class Scope:
    """What an operation on checkpoints has to know of its saver."""

    serde: Serde
    keys: Keys = field(default_factory=Keys)
    principal: str = ""
    settings: all_settings.Checkpoint = field(default_factory=all_settings.Checkpoint)
    heads: Heads = field(default_factory=lambda: Heads(all_settings.Checkpoint().cache_bytes_max))
    shallow: bool = False
    fence: str = ""  # fencing token of the runner, or empty
    indexed: OrderedDict[tuple[str, str], None] = field(default_factory=OrderedDict)

    @property
    def mode(self) -> str:
        """What the functions call this saver."""
        return "shallow" if self.shallow else "full"


@dataclass(frozen=True, slots=True)
class Place:
    """A thread and a namespace in it, as a config names them."""

    thread_id: str
    ns: str
    checkpoint_id: str
    keys: ThreadKeys

    @property
    def function_keys(self) -> tuple[str, str, str]:
        """The keys every function declares."""
        return (self.keys.checkpoints, self.keys.index, self.keys.tombstone)

    @property
    def head_field(self) -> bytes:
        """Field that names the latest checkpoint of the namespace."""
        return b"h" + encode_id(self.ns)

    @property
    def head_key(self) -> HeadKey:
        """Where this process remembers the head."""
        return (self.keys.checkpoints, self.ns)

    def member(self, checkpoint_id: str) -> bytes:
        """What stands for a checkpoint of this namespace in the index."""
        return encode_id(checkpoint_id) + b"\0" + encode_id(self.ns)


def encode_id(value: str) -> bytes:
    """UTF-8 without NUL, in the same order: NUL becomes 01 01, and 01 becomes 01 02."""
    raw = value.encode("utf-8", "surrogatepass")
    if b"\0" in raw or b"\1" in raw:
        raw = raw.replace(b"\1", b"\1\2").replace(b"\0", b"\1\1")
    return raw


def decode_id(raw: bytes) -> str:
    """What `encode_id` was given."""
    if b"\1" in raw:
        raw = re.sub(rb"\x01([\x01\x02])", lambda match: b"\0" if match[1] == b"\1" else b"\1", raw)
    return raw.decode("utf-8", "surrogatepass")


def split_member(member: bytes) -> tuple[str, str]:
    """(checkpoint_id, checkpoint_ns) of an index member."""
    checkpoint_id, _, ns = member.partition(b"\0")
    return decode_id(checkpoint_id), decode_id(ns)


def place_of(scope: Scope, config: RunnableConfig) -> Place:
    """Where `config` points. Raises IdTooLongError, and InvalidRequestError without a thread_id."""
    configurable = config.get("configurable", {})
    if "thread_id" not in configurable:
        raise InvalidRequestError(
            'config has no thread_id: pass {"configurable": {"thread_id": "..."}} to invoke, stream or get_state'
        )
    thread_id = as_thread_id(configurable["thread_id"])
    ns = configurable.get("checkpoint_ns") or ""
    if len(ns) * 4 > NAMESPACE_BYTES_MAX and len(ns.encode()) > NAMESPACE_BYTES_MAX:
        raise InvalidRequestError(f"checkpoint_ns has over {NAMESPACE_BYTES_MAX} bytes: subgraphs are nested too deep")
    checkpoint_id = check_id(configurable.get("checkpoint_id") or "", "checkpoint_id")
    return Place(thread_id, ns, checkpoint_id, scope.keys.thread(scope.principal, thread_id))


def as_thread_id(value: object) -> str:
    """A thread_id as LangGraph users pass it: a string, an int or a UUID."""
    return check_id(str(value) if type(value) in (int, UUID) else value, "thread_id")


def config_of(thread_id: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    """The config that names one checkpoint."""
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}


# put -----------------------------------------------------------------------------------------------------------------


def put(
    scope: Scope,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> Steps[RunnableConfig]:
    """Store a checkpoint; what did not change since the one it builds on is neither sent nor stored again.

    Returns:
        The config that names the new checkpoint.

    Raises:
        ThreadDeletedError: the thread was deleted after this run began.
        StaleWriterError: another runner holds a newer fencing token.
        ServerFullError, PersistenceError: nothing was stored.

    Redis: 1 round trip, FCALL rtmem_v1_checkpoint_put; 2 if what this process remembers of the thread is outdated.
        The first put of a thread or run also adds it to the indexes, in the same round trip.
    Source: BaseCheckpointSaver.put (langgraph-checkpoint 4.3).
    """
    place = place_of(scope, config)
    check_id(checkpoint["id"], "checkpoint_id")
    merged: dict[str, Any] = dict(get_checkpoint_metadata(config, metadata))
    member = place.member(checkpoint["id"])
    parent = place.member(place.checkpoint_id) if place.checkpoint_id else b""

    known = scope.heads.get(place.head_key)
    draft = Draft(scope.serde, scope.settings, checkpoint, new_versions, parent, known)
    yield Compute(draft.fill())
    reply = yield from _put(scope, place, member, parent, merged, draft)
    if reply[0] == b"stale":
        # Somebody else wrote meanwhile, or the thread expired: send everything.
        draft = Draft(scope.serde, scope.settings, checkpoint, new_versions, b"", None)
        yield Compute(draft.fill())
        reply = yield from _put(scope, place, member, parent, merged, draft)
    if reply[0] == b"ok":
        scope.heads.remember(place.head_key, draft.head(member, int(reply[1])))
        if reply[2] == b"sweep":
            yield from sweep(place)
    return config_of(place.thread_id, place.ns, checkpoint["id"])


def _put(
    scope: Scope, place: Place, member: bytes, parent: bytes, metadata: dict[str, Any], draft: Draft
) -> Steps[list[bytes]]:
    run_id = metadata.get("run_id")
    run_id = run_id if isinstance(run_id, str) else ""
    deltas = metadata.get("counters_since_delta_snapshot") or {}
    args: list[Argument] = [
        scope.mode,
        member,
        place.head_field,
        parent,
        draft.nonce,
        encode_id(run_id),
        b"\0".join(encode_id(channel) for channel in deltas),
        draft.base,
        draft.base_nonce,
        scope.settings.ttl_ms,
        scope.fence,
        draft.body,
        scope.serde.dumps(metadata),
        len(draft.entries) // 4,
        *draft.entries,
        *draft.fresh,
    ]
    beside = _index_commands(scope, place, run_id)
    reply: list[bytes] = yield from call("rtmem_v1_checkpoint_put", place.function_keys, args, beside=beside)
    for command in beside:
        _mark_indexed(scope, command)
    return reply


def _index_commands(scope: Scope, place: Place, run_id: str) -> list[Command]:
    """What puts a thread and a run into the derived indexes, the first time this process sees them."""
    commands: list[Command] = []
    thread = encode_id(place.thread_id)
    threads = scope.keys.threads(scope.principal)
    if (threads, place.thread_id) not in scope.indexed:
        commands.append(("ZADD", threads, 0, thread))
    if run_id:
        run = scope.keys.run(scope.principal, run_id)
        if (run, place.thread_id) not in scope.indexed:
            commands.append(("SADD", run, thread))
            if scope.settings.ttl_ms:
                commands.append(("PEXPIRE", run, scope.settings.ttl_ms))
    return commands


def _mark_indexed(scope: Scope, command: Command) -> None:
    if command[0] in ("ZADD", "SADD"):
        raw = command[-1]
        assert isinstance(raw, bytes), raw
        scope.indexed[str(command[1]), decode_id(raw)] = None
        if len(scope.indexed) > _SEEN_MAX:
            scope.indexed.popitem(last=False)


class Draft:
    """A checkpoint on its way to the server: entries, new pieces, and what they build on."""

    def __init__(
        self,
        serde: Serde,
        settings: all_settings.Checkpoint,
        checkpoint: Checkpoint,
        new_versions: ChannelVersions,
        parent: bytes,
        known: Head | None,
    ) -> None:
        self.nonce = os.urandom(8)
        # Without a remembered head, unchanged channels can still be taken over from the parent.
        self.base = known.member if known else parent
        self.base_nonce = known.nonce if known else b""
        self.entries: list[Argument] = []
        self.fresh: list[bytes] = []
        self.body = b""
        self._serde = serde
        self._settings = settings
        self._checkpoint = checkpoint
        self._new_versions = new_versions
        self._base_is_parent = bool(self.base) and self.base == parent
        self._known = known
        self._cuts: dict[str, Cut] = {}
        self._wholes: dict[str, Channel] = {}
        self._versions: dict[str, bytes] = {}

    def fill(self) -> Iterator[None]:
        """Encode what is new, in slices."""
        values = self._checkpoint["channel_values"]
        versions = self._checkpoint["channel_versions"]
        for name in (*versions, *(name for name in values if name not in versions)):
            version = self._versions[name] = encode_version(versions[name]) if name in versions else b""
            if name not in values:
                self._add(name, version, "-", b"")
            elif self._is_unchanged(name, version):
                self._add(name, version, "=", b"")
            elif is_shareable(values[name]):
                yield from self._add_list(name, version, values[name])
            else:
                self._add_whole(name, version, values[name])
            yield
        body = {k: v for k, v in self._checkpoint.items() if k not in ("channel_values", "channel_versions")}
        self.body = self._serde.dumps(body)

    def head(self, member: bytes, first: int) -> Head:
        """What to remember of this checkpoint once it is stored; `first` is the number of its first new piece."""
        head = Head(member, self.nonce)
        for name, version in self._versions.items():
            if name in self._cuts:
                head.channels[name] = Channel(version, image=image_of(self._cuts[name], first))
            elif name in self._wholes:
                whole = self._wholes[name]
                number = whole.number if whole.number >= 0 else first - whole.number - 1
                head.channels[name] = Channel(version, number=number, digest=whole.digest)
            elif self._known and name in self._known.channels and self._is_unchanged(name, version):
                head.channels[name] = self._known.channels[name]
            else:
                head.channels[name] = Channel(version)
        return head

    def _is_unchanged(self, name: str, version: bytes) -> bool:
        """Whether the base stores this very value, to be decided without looking at it."""
        if name in self._new_versions or not version or not self.base:
            return False
        if self._known is None:
            return True  # the server compares the version, and says "stale" if the parent has another
        old = self._known.channels.get(name)
        if old is None or old.version != version:
            return False
        # Two forks may count to the same number; version strings carry a random part and never meet.
        return self._base_is_parent or version[:1] == b"s"

    def _add(self, name: str, version: bytes, kind: str, data: Argument) -> None:
        self.entries += (name.encode("utf-8", "surrogatepass"), version, kind, data)

    def _add_list(self, name: str, version: bytes, value: list[Any]) -> Iterator[None]:
        old = self._known.channels.get(name) if self._known else None
        cut = Cut(old.image if old and old.image else ListImage())
        mark = len(self.fresh)
        yield from split_list(value, cut, self._serde.dumps, self.fresh, self._settings.piece_bytes_min)
        alone = len(cut.tail) == 1 and not cut.kept and len(self.fresh) > mark
        if alone and len(self.fresh[-1]) <= self._settings.inline_bytes_max:
            self._add(name, version, "i", b"l" + self.fresh.pop())
            return
        self._cuts[name] = cut
        self._add(name, version, "L", ranges_text(cut))

    def _add_whole(self, name: str, version: bytes, value: Any) -> None:
        stored = self._serde.dumps(value)
        if len(stored) <= self._settings.inline_bytes_max:
            self._add(name, version, "i", b"v" + stored)
            return
        identity = digest(stored)
        old = self._known.channels.get(name) if self._known else None
        if old and old.digest == identity:
            self._wholes[name] = Channel(version, number=old.number, digest=identity)
            self._add(name, version, "p", old.number)
        else:
            # Negative until the server gives out numbers: -1 is the first new piece.
            self._wholes[name] = Channel(version, number=-len(self.fresh) - 1, digest=identity)
            self._add(name, version, "P", len(self.fresh))
            self.fresh.append(stored)


def encode_version(version: str | int | float) -> bytes:
    """A channel version with its type: s, i or f."""
    if isinstance(version, str):
        return b"s" + version.encode()
    return b"f" + repr(version).encode() if isinstance(version, float) else b"i%d" % version


def decode_version(raw: bytes) -> str | int | float:
    """What `encode_version` was given."""
    text = raw[1:].decode()
    return text if raw[:1] == b"s" else int(text) if raw[:1] == b"i" else float(text)


# put_writes ----------------------------------------------------------------------------------------------------------


def put_writes(
    scope: Scope, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
) -> Steps[None]:
    """Store what a task wrote. Normal writes insert once (a replayed task must not overwrite), special ones upsert.

    Writes may come before their checkpoint. Writes of a checkpoint that this process stored and that is gone since
    (expired, replaced by a shallow saver) are dropped: they must not bring a thread back.

    Raises:
        ThreadDeletedError, StaleWriterError, ServerFullError, PersistenceError.

    Redis: 1 round trip, FCALL rtmem_v1_checkpoint_put_writes.
    Source: BaseCheckpointSaver.put_writes (langgraph-checkpoint 4.3).
    """
    place = place_of(scope, config)
    if not place.checkpoint_id:
        raise InvalidRequestError("put_writes needs a checkpoint_id in config: writes belong to one checkpoint")
    member = place.member(place.checkpoint_id)
    known = scope.heads.get(place.head_key)
    args: list[Argument] = [
        scope.mode,
        member,
        place.head_field,
        os.urandom(8),
        scope.settings.ttl_ms,
        scope.fence,
        "1" if known and known.member == member else "0",
        encode_id(check_id(task_id, "task_id")),
        task_path,
    ]
    for position, (channel, value) in enumerate(writes):
        args += (WRITES_IDX_MAP.get(channel, position), channel, scope.serde.dumps(value))
    yield from call("rtmem_v1_checkpoint_put_writes", place.function_keys, args)


# get_tuple -----------------------------------------------------------------------------------------------------------


def get_tuple(scope: Scope, config: RunnableConfig) -> Steps[CheckpointTuple | None]:
    """Fetch one checkpoint with its pending writes.

    Args:
        config: thread_id is required; no checkpoint_id means the latest of the namespace.

    Returns:
        The tuple, pending writes in `writes_sort_key` order, or None when there is no such checkpoint.

    Raises:
        CorruptRecordError: a record or a piece is gone, or does not decode.
        NewerLayoutError: stored by a newer rtmem.

    Redis: 1 round trip, FCALL rtmem_v1_checkpoint_get (and PEXPIRE in the same one with refresh_on_read).
    Source: BaseCheckpointSaver.get_tuple (langgraph-checkpoint 4.3).
    """
    place = place_of(scope, config)
    member = place.member(place.checkpoint_id) if place.checkpoint_id else b""
    args: list[Argument] = [member, place.head_field, b"", b"", b""]
    reply = yield from call("rtmem_v1_checkpoint_get", place.function_keys, args, beside=refresh_commands(scope, place))
    if reply is None:
        return None
    loaded = Loaded(scope.serde, place.thread_id, reply)
    yield Compute(loaded.fill())
    if not member:
        scope.heads.remember(place.head_key, loaded.head)
    return loaded.tuple


def refresh_commands(scope: Scope, place: Place) -> list[Command]:
    """What pushes the expiry of a thread away when it is read, if the saver was asked to."""
    if not (scope.settings.refresh_on_read and scope.settings.ttl_ms):
        return []
    return [("PEXPIRE", key, scope.settings.ttl_ms) for key in (place.keys.checkpoints, place.keys.index)]


class Loaded:
    """A stored checkpoint on its way back: decoded in slices, and remembered as a head."""

    tuple: CheckpointTuple

    def __init__(self, serde: Serde, thread_id: str, reply: list[Any]) -> None:
        self._serde = serde
        self._thread_id = thread_id
        member, nonce, self._parent, self._body, self._metadata, _, self._entries, self._pieces, self._writes = reply
        self.head = Head(member, nonce)

    def fill(self) -> Iterator[None]:
        """Decode everything."""
        checkpoint_id, ns = split_member(self.head.member)
        checkpoint = self._serde.loads(self._body)
        checkpoint["channel_versions"] = {}
        checkpoint["channel_values"] = {}
        yield from self._fill_channels(checkpoint)
        writes = sorted_writes(self._serde, self._writes)
        yield
        self.tuple = CheckpointTuple(
            config=config_of(self._thread_id, ns, checkpoint_id),
            checkpoint=checkpoint,
            metadata=self._serde.loads(self._metadata),
            parent_config=config_of(self._thread_id, *reversed(split_member(self._parent))) if self._parent else None,
            pending_writes=writes,
        )

    def _fill_channels(self, checkpoint: Checkpoint) -> Iterator[None]:
        entries, pieces = self._entries, iter(self._pieces)
        for at in range(0, len(entries), 4):
            raw_name, version, kind, data = entries[at : at + 4]
            name = raw_name.decode("utf-8", "surrogatepass")
            if version:
                checkpoint["channel_versions"][name] = decode_version(version)
            channel = self.head.channels[name] = Channel(version)
            if kind == b"l":
                value: list[Any] = []
                yield from self._fill_list(channel, value, numbers_of(data), pieces)
                checkpoint["channel_values"][name] = value
            elif kind == b"p":
                stored = next(pieces)
                channel.number, channel.digest = int(data), digest(stored)
                checkpoint["channel_values"][name] = self._serde.loads(stored)
            elif kind == b"i":
                checkpoint["channel_values"][name] = self._serde.loads(data[1:])
            yield

    def _fill_list(
        self, channel: Channel, value: list[Any], numbers: list[int], pieces: Iterator[bytes]
    ) -> Iterator[None]:
        image = channel.image = ListImage(numbers=numbers)
        loads, dumps = self._serde.loads, self._serde.dumps
        for done, _ in enumerate(numbers):
            elements = loads(next(pieces))
            value.extend(elements)
            # Fingerprints of what is handed out: what the next put finds changed in it is new.
            image.prints.extend([print_of(element, dumps) for element in elements])
            image.sizes.append(len(elements))
            if done & 15 == 15:
                yield


def value_of(serde: Serde, kind: bytes, data: bytes, pieces: list[bytes]) -> Any:
    """The value of one entry whose pieces are at hand."""
    if kind == b"l":
        return [element for piece in pieces for element in serde.loads(piece)]
    if kind == b"p":
        return serde.loads(pieces[0])
    if kind == b"i":
        return serde.loads(data[1:])
    raise CorruptRecordError(f"a stored channel has kind {kind!r}: upgrade rtmem, or run `rtmem doctor threads`")


def sorted_writes(serde: Serde, flat: list[bytes]) -> list[tuple[str, str, Any]]:
    """Pending writes in the order live execution applies them."""
    rows = [
        (flat[at + 1].decode(), decode_id(flat[at]), int(flat[at + 2]), flat[at + 3].decode(), flat[at + 4])
        for at in range(0, len(flat), 5)
    ]
    rows.sort(key=lambda row: writes_sort_key(row[0], row[1], row[2]))
    return [(task_id, channel, serde.loads(stored)) for _, task_id, _, channel, stored in rows]


# Freeing -------------------------------------------------------------------------------------------------------------


def sweep(place: Place) -> Steps[None]:
    """Free the pieces of a thread that no checkpoint refers to any more, in steps of a few milliseconds at most.

    Redis: 1 round trip per 300 checkpoints that are left and per 2,000 pieces that are freed.
    """
    while (yield from call("rtmem_v1_checkpoint_sweep", place.function_keys, ())):
        pass
