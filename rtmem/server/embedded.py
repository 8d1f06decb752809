"""A Redis of one's own: started on demand, shared by all processes of one user, outliving each of them.

Three file locks say everything, and all of them end with their holder, so kill -9 of anybody leaves nothing to clean:

    transition.lock   whoever is starting or stopping the server, one at a time
    shares.lock       every process that uses the server, shared; free means nobody does
    life.lock         the server itself: it inherits the locked file and never knows

The pid and socket files of a dead server are therefore never believed. The last share that is released stops the
server; processes that die without releasing leave it running, and the next one finds it, or starts it again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from rtmem.errors import ConfigError
from rtmem.server import address, binaries, conf, diagnosis, directory, launch, lock, marker, repair
from rtmem.server.binaries import Binaries
from rtmem.server.directory import Layout
from rtmem.server.shutdown import shut_down
from rtmem.settings import Server


@dataclass(slots=True)
class Embedded:
    """A share in a running server. Use as a context manager, or call `release`."""

    url: str
    data_dir: Path
    pid: int
    profile: str  # what it runs with
    report: tuple[str, ...]  # what happened on the way, one sentence each; empty when it was already running
    _settings: Server = field(repr=False)
    _share: int = field(repr=False)  # file descriptor; -1 once released

    def release(self) -> bool:
        """Give the share back; True when it was the last one and the server has been stopped."""
        if self._share < 0:
            return False
        layout = directory.locate(str(self.data_dir))
        share, self._share = self._share, -1
        try:
            with lock.exclusive(layout.transition_lock, self._settings.stop_timeout_ms):
                # A shared lock becomes exclusive only when it is the last one.
                if not lock.try_lock(share):
                    marker.keep(layout)
                    return False
                return shut_down(layout, self._settings)
        finally:
            # Closed, not unlocked: a forked child that got this share with its memory keeps it.
            os.close(share)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def start(settings: Server, *, program: Binaries | None = None, extra_conf: Sequence[str] = ()) -> Embedded:
    """Make sure the server of this data directory runs, and take a share in it.

    Without `settings.profile` a server that runs is taken as it is, whatever its profile, which `report` then tells.

    Args:
        program: another redis-server or other modules than those of the extra `local`.
        extra_conf: lines of redis.conf that have the last word; used only when this call starts the server.

    Raises:
        ConfigError: no program for this platform, no such profile, or the server is in use and runs with another
            profile than the one that was asked for.
        DataDirectoryError: the directory cannot be used.
        PortTakenError: another program listens on the socket.
        DataDamagedError: its log has lost more than the unfinished end that a power cut tears off, which is repaired
            and told in `report`.
        ServerStartError: it died at start; carries the end of its log and what it means.
        ServerLoadingError: it is still reading its data after `start_timeout_ms`; it goes on, so try again.
        DeadlineExceededError: another process has been starting or stopping it for too long.
    """
    conf.require_startable(settings.profile)
    program = program or binaries.find()
    layout = directory.prepare(settings.data_dir)
    share = lock.open_lock(layout.share_lock)
    mended: tuple[str, ...] = ()
    try:
        while True:
            log_offset = layout.log.stat().st_size if layout.log.exists() else 0
            launched, report = _ensure_alive(layout, settings, program, extra_conf, share)
            # Loading may take long. Waiting for it is no transition: others may join the wait, and `stop` may end it.
            pid = launch.wait_until_ready(layout, settings)
            if pid is not None:
                report = (*mended, *report, *marker.keep(layout))
                return Embedded(address.url(layout), layout.root, pid, _profile_of(layout), report, settings, share)
            if launched:
                error = launch.died(layout, diagnosis.log_since(layout.log, log_offset))
                if error.data["kind"] != "aof" or mended:
                    raise error
                # What Redis refuses is read from its first byte; before the start only the new part was.
                mended = repair.after_refusal(settings, layout)
                if not mended:
                    raise error
            # Or it was dying when it was found, as after kill -9: start one of our own.
    except BaseException:
        os.close(share)
        raise


def stop(settings: Server) -> bool:
    """Stop the server of this data directory, whoever uses it; False when none was running.

    Raises:
        PersistenceError: it refuses to stop, because it could not write its data.
    """
    layout = directory.locate(settings.data_dir)
    if not layout.life_lock.exists():
        return False
    with lock.exclusive(layout.transition_lock, settings.start_timeout_ms + settings.stop_timeout_ms):
        return shut_down(layout, settings)


def running_url(settings: Server) -> str | None:
    """The address of the server of this data directory while it is alive, without starting or sharing it."""
    layout = directory.locate(settings.data_dir)
    if not layout.life_lock.exists() or lock.is_free(layout.life_lock):
        return None
    return address.url(layout)


def profile(settings: Server) -> str:
    """The profile that the server of this data directory was last started with; empty if it never was."""
    return _profile_of(directory.locate(settings.data_dir))


def _profile_of(layout: Layout) -> str:
    return conf.profile_of(layout.conf.read_text("utf-8", "surrogateescape")) if layout.conf.exists() else ""


def _ensure_alive(
    layout: Layout, settings: Server, program: Binaries, extra_conf: Sequence[str], share: int
) -> tuple[bool, tuple[str, ...]]:
    """Start the server unless it is alive, and lock `share`. Whether it was started here, and the report."""
    with lock.exclusive(layout.transition_lock, settings.start_timeout_ms + settings.stop_timeout_ms):
        report = _settle_profile(layout, settings, share)
        launched = lock.is_free(layout.life_lock)
        if launched:
            profile = settings.profile or conf.DEFAULT_PROFILE
            report += launch.launch(layout, msgspec.structs.replace(settings, profile=profile), program, extra_conf)
        # Taken before the transition ends: a last one going out would otherwise stop what was just found running.
        lock.wait_for_lock(share, layout.share_lock, settings.start_timeout_ms, shared=True)
    return launched, report


def _settle_profile(layout: Layout, settings: Server, share: int) -> tuple[str, ...]:
    """The promise of a profile that was asked for is not kept by a server that runs with another: restart it, or say
    so. Who asked for none takes what runs, and is told if it is not the default."""
    if lock.is_free(layout.life_lock):
        return ()
    found = _profile_of(layout)
    if not settings.profile:
        return () if found == conf.DEFAULT_PROFILE else (f"it runs already, with profile {found}",)
    if found == settings.profile:
        return ()
    if not lock.try_lock(share):
        raise ConfigError(
            f"embedded Redis in {layout.root} runs with profile {found!r} and is in use, asked for "
            f"{settings.profile!r}: stop it with `{layout.command('down')}` first, or leave the profile out (of "
            "Server(...), --profile, RTMEM_SERVER__PROFILE), which takes what runs",
            running=found,
            asked=settings.profile,
        )
    shut_down(layout, settings)
    return (f"restarted: it ran with profile {found}, now {settings.profile}",)
