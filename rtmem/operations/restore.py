"""A stored checkpoint on its way back: from a reply, or from what this process remembers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.base import Checkpoint, CheckpointTuple, writes_sort_key

from rtmem.errors import CorruptRecordError
from rtmem.operations.clones import UncopyableError, clone
from rtmem.operations.drafts import decode_version
from rtmem.operations.fingerprints import prints_of
from rtmem.operations.functions import call
from rtmem.operations.heads import Channel, Head
from rtmem.operations.offloading import fetch, gone, is_reference, references_of_writes, with_values
from rtmem.operations.places import Place, Scope, config_of, decode_id, split_member
from rtmem.operations.serde import Serde
from rtmem.operations.sharing import ListImage, numbers_of
from rtmem.steps import Batch, Steps

_DECODE_PER_SLICE_BYTES = 16 * 1024  # about half a millisecond of messages


@dataclass(frozen=True, slots=True)
class Lost:
    """Something that a record refers to and that is not there."""

    what: str
    reference: bytes = b""  # to the pointer where it should lie


def read_head(scope: Scope, place: Place, reply: list[Any]) -> Steps[Head | Lost]:
    """The head that a reply of rtmem_v2_checkpoint_get or list_page describes; nothing is decoded yet.

    Redis: no round trip, or 1 for its large pieces, and for what lies at pointers those of `offloading.fetch`.
    """
    *_, entries, pieces, writes = reply
    missing = [at for at, piece in enumerate(pieces) if piece is None]
    offloaded = [at for at, piece in enumerate(pieces) if is_reference(piece)]
    places = _places(entries) if missing or offloaded else []
    if missing:
        fields = [places[at][0] for at in missing]
        (found,) = yield Batch((("HMGET", place.keys.checkpoints, *fields),), lane="large")
        for at, piece in zip(missing, found, strict=True):
            if piece is None:
                return Lost(places[at][1])
            pieces[at] = piece
    wanted = {pieces[at]: places[at][1] for at in offloaded} | references_of_writes(writes)
    if wanted:
        values = yield from fetch(scope, place, wanted)
        for reference, what in wanted.items():
            if reference not in values:
                return Lost(what, reference)
        for at in offloaded:
            pieces[at] = values[pieces[at]]
        reply = [*reply[:-1], with_values(writes, values)]
    return head_of(reply)


def _places(entries: list[Any]) -> list[tuple[int, str]]:
    """For each piece its number, and what it belongs to."""
    return [
        (number, f"channel {entries[at].decode('utf-8', 'surrogatepass')!r}")
        for at in range(0, len(entries), 4)
        for number in _numbers(*entries[at + 2 : at + 4])
    ]


def settled_head(scope: Scope, place: Place, member: bytes, reply: list[Any] | None) -> Steps[Head | None]:
    """The head of a reply, or what has replaced it where a large or oversized piece went before it could be read.

    Args:
        member: which checkpoint was asked for; empty for the latest.

    Returns:
        None if there is no such checkpoint any more.

    Raises:
        CorruptRecordError: the record is still the same, so the piece is missing. Or its bytes are damaged.

    Redis: as `read_head`; 2 more each time the checkpoint was replaced in between.
    """
    seen: tuple[bytes, bytes] | None = None
    while reply is not None:
        head = yield from read_head(scope, place, reply)
        if isinstance(head, Head):
            return head
        if (reply[1], reply[5]) == seen:  # nonce of the record, stamp of its writes
            if head.reference:
                raise gone(place, head.what, head.reference)
            raise CorruptRecordError(
                f"thread {place.thread_id!r}: checkpoint {split_member(reply[0])[0]!r} refers to a large value that is "
                f"gone, in {head.what}; run `rtmem doctor threads`",
                thread_id=place.thread_id,
            )
        seen = (reply[1], reply[5])
        reply = yield from call("rtmem_v2_checkpoint_get", (place.keys.checkpoints,), (member, place.head_field))
    return None


def _numbers(kind: bytes, data: bytes) -> list[int]:
    return numbers_of(data) if kind == b"l" else [int(data)] if kind == b"p" else []


def head_of(reply: list[Any]) -> Head:
    """The head that a reply with all its pieces describes."""
    member, nonce, parent, body, metadata, stamp, entries, pieces, writes = reply
    head = Head(member, nonce, parent, body, metadata, stamp, writes)
    rest = iter(pieces)
    for at in range(0, len(entries), 4):
        raw_name, version, kind, data = entries[at : at + 4]
        channel = Channel(version, kind, data)
        if kind == b"l":
            numbers = numbers_of(data)
            stored = [next(rest) for _ in numbers]
            channel.image = ListImage(numbers=numbers, stored=stored, decoded=[None] * len(numbers))
        elif kind == b"p":
            channel.number, channel.data = int(data), next(rest)
        head.channels[raw_name.decode("utf-8", "surrogatepass")] = channel
    return head


class Restored:
    """The tuple of a head, built in slices.

    Args:
        remembered: the head stays in memory, so what is handed out must be a copy. Otherwise the fingerprints of
            what is handed out are noted in the head, if `noting`: what the next put finds changed in it is new.
    """

    tuple: CheckpointTuple

    def __init__(
        self, serde: Serde, thread_id: str, head: Head, *, remembered: bool = False, noting: bool = False
    ) -> None:
        self._serde = serde
        self._thread_id = thread_id
        self._head = head
        self._remembered = remembered
        self._noting = noting

    def fill(self) -> Iterator[None]:
        """Decode or copy everything."""
        head = self._head
        checkpoint_id, ns = split_member(head.member)
        checkpoint = self._serde.loads(head.body)
        checkpoint["channel_versions"] = {}
        checkpoint["channel_values"] = {}
        yield from self._fill_channels(checkpoint)
        writes = sorted_writes(self._serde, head.writes)
        yield
        parent_id = split_member(head.parent)[0] if head.parent else ""
        self.tuple = CheckpointTuple(
            config=config_of(self._thread_id, ns, checkpoint_id),
            checkpoint=checkpoint,
            metadata=self._serde.loads(head.metadata),
            parent_config=config_of(self._thread_id, ns, parent_id) if parent_id else None,
            pending_writes=writes,
        )

    def _fill_channels(self, checkpoint: Checkpoint) -> Iterator[None]:
        values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
        for name, channel in self._head.channels.items():
            if channel.version:
                versions[name] = decode_version(channel.version)
            if channel.image is not None:
                value: list[Any] = []
                values[name] = value
                yield from self._copy(channel.image, value) if self._remembered else self._decode(channel.image, value)
            elif channel.kind in (b"i", b"p"):
                values[name] = self._serde.loads(channel.data)
                yield
            elif channel.kind != b"-":
                raise CorruptRecordError(
                    f"channel {name!r} is stored as kind {channel.kind!r}: upgrade rtmem, or run `rtmem doctor threads`"
                )

    def _decode(self, image: ListImage, value: list[Any]) -> Iterator[None]:
        loads, dumps = self._serde.loads, self._serde.dumps
        since_yield = 0
        for stored in image.stored:
            elements = loads(stored)
            value += elements
            if self._noting:
                image.prints += prints_of(elements, dumps)
                image.sizes.append(len(elements))
            since_yield += len(stored)
            if since_yield > _DECODE_PER_SLICE_BYTES:
                yield
                since_yield = 0

    def _copy(self, image: ListImage, value: list[Any]) -> Iterator[None]:
        since_yield = 0
        for at, stored in enumerate(image.stored):
            elements = image.decoded[at]
            if elements is None:
                elements = image.decoded[at] = self._serde.loads(stored)
            try:
                value += clone(elements)
            except UncopyableError:
                value += self._serde.loads(stored)
            since_yield += len(stored)
            if since_yield > _DECODE_PER_SLICE_BYTES:
                yield
                since_yield = 0


def value_of(serde: Serde, kind: bytes, data: bytes, pieces: list[bytes]) -> Any:
    """The value of one entry whose pieces are at hand."""
    if kind == b"l":
        return [element for piece in pieces for element in serde.loads(piece)]
    return serde.loads(pieces[0] if kind == b"p" else data)


def sorted_writes(serde: Serde, flat: list[bytes]) -> list[tuple[str, str, Any]]:
    """Pending writes in the order live execution applies them."""
    if not flat:
        return []
    rows = [
        (flat[at + 1].decode(), decode_id(flat[at]), int(flat[at + 2]), flat[at + 3].decode(), flat[at + 4])
        for at in range(0, len(flat), 5)
    ]
    rows.sort(key=lambda row: writes_sort_key(row[0], row[1], row[2]))
    return [(task_id, channel, serde.loads(stored)) for _, task_id, _, channel, stored in rows]
