"""From URLs to connections: what is refused, what is never shown, TLS, Sentinel; by both colours where they connect."""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
import redis

from rtmem.checkpoint import AsyncRedisSaver, AsyncShallowRedisSaver, RedisSaver, ShallowRedisSaver
from rtmem.drivers import AsyncDriver, SyncDriver, clients
from rtmem.errors import (
    AuthenticationError,
    ConfigError,
    DeadlineExceededError,
    ReadOnlyReplicaError,
    RtmemError,
    ServerUnavailableError,
)
from rtmem.pointers import AsyncPointers, Pointers
from rtmem.settings import Redis
from rtmem.steps import Batch
from tests.drivers.colours import COLOURS, Colour, talking
from tests.drivers.processes import Spawn, becomes, eventually, free_port
from tests.drivers.relay import Relay, tls_relay_to

both_colours = pytest.mark.parametrize("colour", COLOURS)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:hunter2@host:6379/0", "redis://user:***@host:6379/0"),
        ("redis://:hunter2@host", "redis://:***@host"),
        ("redis://:hunt/er2@host", "redis://:***@host"),
        ("redis://:hunt#er@2@host", "redis://:***@host"),
        ("unix:///run/redis.sock?db=0&password=hunter2&protocol=2", "unix:///run/redis.sock?db=0&password=***&protocol=2"),
        ("redis+sentinel://a:hunter2@h:1,i:2/s/0?sentinel_password=hunter2", "redis+sentinel://a:***@h:1,i:2/s/0?sentinel_password=***"),
        ("redis://host?password=hun@ter2", "redis://host?password=***@ter2"),
        ("redis://host:6379/0", "redis://host:6379/0"),
    ],
)  # fmt: skip
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert clients.redact(url) in (shown, shown.partition("***@ter2")[0] + "***")


@pytest.mark.parametrize(
    "kind", [RedisSaver, ShallowRedisSaver, AsyncRedisSaver, AsyncShallowRedisSaver, Pointers, AsyncPointers]
)
def test_a_client_or_a_driver_in_place_of_the_url_is_refused_with_where_it_belongs(kind: Any, redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url)
    with pytest.raises(ConfigError, match=r"^redis_url is a redis\.client\.Redis, .* as redis_client=\.\.\."):
        kind(client)
    with pytest.raises(ConfigError, match=r"^redis_url is a rtmem\.drivers\.sync\.SyncDriver, .* a driver as driver="):
        kind(SyncDriver.of_client(client))


@both_colours
@pytest.mark.parametrize(
    "url",
    [
        "http://host",
        "host:6379",
        "",
        "rediss+sentinel://host/service",
        "redis://:hunter2@host:port",
        "redis://:hunter2/@host",
        "redis://:hunter2@host?no_such_option=1",
        "redis://:hunter2@host?socket_timeout=soon",
        "redis://:hunter2@host?decode_responses=true",
        "redis://:hunter2@host?protocol=9",
        "redis://:hunter2@host/name",
        "unix://run/redis.sock",
        "unix://",
        "redis+sentinel://:hunter2@host:26379",
        "redis+sentinel://:hunter2@host:port/service",
        "redis+sentinel://:hunter2@host:26379/service/db",
        "redis+sentinel://:hunter2@host:26379//0",
        "redis+cluster://:hunter2@host:port",
        "redis+cluster://:hunter2@host:7000/3",
        "redis+cluster://:hunter2@host:7000,host2:7000/3?ssl=true",
        "redis+cluster://:hunter2@host?no_such_option=1",
    ],
)
def test_a_url_that_cannot_work_is_refused_before_anything_is_sent(colour: Colour, url: str) -> None:
    from rtmem.drivers import AsyncDriver, SyncDriver

    with pytest.raises(ConfigError) as raised:
        (AsyncDriver if colour == "async" else SyncDriver).lazy(url)
    error: BaseException | None = raised.value
    while error is not None:
        assert "hunter2" not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_a_sentinel_url_says_everything() -> None:
    target = clients.sentinel_target(
        "redis+sentinel://me:p%40ss@one:1,two,[::1]:3/main/4?ssl=true&ssl_ca_certs=ca.pem&sentinel_password=s"
    )
    assert target == {
        "sentinels": [("one", 1), ("two", 26379), ("::1", 3)],
        "service": "main",
        "options": {"db": 4, "username": "me", "password": "p@ss", "ssl": True, "ssl_ca_certs": "ca.pem"},
        "sentinel_options": {"password": "s"},
    }


