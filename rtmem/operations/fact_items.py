"""Facts as they are stored: ids, fields, and the fact that those make. `lua/facts_v1.lua` has the layout."""

from __future__ import annotations

import base64
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b, sha256
from typing import Any, Final, TypeAlias

import msgspec

from rtmem.errors import CorruptRecordError, InvalidRequestError
from rtmem.keys import escape
from rtmem.operations.memory_items import SEPARATOR, UNEMBEDDED
from rtmem.operations.serde import Serde
from rtmem.records import Fact, Scalar

ID: Final = re.compile(r"mf_[a-z2-7]{26}(\.[1-9][0-9]{0,9})?")
FOREVER: Final = 2**53 - 1  # ms; the largest whole number that Lua and the index keep
SOURCE: Final = ("thread_id", "message_id", "position", "document", "writer", "principal")
CONTENT: Final = ("text", "kind", "key", "subject", "predicate", "object", "value", *SOURCE)
"""What of a fact is written anew each time, as one value."""

Moment: TypeAlias = datetime | int
"""A time: an aware datetime, or Unix time in milliseconds."""

_INTEGER_BITS_MAX: Final = 1_024
_TIME_MS_MIN, _TIME_MS_MAX = -62_135_596_800_000, 253_402_300_799_000  # the years 1 to 9999


