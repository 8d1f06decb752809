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
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from rtmem.errors import (
    ConfigError,
    DataDirectoryError,
    PersistenceError,
    PortTakenError,
    ServerLoadingError,
    ServerStartError,
    ServerUnavailableError,
)
from rtmem.server import binaries, conf, diagnosis, directory, lock
from rtmem.server.binaries import Binaries
from rtmem.server.directory import Layout
from rtmem.settings import Server

LOG_BYTES_MAX: Final = 16 * 1024 * 1024  # a longer log is put aside at the next start
_POLL_S: Final = 0.005


@dataclass(slots=True)
class Embedded:
    """A share in a running server. Use as a context manager, or call `release`."""

    url: str
    data_dir: Path
    pid: int
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
                    return False
                return _shut_down(layout, self._settings)
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

    Args:
        program: another redis-server or other modules than those of the extra `local`.
        extra_conf: lines of redis.conf that have the last word; used only when this call starts the server.

    Raises:
        ConfigError: no program for this platform, or the server already runs with another profile.
        DataDirectoryError: the directory cannot be used.
        PortTakenError: another program listens on the socket.
        ServerStartError: it died at start; carries the end of its log and what it means.
        ServerLoadingError: it is still reading its data after `start_timeout_ms`; it goes on, so try again.
        DeadlineExceededError: another process has been starting or stopping it for too long.
    """
    program = program or binaries.find()
    layout = directory.prepare(settings.data_dir)
    share = lock.open_lock(layout.share_lock)
    try:
        while True:
            log_offset = _size(layout.log)
            launched, report = _ensure_alive(layout, settings, program, extra_conf, share)
            # Loading may take long. Waiting for it is no transition: others may join the wait, and `stop` may end it.
            pid = _wait_until_ready(layout, settings)
            if pid is not None:
                return Embedded(url(layout), layout.root, pid, report, settings, share)
            if launched:
                raise _died(layout, diagnosis.log_since(layout.log, log_offset))
            # It was dying when it was found, as after kill -9: start one of our own.
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
        return _shut_down(layout, settings)


def running_url(settings: Server) -> str | None:
    """The address of the server of this data directory while it is alive, without starting or sharing it."""
    layout = directory.locate(settings.data_dir)
    if not layout.life_lock.exists() or lock.is_free(layout.life_lock):
        return None
    return url(layout)


def url(layout: Layout) -> str:
    """The address of the server in this directory."""
    return f"unix://{quote(str(layout.socket))}?db=0"


def _ensure_alive(
    layout: Layout, settings: Server, program: Binaries, extra_conf: Sequence[str], share: int
) -> tuple[bool, tuple[str, ...]]:
    """Start the server unless it is alive, and lock `share`. Whether it was started here, and the report."""
    with lock.exclusive(layout.transition_lock, settings.start_timeout_ms + settings.stop_timeout_ms):
        report = _stop_unused_with_other_profile(layout, settings, share)
        launched = lock.is_free(layout.life_lock)
        if launched:
            report += _launch(layout, settings, program, extra_conf)
        # Taken before the transition ends: a last one going out would otherwise stop what was just found running.
        lock.wait_for_lock(share, layout.share_lock, settings.start_timeout_ms, shared=True)
    return launched, report


def _stop_unused_with_other_profile(layout: Layout, settings: Server, share: int) -> tuple[str, ...]:
    """A promise of another profile is not kept by the server that happens to run: restart it, or say so."""
    if lock.is_free(layout.life_lock):
        return ()
    found = conf.profile_of(layout.conf.read_text("utf-8", "surrogateescape")) if layout.conf.exists() else ""
    if found == settings.profile:
        return ()
    if not lock.try_lock(share):
        raise ConfigError(
            f"embedded Redis in {layout.root} runs with profile {found!r} and is in use, asked for "
            f"{settings.profile!r}: stop it with `rtmem down` first, or set RTMEM_SERVER__PROFILE={found}",
            running=found,
            asked=settings.profile,
        )
    _shut_down(layout, settings)
    return (f"restarted: it ran with profile {found}, now {settings.profile}",)


def _launch(layout: Layout, settings: Server, program: Binaries, extra_conf: Sequence[str]) -> tuple[str, ...]:
    """Start the server and return as soon as it is on its own, which is before it has read its data."""
    _refuse_foreign_listener(layout)
    if settings.profile == "ephemeral" and layout.append_only.exists():
        raise ConfigError(
            f"data directory {layout.root} holds saved data, which profile 'ephemeral' would hide and not delete: "
            f"choose another directory or another profile",
            data_dir=str(layout.root),
        )
    _write_conf(layout, settings, program, extra_conf)
    life = lock.open_lock(layout.life_lock)
    try:
        lock.wait_for_lock(life, layout.life_lock, settings.start_timeout_ms)
        # Redis detaches itself (daemonize): this returns when its first process has forked the lasting one.
        first = subprocess.run(
            [program.server, layout.conf],
            pass_fds=(life,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=layout.root,
            timeout=settings.start_timeout_ms / 1000,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise ServerStartError(
            f"embedded Redis: {program.server} cannot be run: {exc}: reinstall it with "
            f"`pip install --force-reinstall 'rtmem[local]'`"
        ) from exc
    finally:
        os.close(life)
    if first.returncode != 0:
        raise _died(layout, first.stdout.decode("utf-8", "replace"))
    return (f"started with profile {settings.profile}",)


def _write_conf(layout: Layout, settings: Server, program: Binaries, extra_conf: Sequence[str]) -> None:
    maxmemory_bytes = settings.maxmemory_bytes or conf.default_maxmemory_bytes()
    site = conf.Site(layout.root, layout.socket, maxmemory_bytes, program.modules)
    text = conf.render(settings.profile, site, extra_conf)
    try:
        if _size(layout.log) > LOG_BYTES_MAX:
            layout.log.replace(layout.log.with_suffix(".log.1"))
        layout.conf.touch(mode=0o600)  # extra lines may hold a password
        layout.conf.write_text(text, "utf-8", "surrogateescape")
    except OSError as exc:
        raise DataDirectoryError(
            f"data directory {layout.root}: cannot write {layout.conf.name}: {exc.strerror}: "
            f"make room, or choose another with RTMEM_SERVER__DATA_DIR",
            data_dir=str(layout.root),
        ) from exc


def _refuse_foreign_listener(layout: Layout) -> None:
    # Redis removes whatever file is at its socket's path; a dead server's socket is welcome to go, a live program's
    # is not. Nobody holds life.lock here, so whoever answers is not ours.
    if not layout.socket.exists():
        return
    if not layout.socket.is_socket() or _connects(layout):
        raise PortTakenError(
            f"embedded Redis: {layout.socket} is in use by another program: stop it, or choose another directory with "
            f"RTMEM_SERVER__DATA_DIR",
            socket=str(layout.socket),
        )


def _connects(layout: Layout) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(layout.socket))
        except ConnectionRefusedError:
            return False  # nobody listens: left by a server that was killed
        except OSError:
            return True  # a full queue, or a socket that this user may not use: somebody's
    return True


def _wait_until_ready(layout: Layout, settings: Server) -> int | None:
    """The server's pid, as soon as it answers; None when it has died instead."""
    deadline = time.monotonic() + settings.start_timeout_ms / 1000
    loading = False
    with _client(layout, timeout_s=1.0) as client:
        while time.monotonic() < deadline:
            try:
                client.ping()
                return int(client.info("server")["process_id"])
            except redis.BusyLoadingError:
                loading = True
            except (redis.ConnectionError, redis.TimeoutError):
                if lock.is_free(layout.life_lock):
                    return None
            time.sleep(_POLL_S)
    if loading:
        raise ServerLoadingError(
            f"embedded Redis in {layout.root} is still reading its data after {settings.start_timeout_ms} ms: "
            f"it goes on by itself; try again, or raise RTMEM_SERVER__START_TIMEOUT_MS",
            data_dir=str(layout.root),
        )
    raise ServerUnavailableError(
        f"embedded Redis in {layout.root} runs but has not answered for {settings.start_timeout_ms} ms: "
        f"read {layout.log}, or stop it with `rtmem down`\n{diagnosis.last_lines(diagnosis.log_since(layout.log, 0))}",
        data_dir=str(layout.root),
    )


