"""From a URL or a redis-py client to connections that are ready to use.

redis-py does what it does well: URLs, TLS, HELLO and AUTH, Sentinel. The drivers then speak over the connection
themselves (wire.py), because redis-py's own read path costs more than the commands.

    redis://user:password@host:6379/0      rediss://... (TLS)      unix:///run/redis.sock?db=0
    redis+sentinel://:password@host:26379,host2:26379/service/0
    redis+cluster://host:7000
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from redis.backoff import NoBackoff
from redis.maint_notifications import MaintNotificationsConfig

from rtmem.errors import ConfigError
from rtmem.settings import Redis

SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "redis+cluster")


def scheme_of(url: str) -> str:
    """The scheme of a Redis URL. Raises ConfigError for one that rtmem does not know."""
    scheme = urlsplit(url).scheme
    if scheme not in SCHEMES:
        raise ConfigError(f"Redis URL {redact(url)!r}: scheme must be one of {', '.join(s + '://' for s in SCHEMES)}")
    return scheme


def redact(url: str) -> str:
    """`url` without its password, for messages."""
    parts = urlsplit(url)
    if parts.password:
        return url.replace(f":{parts.password}@", ":***@", 1)
    return url


def common_options(settings: Redis) -> dict[str, Any]:
    """What every connection is told, whatever its colour."""
    return {
        "protocol": settings.protocol,
        "socket_connect_timeout": settings.connect_timeout_ms / 1000,
        # Only the handshake reads through redis-py; the drivers keep their own deadlines.
        "socket_timeout": settings.connect_timeout_ms / 1000,
        "decode_responses": False,
        "client_name": "rtmem",
        # Pushes about maintenance would arrive on a connection whose reader does not expect them.
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
    }


def sync_pool(url: str, settings: Redis) -> Any:
    """A redis-py pool, used only to make connections for the sync driver."""
    options = {**common_options(settings), "retry": redis.retry.Retry(NoBackoff(), 0)}
    if scheme_of(url) == "redis+sentinel":
        target = sentinel_target(url)
        module: Any = redis.sentinel
        manager = module.Sentinel(target["sentinels"], sentinel_kwargs=target["sentinel_options"], **options)
        return module.SentinelConnectionPool(target["service"], manager, **options, **target["options"])
    return checked(redis.ConnectionPool.from_url(url, **options))


def async_pool(url: str, settings: Redis) -> Any:
    """A redis-py pool, used only to make connections for the async driver."""
    options = {**common_options(settings), "retry": redis.asyncio.retry.Retry(NoBackoff(), 0)}
    if scheme_of(url) == "redis+sentinel":
        target = sentinel_target(url)
        module: Any = redis.asyncio.sentinel
        manager = module.Sentinel(target["sentinels"], sentinel_kwargs=target["sentinel_options"], **options)
        return module.SentinelConnectionPool(target["service"], manager, **options, **target["options"])
    return checked(redis.asyncio.ConnectionPool.from_url(url, **options))


def pool_of(client: Any) -> Any:
    """The pool of a client that the user built, or ConfigError where its replies would be unusable."""
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        raise ConfigError(
            f"redis_client is a {type(client).__name__}: pass redis.Redis or redis.asyncio.Redis, or a "
            "redis+cluster:// URL"
        )
    return checked(pool)


def checked(pool: Any) -> Any:
    """`pool`, unless its connections would decode replies: stored values are bytes, not UTF-8."""
    if pool.connection_kwargs.get("decode_responses"):
        raise ConfigError(
            "redis client has decode_responses=True; stored values are bytes: build it with decode_responses=False"
        )
    return pool


def place_of(options: Mapping[str, Any]) -> str:
    """Where a connection leads, for messages: a socket path or host:port."""
    if "path" in options:
        return str(options["path"])
    return f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"


def sentinel_target(url: str) -> dict[str, Any]:
    """What a redis+sentinel:// URL says: sentinels, service, db, credentials of the data nodes and of the sentinels.

    The credentials in the URL are those of the data nodes; `?sentinel_username=..&sentinel_password=..` those of the
    sentinels. `?ssl=true` asks for TLS.
    """
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    service, _, db = parts.path.strip("/").partition("/")
    if not service or not hosts:
        raise ConfigError(f"Redis URL {redact(url)!r}: expected redis+sentinel://host:26379/service/db")
    user, _, password = credentials.partition(":")
    query = dict(parse_qsl(parts.query))
    options: dict[str, Any] = {"db": int(db or 0)}
    if password:
        options |= {"username": unquote(user) or None, "password": unquote(password)}
    if query.get("ssl") in ("true", "1"):
        options["ssl"] = True
    sentinels = []
    for host in hosts.split(","):
        name, _, port = host.rpartition(":") if ":" in host else (host, ":", "26379")
        sentinels.append((name, int(port)))
    sentinel_options = {
        name.removeprefix("sentinel_"): value for name, value in query.items() if name.startswith("sentinel_")
    }
    return {"sentinels": sentinels, "service": service, "options": options, "sentinel_options": sentinel_options}
