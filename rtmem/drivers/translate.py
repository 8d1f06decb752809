"""Foreign errors become rtmem errors here, and nowhere else.

Two kinds arrive: error replies of Redis (a line whose first word is a code) and exceptions of redis-py or the socket
while a connection is made or used.
"""

from __future__ import annotations

import ssl

import redis.exceptions as redis_errors

from rtmem import errors
from rtmem.errors import RtmemError

_START_LINE = (
    "start it (`rtmem up` runs an embedded one), or check its URL, wherever it was given (an argument, --redis-url, "
    "RTMEM_REDIS__URL)"
)

# First word of an error reply -> (error, what to do).
_BY_CODE: dict[str, tuple[type[RtmemError], str]] = {
    "LOADING": (errors.ServerLoadingError, "wait until it has read its data, then try again"),
    "MASTERDOWN": (errors.ServerUnavailableError, "wait for the replica to find its master, then try again"),
    "CLUSTERDOWN": (errors.ServerUnavailableError, "wait for the cluster to recover; `CLUSTER INFO` tells its state"),
    "MOVED": (errors.ConfigError, "this server is a node of a Redis Cluster: use redis+cluster://host:port"),
    "ASK": (errors.ConfigError, "this server is a node of a Redis Cluster: use redis+cluster://host:port"),
    "CROSSSLOT": (errors.CommandError, "the keys of one command must share a hash tag in a Redis Cluster"),
    "TRYAGAIN": (errors.ServerUnavailableError, "try again: slots are moving between cluster nodes"),
    "WRONGPASS": (errors.AuthenticationError, "check user and password in the Redis URL (redis://user:password@host)"),
    "NOAUTH": (errors.AuthenticationError, "this Redis needs a password: redis://:password@host:port"),
    "NOPERM": (errors.PermissionDeniedError, "grant it: `ACL SETUSER <user> ~rtmem:* +@all -@dangerous +info`"),
    "READONLY": (errors.ReadOnlyReplicaError, "write to the master; use redis+sentinel:// to follow failovers"),
    "OOM": (errors.ServerFullError, "nothing was written: raise maxmemory, prune threads or set a TTL"),
    "MISCONF": (
        errors.PersistenceError,
        "nothing was written: free or repair the disk of its data directory; if writes are still refused then, "
        "`redis-cli BGREWRITEAOF` (`rtmem up` and `rtmem serve` do it for their own Redis)",
    ),
    "NOREPLICAS": (errors.PersistenceError, "too few replicas are in sync for min-replicas-to-write: check them"),
    "BUSY": (errors.ServerUnavailableError, "a script is running at the server: try again"),
    "RTMEM_LAYOUT": (errors.NewerLayoutError, "upgrade rtmem on this machine"),
    "RTMEM_FENCED": (errors.StaleWriterError, "another runner owns this thread now: stop this one"),
    "RTMEM_DELETED": (errors.ThreadDeletedError, "start a new run"),
    "RTMEM_EMBEDDER": (
        errors.EmbedderMismatchError,
        "to use what is there, set `[embedding] model` (RTMEM_EMBEDDING__MODEL) to that name, or open it with that "
        "embedder; to change it for everybody, `rtmem memory reindex`",
    ),
    "RTMEM_REINDEX": (errors.StaleWriterError, "run `rtmem memory reindex` again if it is still wanted"),
    "RTMEM_CORRUPT": (errors.CorruptRecordError, "run `rtmem doctor threads` for the details"),
}


def error_reply(text: str) -> RtmemError:
    """The rtmem error for an error reply, e.g. `READONLY You can't write against a read only replica.`"""
    code, _, detail = text.partition(" ")
    if code in _BY_CODE:
        kind, advice = _BY_CODE[code]
        if code.startswith("RTMEM_"):
            # Our own functions answer in whole sentences, behind which Redis puts where in the script they ended.
            sentence = detail.partition(" script: ")[0].strip() or code
            return kind(f"{sentence}: {advice}", reply=text)
        return kind(f"Redis answered {text.strip()!r}: {advice}", reply=text)
    if "ACL failure in script" in text:  # of a command inside one of our functions
        return errors.PermissionDeniedError(f"Redis answered {text.strip()!r}: {_BY_CODE['NOPERM'][1]}", reply=text)
    if "Function not found" in text:
        return errors.FunctionMissingError(f"Redis answered {text!r}: load the function library", reply=text)
    if "DB index is out of range" in text:
        return errors.ConfigError(
            f"Redis answered {text!r}: use a database number below its `databases` (0 is always there) in the URL",
            reply=text,
        )
    if "max number of clients reached" in text:
        return errors.ServerUnavailableError(
            f"Redis answered {text!r}: raise maxclients there, or lower connections_max here", reply=text
        )
    if "unknown command" in detail or "unknown subcommand" in detail.lower():
        return errors.ServerTooOldError(
            f"Redis answered {text!r}: this server lacks a command; rtmem needs Redis >= 7.0 or Valkey >= 7.2",
            reply=text,
        )
    return errors.CommandError(f"Redis answered {text!r}", reply=text)


def connection_error(exc: BaseException, where: str) -> RtmemError:
    """The rtmem error for an exception of redis-py or the socket. `where` names the server."""
    if isinstance(exc, RtmemError):
        return exc
    # redis-py's async connect hides a refusal (password, denied command) behind a ConnectionError.
    if isinstance(exc.__cause__, redis_errors.RedisError):
        exc = exc.__cause__
    text = str(exc) or type(exc).__name__
    if isinstance(exc, redis_errors.BusyLoadingError):
        return errors.ServerLoadingError(f"Redis at {where} is loading its data: try again in a moment", where=where)
    # redis-py raises the AUTH failures below ConnectionError; they must be looked at first.
    if isinstance(exc, redis_errors.AuthenticationError) or _is_auth_text(text):
        return errors.AuthenticationError(
            f"Redis at {where} refused the login ({text}): check user and password in the Redis URL "
            "(redis://user:password@host)",
            where=where,
        )
    if isinstance(exc, redis_errors.NoPermissionError):
        return errors.PermissionDeniedError(f"Redis at {where}: {text}: grant the command in its ACL", where=where)
    if isinstance(exc, redis_errors.TimeoutError | TimeoutError):
        return errors.ServerUnavailableError(f"no answer from Redis at {where} ({text}): {_START_LINE}", where=where)
    if isinstance(exc, ssl.SSLError):
        return errors.ServerUnavailableError(
            f"TLS with Redis at {where} failed ({text}): check that the port speaks TLS and the CA is known "
            "(rediss://...?ssl_ca_certs=FILE)",
            where=where,
        )
    if isinstance(exc, redis_errors.InvalidResponse):
        return errors.ServerError(
            f"what answers at {where} is no Redis ({text}): check host and port in the URL", where=where
        )
    if isinstance(exc, redis_errors.ConnectionError | OSError | EOFError):
        return errors.ServerUnavailableError(f"cannot reach Redis at {where} ({text}): {_START_LINE}", where=where)
    if isinstance(exc, redis_errors.ResponseError):
        return error_reply(text)
    return errors.ServerError(f"Redis at {where}: {type(exc).__name__}: {text}", where=where)


def copy_of(exc: Exception) -> Exception:
    """`exc` for one more of those it concerns: one object raised in several tasks would collect all tracebacks."""
    if not isinstance(exc, RtmemError):
        return exc
    twin = type(exc)(exc.message, **exc.data)
    twin.__cause__ = exc
    return twin


def _is_auth_text(text: str) -> bool:
    return text.startswith(("WRONGPASS", "NOAUTH")) or "invalid username-password pair" in text
