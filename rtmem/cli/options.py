"""Options that several commands share, and how they are laid over the settings."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from rtmem import settings as rtmem_settings
from rtmem.errors import ConfigError
from rtmem.server import conf
from rtmem.settings import Settings

Config = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="A settings file (TOML); also RTMEM_CONFIG.")
]
DataDir = Annotated[
    str | None,
    typer.Option("--data-dir", metavar="DIR", help="Where the embedded Redis, its data and the token live."),
]
Host = Annotated[str | None, typer.Option("--host", help="Address to listen on.")]
Port = Annotated[int | None, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
RedisUrl = Annotated[
    str | None,
    typer.Option(
        "--redis-url",
        metavar="URL",
        help="Use this Redis instead of the embedded one: redis://, rediss://, unix://, redis+sentinel://, redis+cluster://.",
    ),
]
ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="[ephemeral|relaxed|balanced|durable]",
        help="Durability of the embedded Redis; see `rtmem configs show`. Default: of the one that runs, or balanced.",
    ),
]


def load(
    config: str | None = None,
    *,
    data_dir: str | None = None,
    profile: str | None = None,
    redis_url: str | None = None,
    host: str | None = None,
    port: int | None = None,
) -> Settings:
    """Settings from file and environment, with the given options on top."""
    settings = rtmem_settings.load(config)
    if profile and (redis_url or settings.redis.url):
        raise ConfigError(
            "--profile is for the embedded Redis, and another one is used (--redis-url or [redis] url): leave one of "
            "them out; `rtmem configs write` writes a redis.conf, `rtmem doctor --profile` checks a running Redis"
        )
    if profile is not None:
        # Not by typer: it would offer the one profile too that is refused here.
        conf.require_startable(profile)
    return msgspec.structs.replace(
        settings,
        server=_over(settings.server, data_dir=data_dir, profile=profile),
        redis=_over(settings.redis, url=redis_url),
        gateway=_over(settings.gateway, host=host, port=port),
    )


def _over(section: Any, **options: Any) -> Any:
    return msgspec.structs.replace(section, **{name: value for name, value in options.items() if value is not None})


def running_redis(settings: Settings) -> str:
    """The URL of the Redis that a command looks into. Raises ConfigError: none is named, and none runs."""
    from rtmem.server import directory, embedded

    url = settings.redis.url or embedded.running_url(settings.server)
    if not url:
        layout = directory.locate(settings.server.data_dir)
        raise ConfigError(
            f"no embedded Redis runs in {layout.root}: start it with `{layout.command('up')}`, or give --redis-url"
        )
    return url


def whose(principal: str | None, settings: Settings) -> str:
    """Whose data a command is about: who was named, else who has a configured token, else who ran `rtmem up`."""
    from rtmem.cli import local

    return next(iter(settings.gateway.tokens.values()), local.PRINCIPAL) if principal is None else principal
