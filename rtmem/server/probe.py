"""Ask a Redis what it can and cannot promise, over any client, and refuse one that lacks what is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import redis

from rtmem import errors
from rtmem.errors import ModuleMissingError, RtmemError, ServerTooOldError
from rtmem.server import facts as server_facts
from rtmem.server.binaries import DOCKER_LINE
from rtmem.server.judgement import VERSION_MIN, Finding, ServerReport, dotted_words, judge, modules_words, name_words
from rtmem.steps import Batch, Steps

__all__ = ["VERSION_MIN", "Finding", "ServerReport", "ask", "judge", "probe", "require"]

R = TypeVar("R")


def ask(prefix: str = "rtmem", restart: str = "") -> Steps[ServerReport]:
    """Ask the server and judge it; for a driver of either colour. See facts.ask for round trips and errors.

    Args:
        restart: see remedies.set_directives.
    """
    return judge((yield from server_facts.ask(prefix)), restart)


def probe(client: redis.Redis, prefix: str = "rtmem") -> ServerReport:
    """`ask` over a client of redis-py, whatever its protocol and decoding.

    Raises:
        ServerUnavailableError, ServerLoadingError, AuthenticationError: there is nobody to ask yet.
    """
    try:
        connection = client.connection_pool.get_connection()
    except redis.RedisError as exc:
        raise _translated(exc) from exc
    try:
        return _run(ask(prefix), connection)
    finally:
        client.connection_pool.release(connection)


def require(report: ServerReport, modules: Sequence[str] = (), version_min: tuple[int, ...] = VERSION_MIN) -> None:
    """Refuse a server that lacks what the caller is about to use. What could not be asked is not refused.

    Args:
        modules: of search, json, vectors.
        version_min: of Redis; a Valkey counts as the Redis whose commands it has.

    Raises:
        ServerTooOldError, ModuleMissingError: with the next step.
    """
    facts = report.facts
    if facts.redis_version is not None and facts.redis_version < version_min:
        raise ServerTooOldError(
            f"this server is {name_words(facts)}, needed is Redis {dotted_words(version_min)} or later: upgrade it, or "
            f"run\n  {DOCKER_LINE}",
            version=facts.redis_version,
            version_min=version_min,
        )
    missing = [name for name in modules if facts.modules is not None and name not in facts.modules]
    if missing:
        raise ModuleMissingError(
            f"this server ({name_words(facts)}) lacks {modules_words(missing)}, which memory and cache need: use "
            f"Redis 8, or let rtmem run its own (`pip install 'rtmem[local]'`, no URL)\n  {DOCKER_LINE}",
            missing=missing,
        )


# --- over a client of redis-py ------------------------------------------------------------------------------------


def _run(steps: Steps[R], connection: Any) -> R:
    try:
        request = next(steps)
        while True:
            assert isinstance(request, Batch), request
            try:
                replies = _answer(connection, request)
            except RtmemError as exc:
                request = steps.throw(exc)
            else:
                request = steps.send(replies)
    except StopIteration as stop:
        result: R = stop.value
        return result
    finally:
        steps.close()


def _answer(connection: Any, batch: Batch) -> list[Any]:
    # The connection and not the client: replies shall be as they came, without redis-py's reading of them.
    replies, failure = [], None
    try:
        connection.send_packed_command(connection.pack_commands(batch.commands))
        for _ in batch.commands:
            try:
                replies.append(connection.read_response())
            except redis.ResponseError as exc:
                failure = failure or exc
    except redis.RedisError as exc:
        raise _translated(exc) from exc
    if failure is not None:
        raise _translated(failure) from failure
    return replies


# The first that fits; redis-py derives some of these from each other.
_TRANSLATION: Final[tuple[tuple[type[redis.RedisError], type[RtmemError], str], ...]] = (
    (redis.BusyLoadingError, errors.ServerLoadingError, "wait until it has read its data, then try again"),
    (redis.exceptions.NoPermissionError, errors.PermissionDeniedError, "grant the command in its ACL"),
    (redis.AuthenticationError, errors.AuthenticationError, "check user and password in the URL"),
    (redis.exceptions.ReadOnlyError, errors.ReadOnlyReplicaError, "connect to the master"),
    (redis.exceptions.OutOfMemoryError, errors.ServerFullError, "raise maxmemory"),
    (redis.ConnectionError, errors.ServerUnavailableError, "start it, or check the URL"),
    (redis.TimeoutError, errors.ServerUnavailableError, "start it, or check the URL"),
)


def _translated(exc: redis.RedisError) -> RtmemError:
    text = str(exc)
    for foreign, ours, advice in _TRANSLATION:
        if isinstance(exc, foreign):
            return ours(f"probing Redis: {text}: {advice}")
    if "unknown command" in text.lower() or "unknown subcommand" in text.lower():
        return errors.ServerTooOldError(f"probing Redis: {text}")
    if text.startswith(("NOAUTH", "WRONGPASS")) or "Authentication required" in text:
        return errors.AuthenticationError(f"probing Redis: {text}: check user and password in the URL")
    return errors.CommandError(f"probing Redis: {text}")