def canonical(text: str) -> str:
    """What is the same of texts that only look different: Unicode's compatibility form, case, spaces."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split())


def moment_ms(time: Moment | None, what: str) -> int | None:
    """A time in milliseconds. Raises InvalidRequestError for one without a time zone, or far from here."""
    if time is None:
        return None
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise InvalidRequestError(f"{what} is {time!r}, which is another moment in every time zone: give it tzinfo")
        time = math.floor(time.timestamp() * 1_000)
    if type(time) is not int or not _TIME_MS_MIN <= time <= _TIME_MS_MAX:
        raise InvalidRequestError(f"{what} is {time!r}: an aware datetime, or Unix time in milliseconds")
    return time


# Ids -----------------------------------------------------------------------------------------------------------------


def id_of(owner: tuple[str, str], fact: Fact) -> str:
    """The id of a fact: 130 bits of SHA-256 over owner, kind and what it says.

    Of a fact with a key: over owner and key. With subject, predicate and object: over these. Else over its text.

    Args:
        owner: what the scope is, and its name: ("user", "ann").
    """
    if fact.key:
        parts = ["key", fact.key]
    elif fact.subject is not None and fact.predicate is not None and fact.object is not None:
        parts = [fact.kind, "spo", canonical(fact.subject), canonical(fact.predicate), scalar_text(fact.object)]
    else:
        parts = [fact.kind, "text", canonical(fact.text)]
    path = "/".join(map(escape, (*owner, *parts)))  # escaped, so that no two lists of parts are written alike
    return "mf_" + base64.b32encode(sha256(path.encode("ascii")).digest()[:17]).decode("ascii").lower()[:26]


def base_of(fact_id: str) -> str:
    """The id of what a fact says, without the number of times that it has been believed anew."""
    return fact_id.partition(".")[0]


def digest_of(fact: Fact, serde: Serde) -> str:
    """Tells whether a key leads to the same as before; '' for a fact without a key, whose id tells."""
    if not fact.key:
        return ""
    said = [fact.kind, canonical(fact.text), fact.subject, fact.predicate, fact.object, fact.value]
    try:
        # Not by the serialiser, which may encrypt, each time in another way.
        raw = msgspec.msgpack.encode(said, order="sorted")
    except (TypeError, OverflowError, RecursionError, msgspec.MsgspecError):
        raw = repr(said).encode("utf-8", "surrogatepass")
    return blake2b(raw, digest_size=16).hexdigest()


def scalar_text(value: Scalar) -> str:
    """A scalar with its type, in canonical form. Raises InvalidRequestError for what is none."""
    if isinstance(value, bool):
        return f"b{value}"
    if isinstance(value, str):
        return "s" + canonical(value)
    is_number = isinstance(value, float) and math.isfinite(value)
    if is_number or (isinstance(value, int) and value.bit_length() <= _INTEGER_BITS_MAX):
        return f"n{int(value) if value == int(value) else value!r}"
    raise InvalidRequestError(f"object is {value!r:.100}: a text, a finite number or a bool")


# Tags of the index ---------------------------------------------------------------------------------------------------


def index_tag(name: str, value: str) -> str:
    """What stands in the index for a property: 80 bits, in letters that no query gives a meaning."""
    raw = f"{name}/{escape(value)}".encode("ascii")
    return base64.b32encode(blake2b(raw, digest_size=10).digest()).decode("ascii").lower()


def tag_of(tag: str) -> str:
    """What stands in the index for a tag."""
    return index_tag("tag", canonical(tag))


def properties_of(fact: Fact) -> dict[str, str]:
    """What of a fact can be asked for exactly: name -> value. Texts count as people read them, ids as they are."""
    found: dict[str, str] = {"kind": fact.kind}
    found |= {name: value for name in ("key", *SOURCE) if isinstance(value := getattr(fact, name), str) and value}
    for name, text in (("subject", fact.subject), ("predicate", fact.predicate)):
        if text is not None:
            found[name] = canonical(text)
    if fact.object is not None:
        found["object"] = scalar_text(fact.object)
    return found


def write_properties(fact: Fact) -> str:
    """The field `eq` of a fact."""
    return SEPARATOR.join(index_tag(name, value) for name, value in properties_of(fact).items())


def write_tags(tags: Iterable[str]) -> str:
    """The field `tags` of a fact."""
    return SEPARATOR.join(dict.fromkeys(map(tag_of, tags)))


# Rows ----------------------------------------------------------------------------------------------------------------


def content_of(fact: Fact) -> dict[str, Any]:
    """What is stored of a fact as one value."""
    values = {name: getattr(fact, name) for name in CONTENT}
    return {name: value for name, value in values.items() if value is not None and value != ""}


# What a function replies, behind the id; `READ` of lua/facts_v1.lua.
READ_FIELDS: Final = (
    *("scope", "v", "created", "u", "tg", "importance", "valid_from", "valid_to", "seen", "ended", "reason", "next"),
    *("prev", "gone", "mark", "owner"),
)


def read_row(serde: Serde, row: Sequence[Any], labels: Mapping[str, str]) -> Fact | None:
    """The fact that a row of a function tells: its id, then `READ_FIELDS`; None if there is none in these scopes.

    Args:
        labels: of the scopes that may be read: what stands in the index -> user, application or team:NAME.

    Raises:
        CorruptRecordError: a field is missing, or makes no sense.
    """
    fact_id = row[0].decode("ascii") if isinstance(row[0], bytes) else row[0]
    fields = dict(zip(READ_FIELDS, row[1:], strict=False))
    owner = fields["scope"] or fields["owner"]
    if owner is None or owner.decode("ascii") not in labels:
        return None
    try:
        return _fact(serde, fact_id, labels[owner.decode("ascii")], fields)
    except (TypeError, ValueError, AttributeError, msgspec.MsgspecError) as exc:
        raise CorruptRecordError(f"fact {fact_id} cannot be read: {exc}; `forget` removes it", fact=fact_id) from exc


def _fact(serde: Serde, fact_id: str, scope: str, fields: Mapping[str, Any]) -> Fact:
    links: dict[str, Any] = {
        "superseded_by": fields["next"].decode("ascii") if fields["next"] else None,
        "supersedes": tuple((fields["prev"] or b"").decode("ascii").split(SEPARATOR)) if fields["prev"] else (),
        "created_at_ms": int(fields["created"]) // 1_000,
    }
    if fields["gone"]:
        return Fact(id=fact_id, text="", scope=scope, forgotten_at_ms=int(fields["gone"]), **links)
    last_seen_ms, times_seen = fields["seen"].split(b" ")
    valid_to_ms = int(fields["valid_to"])
    return Fact(
        id=fact_id,
        scope=scope,
        **serde.loads(fields["v"]),
        importance=float(fields["importance"]),
        tags=tuple(msgspec.msgpack.decode(fields["tg"], type=list[str])),
        valid_from_ms=int(fields["valid_from"]),
        valid_to_ms=None if valid_to_ms >= FOREVER else valid_to_ms,
        last_seen_ms=int(last_seen_ms),
        times_seen=int(times_seen),
        ended_at_ms=int(fields["ended"]) if fields["ended"] else None,
        invalidated_reason=(fields["reason"] or b"").decode("utf-8"),
        embedded=UNEMBEDDED.encode() not in (fields["mark"] or b"").split(SEPARATOR.encode()),
        **links,
    )
