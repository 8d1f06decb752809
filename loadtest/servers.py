"""Servers of our own for a measurement: started empty in a temporary folder, gone afterwards.

Both listen on unix sockets, so a benchmark measures savers and not a network, and neither writes to disk on the way:
no RDB or AOF for Redis, no fsync for Postgres. What durability costs is measured elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import redis

from rtmem import settings
from rtmem.server import embedded

START_TIMEOUT_S = 20.0


class ServerMissingError(Exception):
    """The program is not installed here; says what to install."""


@dataclass(frozen=True)
class Server:
    """A running server: `url` for clients, `pid` for its CPU time, `version` for the report."""

    url: str
    pid: int
    version: str


@contextlib.contextmanager
def redis_server() -> Iterator[Server]:
    """rtmem's embedded Redis, profile `ephemeral`, with the modules that some peers need (rtmem's savers need none)."""
    folder = tempfile.mkdtemp(prefix="rtmem-loadtest-")
    try:
        with embedded.start(settings.Server(data_dir=folder, profile="ephemeral")) as server:
            with redis.Redis.from_url(server.url) as client:
                version = str(client.info("server")["redis_version"])
            yield Server(server.url, server.pid, version)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def postgres_server(*, vectors: bool = False) -> Iterator[Server]:
    """A Postgres without fsync, as Debian packages it, run by a user other than root because it insists.

    Args:
        vectors: with pgvector. Debian 12 has none; the wheel `pgserver` brings a Postgres of its own with it.

    Raises:
        ServerMissingError: initdb is not installed, or this is root and there is no user to become.
    """
    binaries = _postgres_with_vectors() if vectors else _postgres_binaries()
    user = _postgres_user()
    folder = Path(tempfile.mkdtemp(prefix="rtmem-loadtest-"))
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    identity = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    data = folder / "data"
    try:
        initdb = [
            str(binaries / "initdb"),
            "--pgdata",
            str(data),
            "--username",
            "rtmem",
            "--auth",
            "trust",
            "--no-sync",
        ]
        subprocess.run(initdb, check=True, capture_output=True, cwd=folder, **identity)  # type: ignore[call-overload]
        command = [str(binaries / "postgres"), "-D", str(data), "-k", str(folder), "-c", "listen_addresses="]
        command += ["-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"]
        command += ["-c", "max_connections=300"]
        log = (folder / "log").open("wb")
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **identity)  # type: ignore[call-overload]
        try:
            url = f"postgresql://rtmem@/postgres?host={folder}"
            _wait(process, lambda: _postgres_answers(url), folder / "log")
            yield Server(url, process.pid, _postgres_version(binaries))
        finally:
            _stop(process)
            log.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _postgres_binaries() -> Path:
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = versions[-1] if versions else shutil.which("initdb")
    if found is None:
        raise ServerMissingError("no initdb: apt-get install postgresql")
    return Path(found).parent


def _postgres_with_vectors() -> Path:
    for control in sorted(Path("/usr/share/postgresql").glob("*/extension/vector.control")):
        return Path("/usr/lib/postgresql") / control.parts[-3] / "bin"
    wheel = find_spec("pgserver")
    if wheel is None or wheel.origin is None:
        raise ServerMissingError(
            "no Postgres with pgvector: pip install pgserver (Python < 3.13), or a Debian's postgresql-NN-pgvector"
        )
    return Path(wheel.origin).parent / "pginstall" / "bin"


def _postgres_user() -> pwd.struct_passwd | None:
    """Whom to become: nobody at all unless this is root, whom Postgres refuses."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerMissingError("Postgres refuses to run as root and neither `postgres` nor `nobody` exists")


def _postgres_answers(url: str) -> bool:
    import psycopg

    with psycopg.connect(url, connect_timeout=2) as connection:
        return bool(connection.execute("SELECT 1").fetchone() == (1,))


def _postgres_version(binaries: Path) -> str:
    done = subprocess.run([str(binaries / "postgres"), "--version"], check=True, capture_output=True, text=True)
    return done.stdout.split()[2]


def _wait(process: subprocess.Popen[bytes], answers: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            if answers():
                return
        except Exception as exc:
            # Every client has an error of its own for "not yet"; the last one is raised below.
            if process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
                continue
            tail = log.read_text("utf-8", "replace")[-1500:] if log.exists() else ""
            raise RuntimeError(f"{process.args!r} did not answer: {exc}\n{tail}") from exc


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
