"""What the four savers share: construction in the manner of langgraph-checkpoint-redis, versions, tenants, errors."""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import msgspec
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol, maybe_add_typed_methods

from rtmem import settings as all_settings
from rtmem.errors import ConfigError, UnsupportedError
from rtmem.keys import Keys, check_id
from rtmem.operations import durability
from rtmem.operations.durability_proof import Promise
from rtmem.operations.heads import Heads
from rtmem.operations.places import Scope
from rtmem.operations.serde import Serde
from rtmem.settings import Ack
from rtmem.steps import R, Steps


class Saver(BaseCheckpointSaver[str]):
    """Common part of the savers. It holds no connection: the driver does."""

    shallow: ClassVar[bool] = False

    def __init__(
        self,
        *,
        serde: SerializerProtocol | None,
        settings: all_settings.Checkpoint,
        principal: str,
        pointers: all_settings.Pointers | None = None,
    ) -> None:
        self.settings = settings
        serializer = maybe_add_typed_methods(serde or BaseCheckpointSaver.serde)
        self._serializer = serializer
        self.scope = Scope(
            serde=Serde(serializer, settings.compress_bytes_min),
            keys=Keys(settings.prefix),
            principal=check_id(principal, "principal"),
            settings=settings,
            heads=Heads(settings.cache_bytes_max),
            shallow=self.shallow,
            pointers=pointers or all_settings.Pointers(),
        )
        self._promises: dict[Ack, Promise] = {}  # shared with clones: what the server can do is asked once
        self.promise(settings.ack)

    @property
    def serde(self) -> SerializerProtocol:
        """LangGraph's serialiser of channel values, writes and metadata."""
        return self._serializer

    @serde.setter
    def serde(self, serializer: SerializerProtocol) -> None:
        self._serializer = serializer
        # A clone with another allow-list must not take over what was encoded under the first one.
        self.scope = dataclasses.replace(
            self.scope,
            serde=Serde(serializer, self.settings.compress_bytes_min),
            heads=Heads(self.settings.cache_bytes_max),
        )

    def bind(self, principal: str) -> Self:
        """This saver for another principal: same connections, other threads. Raises IdTooLongError."""
        clone = copy.copy(self)
        clone.scope = dataclasses.replace(self.scope, principal=check_id(principal, "principal"))
        return clone

    def promise(self, ack: Ack) -> Promise:
        """What `ack` means with the settings of this saver. Raises ConfigError for a word that is none."""
        if ack not in self._promises:
            self._promises[ack] = Promise(
                ack, self.settings.ack_replicas, self.settings.ack_timeout_ms, self.scope.keys.barrier
            )
        return self._promises[ack]

    def _durably(self, steps: Steps[R]) -> Steps[R]:
        """A write, with the proof that this saver was asked to wait for."""
        return durability.durably(steps, self.promise(self.settings.ack))

    def fenced(self, token: int) -> Self:
        """This saver for the runner that holds fencing token `token`: once a thread has seen a higher one, this saver's
        put, put_writes, prune, delete_for_runs and delete_thread are refused with StaleWriterError."""
        clone = copy.copy(self)
        clone.scope = dataclasses.replace(self.scope, fence=str(int(token)))
        return clone

    def get_next_version(self, current: Any, channel: None = None) -> Any:
        """The version after `current`: 7 digits of base 32, a dot, 6 random characters. Sorts like its number.

        14 bytes where InMemorySaver takes 49; a checkpoint holds dozens of versions. The random part keeps two forks
        that count to the same number apart. A thread that began under another saver keeps that saver's form, because
        versions of one thread are compared with each other.
        """
        if current is None:
            return f"{_base32(1)}.{_random6()}"
        if isinstance(current, int | float):
            return current + 1
        head, _, _ = current.partition(".")
        if len(head) == 32:
            return f"{int(head) + 1:032}.{random.random():016}"
        return f"{_base32(int(head, 32) + 1)}.{_random6()}"


_DIGITS = "0123456789abcdefghijklmnopqrstuv"


def _base32(number: int) -> str:
    digits = ""
    for _ in range(7):
        number, digit = divmod(number, 32)
        digits = _DIGITS[digit] + digits
    assert number == 0, "a thread with 34 billion versions of a channel"
    return digits


def _random6() -> str:
    number = random.getrandbits(30)
    return "".join(_DIGITS[number >> shift & 31] for shift in (25, 20, 15, 10, 5, 0))


def checkpoint_settings(
    settings: all_settings.Checkpoint | None,
    ttl: Mapping[str, Any] | None,
    checkpoint_prefix: str | None,
    ack: Ack | None = None,
    replicas: int | None = None,
    offload_bytes_min: int | None = None,
) -> all_settings.Checkpoint:
    """`settings` with the constructor conventions of langgraph-checkpoint-redis on top.

    Args:
        ttl: {"default_ttl": minutes, "refresh_on_read": bool}.
        checkpoint_prefix: first part of every key; default "rtmem".
        ack: what every write waits for; default "memory".
        replicas: how many replicas ack "replica" asks for; default 1.
        offload_bytes_min: values from this size on lie at pointers; default 0, none.
    """
    settings = settings or all_settings.Checkpoint()
    changes: dict[str, Any] = {}
    if ttl is not None and not isinstance(ttl, Mapping):
        raise ConfigError(f'ttl is {ttl!r}: write ttl={{"default_ttl": minutes}}')
    if ttl:
        unknown = set(ttl) - {"default_ttl", "refresh_on_read"}
        if unknown:
            raise ConfigError(f"ttl has unknown keys {sorted(unknown)}: use default_ttl (minutes) and refresh_on_read")
        minutes = ttl.get("default_ttl")
        if minutes is not None and not (isinstance(minutes, int | float) and minutes > 0):
            raise ConfigError(f"ttl['default_ttl'] is {minutes!r}: minutes above 0, or None for threads that stay")
        changes["ttl_ms"] = max(1, round(minutes * 60_000)) if minutes else 0
        changes["refresh_on_read"] = bool(ttl.get("refresh_on_read", False))
    if checkpoint_prefix:
        changes["prefix"] = checkpoint_prefix
    if ack is not None:
        changes["ack"] = ack
    if replicas is not None:
        changes["ack_replicas"] = replicas
    if offload_bytes_min is not None:
        if type(offload_bytes_min) is not int or offload_bytes_min < 0:
            raise ConfigError(f"offload_bytes_min is {offload_bytes_min!r}: bytes, or 0 to move nothing out")
        changes["offload_bytes_min"] = offload_bytes_min
    return msgspec.structs.replace(settings, **changes)


def unsupported(saver: object, verb: str, why: str) -> UnsupportedError:
    """The error for a verb that this kind of saver cannot have."""
    return UnsupportedError(f"{type(saver).__name__}.{verb}: {why}", verb=verb)
