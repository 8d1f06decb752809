"""Acknowledgements that wait for a disk or a replica: proved by what was synced, refused when it was not."""

from __future__ import annotations

import errno
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import anyio
import pytest

from rtmem.errors import ConfigError, NotDurableError, PersistenceError, RtmemError, ServerTooOldError
from rtmem.operations.durability import barrier, durably, mark
from rtmem.operations.durability_proof import Promise
from rtmem.settings import Ack
from rtmem.steps import Batch, Command, Steps
from tests.crash.faults import Disk
from tests.drivers.colours import COLOURS, SLOWNESS, Colour, Talker, at_once, patient_clock, talking
from tests.drivers.processes import Process, Spawn, becomes, eventually

pytestmark = pytest.mark.anyio

AOF = ("appendonly yes", "hz 100")
NEVER_MS = 600_000  # an fsync that ends when the disk is healed or the server is killed
PROTOCOLS = (2, 3)


def promise(ack: Ack = "fsync", *, replicas: int = 1, timeout_ms: int = 60_000) -> Promise:
    return Promise(ack, replicas, timeout_ms // SLOWNESS, "rtmem:barrier", clock=patient_clock)


def write(*commands: Command) -> Steps[list[object]]:
    return (yield Batch(commands))


def setting(key: str, value: object = 1) -> Steps[list[object]]:
    return write(("SET", key, str(value)))


@dataclass
class Faulty:
    """A server on a disk with faults."""

    server: Process
    disk: Disk

    def on_disk(self, needle: bytes) -> bool:
        return self.disk.on_disk(self.server.folder, needle)

    def status(self) -> str:
        with self.server.client() as client:
            return str(client.info("persistence")["aof_last_write_status"])

    def was_rewritten(self) -> bool:
        """Whether a rewrite has succeeded, and none is under way."""
        with self.server.client() as client:
            info = client.info("persistence")
        done = info["aof_rewrites"] and not info["aof_rewrite_in_progress"] and not info["aof_rewrite_scheduled"]
        return bool(done) and info["aof_last_bgrewrite_status"] == "ok"

    def mend(self) -> None:
        """What an operator does after a failed fsync: write the AOF anew."""
        self.disk.heal()
        with self.server.client() as client:
            eventually(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
            client.bgrewriteaof()
            eventually(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
        eventually(lambda: self.status() == "ok")


SpawnFaulty = Callable[..., Faulty]


@pytest.fixture
def faulty(spawn: Spawn, shim: Path, tmp_path: Path) -> SpawnFaulty:
    def made(*conf: str) -> Faulty:
        # A prefix of every server's folder: the shim looks only at AOF files.
        disk = Disk(shim, Path(mkdtemp(dir=tmp_path)), Path("/"))
        return Faulty(spawn(*AOF, *conf, environment=disk.environment).wait_until_answering(), disk)

    return made


@at_once(colour=COLOURS, protocol=PROTOCOLS, policy=("everysec", "always"))
async def test_a_write_is_on_disk_when_its_ack_returns(
    colour: Colour, protocol: int, policy: str, faulty: SpawnFaulty
) -> None:
    made = faulty(f"appendfsync {policy}")
    async with talking(colour, made.server.url, protocol=protocol) as talker:
        proved = promise()
        for number in range(2):
            assert await talker.run(durably(setting(f"key-{number}-end"), proved)) == [b"OK"]
            assert made.on_disk(b"key-%d-end" % number)


@at_once(colour=COLOURS)
async def test_a_write_without_ack_is_not_on_disk_yet(colour: Colour, faulty: SpawnFaulty) -> None:
    # The control: if this one were on disk too, the others would prove nothing.
    made = faulty("appendfsync everysec")
    made.disk.order(delay_ms=NEVER_MS)
    async with talking(colour, made.server.url) as talker:
        for number in range(3):
            assert await talker.run(durably(setting(f"key-{number}-end"), promise("memory"))) == [b"OK"]
        assert not made.on_disk(b"key-2-end")


@at_once(colour=COLOURS)
async def test_a_write_in_front_of_a_rewrite_waits_for_the_end_of_the_old_file(
    colour: Colour, faulty: SpawnFaulty
) -> None:
    # The new file has nothing to sync, so Redis says at once that everything is synced.
    made = faulty("appendfsync everysec")
    async with talking(colour, made.server.url) as talker:
        proved = promise()
        await talker.run(durably(setting("first"), proved))
        made.disk.order(delay_ms=700)

        async def rewrite() -> None:
            with made.server.client() as client:
                await becomes(lambda: bool(client.exists("key-end")))
                client.bgrewriteaof()

        async with anyio.create_task_group() as both:
            both.start_soon(rewrite)
            await talker.run(durably(setting("key-end"), proved))
            bases = list(made.server.folder.rglob("*.base.rdb"))
            assert made.on_disk(b"key-end") or any(b"key-end" in base.read_bytes() for base in bases)


@at_once(colour=COLOURS)
async def test_a_write_that_changes_nothing_waits_for_the_one_that_did(colour: Colour, faulty: SpawnFaulty) -> None:
    made = faulty("appendfsync everysec")
    async with talking(colour, made.server.url) as talker:
        assert await talker.answer(("HSETNX", "h", "field-end", "1")) == [1]  # say, an attempt whose reply was lost
        assert await talker.run(durably(write(("HSETNX", "h", "field-end", "1")), promise())) == [0]
        assert made.on_disk(b"field-end")


@pytest.mark.parametrize(
    ("conf", "kind", "advice"),
    [
        ((), ConfigError, "CONFIG SET appendonly yes"),
        ((*AOF, "appendfsync no"), ConfigError, "CONFIG SET appendfsync everysec"),
        ((*AOF, 'rename-command WAITAOF ""'), ServerTooOldError, "Redis 7.2"),
    ],
    ids=["no AOF", "appendfsync no", "no WAITAOF"],
)
@at_once(colour=COLOURS)
async def test_a_server_that_cannot_prove_is_refused_before_the_write(
    colour: Colour, conf: tuple[str, ...], kind: type[RtmemError], advice: str, spawn: Spawn
) -> None:
    server = spawn(*conf).wait_until_answering()
    async with talking(colour, server.url) as talker:
        with pytest.raises(kind, match=advice):
            await talker.run(durably(setting("k"), promise()))
        assert await talker.answer(("EXISTS", "k")) == [0]
        with server.client() as client:  # mended as the message says
            client.config_set("appendonly", "yes")
            client.config_set("appendfsync", "everysec")
            eventually(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
        if kind is ConfigError:
            assert await talker.run(durably(setting("k"), promise())) == [b"OK"]


@pytest.mark.parametrize("where", ["redis+cluster://127.0.0.1:1"])
@at_once(colour=COLOURS)
async def test_a_cluster_is_refused(colour: Colour, where: str) -> None:
    async with talking(colour, where, lazy=True) as talker:
        with pytest.raises(ConfigError, match="cannot prove"):
            await talker.run(durably(setting("k"), promise()))


@at_once(colour=COLOURS)
async def test_a_slow_disk_is_told_after_the_timeout_and_the_write_stays(colour: Colour, faulty: SpawnFaulty) -> None:
    made = faulty("appendfsync everysec")
    async with talking(colour, made.server.url) as talker:
        await talker.run(durably(setting("before"), promise()))
        made.disk.order(delay_ms=NEVER_MS)
        with pytest.raises(NotDurableError, match="no fsync has finished within") as raised:
            await talker.run(durably(setting("k", "v"), promise(timeout_ms=300)))
        assert raised.value.data == {"ack": "fsync", "written": True, "local_fsyncs": 0, "replicas": 0}
        assert await talker.answer(("GET", "k")) == [b"v"]
        made.disk.heal()
        assert await talker.run(durably(setting("after-end"), promise())) == [b"OK"]
        assert made.on_disk(b"after-end")


@at_once(colour=COLOURS)
async def test_no_ack_after_a_failed_fsync_though_waitaof_gives_one(colour: Colour, faulty: SpawnFaulty) -> None:
    made = faulty("appendfsync everysec")
    refused = lies = 0
    async with talking(colour, made.server.url) as talker:
        proved = promise()
        for number in range(20):
            await becomes(lambda: made.disk.all_synced(made.server.folder))
            made.disk.fail_once()
            needle = f"key-{number}-end"
            try:
                await talker.run(durably(setting(needle), proved))
            except NotDurableError:
                pass
            else:
                # The error struck another fsync, such as that of a file which the last rewrite had replaced.
                assert made.on_disk(needle.encode())
                continue
            assert made.disk.struck()
            assert not made.on_disk(needle.encode())
            # WAITAOF itself says that it is on disk: without the check it would have been acknowledged.
            (counted,) = await talker.answer(("WAITAOF", 1, 0, 1_000), lane="blocking")
            lies += counted[0]
            refused += 1
            with pytest.raises(PersistenceError, match="MISCONF"):
                await talker.run(durably(setting("k"), proved))
            await anyio.to_thread.run_sync(made.mend)
            if refused == 3:
                break
        assert (refused, lies) == (3, 3)
        assert await talker.run(durably(setting("mended-end"), proved)) == [b"OK"]
        assert made.on_disk(b"mended-end")


@at_once(colour=COLOURS, delay_ms=(20, 1_300))
async def test_no_ack_after_a_failed_fsync_that_others_make_redis_forget(
    colour: Colour, delay_ms: int, faulty: SpawnFaulty
) -> None:
    # With other writers the next fsync succeeds and clears the status: a second later, or at once after a slow one.
    # What is forgotten at once is noticed by the time that passed without a look: by a clock that is not patient.
    made = faulty("appendfsync everysec")
    in_time = Promise("fsync", 1, 60_000, "rtmem:barrier")
    async with talking(colour, made.server.url) as talker:
        proved = promise()
        await talker.run(durably(setting("before"), proved))
        await becomes(lambda: made.disk.all_synced(made.server.folder))
        made.disk.fail_once(delay_ms=delay_ms)
        async with anyio.create_task_group() as others:
            others.start_soon(write_on, talker)
            with pytest.raises(NotDurableError):
                await talker.run(durably(setting("key"), in_time))
            await becomes(made.disk.struck)
            await becomes(lambda: made.status() == "ok")  # forgotten
            # The fsyncs that succeed now are behind a hole. Whoever has seen the failure has the log written anew.
            acked = False
            while not acked:
                with suppress(NotDurableError):
                    acked = bool(await talker.run(durably(setting("behind-end"), proved)))
            assert proved.watch.failed_s == -math.inf or made.was_rewritten()
            others.cancel_scope.cancel()
        assert await talker.run(durably(setting("after-end"), proved)) == [b"OK"]
        assert made.on_disk(b"after-end")


async def write_on(talker: Talker) -> None:
    """Writes without end, whatever the disk does."""
    while True:
        with suppress(PersistenceError):
            await talker.answer(("INCR", "noise"))
        await anyio.sleep(0.002)


@at_once(colour=COLOURS)
async def test_a_healthy_but_busy_disk_is_not_doubted(colour: Colour, faulty: SpawnFaulty) -> None:
    made = faulty("appendfsync everysec")
    async with talking(colour, made.server.url) as talker, anyio.create_task_group() as others:
        made.disk.order(delay_ms=400)
        others.start_soon(write_on, talker)
        for number in range(2):
            await talker.run(durably(setting(f"key-{number}-end"), promise()))
            assert made.on_disk(b"key-%d-end" % number)
        others.cancel_scope.cancel()


@at_once(colour=COLOURS, number=(errno.ENOSPC, errno.EIO))
async def test_no_ack_while_the_aof_cannot_be_written_and_service_recovers_by_itself(
    colour: Colour, number: int, faulty: SpawnFaulty
) -> None:
    made = faulty("appendfsync everysec")
    async with talking(colour, made.server.url) as talker:
        proved = promise(timeout_ms=1_000)
        await talker.run(durably(setting("before"), promise()))
        made.disk.order(write=number)
        for attempt in range(3):
            with pytest.raises((NotDurableError, PersistenceError)):
                await talker.run(durably(setting(f"key-{attempt}-end"), proved))
        made.disk.heal()
        await becomes(lambda: made.status() == "ok")
        assert await talker.run(durably(setting("after-end"), promise())) == [b"OK"]
        assert made.on_disk(b"after-end")


@at_once(colour=COLOURS, protocol=PROTOCOLS)
async def test_many_writes_share_one_wait(colour: Colour, protocol: int, spawn: Spawn) -> None:
    server = spawn(*AOF, "appendfsync everysec").wait_until_answering()
    async with talking(colour, server.url, protocol=protocol) as talker:
        proved = promise()
        await talker.run(durably(setting("first"), proved))
        with server.client() as client:
            client.config_resetstat()
        started = time.monotonic()
        async with anyio.create_task_group() as tasks:
            for number in range(32):
                tasks.start_soon(talker.run, durably(setting(f"k{number}"), proved))
        elapsed_s = time.monotonic() - started
        with server.client() as client:
            # The first to come goes alone or with a few; all who come within 100 ms share the next, and so on: each
            # beginning is one barrier. WAITAOF is repeated every 50 ms.
            stats = client.info("commandstats")
            barriers = stats["cmdstat_set"]["calls"] - 32
            assert barriers < 32
            assert stats["cmdstat_waitaof"]["calls"] <= barriers * (1 + elapsed_s / 0.05)
            assert client.dbsize() == 34  # nothing but the writes and one barrier
            assert 0 < client.pttl("rtmem:barrier") <= 60_000


@at_once(colour=COLOURS)
async def test_a_cancelled_waiter_takes_nobody_with_it(colour: Colour, faulty: SpawnFaulty) -> None:
    if colour == "sync":
        return  # a thread cannot be cancelled
    made = faulty("appendfsync everysec")
    async with talking(colour, made.server.url) as talker:
        proved = promise()
        await talker.run(durably(setting("first"), proved))
        made.disk.order(delay_ms=NEVER_MS)
        answered = []

        async def ask(name: str) -> None:
            answered.append((name, await talker.run(durably(setting(f"{name}-end"), proved))))

        async with anyio.create_task_group() as stayers:
            for group in range(2):
                async with anyio.create_task_group() as leavers:
                    for number in range(3):
                        leavers.start_soon(ask, f"leaves-{group}-{number}")
                        stayers.start_soon(ask, f"stays-{group}-{number}")
                    with made.server.client() as client:
                        await becomes(lambda: client.info("clients")["blocked_clients"] == 1)
                    leavers.cancel_scope.cancel()
            made.disk.heal()
        assert sorted(name for name, _ in answered) == [f"stays-{g}-{n}" for g in range(2) for n in range(3)]
        for name, _ in answered:
            assert made.on_disk(f"{name}-end".encode())
        await talker.run(durably(setting("last-end"), proved))  # and the next is served as ever
        assert made.on_disk(b"last-end")


@at_once(colour=COLOURS)
async def test_closing_the_driver_ends_the_wait(colour: Colour, faulty: SpawnFaulty) -> None:
    if colour == "sync":
        return  # close() lets calls that are under way end by themselves
    made = faulty("appendfsync everysec")
    async with talking(colour, made.server.url) as talker:
        proved = promise(timeout_ms=NEVER_MS)
        await talker.run(durably(setting("first"), proved))
        made.disk.order(delay_ms=NEVER_MS)
        failed = []

        async def ask(number: int) -> None:
            with pytest.raises(NotDurableError, match="closed") as raised:
                await talker.run(durably(setting(f"k{number}"), proved))
            failed.append(raised.value)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for number in range(3):
                    tasks.start_soon(ask, number)
                with made.server.client() as client:
                    await becomes(lambda: client.info("clients")["blocked_clients"] == 1)
                await talker.aclose()
        assert len(failed) == 3
        made.disk.heal()


@at_once(colour=COLOURS)
async def test_a_server_that_was_restarted_proves_nothing_about_before(colour: Colour, spawn: Spawn) -> None:
    server = spawn(*AOF).wait_until_answering()
    async with talking(colour, server.url) as talker:
        since = await talker.run(mark(promise()))
        server.kill()
        server.start().wait_until_answering()
        with pytest.raises(NotDurableError, match="restarted or replaced") as raised:
            await talker.run(barrier(promise(), since))
        assert raised.value.data["server_changed"] is True
        await talker.run(barrier(promise(), await talker.run(mark(promise()))))


@at_once(colour=COLOURS)
async def test_a_server_that_dies_while_a_write_waits_leaves_it_unproved(colour: Colour, faulty: SpawnFaulty) -> None:
    made = faulty("appendfsync everysec")
    async with talking(colour, made.server.url, retries_max=8) as talker:
        await talker.run(durably(setting("first"), promise()))
        made.disk.order(delay_ms=NEVER_MS)
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                with pytest.raises(NotDurableError):
                    await talker.run(durably(setting("k"), promise()))

            tasks.start_soon(ask)
            with made.server.client() as client:
                await becomes(lambda: client.info("clients")["blocked_clients"] == 1)
            made.server.kill()
            made.disk.heal()
            made.server.start().wait_until_answering()


# Replicas ------------------------------------------------------------------------------------------------------------


def pair(spawn: Spawn, *conf: str) -> tuple[Process, Process]:
    master = spawn(*conf).wait_until_answering()
    replica = spawn(*conf, f"replicaof 127.0.0.1 {master.port}", "repl-diskless-sync-delay 0").wait_until_answering()
    with master.client() as client:
        eventually(lambda: client.info("replication").get("slave0", {}).get("state") == "online")
    return master, replica


@at_once(colour=COLOURS, conf=((), AOF))
async def test_a_replica_has_the_write_when_its_ack_returns(
    colour: Colour, conf: tuple[str, ...], spawn: Spawn
) -> None:
    master, replica = pair(spawn, *conf, "repl-diskless-sync-delay 0")
    async with talking(colour, master.url) as talker:
        await talker.run(durably(setting("k", "v"), promise("replica")))
        master.kill()
        with replica.client() as client:
            assert client.get("k") == b"v"


@at_once(colour=COLOURS, conf=((), AOF))
async def test_a_frozen_replica_is_told_and_the_write_stays(
    colour: Colour, conf: tuple[str, ...], spawn: Spawn
) -> None:
    master, replica = pair(spawn, *conf, "appendfsync always", "repl-diskless-sync-delay 0")
    async with talking(colour, master.url) as talker:
        replica.freeze()
        timeout_ms = 2_000 if conf else 300  # enough for the fsync of the master
        with pytest.raises(NotDurableError, match="0 of 1 replicas") as raised:
            await talker.run(durably(setting("k", "v"), promise("replica", timeout_ms=timeout_ms)))
        assert raised.value.data["replicas"] == 0
        assert raised.value.data["local_fsyncs"] == (1 if conf else 0)
        assert await talker.answer(("GET", "k")) == [b"v"]
        with pytest.raises(NotDurableError, match="of 2 replicas"):
            await talker.run(durably(setting("k", "v"), promise("replica", replicas=2, timeout_ms=300)))
        replica.thaw()
        await talker.run(durably(setting("k", "v"), promise("replica")))


@at_once(colour=COLOURS)
async def test_a_master_that_becomes_a_replica_proves_nothing(colour: Colour, spawn: Spawn) -> None:
    master, replica = pair(spawn, *AOF, "repl-diskless-sync-delay 0")
    async with talking(colour, master.url) as talker:
        proved = promise()
        since = await talker.run(mark(proved))
        with replica.client() as client:
            client.replicaof("NO", "ONE")
        with master.client() as client:
            client.replicaof("127.0.0.1", replica.port)
            with pytest.raises(NotDurableError, match="READONLY"):
                await talker.run(barrier(proved, since))
            # Back again: the same process, but it has taken over another's data in the meantime.
            eventually(lambda: client.info("replication")["master_link_status"] == "up")
            client.replicaof("NO", "ONE")
            with pytest.raises(NotDurableError, match="restarted or replaced"):
                await talker.run(barrier(promise(), since))
