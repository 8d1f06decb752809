"""A chat model by name: LangChain's `provider:name`, any OpenAI-compatible address."""

from __future__ import annotations

import re
from typing import Any

from langchain_core.language_models import BaseChatModel

from rtmem.errors import ConfigError, ExtraMissingError


def load_model(name: str, base_url: str = "") -> BaseChatModel:
    """The model `name`, for example "openai:gpt-5-mini"; `base_url` leads to a compatible server of your own.

    Keys are read by the provider's package, from its usual variable (OPENAI_API_KEY).

    Raises:
        ConfigError: unknown provider, package or key missing; says which.
    """
    try:
        from langchain.chat_models import init_chat_model
    except ImportError as exc:
        raise ExtraMissingError(
            f"model {name!r} needs LangChain: pip install 'rtmem[model]'", model=name, extra="model"
        ) from exc
    options: dict[str, Any] = {"base_url": base_url} if base_url else {}
    try:
        model = init_chat_model(name, **options)
    except (ImportError, ValueError) as exc:
        hint = "use provider:name, for example openai:gpt-5-mini"
        if isinstance(exc, ImportError):
            hint += ", and install the provider's package"
        # LangChain's list of providers is worth reading, its advice about arguments of its own is not.
        known = re.search(r"^Supported providers: .*", str(exc), re.MULTILINE)
        what = f"LangChain knows no provider for it. {known[0]}" if known else exc
        raise ConfigError(f"model {name!r}: {what}: {hint}", model=name) from exc
    except Exception as exc:
        # Every provider has an error class of its own for a missing key; none is worth a traceback.
        raise ConfigError(f"model {name!r} cannot be used: {exc}", model=name) from exc
    if not isinstance(model, BaseChatModel):
        raise ConfigError(f"model {name!r} is no chat model: use provider:name", model=name)
    return model
