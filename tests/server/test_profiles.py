"""A profile's file against real servers: what is less than it is found, and the named remedy cures it."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from rtmem.drivers import SyncDriver
from rtmem.errors import ConfigError
from rtmem.server import binaries, conf, embedded, profiles
from rtmem.server.facts import Replica, ServerFacts
from rtmem.server.judgement import Finding, ServerReport
from rtmem.server.machine import MachineFacts
from tests.conftest import ServerFactory
from tests.drivers.processes import free_port
from tests.server.processes import client, eventually

GOOD_MACHINE = MachineFacts(overcommit=1, huge_pages="madvise", log_dir="/data/appendonlydir", file_system="xfs")


def held_to(profile: str, server: embedded.Embedded) -> ServerReport:
    """The report on a server as if it ran on a machine without a fault."""
    driver = SyncDriver.connect(server.url)
    try:
        answered = driver.run(profiles.ask(profile)).facts
    finally:
        driver.close()
    return profiles.judged(profile, answered, GOOD_MACHINE)


def whats(findings: tuple[Finding, ...]) -> list[str]:
    return [f"{finding.level}: {finding.what}" for finding in findings]


def cure(server: embedded.Embedded, finding: Finding) -> None:
    now, _, lasting = finding.fix.partition(", then ")
    with client(server) as connection:
        connection.execute_command(*shlex.split(now))
        connection.execute_command(*shlex.split(lasting))


@pytest.mark.parametrize("profile", conf.PROFILES)
def test_a_server_of_a_profile_keeps_it(redis_server: ServerFactory, profile: str) -> None:
    assert held_to(profile, redis_server(profile=profile)).findings == ()


def test_a_server_that_promises_more_is_fine(redis_server: ServerFactory) -> None:
    server = redis_server(profile="durable")
    for profile in conf.PROFILES:
        assert held_to(profile, server).findings == ()


@pytest.mark.parametrize(
    ("profile", "line", "found"),
    [
        ("relaxed", "appendonly no", "error: AOF is off, and relaxed keeps a log"),
        ("balanced", "appendfsync no", "error: appendfsync is no, and balanced says everysec"),
        ("durable", "appendfsync everysec", "error: appendfsync is everysec, and durable says always"),
        ("durable", "no-appendfsync-on-rewrite yes", "error: no-appendfsync-on-rewrite is yes"),
        ("balanced", "maxmemory-policy allkeys-lru", "error: maxmemory-policy is allkeys-lru"),
        ("ephemeral", "maxmemory-policy volatile-ttl", "error: maxmemory-policy is volatile-ttl"),
        ("durable", "maxmemory 0", "warning: no maxmemory"),
        ("durable", "hz 10", "info: hz is 10, and durable says 100"),
        ("durable", "save 60 1", "warning: save is 60 1, and durable says empty"),
        ("durable", "aof-timestamp-enabled no", "warning: aof-timestamp-enabled is no, and durable says yes"),
        (
            "durable",
            "auto-aof-rewrite-min-size 64mb",
            "warning: auto-aof-rewrite-min-size is 67108864, and durable says 256mb",
        ),
    ],
    ids=lambda value: value.split(" ")[0],
)
def test_what_is_less_is_found_and_the_named_remedy_cures_it(
    redis_server: ServerFactory, profile: str, line: str, found: str
) -> None:
    server = redis_server(profile=profile, modules=True, extra_conf=[line])
    (finding,) = held_to(profile, server).findings
    assert f"{finding.level}: {finding.what}" == found
    assert finding.consequence
    cure(server, finding)
    assert held_to(profile, server).findings == ()


def test_each_class_of_clients_is_compared(redis_server: ServerFactory) -> None:
    server = redis_server(profile="balanced", extra_conf=["client-output-buffer-limit pubsub 0 0 0"])
    (finding,) = held_to("balanced", server).findings
    assert "stopped reading" in finding.consequence, "the reason is the one in the file"
    cure(server, finding)
    assert held_to("balanced", server).findings == ()


def test_a_redis_as_it_comes_is_told_everything_that_matters(redis_server: ServerFactory) -> None:
    # Everything that decides about losses, set as a Redis without configuration has it.
    server = redis_server(profile="ephemeral", extra_conf=["maxmemory 0", "save 3600 1 300 100 60 10000"])
    found = whats(held_to("durable", server).findings)
    assert "error: AOF is off, and durable keeps a log" in found
    assert "warning: no maxmemory" in found
    assert any(line.startswith("warning: save is 3600 1") for line in found)


@pytest.mark.parametrize("with_file", [True, False], ids=["redis.conf", "no redis.conf"])
@pytest.mark.parametrize("profile", ["durable", "replicated"])
def test_every_remedy_for_a_foreign_redis_works_as_typed_and_lasts(
    profile: str, with_file: bool, tmp_path: Path
) -> None:
    port = free_port()
    options = ["--port", str(port), "--dir", str(tmp_path)]
    if with_file:
        file = tmp_path / "redis.conf"
        file.write_text("maxmemory-policy allkeys-lru\n")
        options.insert(0, str(file))
    else:
        options += ["--maxmemory-policy", "allkeys-lru"]
    for lasts in (False, True):
        with foreign(options, port) as asked:
            found = findings_of(asked, profile, port)
            if lasts:
                assert found == [], "a restart brought it back"
                break
            assert "maxmemory-policy is allkeys-lru" in [finding.what for finding in found]
            for finding in found:
                now, _, lasting = finding.fix.partition(", then ")
                assert asked.execute_command(*shlex.split(now)) == b"OK", finding
                if with_file:
                    assert lasting == "CONFIG REWRITE"
                    assert asked.execute_command("CONFIG", "REWRITE") == b"OK"
                else:
                    options += shlex.split(lasting.split("`")[1])
            assert findings_of(asked, profile, port) == []


@contextmanager
def foreign(options: list[str], port: int) -> Iterator[redis.Redis]:
    """A redis-server as somebody else would start it."""
    process = subprocess.Popen([binaries.find().server, *options], stdout=subprocess.DEVNULL)
    try:
        with redis.Redis(port=port, retry=Retry(NoBackoff(), 0)) as asked:
            eventually(lambda: answers(asked))
            yield asked
    finally:
        process.kill()
        process.wait()


def findings_of(asked: redis.Redis, profile: str, port: int) -> list[Finding]:
    """What its settings promise less; neither modules nor replicas nor the machine."""
    driver = SyncDriver.connect(f"redis://127.0.0.1:{port}")
    try:
        answered = driver.run(profiles.ask(profile)).facts
    finally:
        driver.close()
    alone = replace(answered, replicas=None, modules=None)
    return list(profiles.judged(profile, alone, GOOD_MACHINE).findings)


def test_what_redis_reads_only_at_its_start_is_not_told_to_config_set() -> None:
    facts = replace(GOOD, config={"rdbchecksum": "no"}, config_file="/etc/redis/redis.conf")
    (finding,) = profiles.judged("balanced", facts, GOOD_MACHINE).findings
    assert finding.fix == "put `rdbchecksum yes` into /etc/redis/redis.conf and restart the server"


def test_settings_with_one_reason_are_one_finding() -> None:
    facts = replace(GOOD, config={"hz": "10", "dynamic-hz": "no"}, config_file="/etc/redis/redis.conf")
    (finding,) = profiles.judged("balanced", facts, GOOD_MACHINE).findings
    assert finding.what == "hz is 10, dynamic-hz is no, and balanced says 100, yes"
    assert finding.fix == "CONFIG SET hz 100 dynamic-hz yes, then CONFIG REWRITE"


def test_a_server_of_ours_is_started_anew_because_its_file_is_written_at_each_start() -> None:
    facts = replace(GOOD, fsync="everysec", config_file="/data/redis.conf")
    (finding,) = profiles.judged("durable", facts, GOOD_MACHINE, "rtmem down; rtmem up --profile durable").findings
    assert finding.fix == "rtmem down; rtmem up --profile durable"


def test_an_unknown_profile_is_refused(redis_url: str) -> None:
    driver = SyncDriver.connect(redis_url)
    with pytest.raises(ConfigError, match="choose one of"):
        driver.run(profiles.ask("fast"))
    driver.close()


# --- several machines ---------------------------------------------------------------------------------------------


def test_a_replicated_master_needs_a_replica_and_then_keeps_its_profile(redis_server: ServerFactory) -> None:
    port = free_port()
    lines = [
        f"{one.name} {one.value}"
        for one in conf.directives("replicated")
        if one.name.startswith(("min-", "repl-backlog", "repl-diskless"))
    ]
    master = redis_server(
        profile="balanced", extra_conf=[*lines, f"port {port}", "bind 127.0.0.1", "repl-diskless-sync-delay 0"]
    )
    (finding,) = held_to("replicated", master).findings
    assert finding.what == "no replica is within 2 s: none is connected"
    with client(master) as connection, pytest.raises(redis.ResponseError, match="NOREPLICAS"):
        connection.set("k", "v")
    replica = redis_server(profile="balanced", extra_conf=[f"replicaof 127.0.0.1 {port}"])
    eventually(lambda: held_to("replicated", master).findings == ())
    with client(master) as connection:
        assert connection.set("k", "v")
        connection.config_set("min-replicas-max-lag", 10)
    (finding,) = held_to("replicated", master).findings
    assert finding.what == "min-replicas-max-lag is 10, and replicated says 2"
    cure(master, finding)
    assert held_to("replicated", master).findings == ()
    assert "error: this server is a replica" in whats(held_to("replicated", replica).findings)


@contextmanager
def sentinel(lines: list[str]) -> Iterator[redis.Redis]:
    """A Sentinel with these lines, gone afterwards."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="rtmem-test-") as folder:
        file = Path(folder) / "sentinel.conf"
        file.write_text("\n".join([*lines, f"port {port}", f"dir {folder}"]) + "\n")
        process = subprocess.Popen([binaries.find().server, file, "--sentinel"], stdout=subprocess.DEVNULL)
        try:
            with redis.Redis(port=port, retry=Retry(NoBackoff(), 0)) as asked:
                eventually(lambda: answers(asked))
                yield asked
        finally:
            process.kill()
            process.wait()


