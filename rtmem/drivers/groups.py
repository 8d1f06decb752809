"""Group commit: one run of shared steps answers everybody who asked for it before it began (steps.Shared)."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from rtmem.drivers.translate import copy_of
from rtmem.errors import RtmemError, ServerUnavailableError
from rtmem.steps import Shared, Steps


@dataclass(eq=False, slots=True)
class _Group:
    """Threads that will be answered by one run."""

    replies: list[Any] | None = None
    error: RtmemError | None = None

    @property
    def done(self) -> bool:
        return self.replies is not None or self.error is not None


@dataclass(eq=False, slots=True)
class _Door:
    """Those who ask with one key meet here."""

    gathering: _Group = field(default_factory=_Group)
    at_work: int = 0
    began_s: float = 0.0  # the last run

    def closed_s(self, spacing_ms: int) -> float:
        """How long the gathering group has to wait yet."""
        return self.began_s + spacing_ms / 1_000 - time.monotonic() if self.at_work else 0.0


class SyncGroups:
    """Group commit of threads: the first of a group to find the door open runs the steps for all of it."""

    def __init__(self, run: Callable[[Steps[Any]], Any]) -> None:
        self._run = run
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._doors: dict[object, _Door] = {}

    def join(self, shared: Shared) -> list[Any]:
        """The answer to `shared`, run for this caller and for all who joined with it."""
        if self._pid != os.getpid():
            # In a forked child those at work do not exist, and the lock may be held for ever.
            self._reset()
        with self._changed:
            door = self._doors.setdefault(shared.key, _Door())
            group = door.gathering
            while group is door.gathering and (closed_s := door.closed_s(shared.spacing_ms)) > 0:
                self._changed.wait(closed_s)
            leads = group is door.gathering
            if leads:
                door.gathering = _Group()
                door.at_work += 1
                door.began_s = time.monotonic()
            while not (leads or group.done):
                self._changed.wait()
        if leads:
            self._lead(door, group, shared)
        if group.error is not None:
            raise copy_of(group.error)
        assert group.replies is not None, "a group that is done has replies or an error"
        return group.replies

    def _lead(self, door: _Door, group: _Group, shared: Shared) -> None:
        error: RtmemError = ServerUnavailableError("the thread that spoke for this one was interrupted: try again")
        replies: list[Any] | None = None
        try:
            replies = [self._run(shared.steps())]
        except RtmemError as exc:
            error = exc
        finally:
            # Also after KeyboardInterrupt: the others of the group must not wait for ever.
            with self._changed:
                group.replies = replies
                group.error = error if replies is None else None
                door.at_work -= 1
                self._changed.notify_all()


class AsyncGroups:
    """Group commit of tasks of one event loop. Tasks of their own run the steps: any waiter may be cancelled."""

    def __init__(self, run: Callable[[Steps[Any]], Awaitable[Any]]) -> None:
        self._run = run
        self._waiting: dict[object, list[asyncio.Future[list[Any]]]] = {}
        self._leading: dict[object, asyncio.Task[None]] = {}
        self._at_work: set[asyncio.Task[None]] = set()

    async def join(self, shared: Shared) -> list[Any]:
        """The answer to `shared`, run for this caller and for all who joined with it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Any]] = loop.create_future()
        self._waiting.setdefault(shared.key, []).append(future)
        if shared.key not in self._leading:
            self._leading[shared.key] = loop.create_task(self._lead(shared))
        return await future

    async def _lead(self, shared: Shared) -> None:
        """Start a run for each group that has gathered, not too soon after the one before."""
        try:
            while group := [future for future in self._waiting.pop(shared.key, ()) if not future.done()]:
                task = asyncio.get_running_loop().create_task(self._answer(shared, group))
                self._at_work.add(task)
                task.add_done_callback(self._at_work.discard)
                await asyncio.wait((task,), timeout=shared.spacing_ms / 1_000)
        finally:
            del self._leading[shared.key]

    async def _answer(self, shared: Shared, group: list[asyncio.Future[list[Any]]]) -> None:
        try:
            replies = [await self._run(shared.steps())]
        except Exception as exc:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            _tell(group, exc)
        except asyncio.CancelledError:
            _tell(group, _closed())
            raise
        else:
            for future in group:
                if not future.done():
                    future.set_result(replies)

    async def aclose(self) -> None:
        """End what is at work; who waits gets an error."""
        for waiting in self._waiting.values():
            _tell(waiting, _closed())
        self._waiting.clear()
        at_work = (*self._leading.values(), *self._at_work)
        for task in at_work:
            task.cancel()
        if at_work:
            await asyncio.wait(at_work)


def _tell(group: list[asyncio.Future[list[Any]]], exc: Exception) -> None:
    for future in group:
        if not future.done():
            future.set_exception(copy_of(exc))


def _closed() -> ServerUnavailableError:
    return ServerUnavailableError(
        "the driver was closed meanwhile: keep it open while calls are under way", closed=True
    )
