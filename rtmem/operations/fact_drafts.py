"""A fact before it is stored: checked, let in by the write policy, and put into the words of a function."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, get_args

import msgspec

from rtmem.errors import InvalidRequestError, TooLargeError
from rtmem.keys import check_id, escape
from rtmem.operations.fact_items import (
    ID,
    canonical,
    content_of,
    digest_of,
    id_of,
    moment_ms,
    write_properties,
    write_tags,
)
from rtmem.operations.fact_scope import FactScope
from rtmem.operations.memory_items import BARE, SEPARATOR, UNEMBEDDED
from rtmem.operations.text_query import stemmed
from rtmem.records import Fact, FactKind, Scalar
from rtmem.steps import Argument

KINDS: Final = get_args(FactKind)

_TAG_CHARACTERS_MAX: Final = 128
_INDEXED: Final = msgspec.msgpack.encode(["text"])  # as memory_items.write_paths: what is embedded


class Draft:
    """A fact that was checked and let in, as functions take it."""

    def __init__(
        self, scope: FactScope, fact: Fact, has_importance: bool, has_tags: bool, has_valid_from: bool
    ) -> None:
        self._scope = scope
        owner = scope.owner(fact.scope)
        self.fact = scope.policy(_checked(scope, fact), scope.principal)
        if not isinstance(self.fact, Fact):
            raise InvalidRequestError(
                f"the write policy returned a {type(self.fact).__name__}: the fact, or raise WriteRefusedError"
            )
        if self.fact is not fact:
            self.fact = _checked(scope, msgspec.structs.replace(self.fact, scope=fact.scope, key=fact.key))
        self._id = id_of(owner, self.fact)
        self._has_importance, self._has_tags, self._has_valid_from = has_importance, has_tags, has_valid_from
        self._namespace = f"fact:{owner[0]}/{escape(owner[1])}"
        self._content = _content(scope, self.fact)

    @property
    def id(self) -> str:
        """Of what it says, without the number of times it has been believed anew."""
        return self._id

    def fields(self) -> tuple[list[Argument], list[Argument]]:
        """Names and values in turn: what is always set, and what only a new fact gets."""
        fact = self.fact
        tags: list[Argument] = ["tags", write_tags(fact.tags), "tg", msgspec.msgpack.encode(fact.tags)]
        importance: list[Argument] = ["importance", repr(float(fact.importance))]
        always: list[Argument] = ["v", self._content, "ix", _INDEXED, "eq", write_properties(fact)]
        always += ["s", stemmed(fact.text), "ns", self._namespace]
        defaults: list[Argument] = []
        (always if self._has_tags else defaults).extend(tags)
        (always if self._has_importance else defaults).extend(importance)
        return always, defaults

    def args(self, vector: bytes | None) -> tuple[Argument, ...]:
        """As `open_draft` of lua/facts_v1.lua reads it."""
        scope, fact, index = self._scope, self.fact, self._scope.index
        always, defaults = self.fields()
        return (
            scope.tag(fact.scope),
            self._id,
            digest_of(fact, scope.serde),
            fact.valid_from_ms if self._has_valid_from else "",
            "" if fact.valid_to_ms is None else fact.valid_to_ms,
            getattr(scope.settings, f"{fact.kind}_ttl_ms"),
            index.vector_field if vector else "",
            index.fingerprint if vector else "",
            index.dims if vector else "",
            vector or b"",
            f"{BARE}{SEPARATOR}{UNEMBEDDED}" if vector is None else BARE,
            len(always),
            *always,
            *defaults,
        )


def _content(scope: FactScope, fact: Fact) -> bytes:
    bytes_max = scope.settings.value_bytes_max
    try:
        stored = scope.serde.dumps(content_of(fact))
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise InvalidRequestError(f"value cannot be stored: {exc}") from exc
    if len(stored) > bytes_max:
        raise TooLargeError(
            f"the fact takes {len(stored)} bytes, at most {bytes_max} are allowed (value_bytes_max in [memory]): keep "
            "its value at a pointer",
            size_bytes=len(stored),
            size_bytes_max=bytes_max,
        )
    return stored


def _checked(scope: FactScope, fact: Fact) -> Fact:
    """A fact that can be stored. Raises InvalidRequestError, TooLargeError, IdTooLongError."""
    checked_text(scope, fact.text, "text")
    if fact.kind not in KINDS:
        raise InvalidRequestError(f"kind is {fact.kind!r:.100}: one of {', '.join(KINDS)}")
    for name in ("key", "thread_id", "message_id", "document", "writer"):
        _encodable(check_id(getattr(fact, name), name), name)
    if ID.fullmatch(fact.key):
        raise InvalidRequestError(f"key is {fact.key!r}, which is how ids look: `read` would take it for one")
    for name in ("subject", "predicate"):
        if getattr(fact, name) is not None:
            checked_text(scope, getattr(fact, name), name)
    if isinstance(fact.object, str):
        checked_text(scope, fact.object, "object")
    checked_tags(scope, fact.tags)
    moment_ms(fact.valid_from_ms, "valid_from")
    moment_ms(fact.valid_to_ms, "valid_to")
    importance: Any = fact.importance
    if isinstance(importance, bool) or not isinstance(importance, int | float) or not 0 <= importance <= 1:
        raise InvalidRequestError(f"importance is {importance!r:.100}: from 0 to 1")
    if fact.position is not None and type(fact.position) is not int:
        raise InvalidRequestError(f"position is {fact.position!r:.100}: a whole number")
    return fact


def checked_text(scope: FactScope, text: Any, what: str, *, may_be_empty: bool = False) -> str:
    if not isinstance(text, str):
        raise InvalidRequestError(f"{what} is a {type(text).__name__}: a string")
    if len(text) > scope.settings.text_characters_max:
        raise TooLargeError(
            f"{what} has {len(text)} characters, at most {scope.settings.text_characters_max} are allowed "
            "(text_characters_max in [memory]): write several facts",
            size=len(text),
        )
    if not may_be_empty and not canonical(text):
        raise InvalidRequestError(f"{what} is empty")
    return _encodable(text, what)


def _encodable(text: str, what: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise InvalidRequestError(f"{what} holds half of a surrogate pair at {exc.start}, which is no text") from exc
    return text


def checked_tags(scope: FactScope, tags: Iterable[str]) -> tuple[str, ...]:
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise InvalidRequestError(f"tags is {tags!r:.100}: a list of strings")
    given = list(tags)
    for tag in given:
        if not isinstance(tag, str) or not canonical(tag) or len(tag) > _TAG_CHARACTERS_MAX:
            raise InvalidRequestError(f"a tag is {tag!r:.200}: 1 to {_TAG_CHARACTERS_MAX} characters")
        _encodable(tag, "a tag")
    found = tuple(dict.fromkeys(given))
    if len(found) > scope.settings.tags_max:
        raise TooLargeError(f"{len(found)} tags, at most {scope.settings.tags_max} are allowed (tags_max in [memory])")
    return found


def sentence(key: str, value: Any, subject: Any, predicate: Any, thing: Any) -> str:
    if subject is not None and predicate is not None and thing is not None:
        return f"{subject} {predicate} {thing}"
    if key and value is not None:
        shown = value if isinstance(value, str) else _json(value)
        return f"{key}: {shown}"
    raise InvalidRequestError("give text, or subject, predicate and object, or key and value")


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as exc:
        raise InvalidRequestError(f"value cannot be written as a text ({exc}): give text") from exc


def changed(scope: FactScope, old: Fact, text: str | None, thing: Scalar | None, value: Any) -> Fact:
    """`old`, saying something else."""
    if text is None and thing is None and value is None:
        raise InvalidRequestError("nothing to update: give text, object or value")
    new_object = old.object if thing is None else thing
    new_value = old.value if value is None else value
    if text is None:
        text = sentence(
            old.key if value is not None else "", new_value if value is not None else None,
            old.subject, old.predicate, new_object,
        )  # fmt: skip
    elif thing is None and old.subject is not None:
        # Other words, and nobody says what they are about in its parts: the old parts would contradict them.
        return msgspec.structs.replace(old, text=text, object=None, value=new_value)
    return msgspec.structs.replace(old, text=text, object=new_object, value=new_value)
