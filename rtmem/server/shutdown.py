"""Stop a server so that everything acknowledged is on disk; by force only when it does not answer."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Final

import redis

from rtmem.errors import PersistenceError, ServerUnavailableError
from rtmem.server import address, diagnosis, lock, marker
from rtmem.server.directory import Layout
from rtmem.settings import Server

_POLL_S: Final = 0.005
_REFUSED_POLL_S: Final = 0.1  # every refusal is a paragraph in the log


def shut_down(layout: Layout, settings: Server) -> bool:
    """Stop the server if it is alive; everything acknowledged is in the AOF when this returns."""
    if lock.is_free(layout.life_lock):
        return False
    timeout_s = settings.stop_timeout_ms / 1000
    deadline = time.monotonic() + timeout_s
    refusal: redis.ResponseError | None = None
    with address.client(layout, timeout_s) as client:
        while time.monotonic() < deadline:
            refusal = _ask_to_shut_down(client)
            if lock.is_free(layout.life_lock):
                # Redis removes its pid file last, after the fsync of the log: without that it died on the way, and
                # how far the log is whole has to be found out by the next start.
                marker.keep(layout, at_rest=not layout.pid.exists())
                return True
            time.sleep(_POLL_S if refusal is None else _REFUSED_POLL_S)
    if refusal is not None:
        raise PersistenceError(
            f"embedded Redis in {layout.root} has refused to stop for {timeout_s:.0f} s ({refusal}): its data is not "
            f"on disk; read {layout.log}, make room on the disk, then `{layout.command('down')}` again\n"
            f"{diagnosis.last_lines(diagnosis.log_since(layout.log, 0))}",
            data_dir=str(layout.root),
        ) from refusal
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


def _ask_to_shut_down(client: redis.Redis) -> redis.ResponseError | None:
    """The server's reason for staying, if it gave one; a first log that is being written, for one, will pass."""
    try:
        client.execute_command("SHUTDOWN")  # type: ignore[no-untyped-call]
    except (redis.ConnectionError, redis.TimeoutError):
        pass  # the answer of a server that is going is a closed connection
    except redis.ResponseError as exc:
        return exc
    return None


def _kill(layout: Layout) -> None:
    # life.lock is held, so the pid file is that of a living server of ours and not of a stranger with the same number.
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int(layout.pid.read_text("ascii")), signal.SIGKILL)
