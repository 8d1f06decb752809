from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from rtmem.errors import IdTooLongError, InvalidRequestError
from rtmem.keys import Keys
from rtmem.operations.places import NAMESPACE_BYTES_MAX, Scope, decode_id, encode_id, place_of, split_member
from rtmem.operations.serde import Serde
from tests.checkpoint.talks import at

TEXT = st.text(st.characters() | st.sampled_from("\0\1\2\ud800"), max_size=8)


def scope(**options: Any) -> Scope:
    return Scope(Serde(JsonPlusSerializer(), 0), **options)


@given(TEXT, TEXT)
def test_encoded_ids_are_read_back_have_no_nul_and_keep_their_order(one: str, other: str) -> None:
    a, b = encode_id(one), encode_id(other)
    assert decode_id(a) == one
    assert b"\0" not in a
    raw, raw_other = one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass")
    assert (a < b) == (raw < raw_other)


@given(TEXT.filter(bool), TEXT, TEXT.filter(bool), TEXT)
def test_members_are_read_back_and_sort_by_id_before_namespace(id1: str, ns1: str, id2: str, ns2: str) -> None:
    first, second = place_of(scope(), at("t", ns1)), place_of(scope(), at("t", ns2))
    assert split_member(first.member(id1)) == (id1, ns1)
    if id1 != id2:
        assert (first.member(id1) < second.member(id2)) == (encode_id(id1) < encode_id(id2))


@given(st.lists(st.tuples(TEXT, TEXT), min_size=2, max_size=2, unique=True))
def test_two_threads_never_share_a_key(pairs: list[tuple[str, str]]) -> None:
    keys = [set(vars_of(Keys().thread(principal, thread_id))) for principal, thread_id in pairs]
    assert not keys[0] & keys[1]
    for (principal, thread_id), names in zip(pairs, keys, strict=True):
        for name in names:
            assert Keys().parse_thread(name) == (principal, thread_id)


def vars_of(keys: Any) -> list[str]:
    return [getattr(keys, name) for name in type(keys).__slots__]


def test_a_place_is_thread_namespace_and_checkpoint_of_the_config() -> None:
    place = place_of(scope(principal="alice"), at("t", "ns", "1"))
    assert (place.thread_id, place.ns, place.checkpoint_id) == ("t", "ns", "1")
    assert place.keys.checkpoints == "rtmem:t:{alice/t}:c"
    assert place.head_field == b"hns"
    bare = place_of(scope(), {"configurable": {"thread_id": "t", "checkpoint_id": None}})
    assert (bare.ns, bare.checkpoint_id) == ("", "")


@pytest.mark.parametrize("value", [7, UUID(int=7)])
def test_thread_ids_may_be_ints_and_uuids(value: Any) -> None:
    assert place_of(scope(), at(value)).thread_id == str(value)


@pytest.mark.parametrize("config", [{}, {"configurable": {}}, at(1.5), at(True), at(None), at(b"t")])  # type: ignore[arg-type]
def test_anything_else_is_refused_by_name(config: Any) -> None:
    with pytest.raises(InvalidRequestError, match="thread_id"):
        place_of(scope(), config)


def test_long_ids_and_namespaces_are_refused() -> None:
    with pytest.raises(IdTooLongError):
        place_of(scope(), at("x" * 513))
    with pytest.raises(IdTooLongError):
        place_of(scope(), at("t", "", "x" * 513))
    place_of(scope(), at("t", "x" * NAMESPACE_BYTES_MAX))
    with pytest.raises((IdTooLongError, InvalidRequestError)):
        place_of(scope(), at("t", "x" * (NAMESPACE_BYTES_MAX + 1)))


def test_a_thread_counts_as_indexed_until_it_might_expire_there() -> None:
    from rtmem.settings import Checkpoint

    place = place_of(scope(), at("t"))
    staying, expiring = scope(), scope(settings=Checkpoint(ttl_ms=1))
    for one in (staying, expiring):
        assert not one.is_indexed("index", place)
        one.mark_indexed("index", "t")
        one.indexed["index", "t"] -= 1
    assert staying.is_indexed("index", place)
    assert not expiring.is_indexed("index", place)
    for number in range(20_000):
        staying.mark_indexed("index", f"{number}")
    assert len(staying.indexed) == 10_000
