"""Pointers in a tool's arguments: the model passes the id, the tool gets the value.

Only where a tool asks for it. An id that stands in any other argument is text, as it was.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, get_args

from langchain_core.tools import BaseTool, ToolException
from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from rtmem.agent.offload.counts import Counter
from rtmem.errors import ConfigError, CorruptRecordError, PointerExpiredError, PointerNotFoundError
from rtmem.operations import pointers
from rtmem.operations.pointer_previews import cut_with_mark
from rtmem.operations.pointers import PointerScope
from rtmem.steps import Steps

_POINTERS_MAX: Final = 100  # in one call of a tool
_POINTER: Final[JsonSchemaValue] = {"type": "string", "description": "pointer mp_..."}


class PointerArgumentError(ToolException):
    """A pointer that was given to a tool cannot be used; the message is for the model."""


class ByPointer:
    """Marks an argument of a tool that may be given by pointer: `rows: Annotated[list[dict], ByPointer]`.

    The model sees that a pointer is welcome beside the value itself. A list or dict of pointers, and pointers inside of
    a larger value, are resolved too. It may mark fields of pydantic models as well; where the field is one of a
    TypedDict or a dataclass, mark the whole argument. The type is checked after the pointers are resolved; a type that
    pydantic does not know (a DataFrame) is checked with `isinstance`.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        try:
            inner = handler(source)
        except PydanticSchemaGenerationError:
            inner = core_schema.is_instance_schema(source) if isinstance(source, type) else core_schema.any_schema()
        return core_schema.no_info_wrap_validator_function(
            lambda value, check: value if holds_pointer(value) else check(value),
            inner,
            # As it is: a value is on its way to a tool and not to JSON, and a pointer is not of its type.
            serialization=core_schema.plain_serializer_function_ser_schema(lambda value: value),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        try:
            return {"anyOf": [_POINTER, handler(schema["schema"])]}
        except PydanticInvalidForJsonSchema:
            return dict(_POINTER)


def holds_pointer(value: Any) -> bool:
    """Whether a value is the id of a pointer, or has one somewhere inside."""
    waiting = [value]  # and no recursion: a model may nest as deep as it likes
    while waiting:
        item = waiting.pop()
        if type(item) is str:
            if len(item) < 64 and pointers.ID.fullmatch(item.strip()) is not None:
                return True
        elif type(item) is dict:
            waiting += item.values()
        elif type(item) is list:
            waiting += item
    return False


def taking_pointers(tool: BaseTool, names: Collection[str]) -> BaseTool:
    """`tool`, with arguments marked that its author did not mark. Raises ConfigError for a name it does not have."""
    schema = tool.args_schema
    known = schema.get("properties", {}) if isinstance(schema, Mapping) else getattr(schema, "model_fields", {})
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise ConfigError(f"tool {tool.name!r} has no argument {unknown[0]!r} that could be given by pointer")
    if isinstance(schema, Mapping):
        properties = {
            name: {"anyOf": [_POINTER, told]} if name in names else told for name, told in schema["properties"].items()
        }
        return tool.model_copy(update={"args_schema": {**schema, "properties": properties}})
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        raise ConfigError(f"tool {tool.name!r} has a schema of pydantic 1, whose arguments cannot be marked")
    fields: dict[str, Any] = {}
    for name in names:
        field = copy(schema.model_fields[name])
        field.metadata = [*field.metadata, ByPointer]
        fields[name] = (field.annotation, field)
    return tool.model_copy(update={"args_schema": create_model(schema.__name__, __base__=schema, **fields)})


@dataclass(frozen=True)
class Arguments:
    """The arguments of one tool that may be given by pointer."""

    tool: str
    types: Mapping[str, Any]  # their names and types; None where there is nothing to check
    models: Collection[str] = ()  # names of those that may have a model of pydantic inside, with a field that is marked

    @classmethod
    def of(cls, tool: BaseTool, names: Collection[str] = ()) -> Arguments:
        """Those that are marked in a tool's schema, and those named."""
        schema = tool.args_schema
        told = schema.get("properties", {}) if isinstance(schema, Mapping) else {}
        types: dict[str, Any] = {name: _kind(told.get(name)) for name in names}
        models = []
        for name, field in getattr(schema, "model_fields", {}).items():
            kind = _kind_of(field)
            if _is_marked(kind):
                types[name] = kind
            elif name not in types and _has_marked_fields(kind, set()):
                models.append(name)
        return cls(tool.name, types, models)

    @cached_property
    def _checks(self) -> dict[str, TypeAdapter[Any]]:
        return {name: TypeAdapter(kind) for name, kind in self.types.items() if kind is not None}

    def resolved(self, scope: PointerScope, counter: Counter, given: dict[str, Any]) -> Steps[dict[str, Any]]:
        """The arguments as the tool shall get them.

        Raises:
            PointerArgumentError: an id leads nowhere, or to a value of another type; says what the model can do.
        """
        found = _Found(scope, counter)
        values: dict[str, Any] = {}
        try:
            for name, value in given.items():
                if name in self.types:
                    if holds_pointer(value):
                        values[name] = self._checked(name, self._checks.get(name), (yield from found.within(value)))
                elif name in self.models:
                    values[name] = yield from self._within_models(name, value, found)
        except RecursionError as exc:
            raise PointerArgumentError(f"{self.tool}: the pointers are nested too deep: pass them flatter") from exc
        if not values:
            return given
        counter.add(resolved=len(found.values))
        return {**given, **values}

    def _within_models(self, name: str, value: Any, found: _Found) -> Steps[Any]:
        """`value` with the pointers replaced that stand in marked fields of models of pydantic, and in no others."""
        if isinstance(value, BaseModel):
            update: dict[str, Any] = {}
            for field, told in type(value).model_fields.items():
                item, kind = getattr(value, field), _kind_of(told)
                if not _is_marked(kind):
                    changed = yield from self._within_models(f"{name}.{field}", item, found)
                elif holds_pointer(item):
                    resolved = yield from found.within(item)
                    changed = self._checked(f"{name}.{field}", TypeAdapter(kind), resolved)
                else:
                    continue
                if changed is not item:
                    update[field] = changed
            return value.model_copy(update=update) if update else value
        if type(value) is list:
            items = []
            for item in value:
                items.append((yield from self._within_models(name, item, found)))
            return items
        if type(value) is dict:
            members = {}
            for key, item in value.items():
                members[key] = yield from self._within_models(name, item, found)
            return members
        return value

    def _checked(self, name: str, check: TypeAdapter[Any] | None, value: Any) -> Any:
        if check is None:
            return value
        try:
            return check.validate_python(value)
        except ValidationError as exc:
            # Many tools give JSON as text. A model would have passed on what the text says.
            parsed = _json_in(value)
            if parsed is not None:
                with suppress(ValidationError):
                    return check.validate_python(parsed)
            first = exc.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"][:5])
            raise PointerArgumentError(
                f"{self.tool}: the pointer given for {name!r} leads to a value of another type than the tool takes"
                f"{f' (at {where})' if where else ''}: {cut_with_mark(first['msg'], 200)}. Pass another pointer, or "
                "call a tool that makes such a value."
            ) from exc


def _json_in(value: Any) -> Any:
    """The array or object that a text is in JSON; None if it is none."""
    if type(value) is not str or not value[:64].lstrip().startswith(("[", "{")):
        return None
    try:
        return json.loads(value)  # not orjson, which reads an integer of more than 64 bits as a float near it
    except (ValueError, RecursionError):
        return None


def _kind(schema: Any) -> Any:
    """The type to check a named argument against, as far as a schema of JSON tells it."""
    options = [schema, *schema.get("anyOf", [])] if isinstance(schema, Mapping) else []
    return next((_KINDS[option["type"]] for option in options if option.get("type") in _KINDS), None)


_KINDS: Final[Mapping[Any, type]] = {"array": list, "object": dict}


class _Found:
    """Values of pointers, each fetched once."""

    def __init__(self, scope: PointerScope, counter: Counter) -> None:
        self.scope = scope
        self.counter = counter
        self.values: dict[str, Any] = {}

    def within(self, value: Any) -> Steps[Any]:
        """`value` with its pointers replaced. What they lead to is not looked through: it may be anything."""
        if type(value) is str and holds_pointer(value):
            return (yield from self._value(value.strip()))
        if type(value) is list:
            items = []
            for item in value:
                items.append((yield from self.within(item)))
            return items
        if type(value) is dict:
            members = {}
            for name, item in value.items():
                members[name] = yield from self.within(item)
            return members
        return value

    def _value(self, pointer_id: str) -> Steps[Any]:
        if pointer_id not in self.values:
            if len(self.values) == _POINTERS_MAX:
                raise PointerArgumentError(f"a call may have {_POINTERS_MAX} pointers at most: make several calls")
            try:
                self.values[pointer_id] = yield from pointers.resolve(self.scope, pointer_id)
            except (PointerNotFoundError, CorruptRecordError) as exc:
                raise PointerArgumentError(told_to_model(exc, pointer_id, self.counter)) from exc
        return self.values[pointer_id]


def told_to_model(error: PointerNotFoundError | CorruptRecordError, pointer: str, counter: Counter) -> str:
    """Why a pointer leads nowhere, in words that name only what a model can do about it.

    Somebody else's pointer and one that never was are told in the same words.
    """
    shown = cut_with_mark(pointer, 60)
    if isinstance(error, CorruptRecordError):
        return f"The value of pointer {shown} is damaged and cannot be read: call the tool again that made it."
    counter.add(dangling=1)
    if isinstance(error, PointerExpiredError):
        return f"Pointer {shown} has expired: call the tool again that made it."
    return (
        f"There is no pointer {shown}: use an id exactly as it stands in a tool's result (mp_ and 26 characters), or "
        "call the tool again that makes the value."
    )


def _is_marked(kind: Any) -> bool:
    """Whether ByPointer stands anywhere in a type."""
    return kind is ByPointer or any(_is_marked(part) for part in get_args(kind))


def _kind_of(field: FieldInfo) -> Any:
    """The type of a field, with what it is annotated with."""
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def _has_marked_fields(kind: Any, seen: set[Any]) -> bool:
    """Whether there is a model of pydantic in a type, with ByPointer in the type of one of its fields."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        if kind in seen:
            return False
        seen.add(kind)
        kinds = [_kind_of(field) for field in kind.model_fields.values()]
        return any(_is_marked(field) or _has_marked_fields(field, seen) for field in kinds)
    return any(_has_marked_fields(part, seen) for part in get_args(kind))
