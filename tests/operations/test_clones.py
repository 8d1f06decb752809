from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from pydantic import BaseModel, ConfigDict, PrivateAttr

from rtmem.operations.clones import UncopyableError, clone
from tests.checkpoint.talks import message

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")
    x: Any = None


Open: Any = Extra  # mypy knows only the declared fields


class Private(BaseModel):
    _secret: list[int] = PrivateAttr(default_factory=list)


def containers(value: Any) -> set[int]:
    """Identities of everything in `value` that can be changed."""
    if isinstance(value, dict):
        return {id(value)}.union(*map(containers, value.values()), set())
    if isinstance(value, list):
        return {id(value)}.union(*map(containers, value), set())
    if isinstance(value, BaseModel):
        return {id(value)} | containers(value.__dict__) | containers(value.__pydantic_extra__)
    return set()


@given(JSON)
def test_a_clone_is_equal_and_shares_nothing_that_can_be_changed(value: Any) -> None:
    copy = clone(value)
    assert repr(copy) == repr(value)
    assert not containers(copy) & containers(value)


@pytest.mark.parametrize("value", [message(1), message(2), AIMessage("a", name="n"), Open(x=[1], y={"z": [2]})])
def test_a_model_is_copied_deeply_with_extras_and_the_fields_that_were_set(value: BaseModel) -> None:
    copy = clone(value)
    assert type(copy) is type(value)
    assert repr(copy) == repr(value)
    assert copy == value
    assert copy.model_fields_set == value.model_fields_set
    assert copy.model_fields_set is not value.model_fields_set
    assert not containers(copy) & containers(value)


@pytest.mark.parametrize(
    "value",
    [(1,), {1}, datetime(2026, 1, 1), OrderedDict(a=1), {(1,): 2}, bytearray(b"a"), object(), Private(), [Private()],
     {"a": [(1,)]}, Extra(x={1}), Open(y=(1,)), type("Text", (str,), {})("a")],
)  # fmt: skip
def test_anything_else_is_left_to_decoding(value: Any) -> None:
    with pytest.raises(UncopyableError):
        clone(value)
