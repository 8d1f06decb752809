"""A checkpoint on its way to the server: what is new of it, encoded, and what it shares with the one before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from langgraph.checkpoint.base import ChannelVersions, Checkpoint

from rtmem import settings as all_settings
from rtmem.operations.heads import Channel, Head
from rtmem.operations.serde import Serde
from rtmem.operations.sharing import LARGE_FIRST, Cut, Fresh, ListImage, image_of, is_shareable, number_of, ranges_text
from rtmem.operations.sharing import split as split_list
from rtmem.steps import Argument


class Draft:
    """Entries and new pieces of a put; afterwards, the head to remember."""

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
        self.fresh = Fresh(settings.offload_bytes_min)
        self.body = b""
        self._serde = serde
        self._settings = settings
        self._checkpoint = checkpoint
        self._new_versions = new_versions
        self._base_is_parent = bool(self.base) and self.base == parent
        self._known = known
        self._channels: dict[str, Channel] = {}
        self._cuts: dict[str, Cut] = {}
        self._readable = True

    def fill(self) -> Iterator[None]:
        """Encode what is new, in slices."""
        values = self._checkpoint["channel_values"]
        versions = self._checkpoint["channel_versions"]
        for name in (*versions, *(name for name in values if name not in versions)):
            version = encode_version(versions[name]) if name in versions else b""
            if name not in values:
                self._add(name, "-", b"", Channel(version))
            elif self._is_unchanged(name, version):
                self._take_over(name, version)
            elif is_shareable(values[name]):
                yield from self._add_list(name, version, values[name])
            else:
                self._add_whole(name, version, values[name])
            yield
        body = {k: v for k, v in self._checkpoint.items() if k not in ("channel_values", "channel_versions")}
        self.body = self._serde.dumps(body)

    def head(self, member: bytes, parent: bytes, metadata: bytes, first: int) -> Head:
        """What to remember of this checkpoint once it is stored; `first` is the number of its first new piece."""
        for name, cut in self._cuts.items():
            self._channels[name].image = image_of(cut, self.fresh, first)
        for channel in self._channels.values():
            if channel.kind == b"P":
                channel.kind, channel.number = b"p", number_of(channel.number, first)
        return Head(member, self.nonce, parent, self.body, metadata, channels=self._channels, readable=self._readable)

    def _is_unchanged(self, name: str, version: bytes) -> bool:
        """Whether the base stores this very value, to be decided without looking at it."""
        if name in self._new_versions or not version or not self.base:
            return False
        if self._known is None:
            return True  # the server compares the version, and says "stale" if the parent has another
        old = self._known.channels.get(name)
        if old is None or old.version != version or old.kind == b"-":
            return False
        # Two forks may count to the same number; version strings carry a random part and never meet.
        return self._base_is_parent or version[:1] == b"s"

    def _take_over(self, name: str, version: bytes) -> None:
        if self._known is None:
            self._readable = False
            self._add(name, "=", b"", Channel(version))
        else:
            self._readable = self._readable and self._known.readable
            self._add(name, "=", b"", self._known.channels[name])

    def _add(self, name: str, kind: str, data: Argument, channel: Channel) -> None:
        self.entries += (name.encode("utf-8", "surrogatepass"), channel.version, kind, data)
        self._channels[name] = channel

    def _add_list(self, name: str, version: bytes, value: list[Any]) -> Iterator[None]:
        old = self._known.channels.get(name) if self._known else None
        cut = Cut(old.image if old and old.image else ListImage())
        mark = len(self.fresh.small)
        yield from split_list(value, cut, self._serde, self.fresh, self._settings.piece_bytes_min)
        alone = len(cut.tail) == 1 and not cut.kept and len(self.fresh.small) > mark
        if alone and len(self.fresh.small[-1]) <= self._settings.inline_bytes_max:
            stored = self.fresh.small.pop()
            self._add(name, "i", stored, Channel(version, b"i", stored))
        else:
            self._cuts[name] = cut
            self._add(name, "L", ranges_text(cut), Channel(version, b"l"))

    def _add_whole(self, name: str, version: bytes, value: Any) -> None:
        stored = self._serde.dumps(value)
        if len(stored) <= self._settings.inline_bytes_max and not self.fresh.is_oversized(stored):
            self._add(name, "i", stored, Channel(version, b"i", stored))
            return
        old = self._known.channels.get(name) if self._known else None
        if old and old.kind == b"p" and old.data == stored:
            self._add(name, "p", old.number, Channel(version, b"p", stored, old.number))
        else:
            # `number` counts from the first new piece until the server has said which number that is.
            ref = self.fresh.add(stored)
            self._add(name, "p" if ref >= LARGE_FIRST else "P", ref, Channel(version, b"P", stored, ref))


def encode_version(version: str | int | float) -> bytes:
    """A channel version with its type: s, i or f."""
    if isinstance(version, str):
        return b"s" + version.encode()
    return b"f" + repr(version).encode() if isinstance(version, float) else b"i%d" % version


def decode_version(raw: bytes) -> str | int | float:
    """What `encode_version` was given."""
    text = raw[1:].decode()
    return text if raw[:1] == b"s" else int(text) if raw[:1] == b"i" else float(text)
