"""What a server is told to promise, over every client: raw, blocking and awaiting; RESP2 and RESP3."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Literal

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from rtmem.drivers import AsyncDriver, SyncDriver
from rtmem.errors import (
    AuthenticationError,
    ConfigError,
    ModuleMissingError,
    ReadOnlyReplicaError,
    RtmemError,
    ServerLoadingError,
    ServerTooOldError,
    ServerUnavailableError,
)
from rtmem.server import embedded, probe
from rtmem.server.judgement import ServerReport
from rtmem.settings import Redis
from rtmem.steps import Batch, Request, Steps
from tests.conftest import ServerFactory
from tests.drivers.processes import Process, eventually, loading, spawning

pytestmark = pytest.mark.anyio

Probing = Callable[[str], Awaitable[ServerReport]]


async def probe_raw(url: str, protocol: Literal[2, 3]) -> ServerReport:
    with redis.Redis.from_url(url, protocol=protocol, retry=Retry(NoBackoff(), 0)) as client:
        return probe.probe(client)


async def probe_blocking(url: str, protocol: Literal[2, 3]) -> ServerReport:
    driver = SyncDriver.connect(url, Redis(protocol=protocol))
    try:
        return driver.run(probe.ask())
    finally:
        driver.close()


async def probe_awaiting(url: str, protocol: Literal[2, 3]) -> ServerReport:
    driver = await AsyncDriver.connect(url, Redis(protocol=protocol))
    try:
        return await driver.run(probe.ask())
    finally:
        await driver.aclose()


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def protocol(request: pytest.FixtureRequest) -> Literal[2, 3]:
    value: Literal[2, 3] = request.param
    return value


@pytest.fixture(params=[probe_raw, probe_blocking, probe_awaiting], ids=["raw", "sync", "async"])
def probing(request: pytest.FixtureRequest, protocol: Literal[2, 3]) -> Probing:
    return lambda url: request.param(url, protocol)


def client(server: embedded.Embedded) -> redis.Redis:
    return redis.Redis.from_url(server.url, decode_responses=True, retry=Retry(NoBackoff(), 0))


def whats(report: ServerReport) -> set[str]:
    return {f"{finding.level}: {finding.what}" for finding in report.findings}


# --- what is promised ---------------------------------------------------------------------------------------------


async def test_a_good_server_is_one_line_without_findings(redis_server: ServerFactory, probing: Probing) -> None:
    report = await probing(redis_server(profile="balanced").url)
    assert report.line.startswith(
        "Redis 8.2.3; standalone, master; JSON, search, vector sets; AOF everysec: a power cut loses about a second; "
        "noeviction, "
    )
    assert "\n" not in report.line
    assert report.findings == ()
    assert report.facts.maxmemory_bytes == 256 * 1024**2
    assert report.facts.modules == {"search": 21005, "json": 20803, "vectors": 1}


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ("ephemeral", "no AOF: a restart loses all"),
        ("relaxed", "AOF without fsync: a power cut loses up to half a minute"),
        ("durable", "AOF always: no acknowledged write is lost"),
    ],
)
async def test_each_profile_says_what_it_can_lose(redis_server: ServerFactory, profile: str, words: str) -> None:
    assert words in (await probe_raw(redis_server(profile=profile).url, 3)).line


async def test_two_round_trips_are_enough(redis_url: str) -> None:
    asked: list[Request] = []

    def relay() -> Steps[ServerReport]:
        steps = probe.ask()
        outcome: Any = None
        while True:
            try:
                request = steps.throw(outcome) if isinstance(outcome, RtmemError) else steps.send(outcome)
            except StopIteration as stop:
                report: ServerReport = stop.value
                return report
            asked.append(request)
            try:
                outcome = yield request
            except RtmemError as exc:
                outcome = exc

    driver = SyncDriver.connect(redis_url)
    driver.run(relay())
    driver.close()
    assert len(asked) == 2


# --- what is wrong, and that the named remedy cures it ------------------------------------------------------------


@pytest.mark.parametrize(
    ("conf", "found"),
    [
        (["appendonly no"], "warning: AOF is off"),
        (["appendfsync no"], "warning: the AOF is not fsynced"),
        (["no-appendfsync-on-rewrite yes"], "warning: no-appendfsync-on-rewrite is on"),
        (["maxmemory-policy volatile-ttl"], "warning: maxmemory-policy is volatile-ttl"),
        (["maxmemory 0"], "info: no maxmemory"),
    ],
    ids=lambda value: value[0].split()[0] if isinstance(value, list) else "",
)
async def test_the_named_remedy_removes_the_finding(redis_server: ServerFactory, conf: list[str], found: str) -> None:
    server = redis_server(profile="balanced", extra_conf=conf)
    report = await probe_raw(server.url, 3)
    assert whats(report) == {found}
    with client(server) as connection:
        remedy = report.findings[0].fix.split(", then ")[0]
        connection.execute_command(*remedy.split(" "))
    assert whats(await probe_raw(server.url, 3)) == set()


async def test_a_nearly_full_server_is_seen(redis_server: ServerFactory) -> None:
    server = redis_server(profile="balanced")
    with client(server) as connection:
        connection.config_set("maxmemory", int(connection.info("memory")["used_memory"] * 1.05))
        assert whats(await probe_raw(server.url, 3)) == {"warning: over 90 % of maxmemory is used"}


async def test_a_replica_is_an_error_and_refuses_writes(redis_server: ServerFactory, probing: Probing) -> None:
    server = redis_server(profile="balanced", extra_conf=["replicaof 127.0.0.1 1"])
    report = await probing(server.url)
    assert "standalone, replica" in report.line
    assert whats(report) == {"error: this server is a replica"}
    driver = SyncDriver.connect(server.url)
    with pytest.raises(ReadOnlyReplicaError, match="write to the master"):
        driver.answer(Batch((("SET", "k", "v"),)))
    driver.close()


@pytest.fixture(scope="module")
def cluster_node() -> Iterator[Process]:
    with spawning() as spawn:
        node = spawn("cluster-enabled yes").wait_until_answering()
        with node.client() as connection:
            connection.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            eventually(lambda: b"cluster_state:ok" in connection.execute_command("CLUSTER", "INFO"))
        yield node


async def test_a_cluster_node_says_so(cluster_node: Process, probing: Probing) -> None:
    assert "cluster, master" in (await probing(cluster_node.url)).line


async def test_missing_modules_are_named_and_can_be_required(redis_server: ServerFactory, probing: Probing) -> None:
    report = await probing(redis_server(profile="balanced", modules=False).url)
    assert "; vector sets; " in report.line
    assert whats(report) == {"info: no query engine"}
    probe.require(report)
    with pytest.raises(ModuleMissingError, match=r"(?s)lacks search, JSON.*docker run.*redis:8"):
        probe.require(report, modules=("search", "json"))


async def test_a_server_with_everything_passes_the_requirements(redis_url: str) -> None:
    probe.require(await probe_raw(redis_url, 3), modules=("search", "json", "vectors"), version_min=(8, 2, 3))


async def test_a_server_that_is_too_old_is_refused(redis_url: str) -> None:
    with pytest.raises(ServerTooOldError, match=r"(?s)is Redis 8\.2\.3, needed is Redis 99\.0 or later.*docker run"):
        probe.require(await probe_raw(redis_url, 3), version_min=(99, 0))


# --- what may not be asked ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "denied", "found"),
    [
        ("~* -config", "CONFIG denied", {"info: CONFIG is denied to this user"}),
        ("~* -info", "INFO denied", {"info: INFO is denied to this user"}),
        ("~* -function", "FUNCTION denied", {"error: FUNCTION is denied to this user"}),
        ("~app:*", "our keys denied", {"error: this user may not touch our keys"}),
        ("~* -exists", "EXISTS denied", {"error: EXISTS is denied to this user"}),
    ],
)
async def test_what_an_acl_forbids_is_named_and_the_rest_is_still_told(
    redis_server: ServerFactory, probing: Probing, rules: str, denied: str, found: set[str]
) -> None:
    server = redis_server(profile="balanced")
    with client(server) as connection:
        connection.execute_command("ACL", "SETUSER", "app", "on", ">secret", "+@all", *rules.split(" "))
    report = await probing(server.url.replace("unix://", "unix://app:secret@"))
    assert report.line.endswith(f"; cannot tell all: {denied}")
    assert report.line.startswith("Redis 8.2.3; standalone, master; JSON, search, vector sets")
    assert whats(report) == found
    # The ACL line of the remedy cures it.
    with client(server) as connection:
        connection.execute_command(*report.findings[0].fix.replace("<user>", "app").split(" "))
    assert (await probing(server.url.replace("unix://", "unix://app:secret@"))).findings == ()


async def test_a_user_who_may_nothing_gets_an_honest_line(redis_server: ServerFactory, probing: Probing) -> None:
    server = redis_server(profile="balanced")
    with client(server) as connection:
        connection.execute_command("ACL", "SETUSER", "app", "on", ">secret", "-@all", "+ping", "+client|setname")
    report = await probing(server.url.replace("unix://", "unix://app:secret@"))
    assert "cannot tell all: INFO denied" in report.line
    assert all(f"{command} denied" in report.line for command in ("CONFIG", "EXISTS", "FUNCTION"))
    probe.require(report, modules=("search",))  # what is not known is not refused


async def test_a_provider_without_config_is_tolerated(redis_server: ServerFactory, probing: Probing) -> None:
    # Without modules: the query engine asks CONFIG itself and crashes where there is none.
    server = redis_server(profile="balanced", modules=False, extra_conf=['rename-command CONFIG ""'])
    report = await probing(server.url)
    assert "AOF, fsync policy unknown" in report.line
    assert report.line.endswith("cannot tell all: CONFIG unknown")
    assert "info: CONFIG is not offered by this server" in whats(report)


# --- nobody to ask ------------------------------------------------------------------------------------------------


async def test_a_wrong_password_is_a_typed_error(redis_server: ServerFactory, probing: Probing) -> None:
    server = redis_server()
    with client(server) as connection:
        connection.config_set("requirepass", "right")
    for login in ("", ":wrong@"):
        with pytest.raises(AuthenticationError, match=r"check user and password|needs a password"):
            await probing(server.url.replace("unix://", f"unix://{login}"))


async def test_no_server_is_a_retryable_error(probing: Probing) -> None:
    with pytest.raises(ServerUnavailableError, match="start it") as caught:
        await probing("unix:///nowhere/redis.sock")
    assert caught.value.retryable


@pytest.fixture(scope="module")
def loading_server() -> Iterator[Process]:
    def is_loading() -> bool:
        try:
            with server.client() as connection:
                connection.ping()
        except redis.BusyLoadingError:
            return True
        except redis.ConnectionError:
            pass  # not listening yet
        return False

    with spawning() as spawn:
        server = loading(spawn, key_ms=200)
        eventually(is_loading)
        yield server


async def test_loading_is_a_retryable_error(loading_server: Process, probing: Probing) -> None:
    with pytest.raises(ServerLoadingError) as caught:
        await probing(loading_server.url)
    assert caught.value.retryable
    assert not isinstance(caught.value, ConfigError)
