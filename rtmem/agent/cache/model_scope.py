"""What must be the same for two calls of a chat model to share an answer: all that the model says of itself.

A field of the model that nobody can compare is an error rather than left out. Not looked at are fields that their
owner excludes from what describes the model (clients), secrets, and what every chat model has for its callers' sake.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from pydantic import SecretBytes, SecretStr

from rtmem.errors import ConfigError
from rtmem.operations.cache_prompts import CacheScope, Conversation

_OF_ANY_MODEL: Final = BaseChatModel.model_fields.keys() - {"output_version"}
_NAMES: Final = ("model_name", "model", "model_id", "deployment_name")


def name_of(model: BaseChatModel) -> str:
    """What a model calls itself. Raises ConfigError if it does not."""
    names = (model._get_ls_params().get("ls_model_name"), *(getattr(model, name, None) for name in _NAMES))
    for name in names:
        if isinstance(name, str) and name:
            return name
    raise ConfigError(
        f"{type(model).__name__} does not say which model it is: give model_name=..., for an answer of another one is "
        "another answer"
    )


def parameters_of(model: BaseChatModel) -> dict[str, Any]:
    """All that a model says of itself."""
    return {
        "class": f"{type(model).__module__}.{type(model).__qualname__}",
        "kind": model._llm_type,
        "identity": dict(model._identifying_params),
        "fields": {
            name: _described(value)
            for name in (*_told_fields(type(model)), *(model.model_extra or ()))
            if (value := getattr(model, name)) is not None and not isinstance(value, SecretStr | SecretBytes)
        },
    }


def scope_of_call(
    name: str,
    parameters: Mapping[str, Any],
    stop: list[str] | None,
    kwargs: Mapping[str, Any],
    conversation: Conversation,
) -> CacheScope:
    """The scope of one call. Raises InvalidRequestError for what cannot be compared."""
    bound = dict(kwargs)
    tools, response_format = bound.pop("tools", None), bound.pop("response_format", None)
    return CacheScope(
        model=name,
        parameters={"model": parameters, "stop": stop, "bound": bound},
        tools=() if tools is None else tools,
        response_format=response_format,
        conversation=conversation,
    )


@cache
def _told_fields(kind: type[BaseChatModel]) -> tuple[str, ...]:
    return tuple(name for name, field in kind.model_fields.items() if not field.exclude and name not in _OF_ANY_MODEL)


def _described(value: Any) -> Any:
    return parameters_of(value) if isinstance(value, BaseChatModel) else value
