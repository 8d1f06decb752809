"""The keywords of the verbs, typed, for both colours; `rtmem.operations` tells what each means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypedDict

from rtmem.operations.fact_items import Moment
from rtmem.records import FactKind, Scalar


class Source(TypedDict, total=False):
    """Where a fact is from."""

    thread_id: str
    message_id: str
    position: int | None
    document: str
    writer: str


class Properties(Source, total=False):
    """Of `write`."""

    kind: FactKind
    subject: str | None
    predicate: str | None
    object: Scalar | None
    key: str
    value: Any
    importance: float | None
    tags: Iterable[str] | None
    to: str
    valid_from: Moment | None
    valid_to: Moment | None


class Changes(Source, total=False):
    """Of `update`."""

    object: Scalar | None
    value: Any
    reason: str
    importance: float | None
    tags: Iterable[str] | None
    valid_from: Moment | None
    valid_to: Moment | None


class Filters(TypedDict, total=False):
    """Of `query`."""

    scopes: Iterable[str] | None
    kinds: Iterable[FactKind] | None
    tags: Iterable[str] | None
    subject: str | None
    predicate: str | None
    object: Scalar | None
    thread_id: str | None
    document: str | None
    writer: str | None
    importance_min: float | None
    importance_max: float | None
    created_from: Moment | None
    created_to: Moment | None
    valid_at: Moment | None
    ended: bool
    limit: int
    continuation: str


class Bounds(TypedDict, total=False):
    """Of `retrieve`."""

    k: int | None
    tokens_max: int | None
    kinds: Iterable[FactKind] | None
    tags: Iterable[str] | None
    scopes: Iterable[str] | None
    as_of: Moment | None
    explain: bool
