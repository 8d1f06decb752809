"""Which entries a put sends: what is new, and what it takes over from its base."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from rtmem.operations.drafts import Draft, decode_version, encode_version
from rtmem.operations.heads import Head
from rtmem.operations.serde import Serde
from rtmem.settings import Checkpoint
from tests.checkpoint.talks import message

SERDE = Serde(JsonPlusSerializer(), 0)


def draft(
    values: dict[str, Any], versions: dict[str, Any], new: set[str], parent: bytes = b"", known: Head | None = None
) -> Draft:
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"], checkpoint["channel_versions"] = values, versions
    made = Draft(SERDE, Checkpoint(), checkpoint, {name: versions[name] for name in new}, parent, known)
    for _ in made.fill():
        pass
    return made


def kinds(made: Draft) -> dict[str, Any]:
    return {made.entries[at].decode(): made.entries[at + 2] for at in range(0, len(made.entries), 4)}  # type: ignore[union-attr]


@pytest.mark.parametrize("version", ["0000001.abcdef", "1", "", 1, 0, 2**40, 1.5, 1.0])
def test_versions_keep_their_type(version: Any) -> None:
    found = decode_version(encode_version(version))
    assert found == version
    assert type(found) is type(version)


def test_small_values_are_inline_others_pieces_lists_ranges_and_missing_ones_a_dash() -> None:
    values = {
        "n": 1,
        "text": "x" * 500,
        "messages": [message(k) for k in range(9)],
        "one": [{"a": 1}],
        "big": "x" * 70_000,
    }
    versions = {name: f"1.{name}" for name in (*values, "gone")}
    made = draft(values, versions, set(versions))
    assert kinds(made) == {"n": "i", "text": "P", "messages": "L", "one": "i", "big": "p", "gone": "-"}
    assert made.base == b""
    assert list(map(len, made.fresh.large.values())) == [len(SERDE.dumps("x" * 70_000))]


def test_without_memory_unchanged_channels_are_taken_over_from_the_parent() -> None:
    values, versions = {"n": 1, "m": 2}, {"n": "1.a", "m": "2.b"}
    made = draft(values, versions, {"m"}, parent=b"parent")
    assert kinds(made) == {"n": "=", "m": "i"}
    assert (made.base, made.base_nonce) == (b"parent", b"")
    # What such a put leaves behind cannot be read from memory: the value of "n" never was here.
    assert not made.head(b"m", b"parent", b"", 1).readable


def test_with_memory_the_same_version_is_taken_over_and_the_same_content_not_sent_again() -> None:
    values = {"n": 1, "text": "x" * 500, "messages": [message(k) for k in range(9)]}
    first = draft(values, {"n": "1.a", "text": "1.b", "messages": "1.c"}, {"n", "text", "messages"})
    known = first.head(b"m1", b"", b"", 10)
    assert known.readable
    second = draft(values, {"n": "1.a", "text": "2.b", "messages": "2.c"}, {"text", "messages"}, b"m1", known)
    assert (second.base, second.base_nonce) == (b"m1", known.nonce)
    assert kinds(second) == {"n": "=", "text": "p", "messages": "L"}
    assert second.fresh.small == []
    assert second.head(b"m2", b"m1", b"", 99).readable


def test_a_fork_takes_integer_versions_over_from_its_parent_only() -> None:
    known = draft({"n": 1}, {"n": 3}, {"n"}).head(b"head", b"", b"", 1)
    assert kinds(draft({"n": 2}, {"n": 3}, set(), b"head", known)) == {"n": "="}
    assert kinds(draft({"n": 2}, {"n": 3}, set(), b"other", known)) == {"n": "i"}
    # Version strings carry a random part, so equal ones are of one put.
    known = draft({"n": 1}, {"n": "3.abc"}, {"n"}).head(b"head", b"", b"", 1)
    assert kinds(draft({"n": 1}, {"n": "3.abc"}, set(), b"other", known)) == {"n": "="}


def test_a_value_that_the_base_does_not_store_is_sent_whatever_its_version() -> None:
    known = draft({}, {"delta": "1.a"}, {"delta"}).head(b"head", b"", b"", 1)
    assert kinds(draft({"delta": 1}, {"delta": "1.a"}, set(), b"head", known)) == {"delta": "i"}
    assert kinds(draft({}, {"delta": "1.a"}, set(), b"head", known)) == {"delta": "-"}