def answers(asked: redis.Redis) -> bool:
    try:
        return bool(asked.ping())
    except redis.ConnectionError:
        return False


def test_a_sentinel_runs_with_the_example(redis_server: ServerFactory) -> None:
    port = free_port()
    redis_server(profile="balanced", modules=False, extra_conf=[f"port {port}", "bind 127.0.0.1"])
    text = conf.sentinel_text().replace("127.0.0.1 6379 2", f"127.0.0.1 {port} 1")
    lines = [line for line in text.splitlines() if line and not line.startswith(("#", "port", "dir"))]
    with sentinel(lines) as asked:
        assert asked.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "rtmem") == [b"127.0.0.1", b"%d" % port]
        # SENTINEL MASTER answers with names and values in turn, or with a map.
        master = asked.sentinel_master("rtmem")
        assert master["down-after-milliseconds"] == 2_000


# --- the machine below --------------------------------------------------------------------------------------------

GOOD = ServerFacts(aof=True, fsync="everysec", fsync_pauses_on_rewrite=False, eviction="noeviction", maxmemory_bytes=1)


@pytest.mark.parametrize(
    ("below", "config", "found"),
    [
        (replace(GOOD_MACHINE, overcommit=0), {}, "warning: vm.overcommit_memory is 0"),
        (replace(GOOD_MACHINE, huge_pages="always"), {"disable-thp": "no"}, "warning: transparent huge pages"),
        (replace(GOOD_MACHINE, file_system="ext4"), {}, "info: the log lies on ext4"),
        (replace(GOOD_MACHINE, file_system="tmpfs"), {}, "error: the log lies on tmpfs"),
        (replace(GOOD_MACHINE, file_system="overlay"), {}, "warning: the log lies on overlay"),
        (replace(GOOD_MACHINE, file_system="nfs4"), {}, "warning: the log lies on nfs4"),
        (None, {}, "info: the server's machine cannot be seen from here"),
    ],
)
def test_the_machine_is_judged(below: MachineFacts | None, config: dict[str, str], found: str) -> None:
    (finding,) = profiles.judged("balanced", replace(GOOD, config=config), below).findings
    assert f"{finding.level}: {finding.what}".startswith(found)
    assert finding.consequence
    assert finding.fix


