"""Items of long-term memory as they are stored: the fields of an item, and the item that they make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec
from langgraph.store.base import Item, SearchItem, get_text_at_path, tokenize_path

from rtmem.errors import CorruptRecordError, InvalidRequestError, TooLargeError
from rtmem.keys import place_of, unescape
from rtmem.operations.serde import Serde

Namespace = tuple[str, ...]
Paths = Sequence[str] | Literal[False] | None
"""What of a value is to be embedded: paths, nothing, or what the store says."""

WHOLE: Final = "$"
SEPARATOR: Final = "\x1f"  # between the tags of one field
BARE, UNEMBEDDED, SIDE = "bare", "unembedded", "side"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SHORT_BYTES: Final = 512
_PAYLOAD_MIN: Final = 3  # v, created, u


def write_namespace(principal: str, namespace: Sequence[str]) -> str:
    """Owner and labels as one string, from which both can be read."""
    return place_of(principal, namespace).path


def read_namespace(stored: bytes) -> tuple[str, Namespace]:
    """Owner and namespace that `write_namespace` was given."""
    return _read_short(stored) if len(stored) < _SHORT_BYTES else _read(stored)


def _read(stored: bytes) -> tuple[str, Namespace]:
    owner, *labels = stored.decode("ascii").split("/")
    return unescape(owner), tuple(map(unescape, labels))


_read_short = lru_cache(maxsize=4096)(_read)  # the items of a search have few


_tokens = lru_cache(maxsize=1024)(tokenize_path)  # 1 us; nobody changes the list


def texts_of(value: Mapping[str, Any], paths: Iterable[str]) -> list[str]:
    """The texts of a value that are embedded, each with a vector of its own; equal ones once.

    `$` is the whole value as JSON. Raises InvalidRequestError for a value that cannot be written so.
    """
    texts: list[str] = []
    for path in paths:
        if path.isidentifier() and type(found := value.get(path)) is str:
            texts.append(found)  # as get_text_at_path would, which takes 3 us
            continue
        try:
            texts += get_text_at_path(value, path if path == WHOLE else _tokens(path))
        except (TypeError, ValueError, RecursionError) as exc:
            raise InvalidRequestError(
                f"the value at {path!r} cannot be written as JSON to be embedded ({exc}): name the fields to embed, or "
                "put it with index=False"
            ) from exc
    return list(dict.fromkeys(filter(None, texts)))


def write_value(serde: Serde, value: Mapping[str, Any], bytes_max: int) -> bytes:
    """A value as it is stored. Raises InvalidRequestError, TooLargeError."""
    if not isinstance(value, Mapping):
        raise InvalidRequestError(f"a value is a {type(value).__name__}: memory holds mappings, {{'text': ...}}")
    try:
        stored = serde.dumps(dict(value))
    except (TypeError, ValueError, RecursionError) as exc:
        raise InvalidRequestError(f"the value cannot be stored: {exc}") from exc
    if len(stored) > bytes_max:
        raise TooLargeError(
            f"the value takes {len(stored)} bytes, at most {bytes_max} are allowed (value_bytes_max in [store]): keep "
            "it at a pointer and put the pointer's id here",
            size_bytes=len(stored),
            size_bytes_max=bytes_max,
        )
    return stored


def write_paths(paths: Sequence[str]) -> bytes:
    """What a caller gave to be embedded, for the day when it is embedded again."""
    return msgspec.msgpack.encode(list(paths))


def read_paths(stored: bytes | None) -> list[str] | None:
    """What `write_paths` was given, or None."""
    return None if stored is None else msgspec.msgpack.decode(stored, type=list[str])


def read_item(serde: Serde, namespace: Namespace, key: str, payload: Sequence[bytes]) -> Item:
    """The item that v, created and u tell. Raises CorruptRecordError."""
    value, created, updated = _open(serde, payload)
    return Item(value=value, key=key, namespace=namespace, created_at=created, updated_at=updated)


def read_found(
    serde: Serde, namespace: Namespace, key: str, payload: Sequence[bytes], score: float | None
) -> SearchItem:
    """The same as a search answers it."""
    value, created, updated = _open(serde, payload)
    return SearchItem(namespace, key, value, created, updated, score)


def _open(serde: Serde, payload: Sequence[bytes]) -> tuple[dict[str, Any], datetime, datetime]:
    if len(payload) < _PAYLOAD_MIN:
        raise CorruptRecordError(f"a memory has {len(payload)} of {_PAYLOAD_MIN} parts: {payload!r:.100}")
    value = serde.loads(payload[0])
    return value, _moment(payload[1]), _moment(payload[2].partition(b" ")[0])


def updated_us(u: bytes) -> str:
    """When an item was last written, as the function `embed` wants it."""
    return u.partition(b" ")[0].decode("ascii")


def ttl_ms(u: bytes) -> int:
    """The ttl of an item, 0 if it stays."""
    return int(u.split(b" ")[1])


def _moment(us: bytes) -> datetime:
    return _EPOCH + timedelta(microseconds=int(us))


def decode_key(stored: bytes) -> str:
    """A key as it was given."""
    return stored.decode("utf-8", "surrogatepass")


def encode_key(key: str) -> bytes:
    """A key as it is stored."""
    return key.encode("utf-8", "surrogatepass")
