"""Where a checkpoint lies: thread, namespace, and what stands for them in Redis."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from langchain_core.runnables import RunnableConfig

from rtmem import settings as all_settings
from rtmem.errors import InvalidRequestError
from rtmem.keys import Keys, ThreadKeys, check_id
from rtmem.operations.heads import HeadKey, Heads
from rtmem.operations.serde import Serde

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
    pointers: all_settings.Pointers = field(default_factory=all_settings.Pointers)  # where oversized values lie
    indexed: OrderedDict[tuple[str, str], float] = field(default_factory=OrderedDict)

    @property
    def mode(self) -> str:
        """What the functions call this saver."""
        return "shallow" if self.shallow else "full"

    def is_indexed(self, index: str, place: Place) -> bool:
        """Whether this process has put the thread into that derived index, and not so long ago that it may expire."""
        at = self.indexed.get((index, place.thread_id))
        return at is not None and (not self.settings.ttl_ms or time.monotonic() - at < self.settings.ttl_ms / 4000)

    def mark_indexed(self, index: str, thread_id: str) -> None:
        """Remember that a thread is in a derived index, so that later puts need not say so again."""
        self.indexed[index, thread_id] = time.monotonic()
        if len(self.indexed) > _SEEN_MAX:
            self.indexed.popitem(last=False)


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


def thread_place(scope: Scope, thread_id: object) -> Place:
    """The root namespace of a thread."""
    return place_of(scope, {"configurable": {"thread_id": as_thread_id(thread_id)}})


def as_thread_id(value: object) -> str:
    """A thread_id as LangGraph users pass it: a string, an int or a UUID."""
    return check_id(str(value) if type(value) in (int, UUID) else value, "thread_id")


def config_of(thread_id: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    """The config that names one checkpoint."""
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}
