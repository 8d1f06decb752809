"""The redis-server that is going to be killed, and its return.

It is started the way the embedded server is (rtmem.server.launch: examined, repaired, with a marker), but nobody keeps
a share in it: no file of this process may stand on a volume that is about to lose its power.
"""

from __future__ import annotations

import os
import select
import shlex
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from loadtest.crash.outcome import Start
from rtmem.errors import DataDamagedError, ServerStartError
from rtmem.server import address, binaries, directory, embedded, launch, marker, repair
from rtmem.server.binaries import Binaries
from rtmem.settings import Profile, Server

MAXMEMORY_BYTES = 512 * 1024**2
_START_TIMEOUT_MS = 60_000  # a busy machine is no reason to give up


class Victim:
    """A running redis-server of one of our profiles, with `extra_conf` on top."""

    def __init__(
        self,
        profile: Profile,
        data_dir: Path,
        program: Binaries,
        *,
        extra_conf: Sequence[str] = (),
        maxmemory_bytes: int = MAXMEMORY_BYTES,
    ) -> None:
        self.settings = settings_of(profile, data_dir, maxmemory_bytes)
        self.data_dir = data_dir
        layout = directory.prepare(str(data_dir))
        self.url = address.url(layout)
        self.report = launch.launch(layout, self.settings, program, extra_conf)
        pid = launch.wait_until_ready(layout, self.settings)
        if pid is None:
            raise launch.died(layout, layout.log.read_text("utf-8", "replace"))
        self.pid = pid
        self._process = os.pidfd_open(pid)  # the number may be somebody else's after its death
        self.report += marker.keep(layout)

    def client(self, **options: object) -> redis.Redis:
        """A plain client without retries."""
        return redis.Redis.from_url(self.url, retry=Retry(NoBackoff(), 0), **options)

    @property
    def alive(self) -> bool:
        return self._process >= 0 and not select.select([self._process], [], [], 0)[0]

    def kill(self) -> None:
        """kill -9, and return when it is gone; nothing if it is gone already."""
        if self._process < 0:
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
        select.select([self._process], [], [])
        os.close(self._process)
        self._process = -1

    def freeze(self) -> None:
        signal.pidfd_send_signal(self._process, signal.SIGSTOP)

    def thaw(self) -> None:
        signal.pidfd_send_signal(self._process, signal.SIGCONT)


@dataclass(frozen=True, slots=True)
class Restarted:
    """A server that is there again. Use `release` at the end."""

    server: embedded.Embedded
    start: Start
    began_s: float  # monotonic; recovery is measured from here
    report: tuple[str, ...]

    def release(self) -> None:
        self.server.release()


def restart(
    profile: Profile, data_dir: Path, *, maxmemory_bytes: int = MAXMEMORY_BYTES, modules: bool = False
) -> Restarted:
    """What a user does after a crash: start it; where that is refused, agree to what the report says is lost.

    Args:
        modules: load them, for data that was written with them.

    Raises:
        RtmemError: it does not start even then.
    """
    settings = settings_of(profile, data_dir, maxmemory_bytes)
    found = binaries.find()
    program = found if modules else Binaries(found.server, ())
    began_s = time.monotonic()
    try:
        server = embedded.start(settings, program=program)
    except (DataDamagedError, ServerStartError) as refusal:
        with repair.at_rest(settings) as layout:
            done = repair.mend(layout, repair.examine(layout, thorough=True))
        if not done:
            raise
        server = embedded.start(settings, program=program)
        return Restarted(server, "accept-loss", began_s, (str(refusal), *done, *server.report))
    repaired = any(sentence.startswith("repaired") for sentence in server.report)
    return Restarted(server, "repaired" if repaired else "unattended", began_s, server.report)


def settings_of(profile: Profile, data_dir: Path, maxmemory_bytes: int = MAXMEMORY_BYTES) -> Server:
    """The embedded server's settings for `data_dir`."""
    return Server(
        data_dir=str(data_dir), profile=profile, maxmemory_bytes=maxmemory_bytes, start_timeout_ms=_START_TIMEOUT_MS
    )


def program_with(environment: Mapping[str, str], folder: Path) -> Binaries:
    """redis-server, without modules, with `environment` on top of ours: by a script in `folder`."""
    server = binaries.find().server
    if not environment:
        return Binaries(server, ())
    script = folder / "redis-server"
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())
    script.write_text(f'#!/bin/sh\n{exports}exec {shlex.quote(str(server))} "$@"\n')
    script.chmod(0o700)
    return Binaries(script, ())
