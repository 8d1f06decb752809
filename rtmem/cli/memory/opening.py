"""Whose memory the commands are about, with which embedder, at which Redis: options that all of them share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from rtmem.cli import options, screen
from rtmem.errors import FactNotFoundError, InvalidRequestError

if TYPE_CHECKING:
    from rtmem.embedding import CachingEmbedder
    from rtmem.memory import Memory
    from rtmem.settings import Settings

Principal = Annotated[
    str | None,
    typer.Option("--principal", help="Whose memory; default: of a configured token, else of `rtmem up`."),
]
Teams = Annotated[
    list[str] | None, typer.Option("--team", metavar="NAME", help="A team the principal is in; may be repeated.")
]
Application = Annotated[str, typer.Option("--application", metavar="NAME", help="The application it belongs to.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
WordsOnly = Annotated[
    bool, typer.Option("--words-only", help="Without the embedder: nothing is loaded, words alone decide.")
]
FactId = Annotated[str, typer.Argument(metavar="ID", help="The fact, mf_...")]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the memory is: the options that say so."""

    principal: str | None
    teams: list[str] | None
    application: str
    config: str | None
    data_dir: str | None
    redis_url: str | None

    def settings(self) -> Settings:
        """Settings, with the options on top."""
        return options.load(self.config, data_dir=self.data_dir, redis_url=self.redis_url)


@contextmanager
def opened(place: Place, *, embedding: bool, model: str = "") -> Iterator[Memory]:
    """The memory that the options name.

    Args:
        embedding: whether the command needs vectors. model: another one than [embedding] says.
    """
    from rtmem.memory import Memory
    from rtmem.records import Principal as Whose

    settings = place.settings()
    url = place.redis_url or settings.store.redis_url or options.running_redis(settings)
    name = options.whose(place.principal, settings)
    whose = Whose(user=name, teams=tuple(place.teams or ()), application=place.application)
    embedder = _embedder(settings, model) if embedding else None
    memory = Memory(
        url,
        principal=whose,
        embedder=embedder,
        settings=settings.memory,
        store=settings.store,
        retrieval=settings.retrieval,
        redis=settings.redis,
    )
    with memory:
        try:
            yield memory
        except FactNotFoundError as exc:
            message = (
                f"no fact {exc.data['fact']!r} of {owner(memory)}: it never was, or it was forgotten; "
                "`rtmem memory list --ended` shows all there are"
            )
            raise FactNotFoundError(message, **exc.data) from exc
        finally:
            if embedder is not None:
                embedder.close()


def _embedder(settings: Settings, model: str) -> CachingEmbedder:
    from rtmem import embedding

    chosen = msgspec.structs.replace(settings.embedding, model=model) if model else settings.embedding
    return embedding.from_settings(chosen)


def owner(memory: Memory) -> str:
    """Whose memory was looked at, and how to look at others'."""
    whose = memory.principal
    told = [f"principal {whose.user!r}"] if whose.user else []
    told += [f"team {team!r}" for team in whose.teams]
    told += [f"application {whose.application!r}"] if whose.application else []
    return screen.harmless(", ".join(told) or "nobody") + "; --principal names another"


def moment(text: str | None, what: str) -> int | None:
    """A time as people write it, in ms. Without a zone it is UTC. Raises InvalidRequestError."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as exc:
        raise InvalidRequestError(
            f"{what} is {text!r}: a date or a time such as 2026-05-01 or 2026-05-01T12:30Z"
        ) from exc
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000)


def shown_time(at_ms: int | None) -> str:
    """A time for people; dates of the far past and future included."""
    if at_ms is None:
        return "open"
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError):
        return f"{at_ms} ms"


def one_line(text: str, characters_max: int = 0) -> str:
    """Somebody's text for one line of a table; cut where it is told to."""
    line = " ".join(screen.harmless(text).split())
    return line if not characters_max or len(line) <= characters_max else line[: characters_max - 1] + "…"
