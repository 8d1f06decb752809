"""Drivers for Redis Cluster: redis-py routes each command to the node of its slot and follows redirections.

A batch whose commands share a slot (all keys of a thread do) goes out one command after the other on that node;
batches of one tick are not merged. That costs round trips, never correctness: what must be true together is one
Redis Function call anyway.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster

from rtmem.drivers import clients
from rtmem.drivers.aio import AsyncDriver, _compute
from rtmem.drivers.sync import SyncDriver, backoff_s, retry_allowed
from rtmem.drivers.translate import connection_error
from rtmem.errors import DeadlineExceededError, RtmemError, UnsupportedError
from rtmem.settings import Redis
from rtmem.steps import Batch, Compute, Request


class SyncClusterDriver(SyncDriver):
    """Runs operations against a Redis Cluster, blocking."""

    def __init__(self, url: str, settings: Redis) -> None:
        self.settings = settings
        self._url, self._where = _plain_url(url), clients.redact(url)
        self._client: Any = None

    def answer(self, request: Request) -> list[Any]:
        """The replies to one request, one command after the other. See SyncDriver.answer."""
        if not isinstance(request, Batch):
            return super().answer(request)
        _refuse_atomic(request)
        deadline = time.monotonic() + (request.timeout_ms or self.settings.deadline_ms) / 1000
        for attempt in range(self.settings.retries_max + 1):
            try:
                return [self._execute(command) for command in request.commands]
            except RtmemError as exc:
                pause_s = backoff_s(attempt)
                last = attempt == self.settings.retries_max or time.monotonic() + pause_s >= deadline
                if last or not retry_allowed(exc, request):
                    raise
                time.sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    def _execute(self, command: tuple[Any, ...]) -> Any:
        try:
            if self._client is None:
                self._client = _raw(RedisCluster.from_url(self._url, **_options(self.settings, redis.retry.Retry)))
            if command[0] == "SCAN":
                return [b"0", list(self._client.scan_iter(match=command[3], count=command[5]))]
            return self._client.execute_command(*command)
        except (redis.RedisError, OSError) as exc:
            raise connection_error(exc, self._where) from exc

    def close(self) -> None:
        """Close every connection."""
        if self._client is not None:
            self._client.close()
            self._client = None


class AsyncClusterDriver(AsyncDriver):
    """Runs operations against a Redis Cluster, awaiting."""

    def __init__(self, url: str, settings: Redis) -> None:
        self.settings = settings
        self._url, self._where = _plain_url(url), clients.redact(url)
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def answer(self, request: Request) -> list[Any]:
        """The replies to one request, one command after the other. See AsyncDriver.answer."""
        if isinstance(request, Compute):
            return await _compute(request)
        _refuse_atomic(request)
        timeout_s = (request.timeout_ms or self.settings.deadline_ms) / 1000
        deadline = time.monotonic() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await self._attempts(request, deadline)
        except TimeoutError as exc:
            raise DeadlineExceededError(
                f"no answer from the Redis Cluster at {self._where} within {timeout_s:g} s; a write may have happened",
                where=self._where,
            ) from exc

    async def _attempts(self, batch: Batch, deadline: float) -> list[Any]:
        for attempt in range(self.settings.retries_max + 1):
            try:
                return [await self._execute(command) for command in batch.commands]
            except RtmemError as exc:
                pause_s = backoff_s(attempt)
                last = attempt == self.settings.retries_max or time.monotonic() + pause_s >= deadline
                if last or not retry_allowed(exc, batch):
                    raise
                await asyncio.sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    async def _execute(self, command: tuple[Any, ...]) -> Any:
        try:
            if self._client is None or self._loop is not asyncio.get_running_loop():
                self._loop = asyncio.get_running_loop()
                options = _options(self.settings, redis.asyncio.retry.Retry)
                self._client = _raw(AsyncRedisCluster.from_url(self._url, **options))
            if command[0] == "SCAN":
                keys = [key async for key in self._client.scan_iter(match=command[3], count=command[5])]
                return [b"0", keys]
            return await self._client.execute_command(*command)
        except (redis.RedisError, OSError) as exc:
            raise connection_error(exc, self._where) from exc

    async def aclose(self) -> None:
        """Close every connection."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None


def _plain_url(url: str) -> str:
    return url.replace("redis+cluster://", "redis://", 1)


def _options(settings: Redis, retry: Any) -> dict[str, Any]:
    # redis-py follows MOVED and ASK by itself; whether a lost write goes again is decided by this driver.
    options = clients.common_options(settings)
    return {**options, "retry": retry(NoBackoff(), 0)}


def _raw(client: Any) -> Any:
    """`client` without the callbacks that turn replies into something else, but for those it needs itself."""
    for name in ("response_callbacks", "cluster_response_callbacks"):
        callbacks = getattr(client, name, {})
        for command in [command for command in callbacks if not command.upper().startswith(("COMMAND", "CLUSTER"))]:
            del callbacks[command]
    return client


def _refuse_atomic(batch: Batch) -> None:
    if batch.atomic:
        raise UnsupportedError("MULTI/EXEC in a Redis Cluster: make it one Redis Function call")
