"""What the indexes of memory and cache have in common: vectors by the name of their embedder, schemas as words."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Any, Literal, Protocol

from redisvl.schema import IndexSchema

from rtmem.errors import CommandError
from rtmem.steps import Argument, Embedder


class VectorSettings(Protocol):
    """How vectors are indexed: sections [store] and [cache] say it in the same words."""

    @property
    def vectors(self) -> Literal["auto", "flat", "hnsw"]: ...

    @property
    def hnsw_links(self) -> int: ...

    @property
    def hnsw_building(self) -> int: ...

    @property
    def hnsw_searching(self) -> int: ...


@lru_cache(maxsize=64)
def short(fingerprint: str) -> str:
    """A fingerprint as letters and digits, at most 16 of them, so that it can be part of a name."""
    if len(fingerprint) <= 16 and fingerprint.isascii() and fingerprint.isalnum():
        return fingerprint
    return blake2b(fingerprint.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def name_of(embedder: Embedder) -> str:
    """An embedder for people: what [embedding] model calls it, where that can be said."""
    setting: str = getattr(embedder, "setting", "")
    return setting or embedder.name


def vector_attributes(dims: int, settings: VectorSettings) -> dict[str, Any]:
    """A field of vectors, as RedisVL's schema wants it."""
    attributes: dict[str, Any] = {"dims": dims, "distance_metric": "cosine", "datatype": "float32"}
    if settings.vectors != "hnsw":  # "auto" begins flat
        return {**attributes, "algorithm": "flat"}
    return {
        **attributes,
        "algorithm": "hnsw",
        "m": settings.hnsw_links,
        "ef_construction": settings.hnsw_building,
        "ef_runtime": settings.hnsw_searching,
    }


def field_words(made: IndexSchema) -> list[tuple[str, list[Argument]]]:
    """Each field of a schema: its name, and what FT.CREATE and FT.ALTER call it."""
    return [
        (name, [str(getattr(word, "value", word)) for word in each.as_redis_field().redis_args()])
        for name, each in made.fields.items()
    ]


def is_lost(exc: CommandError) -> bool:
    """Whether a query failed because there is no such index: FLUSHALL takes indexes along."""
    text = str(exc).lower()
    return "no such index" in text or "unknown index" in text or "index_not_found" in text
