"""From a URL or a redis-py client to connections that are ready to use.

redis-py does what it does well: URLs, TLS, HELLO and AUTH, Sentinel. The drivers then speak over the connection
themselves (wire.py), because redis-py's own read path costs more than the commands.

    redis://user:password@host:6379/0      rediss://... (TLS)      unix:///run/redis.sock?db=0
    redis+sentinel://:password@host:26379,host2:26379/service/0
    redis+cluster://host:7000
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
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
    """The scheme of a Redis URL. Raises ConfigError for one that rtmem does not know, and for what is no URL."""
    if not isinstance(url, str):
        raise ConfigError(
            f"redis_url is a {type(url).__module__}.{type(url).__qualname__}, and a URL is a string: give a client as "
            "redis_client=..., which the savers take, and a driver as driver=...; SyncDriver.of_client(client) and "
            "AsyncDriver.of_client(client) of rtmem.drivers make one of a client"
        )
    scheme = url.partition("://")[0]
    if scheme not in SCHEMES:
        raise ConfigError(f"Redis URL {redact(url)!r}: scheme must be one of {', '.join(s + '://' for s in SCHEMES)}")
    return scheme


def redact(url: str) -> str:
    """`url` without its passwords, for messages; also one that is not a valid URL, for instance by an unescaped `/`."""
    scheme, separator, rest = url.partition("://")
    credentials, at, place = rest.rpartition("@")
    user = credentials.partition(":")[0]
    shown = f"{scheme}{separator}{user}{':***' if ':' in credentials else ''}{at}{place}"
    return re.sub(r"(password=)[^&]*", r"\1***", shown)


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
        return _sentinel_pool(redis.sentinel, url, options)
    return _from_url(redis.ConnectionPool.from_url, url, options)


def async_pool(url: str, settings: Redis) -> Any:
    """A redis-py pool, used only to make connections for the async driver."""
    options = {**common_options(settings), "retry": redis.asyncio.retry.Retry(NoBackoff(), 0)}
    if scheme_of(url) == "redis+sentinel":
        return _sentinel_pool(redis.asyncio.sentinel, url, options)
    return _from_url(redis.asyncio.ConnectionPool.from_url, url, options)


def _from_url(build: Callable[..., Any], url: str, options: Mapping[str, Any]) -> Any:
    try:
        _check_place(url)
        pool = checked(build(url, **options))
        # Built, not connected: an option that redis-py does not know shows up only here.
        pool.connection_class(**pool.connection_kwargs)
    except (ValueError, TypeError, AttributeError, redis.ConnectionError):
        # Without the cause: redis-py quotes the part of the URL that it could not read, which may be the password.
        raise ConfigError(
            f"Redis URL {redact(url)!r} cannot be read: check port, database number, options (a socket needs three "
            "slashes, unix:///path), and percent-encode what is special in user and password (@ is %40, / is %2F, # is "
            "%23)"
        ) from None
    return pool


def _check_place(url: str) -> None:
    """Raises ValueError for what redis-py passes over silently: data would end up where the URL does not say."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        # unix://run/redis.sock would mean /redis.sock.
        if parts.netloc.rpartition("@")[2] or not parts.path:
            raise ValueError
    elif parts.path.strip("/"):
        int(parts.path.strip("/"))


def _sentinel_pool(module: Any, url: str, options: Mapping[str, Any]) -> Any:
    target = sentinel_target(url)
    # Given any sentinel_kwargs, redis-py takes nothing else for the sentinels: without the timeouts one that hangs
    # would never be given up, and redis-py's default retries would repeat each that is down.
    ask = {name: options[name] for name in ("socket_connect_timeout", "socket_timeout", "retry")}
    manager = module.Sentinel(target["sentinels"], sentinel_kwargs={**ask, **target["sentinel_options"]})
    return module.SentinelConnectionPool(target["service"], manager, **options, **target["options"])


def pool_of(client: Any, kind: type) -> Any:
    """The pool of a client that the user built, a `kind`; ConfigError where it is another or decodes replies."""
    pool = getattr(client, "connection_pool", None)
    if not isinstance(pool, kind):
        raise ConfigError(
            f"redis_client is a {type(client).__module__}.{type(client).__qualname__}: the sync classes take a "
            "redis.Redis, the async ones a redis.asyncio.Redis; for a cluster pass a redis+cluster:// URL"
        )
    return checked(pool)


