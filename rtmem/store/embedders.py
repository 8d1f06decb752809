"""What LangGraph's IndexConfig calls `embed`, as an rtmem embedder."""

from __future__ import annotations

from typing import Any

from langgraph.store.base import ensure_embeddings

from rtmem.embedding import LangChainEmbedder
from rtmem.embedding.extras import imported
from rtmem.errors import ConfigError, ExtraMissingError
from rtmem.steps import Embedder


def embedder_of(embed: Any, dims: int | None) -> Embedder:
    """An embedder of rtmem as it is; LangChain's, a function or `provider:model` with an adapter around it.

    Raises ConfigError.
    """
    if hasattr(embed, "fingerprint") and hasattr(embed, "aembed"):
        if dims is not None and dims != embed.dims:
            raise ConfigError(f"index['dims'] is {dims}, and {embed.name} has {embed.dims}: leave dims out")
        ours: Embedder = embed
        return ours
    if type(dims) is not int or dims < 1:
        raise ConfigError(f"index['dims'] is {dims!r}: how many numbers a vector of this embedder has")
    if isinstance(embed, str):
        imported("langchain.embeddings", "agent")
    try:
        return LangChainEmbedder(ensure_embeddings(embed), dims)
    except ImportError as exc:
        raise ExtraMissingError(
            f"index['embed'] is {embed!r}, and the package of that provider cannot be imported: {exc}", extra=""
        ) from exc
    except ValueError as exc:
        raise ConfigError(f"index['embed']: {exc}") from exc
