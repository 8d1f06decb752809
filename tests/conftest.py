"""Real servers for every test. Nothing here imitates Redis."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import hypothesis
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from rtmem.server import binaries, directory, embedded, lock
from rtmem.server.binaries import Binaries
from rtmem.settings import Profile, Server
from tests.crash.faults import build

# No test may fail because the machine is busy: by default Hypothesis gives an example 200 ms.
hypothesis.settings.register_profile("without deadline", deadline=None)
hypothesis.settings.load_profile("without deadline")

ServerFactory = Callable[..., embedded.Embedded]

# No test may fail because the machine is busy: hypothesis allows an example 200 ms, and making one little more.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--locomo",
        metavar="PATH",
        default=os.environ.get("RTMEM_LOCOMO", ""),
        help="LoCoMo's JSON file (CC BY-NC, not in this repository); without it the tests that replay it are skipped",
    )


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Redis clients and the gateway run under asyncio, so async tests do."""
    return "asyncio"


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The address of the test session's own server, with modules and without AOF."""
    # Not pytest's tmp_path: its long names would push the socket out of the directory.
    data_dir = tempfile.mkdtemp(prefix="rtmem-test-")
    try:
        with embedded.start(Server(data_dir=data_dir, profile="ephemeral")) as server:
            yield server.url
    finally:
        shutil.rmtree(data_dir)


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that gives a redis-server a disk with faults; skips where no C compiler is."""
    return build(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    """A raw client of an empty server: bytes, no retries. Functions survive the flush, as they do in life."""
    with redis.Redis.from_url(redis_url, retry=Retry(NoBackoff(), 0)) as client:
        client.flushall()
        yield client


@pytest.fixture
def redis_server() -> Iterator[ServerFactory]:
    """Makes servers that a test may kill, restart or set up badly; all are gone after it.

    `redis_server(profile="balanced", modules=False, extra_conf=["requirepass x"], data_dir=old.data_dir)`
    """
    made: list[Path] = []
    shares: list[embedded.Embedded] = []

    def make(
        *,
        profile: Profile = "ephemeral",
        modules: bool = True,
        extra_conf: Sequence[str] = (),
        data_dir: str | Path | None = None,
        start_timeout_ms: int = 15_000,
    ) -> embedded.Embedded:
        if data_dir is None:
            data_dir = Path(tempfile.mkdtemp(prefix="rtmem-test-"))
            made.append(data_dir)
        program = binaries.find()
        if not modules:
            program = Binaries(program.server, ())
        settings = Server(
            data_dir=str(data_dir), profile=profile, maxmemory_bytes=256 * 1024**2, start_timeout_ms=start_timeout_ms
        )
        server = embedded.start(settings, program=program, extra_conf=extra_conf)
        shares.append(server)
        return server

    try:
        yield make
    finally:
        for data_dir in made:
            kill_server(data_dir)
        for server in shares:
            server.release()
        for data_dir in made:
            shutil.rmtree(data_dir)


def kill_server(data_dir: Path) -> None:
    """End the server of `data_dir` as a crash would, also one that is frozen, loading or closed by a password."""
    layout = directory.locate(str(data_dir))
    while not lock.is_free(layout.life_lock):
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int(layout.pid.read_text("ascii")), signal.SIGKILL)
        time.sleep(0.005)