def new_connection(pool: Any, timeout_s: float) -> Any:
    """A connection made the way `pool` makes them, not connected yet; connect() gives up after `timeout_s` at a time.

    Not by pool.make_connection(): that counts it towards the pool's maximum, for ever, because the drivers never hand
    a connection back. The hundredth would be the last, and a user's own client would run dry.
    """
    connection = pool.connection_class(**pool.connection_kwargs)
    for name in ("socket_connect_timeout", "socket_timeout"):
        theirs = getattr(connection, name, None)
        setattr(connection, name, timeout_s if theirs is None else min(theirs, timeout_s))
    # The driver decides what is tried again, inside its deadline. The type carries the colour.
    connection.retry = type(connection.retry)(NoBackoff(), 0)
    if follows_sentinel(pool):
        connection.connection_pool = _with_own_sentinels(pool)
    return connection


def _with_own_sentinels(pool: Any) -> Any:
    """`pool`, asking the same Sentinels over connections that nobody else uses.

    Connections are made by many tasks or threads at once, and each closes those to the Sentinels when it knows who the
    master is: shared ones would be closed under somebody who has just asked.
    """
    own, own.sentinel_manager = copy.copy(pool), copy.copy(pool.sentinel_manager)
    own.sentinel_manager.sentinels = [
        type(client).from_pool(type(theirs)(connection_class=theirs.connection_class, **theirs.connection_kwargs))
        for client in pool.sentinel_manager.sentinels
        for theirs in [client.connection_pool]
    ]
    return own


def checked(pool: Any) -> Any:
    """`pool`, unless its connections would decode replies: stored values are bytes, not UTF-8."""
    if pool.connection_kwargs.get("decode_responses"):
        raise ConfigError(
            "redis client has decode_responses=True; stored values are bytes: build it with decode_responses=False"
        )
    return pool


def follows_sentinel(pool: Any) -> bool:
    """Whether each new connection of `pool` asks Sentinel first who the master is."""
    return hasattr(pool, "service_name")


def asked_sentinels(connection: Any, pool: Any) -> list[Any]:
    """The connections over which the Sentinels were asked for `connection`, to be closed when it is made.

    `pool` learns which Sentinel answered: the next connection asks that one first.
    """
    if not follows_sentinel(pool):
        return []
    asked = [client.connection_pool for client in connection.connection_pool.sentinel_manager.sentinels]
    first = _address(asked[0])
    pool.sentinel_manager.sentinels.sort(key=lambda client: _address(client.connection_pool) != first)
    # Not by disconnect() of their pools: cancelled before it begins with one of them, it would leave that one open.
    return [one for theirs in asked for one in (*theirs._available_connections, *theirs._in_use_connections)]


def _address(pool: Any) -> tuple[Any, ...]:
    return pool.connection_kwargs.get("host"), pool.connection_kwargs.get("port")


def place_of(pool: Any) -> str:
    """Where its connections lead, for messages: a socket path, host:port, or the service that Sentinel watches."""
    options = pool.connection_kwargs
    if follows_sentinel(pool):
        return f"the master of {pool.service_name!r} (by Sentinel)"
    if "path" in options:
        return str(options["path"])
    return f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"


def sentinel_target(url: str) -> dict[str, Any]:
    """What a redis+sentinel:// URL says: sentinels, service, db, credentials of the data nodes and of the sentinels.

    The credentials in the URL are those of the data nodes; `?sentinel_username=..&sentinel_password=..` those of the
    sentinels. `?ssl=true` asks for TLS, with redis-py's options, `?ssl_ca_certs=FILE` and the like.
    """
    try:
        return _sentinel_target(url)
    except ValueError:
        raise ConfigError(
            f"Redis URL {redact(url)!r}: expected redis+sentinel://:password@host:26379,host2:26379/service/db"
        ) from None


def _sentinel_target(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    service, _, db = parts.path.removeprefix("/").partition("/")
    if not service or not hosts:
        raise ValueError
    user, _, password = credentials.partition(":")
    query = dict(parse_qsl(parts.query))
    options: dict[str, Any] = {"db": int(db or 0)}
    if password:
        options |= {"username": unquote(user) or None, "password": unquote(password)}
    if query.get("ssl") in ("true", "1"):
        options["ssl"] = True
        options |= {name: value for name, value in query.items() if name.startswith("ssl_")}
    sentinels = []
    for host in hosts.split(","):
        address = urlsplit(f"//{host}")  # knows [::1]:26379 too
        if not address.hostname:
            raise ValueError
        sentinels.append((address.hostname, address.port or 26379))
    sentinel_options = {
        name.removeprefix("sentinel_"): value for name, value in query.items() if name.startswith("sentinel_")
    }
    return {"sentinels": sentinels, "service": service, "options": options, "sentinel_options": sentinel_options}