def test_a_machine_without_a_fault_is_not_mentioned() -> None:
    assert profiles.judged("balanced", GOOD, GOOD_MACHINE).findings == ()
    # Redis keeps huge pages away from itself unless it is told not to.
    huge = replace(GOOD_MACHINE, huge_pages="always")
    assert profiles.judged("balanced", replace(GOOD, config={"disable-thp": "yes"}), huge).findings == ()


def test_under_always_ext4_leaves_nothing_to_repair() -> None:
    ext4 = replace(GOOD_MACHINE, file_system="ext4")
    assert profiles.judged("durable", replace(GOOD, fsync="always"), ext4).findings == ()


def test_a_replica_that_is_far_behind_does_not_count() -> None:
    far = Replica(address="10.0.0.2:6379", online=True, lag_s=9)
    facts = replace(GOOD, role="master", replicas=(far,))
    (finding,) = profiles.judged("replicated", facts, GOOD_MACHINE).findings
    assert finding.what == "no replica is within 2 s (10.0.0.2:6379 online, 9 s)"
    near = replace(facts, replicas=(far, replace(far, lag_s=1)))
    assert profiles.judged("replicated", near, GOOD_MACHINE).findings == ()


def test_a_replica_without_its_master_is_an_error() -> None:
    found = whats(
        profiles.judged("replicated", replace(GOOD, role="replica", master_link_ok=False), GOOD_MACHINE).findings
    )
    assert "error: this replica has lost its master" in found