def test_places_are_named_for_messages() -> None:
    assert clients.place_of(clients.sync_pool("redis://:x@host:1/2", Redis())) == "host:1"
    assert clients.place_of(clients.sync_pool("unix:///run/r.sock", Redis())) == "/run/r.sock"
    assert "'main'" in clients.place_of(clients.sync_pool("redis+sentinel://host/main", Redis()))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that is its own authority, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    paths = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=rtmem test", "-addext", "subjectAltName=IP:127.0.0.1", "-out", paths[0], "-keyout", paths[1]],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return paths


@pytest.fixture
def tls(socket_path: str, certificate: tuple[Path, Path]) -> Iterator[Relay]:
    with tls_relay_to(socket_path, *certificate) as relay:
        yield relay


@pytest.mark.anyio
@both_colours
async def test_rediss_speaks_tls_in_all_lanes_and_replaces_lost_connections(
    colour: Colour, tls: Relay, certificate: tuple[Path, Path]
) -> None:
    url = f"{tls.url}?ssl_ca_certs={certificate[0]}"
    async with talking(colour, url) as talker:
        for _ in range(3):
            value = b"x" * 300_000
            assert await talker.answer(("ECHO", value), ("ECHO", "b")) == [value, b"b"]
            assert await talker.answer(("ECHO", "small")) == [b"small"]
            assert await talker.answer(("ECHO", "own"), lane="blocking") == [b"own"]
            tls.cut()
            assert await talker.answer(("ECHO", "again")) == [b"again"]


@pytest.mark.anyio
@both_colours
async def test_tls_that_cannot_be_trusted_or_is_not_there_is_explained(
    colour: Colour, tls: Relay, spawn: Spawn
) -> None:
    with pytest.raises(ServerUnavailableError, match=r"(?i)certificate"):
        async with talking(colour, tls.url):
            pass
    plain = spawn().wait_until_answering()
    with pytest.raises(ServerUnavailableError, match=r"127\.0\.0\.1"):
        async with talking(colour, plain.url.replace("redis://", "rediss://"), connect_timeout_ms=200):
            pass


class Watched:
    """A master and a replica with a password, watched by a sentinel with another."""

    def __init__(self, spawn: Spawn) -> None:
        secret = ("requirepass s3cret", "masterauth s3cret", "repl-diskless-sync-delay 0")
        self.master = spawn(*secret).wait_until_answering(password="s3cret")
        self.replica = spawn(*secret, f"replicaof 127.0.0.1 {self.master.port}").wait_until_answering(password="s3cret")
        # Before the sentinel starts: it looks for replicas at once, and then not for ten seconds.
        eventually(self._in_sync)
        self.sentinel = spawn(
            "requirepass w4tch",
            f"sentinel monitor main 127.0.0.1 {self.master.port} 1",
            "sentinel auth-pass main s3cret",
            "sentinel down-after-milliseconds main 2000",
            "sentinel failover-timeout main 10000",
            arguments=("--sentinel",),
        ).wait_until_answering(password="w4tch")
        unheard_of = free_port()
        self.url = (
            f"redis+sentinel://:s3cret@127.0.0.1:{unheard_of},127.0.0.1:{self.sentinel.port}/main/0"
            "?sentinel_password=w4tch"
        )

    def swap(self) -> None:
        """Give the replica the master's part, by hand: a failover in which nobody closes a connection."""
        with self.replica.client(password="s3cret") as replica, self.master.client(password="s3cret") as master:
            replica.replicaof("NO", "ONE")
            master.replicaof("127.0.0.1", self.replica.port)
        with self.sentinel.client(password="w4tch") as sentinel:
            sentinel.execute_command("SENTINEL", "REMOVE", "main")
            sentinel.execute_command("SENTINEL", "MONITOR", "main", "127.0.0.1", self.replica.port, 1)
            sentinel.execute_command("SENTINEL", "SET", "main", "auth-pass", "s3cret")

    def knows_its_replica(self) -> bool:
        with self.sentinel.client(password="w4tch") as client:
            return len(client.execute_command("SENTINEL", "REPLICAS", "main")) == 1

    def _in_sync(self) -> bool:
        with self.replica.client(password="s3cret") as replica, self.master.client(password="s3cret") as master:
            ours, theirs = replica.info("replication"), master.info("replication")
            return bool(ours["master_link_status"] == "up" and theirs.get("slave0", {}).get("state") == "online")


