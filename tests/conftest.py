"""Real servers for every test. Nothing here imitates Redis."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from rtmem.server import binaries, embedded
from rtmem.server.binaries import Binaries
from rtmem.settings import Profile, Server

ServerFactory = Callable[..., embedded.Embedded]


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
            data_dir = tempfile.mkdtemp(prefix="rtmem-test-")
            made.append(Path(data_dir))
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
        for server in shares:
            embedded.stop(Server(data_dir=str(server.data_dir)))
            server.release()
        for path in made:
            shutil.rmtree(path)
