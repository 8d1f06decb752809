"""The cluster drivers against three real masters: routing, transactions, moving slots, lost nodes, savers and logs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Any

import anyio
import pytest
import redis
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from redis.crc import key_slot

from rtmem.cache.nodes import NodeCache
from rtmem.checkpoint import AsyncRedisSaver
from rtmem.drivers import AsyncDriver, SyncDriver
from rtmem.drivers.cluster import _plain_url, slot_of
from rtmem.errors import (
    AuthenticationError,
    CommandError,
    ConfigError,
    PointerExpiredError,
    ServerUnavailableError,
    StaleWriterError,
)
from rtmem.operations import event_log
from rtmem.pointers import AsyncPointers
from rtmem.records import LOG_LAYOUT, LogEvent, LogGroup
from rtmem.settings import Cache, Pointers
from rtmem.steps import Batch
from tests.drivers.colours import COLOURS, Colour, talking
from tests.drivers.processes import Process, eventually, spawning

pytestmark = pytest.mark.anyio

SLOTS = 16_384
both_colours = pytest.mark.parametrize("colour", COLOURS)


class Cluster:
    """Three masters, each with a third of the slots."""

    def __init__(self, masters: list[Process]) -> None:
        self.masters = masters
        self.url = f"redis+cluster://:s3cret@127.0.0.1:{masters[0].port}"

    def client(self, index: int) -> redis.Redis:
        return self.masters[index].client(password="s3cret")

    def owner_of(self, slot: int) -> int:
        for first, last, (_, port, *_), *_ in self.ask(0, "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return [master.port for master in self.masters].index(port)
        raise AssertionError(slot)

    def begin_move(self, slot: int, target: int) -> None:
        """From here on the owner answers ASK for keys of `slot` that it does not have."""
        source = self.owner_of(slot)
        self.ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", self._id(source))
        self.ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", self._id(target))

    def move(self, slot: int, target: int) -> None:
        """Move `slot` with its keys, as redis-cli --cluster reshard does."""
        source = self.owner_of(slot)
        self.begin_move(slot, target)
        while keys := self.ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 100):
            port = self.masters[target].port
            self.ask(source, "MIGRATE", "127.0.0.1", port, "", 0, 5000, "AUTH", "s3cret", "KEYS", *keys)
        for index in (target, source, *range(3)):
            self.ask(index, "CLUSTER", "SETSLOT", slot, "NODE", self._id(target))

    def _id(self, index: int) -> str:
        return str(self.ask(index, "CLUSTER", "MYID").decode())

    def ask(self, index: int, *command: Any) -> Any:
        """The raw reply of one node."""
        with SyncDriver.lazy(f"redis://:s3cret@127.0.0.1:{self.masters[index].port}?protocol=2") as driver:
            return driver.answer(Batch((command,)))[0]

    def healthy(self) -> bool:
        return all(
            b"cluster_state:ok" in self.ask(index, "CLUSTER", "INFO") and len(self.ask(index, "CLUSTER", "SLOTS")) >= 3
            for index in range(3)
        )


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with spawning() as spawn:
        conf = ("cluster-enabled yes", "cluster-node-timeout 5000", "requirepass s3cret", "masterauth s3cret")
        masters = [spawn(*conf).wait_until_answering(password="s3cret") for _ in range(3)]
        cluster = Cluster(masters)
        for index in range(3):
            first, last = SLOTS * index // 3, SLOTS * (index + 1) // 3 - 1
            cluster.ask(index, "CLUSTER", "ADDSLOTSRANGE", first, last)
            cluster.ask(index, "CLUSTER", "SET-CONFIG-EPOCH", index + 1)
        for index in (1, 2):
            cluster.ask(0, "CLUSTER", "MEET", "127.0.0.1", masters[index].port)
        eventually(cluster.healthy)
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    for index in range(3):
        with running.client(index) as client:
            client.flushall()
            client.config_resetstat()
    return running


@both_colours
@pytest.mark.parametrize("protocol", [2, 3])
async def test_commands_reach_the_owners_of_their_keys(colour: Colour, protocol: int, cluster: Cluster) -> None:
    async with talking(colour, cluster.url, protocol=protocol) as talker:
        keys = [f"key:{number}" for number in range(100)]
        assert await talker.answer(*(("SET", key, key) for key in keys)) == [b"OK"] * 100
        assert await talker.answer(*(("GET", key) for key in keys)) == [key.encode() for key in keys]
        (step,) = await talker.answer(("SCAN", b"0", "MATCH", "key:*", "COUNT", 10))
        assert step[0] == b"0"
        assert sorted(step[1]) == sorted(key.encode() for key in keys)
    sizes = []
    for index in range(3):
        with cluster.client(index) as client:
            sizes.append(client.dbsize())
    assert sum(sizes) == 100
    assert min(sizes) > 10


@both_colours
async def test_keys_of_one_hash_tag_go_out_as_one_transaction(colour: Colour, cluster: Cluster) -> None:
    async with talking(colour, cluster.url) as talker:
        replies = await talker.answer(
            ("SET", "{alice/t1}:a", 1), ("INCR", "{alice/t1}:a"), ("MGET", "{alice/t1}:a", "{alice/t1}:b"), atomic=True
        )
        assert replies == [b"OK", 2, [b"2", None]]
        # What is derived and lives elsewhere follows in a transaction of its own.
        replies = await talker.answer(
            ("INCR", "{alice/t1}:a"), ("ZADD", "threads:alice", 0, "t1"), ("INCR", "{alice/t1}:a"), atomic=True
        )
        assert replies == [3, 1, 4]
        with pytest.raises(CommandError, match="hash tag"):
            await talker.answer(("MGET", "a", "b"))


@both_colours
async def test_functions_are_loaded_on_every_master(colour: Colour, cluster: Cluster) -> None:
    library = (
        "#!lua name=rtmem_test\nredis.register_function('rtmem_test_get',"
        " function(k) return redis.call('GET', k[1]) end)"
    )
    async with talking(colour, cluster.url) as talker:
        assert await talker.answer(("FUNCTION", "LOAD", "REPLACE", library)) == [b"rtmem_test"]
        for number in range(20):
            replies = await talker.answer(("SET", number, number), ("FCALL", "rtmem_test_get", 1, number))
            assert replies == [b"OK", b"%d" % number]


@both_colours
async def test_a_moved_slot_is_followed(colour: Colour, cluster: Cluster) -> None:
    key = "{moving}:n"
    slot = key_slot(key.encode())
    async with talking(colour, cluster.url) as talker:
        assert await talker.answer(("INCR", key), idempotent=False) == [1]
        for round_ in range(3):
            cluster.move(slot, (cluster.owner_of(slot) + 1) % 3)
            # MOVED means that nothing was executed: also this may follow, and is done exactly once.
            assert await talker.answer(("INCR", key), ("INCR", key), idempotent=False, atomic=round_ == 1) == [
                2 + 2 * round_,
                3 + 2 * round_,
            ]
        # While it moves, keys that are gone already, or not there yet, are asked for at the target.
        cluster.begin_move(slot, (cluster.owner_of(slot) + 1) % 3)
        assert await talker.answer(("SET", "{moving}:new", 1), ("GET", "{moving}:new")) == [b"OK", b"1"]
        assert await talker.answer(("GET", key)) == [b"7"]
        cluster.move(slot, (cluster.owner_of(slot) + 1) % 3)
        assert await talker.answer(("GET", key), ("GET", "{moving}:new")) == [b"7", b"1"]


@both_colours
async def test_what_must_run_once_runs_once_when_only_some_of_its_keys_have_moved(
    colour: Colour, cluster: Cluster
) -> None:
    def one_node(number: int) -> bool:
        return cluster.owner_of(key_slot(b"%d" % number)) == 0

    stays, moves = [number for number in range(40) if one_node(number)][:2]
    async with talking(colour, cluster.url) as talker:
        assert await talker.answer(("INCR", stays), ("INCR", moves), idempotent=False) == [1, 1]
        cluster.move(key_slot(b"%d" % moves), 1)
        assert await talker.answer(("INCR", stays), ("INCR", moves), idempotent=False) == [2, 2]
        cluster.move(key_slot(b"%d" % moves), 0)


async def test_batches_of_one_tick_are_two_writes_at_most_for_each_node(cluster: Cluster) -> None:
    async with talking("async", cluster.url) as talker:
        await talker.answer(*(("GET", number) for number in range(64)))  # connected to each, and functions known
        outcomes: list[bytes] = []

        async def ask(number: int) -> None:
            outcomes.extend(await talker.answer(("SET", number, number), ("GET", number)))

        with ExitStack() as stack:
            clients = [stack.enter_context(cluster.client(index)) for index in range(3)]
            before = [client.info("stats")["total_reads_processed"] for client in clients]
            async with anyio.create_task_group() as tasks:
                for number in range(64):
                    tasks.start_soon(ask, number)
            reads = [
                client.info("stats")["total_reads_processed"] - count
                for client, count in zip(clients, before, strict=True)
            ]
        assert len(outcomes) == 128
        # One read for this test's own second question. Of what the 64 tasks asked of this node, the first was sent at
        # once, and everything else together; how much of that the server reads at a time is its own affair.
        assert all(2 <= each <= 3 for each in reads)


@both_colours
async def test_a_blocking_read_outlasts_the_deadline_of_others(colour: Colour, cluster: Cluster) -> None:
    async with talking(colour, cluster.url, deadline_ms=100, lazy=True) as talker:
        command = ("XREAD", "COUNT", 1, "BLOCK", 300, "STREAMS", "{alice/t1}:log", "0-0")
        assert await talker.answer(command, lane="blocking", timeout_ms=60_000) == [None]


@pytest.mark.parametrize("offload_bytes_min", [0, 1])
async def test_the_saver_conforms_on_a_cluster(cluster: Cluster, offload_bytes_min: int) -> None:
    async def saver() -> AsyncIterator[AsyncRedisSaver]:
        async with AsyncRedisSaver.from_conn_string(cluster.url, offload_bytes_min=offload_bytes_min) as made:
            await made.asetup()
            yield made

    report = await validate(checkpointer_test(name="rtmem on a cluster")(saver))
    # Every capability was found and passed, also those that are optional.
    assert {name: result.failures for name, result in report.results.items() if result.passed is not True} == {}
    assert len(report.results) == len(Capability)


@pytest.mark.parametrize("offload_bytes_min", [0, 1_000])
async def test_a_large_value_is_saved_on_a_cluster(cluster: Cluster, offload_bytes_min: int) -> None:
    from langgraph.checkpoint.base import empty_checkpoint

    async with AsyncRedisSaver.from_conn_string(cluster.url, offload_bytes_min=offload_bytes_min) as saver:
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"big": "x" * 1_000_000}
        checkpoint["channel_versions"] = {"big": "1"}
        config = await saver.aput(
            {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, checkpoint, {"step": 0}, {"big": "1"}
        )
    async with AsyncRedisSaver.from_conn_string(cluster.url) as saver:
        found = await saver.aget_tuple(config)
        assert found is not None
        assert found.checkpoint["channel_values"] == {"big": "x" * 1_000_000}
        assert [thread.config async for thread in saver.alist(None)]


async def test_pointers_and_the_fate_of_their_threads_work_on_a_cluster(cluster: Cluster) -> None:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import empty_checkpoint

    settings = Pointers(chunk_bytes=1_024, batch_bytes=4_096, grace_ms=1)
    large = "".join(f"line {number}\n" for number in range(3_000))
    async with (
        AsyncPointers(cluster.url, principal="ann", settings=settings) as pointers,
        AsyncRedisSaver.from_conn_string(cluster.url, principal="ann") as saver,
    ):
        checkpoint = empty_checkpoint()
        for thread_id in ("t1", "t2"):
            config: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
            await saver.aput(config, checkpoint, {}, {})
        made = [await pointers.offload(value, thread_id="t1") for value in ("small", large, large)]
        assert [await pointers.resolve(pointer) for pointer in made] == ["small", large, large]
        assert (await pointers.slice(made[1], "lines", 2_999)).content == "line 2999\n"
        assert (await pointers.search(made[2], "line 2999")).matches[0].line == 2_999
        assert len((await pointers.list("t1")).pointers) == 3
        await saver.acopy_thread("t1", "copy")
        await saver.adelete_thread("t1")
        assert await pointers.resolve(made[1]) == large
        await saver.adelete_thread("copy")
        with pytest.raises(PointerExpiredError):
            await pointers.resolve(made[1])
        kept = await pointers.offload(large, thread_id="t2")
        await pointers.offload("of a thread that never was", thread_id="t3")
        while (await pointers.usage()).pointers > 1:
            await pointers.sweep()
        assert await pointers.resolve(kept) == large
        report = await pointers.inspect()
        assert report.sound, report


async def test_the_event_log_works_on_a_cluster(cluster: Cluster) -> None:
    def group(last: int, frame: bytes = b"{}") -> LogGroup:
        return LogGroup(LOG_LAYOUT, last - 1, "run", 0, "running", (LogEvent(last, "values", (), frame),))

    async with await AsyncDriver.connect(cluster.url) as driver:
        for seq in range(1, 6):
            await driver.run(event_log.append("{a/t}:log", group(seq), ttl_ms=60_000, groups_max=100))
        await driver.run(event_log.append("{a/t}:log", group(5), ttl_ms=60_000, groups_max=100))
        with pytest.raises(StaleWriterError):
            await driver.run(event_log.append("{a/t}:log", group(3, b"other"), ttl_ms=60_000, groups_max=100))
        page = await driver.run(event_log.read_after("{a/t}:log", 2))
        assert [event.seq for event in page.events] == [3, 4, 5]
        tail = await driver.run(event_log.tail("{a/t}:log", 5, block_ms=20))
        assert tail.events == ()


@both_colours
async def test_errors_say_what_to_change(colour: Colour, cluster: Cluster, redis_url: str) -> None:
    port = cluster.masters[0].port
    with pytest.raises(AuthenticationError, match="password") as raised:
        async with talking(colour, f"redis+cluster://:wr0ng@127.0.0.1:{port}"):
            pass
    assert "wr0ng" not in str(raised.value)
    async with talking(colour, f"redis://:s3cret@127.0.0.1:{port}") as talker:
        with pytest.raises(ConfigError, match=r"redis\+cluster://"):
            await talker.answer(*(("GET", number) for number in range(100)))


@both_colours
async def test_a_node_that_dies_is_named_and_found_again(colour: Colour, cluster: Cluster) -> None:
    async with talking(colour, cluster.url, deadline_ms=20_000) as talker:
        keys = {cluster.owner_of(key_slot(b"%d" % number)): number for number in range(50)}
        await talker.answer(*(("SET", number, 1) for number in keys.values()))
        victim = cluster.masters[2]
        victim.kill()
        try:
            with pytest.raises(ServerUnavailableError):
                await talker.answer(("GET", keys[2]))
        finally:
            victim.start().wait_until_answering(password="s3cret")
        await anyio.to_thread.run_sync(eventually, cluster.healthy)
        assert await talker.answer(("SET", keys[2], 2), ("GET", keys[2])) == [b"OK", b"2"]


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("SET", "k", "v"), b"k"),
        (("get", b"k"), b"k"),
        (("FCALL", "f", 2, "k", "other"), b"k"),
        (("FCALL_RO", "f", "1", "k"), b"k"),
        (("FCALL", "f", 0), None),
        (("XREAD", "COUNT", 1, "BLOCK", 0, "STREAMS", "k", "0"), b"k"),
        (("OBJECT", "ENCODING", "k"), b"k"),
        (("PING",), None),
        (("FUNCTION", "LOAD", "code"), None),
        (("INCR", 7), b"7"),
    ],
)
def test_the_first_key_decides_the_slot(command: tuple[str, ...], key: bytes | None) -> None:
    assert slot_of(command) == (None if key is None else key_slot(key))


@pytest.mark.parametrize(
    ("url", "plain", "seeds"),
    [
        ("redis+cluster://h", "redis://h", ("h:6379",)),
        ("redis+cluster://me:p%40ss@h:1,g:2/0", "redis://me:p%40ss@h:1", ("h:1", "g:2")),
        ("redis+cluster://h:1?ssl=true", "rediss://h:1", ("h:1",)),
        ("redis+cluster://h:1/?ssl=1&ssl_ca_certs=ca.pem", "rediss://h:1?ssl_ca_certs=ca.pem", ("h:1",)),
    ],
)
def test_a_url_says_the_nodes_and_how_to_speak_to_them(url: str, plain: str, seeds: tuple[str, ...]) -> None:
    assert _plain_url(url) == (plain, seeds)


async def test_a_cache_of_nodes_works_in_a_cluster(cluster: Cluster) -> None:
    patient: Any = {"lookup_deadline_ms": 60_000, "update_deadline_ms": 60_000}
    keys = [((f"n{number}",), "k") for number in range(20)]
    async with NodeCache.from_conn_string(cluster.url, settings=Cache(**patient)) as cache:
        for number in range(8):  # tenants in several slots
            of_one = cache.bind(f"user {number}")
            await of_one.aset(dict.fromkeys(keys, (number, 60)))
            assert await of_one.aget(keys) == dict.fromkeys(keys, number)
            of_one.clear([("n3",)])
            assert len(of_one.get(keys)) == 19
            await of_one.aclear()
            assert of_one.get(keys) == {}