@pytest.mark.anyio
@both_colours
async def test_sentinel_is_asked_for_the_master_and_failovers_are_followed(colour: Colour, spawn: Spawn) -> None:
    watched = Watched(spawn)
    await becomes(watched.knows_its_replica)
    async with talking(colour, watched.url) as talker:
        assert await talker.answer(("SET", "k", "v"), ("WAIT", 1, 60_000), timeout_ms=90_000) == [b"OK", 1]
        assert (await talker.answer(("ROLE",)))[0][0] == b"master"
        watched.master.kill()
        with pytest.raises(ServerUnavailableError, match="'main'"):
            await talker.answer(("INCR", "n"), idempotent=False)
        # The caller hears of it at once; who calls again after the failover finds the new master.
        with anyio.fail_after(100):
            while True:
                try:
                    assert await talker.answer(("GET", "k"), timeout_ms=5_000) == [b"v"]
                    await talker.answer(("SET", "k", "after"), timeout_ms=5_000)
                    break
                except (ServerUnavailableError, ReadOnlyReplicaError, DeadlineExceededError):
                    await anyio.sleep(0.05)
        assert await talker.answer(("GET", "k")) == [b"after"]
        with watched.replica.client(password="s3cret") as client:
            assert client.get("k") == b"after"


@pytest.mark.anyio
@both_colours
async def test_a_master_that_was_demoted_is_left(colour: Colour, spawn: Spawn) -> None:
    watched = Watched(spawn)
    await becomes(watched.knows_its_replica)
    async with talking(colour, watched.url) as talker:
        await talker.answer(("SET", "k", "v"))
        watched.swap()
        # The old master did not close this connection; it says that it is a replica now, and then Sentinel is asked.
        with pytest.raises(ReadOnlyReplicaError, match="replica"):
            await talker.answer(("SET", "k", "before"))
        assert await talker.answer(("SET", "k", "after")) == [b"OK"]
        with watched.replica.client(password="s3cret") as client:
            assert client.get("k") == b"after"


@pytest.mark.anyio
async def test_callers_who_give_up_while_sentinel_is_asked_leave_no_connection_open(spawn: Spawn) -> None:
    watched = Watched(spawn)

    async def call(driver: AsyncDriver, lane: Literal["auto", "blocking", "durable"], patience_s: float) -> None:
        with anyio.move_on_after(patience_s):
            assert await driver.answer(Batch((("SET", lane, "v"),), lane=lane)) == [b"OK"]

    for _ in range(12):
        async with AsyncDriver.lazy(watched.url) as driver, anyio.create_task_group() as callers:
            for number in range(12):  # connecting takes some milliseconds
                callers.start_soon(call, driver, ("auto", "blocking", "durable")[number % 3], 0.002 * (number + 1))
    del driver
    watched.sentinel.kill()
    watched.master.kill()
    await anyio.sleep(0.05)  # the loop lets go of a connection whose end nobody reads when the server has gone
    gc.collect()  # one that is forgotten would warn here, and warnings are errors


@pytest.mark.anyio
@both_colours
async def test_sentinel_errors_are_typed(colour: Colour, spawn: Spawn) -> None:
    watched = Watched(spawn)
    for url, kind in (
        (watched.url.replace("w4tch", "wr0ng"), RtmemError),
        (watched.url.replace("s3cret", "wr0ng"), AuthenticationError),
        (watched.url.replace("/main/", "/other/"), ServerUnavailableError),
        (f"redis+sentinel://127.0.0.1:{free_port()}/main", ServerUnavailableError),
    ):
        with pytest.raises(kind) as raised:
            async with talking(colour, url, deadline_ms=3_000):
                pass
        assert "wr0ng" not in str(raised.value)
