"""What LangChain gives its caches, read: a prompt, and the string that tells a model and its parameters.

A chat model's prompt is JSON of its messages. What of it changes no answer is left out: ids, usage, metadata. The other
string is part of the scope as it is, whatever is in it; a name in it is only what `invalidate(model=...)` goes by.
Strings that hide what is in an object, so that two could look alike, give no scope at all.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

from rtmem.errors import InvalidRequestError
from rtmem.operations.cache_prompts import CacheScope, Conversation, Prompt

Form: TypeAlias = Literal["messages", "text"]

_BEGINNING: Final = '[{"lc"'
_ROLES: Final = {"Human": "human", "AI": "ai", "System": "system", "Tool": "tool", "Function": "function"}
_SEEN: Final = ("name", "tool_calls", "invalid_tool_calls", "tool_call_id", "additional_kwargs")
_NAMES: Final = ("model", "model_name", "model_id", "deployment_name", "azure_deployment", "repo_id", "model_path")
# What of a model changes none of its answers, and has no text of its own.
_HARMLESS: Final = frozenset(
    (
        *("cache", "callbacks", "callback_manager", "rate_limiter", "custom_get_token_ids", "client", "async_client"),
        *("root_client", "root_async_client", "http_client", "http_async_client", "profile"),
    )
)
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]")
_CLASS: Final = re.compile(r"<class '([^']*)'>")


def read_prompt(prompt: str) -> tuple[Form, Prompt]:
    """Messages, or a text as a plain LLM gets it. What looks like messages and is none can be hit only exactly."""
    if not prompt.startswith(_BEGINNING):
        return "text", prompt
    try:
        messages = json.loads(prompt)
        return "messages", [_read_message(message) for message in messages]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return "text", [("unread", prompt)]


def _read_message(message: dict[str, Any]) -> dict[str, Any]:
    if message["lc"] != 1 or message["type"] != "constructor":
        raise ValueError("a message of another layout")
    said = message["kwargs"]
    kind = message["id"][-1].removesuffix("Chunk").removesuffix("Message")
    found = {"role": said["role"] if kind == "Chat" else _ROLES[kind], "content": said["content"]}
    found |= {name: value for name in _SEEN if (value := said.get(name))}
    if more := {name: value for name, value in said.get("additional_kwargs", {}).items() if value is not None}:
        found["additional_kwargs"] = more
    else:
        found.pop("additional_kwargs", None)  # OpenAI's has {"refusal": None}, and not always
    if said.get("status") == "error":
        found["status"] = "error"
    return found


def scope_of(llm_string: str, form: Form, conversation: Conversation) -> CacheScope | None:
    """What must be the same for a hit. None if the string does not tell models, tools or formats of answers apart."""
    if not _CLASS.search(llm_string):
        return _scope_of(llm_string, form, conversation)
    # A class is written as its name, and may have other fields tomorrow, or in the next cell of a notebook.
    classes = {name: _class_named(name) for name in set(_CLASS.findall(llm_string))}
    if None in classes.values():
        return None
    try:
        return _make_scope(llm_string, form, conversation, classes)
    except InvalidRequestError:  # it has no schema
        return None


@lru_cache(maxsize=256)
def _scope_of(llm_string: str, form: Form, conversation: Conversation) -> CacheScope | None:
    return _make_scope(llm_string, form, conversation, {})


def _make_scope(
    llm_string: str, form: Form, conversation: Conversation, classes: Mapping[str, Any]
) -> CacheScope | None:
    described, params = _split(llm_string)
    # An address is no name either: when its object is gone, another one may get it.
    if _ADDRESS.search(llm_string) or any(True for _ in _unwritten(described)):
        return None
    parameters = {"llm": llm_string, "form": form, "classes": classes}
    return CacheScope(model=_model_of(described, params), parameters=parameters, conversation=conversation)


def _class_named(name: str) -> type | None:
    """The class that is written so, if it can be found where it says that it is."""
    path = name.split(".")
    for cut in range(len(path) - 1, 0, -1):
        found: Any = sys.modules.get(".".join(path[:cut]))
        if found is not None:
            for part in path[cut:]:
                found = getattr(found, part, None)
            return found if isinstance(found, type) and repr(found) == f"<class '{name}'>" else None
    return None


def _split(llm_string: str) -> tuple[Any, Mapping[str, Any]]:
    """The model as LangChain serialises it, if it does, and the parameters of the call, if they can be read."""
    described, rest = None, llm_string
    if llm_string.startswith("{"):
        try:
            described, end = json.JSONDecoder().raw_decode(llm_string)
            rest = llm_string[end:].removeprefix("---")
        except (ValueError, RecursionError):
            pass
    try:
        # Types of answers are written as <class 'app.Answer'>, which is no literal.
        return described, dict(ast.literal_eval(_CLASS.sub(lambda found: repr(found[1]), rest)))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return described, {}


def _model_of(described: Any, params: Mapping[str, Any]) -> str:
    kwargs = described.get("kwargs") if isinstance(described, dict) else None
    for found in (params, kwargs if isinstance(kwargs, dict) else {}):
        for name in _NAMES:
            if isinstance(model := found.get(name), str) and model:
                return model
    path = described.get("id") if isinstance(described, dict) else [params.get("_type")]
    return str(path[-1]) if isinstance(path, list) and path and path[-1] else "unknown"


def _unwritten(described: Any, name: str = "") -> Iterator[str]:
    """Names of what LangChain could not serialise, without those that do not matter."""
    if isinstance(described, dict):
        if described.get("type") == "not_implemented" and name not in _HARMLESS:
            yield name
        for key, value in described.items():
            yield from _unwritten(value, key)
    elif isinstance(described, list):
        for value in described:
            yield from _unwritten(value, name)