def _died(layout: Layout, log: str) -> ServerStartError | PortTakenError:
    found = diagnosis.diagnose(log)
    # The seam for repair.py: kind "aof" is what a repair on start can answer, with the server down and its life free.
    error = PortTakenError if found.kind == "port" else ServerStartError
    return error(
        f"embedded Redis in {layout.root} ended at start: {found.meaning}: {found.fix}; the end of {layout.log}:\n"
        f"{diagnosis.last_lines(log)}",
        kind=found.kind,
        log=log,
        data_dir=str(layout.root),
    )


def _shut_down(layout: Layout, settings: Server) -> bool:
    """Stop the server if it is alive; everything acknowledged is in the AOF when this returns."""
    if lock.is_free(layout.life_lock):
        return False
    timeout_s = settings.stop_timeout_ms / 1000
    deadline = time.monotonic() + timeout_s
    with _client(layout, timeout_s) as client:
        while time.monotonic() < deadline:
            _ask_to_shut_down(client, layout)
            if lock.is_free(layout.life_lock):
                return True
            time.sleep(_POLL_S)
    # Frozen, or stuck in a system call. A kill loses nothing that was written to the log.
    _kill(layout)
    deadline += timeout_s
    while not lock.is_free(layout.life_lock):
        if time.monotonic() > deadline:
            raise ServerUnavailableError(
                f"embedded Redis in {layout.root} did not end within {2 * timeout_s:.0f} s, not even by SIGKILL: "
                f"it hangs in the kernel, look at the disk below it",
                data_dir=str(layout.root),
            )
        time.sleep(_POLL_S)
    return True


def _ask_to_shut_down(client: redis.Redis, layout: Layout) -> None:
    try:
        client.execute_command("SHUTDOWN")  # type: ignore[no-untyped-call]
    except (redis.ConnectionError, redis.TimeoutError):
        return  # the answer of a server that is going is a closed connection
    except redis.ResponseError as exc:
        raise PersistenceError(
            f"embedded Redis in {layout.root} refuses to stop ({exc}): its data may not be on disk; read {layout.log}, "
            f"make room on the disk, then `rtmem down` again\n"
            f"{diagnosis.last_lines(diagnosis.log_since(layout.log, 0))}",
            data_dir=str(layout.root),
        ) from exc


def _kill(layout: Layout) -> None:
    # life.lock is held, so the pid file is that of a living server of ours and not of a stranger with the same number.
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int(layout.pid.read_text("ascii")), signal.SIGKILL)


def _client(layout: Layout, timeout_s: float) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(layout.socket), socket_timeout=timeout_s, retry=_no_retry())


def _no_retry() -> Retry:
    return Retry(NoBackoff(), 0)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
