"""`ack` on the four savers: what was written is on disk when the call returns; reads are as they were."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

import anyio
import anyio.to_thread
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import END, START, StateGraph
from langgraph.types import Durability

from rtmem.checkpoint import AsyncRedisSaver, AsyncShallowRedisSaver, RedisSaver, ShallowRedisSaver
from rtmem.errors import ConfigError, NotDurableError
from rtmem.settings import Ack, Checkpoint
from tests.crash.faults import Disk
from tests.drivers.colours import patient_clock
from tests.drivers.processes import Process, Spawn, spawning

pytestmark = pytest.mark.anyio

PATIENT = Checkpoint(ack_timeout_ms=60_000)  # what is proved in time must not depend on the machine
DURABILITIES: tuple[Durability, ...] = ("sync", "async", "exit")
SAVERS = [RedisSaver, ShallowRedisSaver, AsyncRedisSaver, AsyncShallowRedisSaver]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    with spawning() as spawn:
        yield spawn


@pytest.fixture
def disk(shim: Path, tmp_path: Path) -> Disk:
    return Disk(shim, tmp_path, Path("/"))


@pytest.fixture
def server(spawn: Spawn, disk: Disk) -> Process:
    conf = ("appendonly yes", "appendfsync everysec", "hz 100")
    return spawn(*conf, environment=disk.environment).wait_until_answering()


class Face:
    """A saver of either colour behind awaitable verbs."""

    def __init__(self, saver: Any) -> None:
        self.saver = saver

    async def __call__(self, verb: str, *args: Any) -> Any:
        if isinstance(self.saver, AsyncRedisSaver):
            return await getattr(self.saver, f"a{verb}")(*args)
        return await anyio.to_thread.run_sync(partial(getattr(self.saver, verb), *args))


def patient(saver: Any) -> Any:
    """`saver`, which does not doubt a proof for the slowness of this machine."""
    saver.promise(saver.settings.ack).clock = patient_clock
    return saver


@asynccontextmanager
async def opened(kind: Any, server: Process) -> AsyncIterator[Face]:
    made = patient(kind(server.url, ack="fsync", settings=PATIENT))
    try:
        yield Face(made)
    finally:
        if isinstance(made, AsyncRedisSaver):
            await made.aclose()
        else:
            made.close()


def config(thread_id: str = "t") -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}


async def put(saver: Face, text: str, thread_id: str = "t") -> RunnableConfig:
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"text": text}
    checkpoint["channel_versions"] = {"text": "0000001.aaaaaa"}
    stored: RunnableConfig = await saver("put", config(thread_id), checkpoint, {}, {"text": "0000001.aaaaaa"})
    return stored


async def test_every_write_is_on_disk_when_the_call_returns(server: Process, disk: Disk) -> None:
    async def write_everything(kind: Any) -> None:
        name = kind.__name__
        async with opened(kind, server) as saver:
            stored = await put(saver, f"{name}-text-of-the-checkpoint", name)
            assert disk.on_disk(server.folder, f"{name}-text-of-the-checkpoint".encode())
            await saver("put_writes", stored, [("text", f"{name}-text-of-the-write")], "task")
            assert disk.on_disk(server.folder, f"{name}-text-of-the-write".encode())
            # The same again changes nothing at the server, and is proved all the same.
            await saver("put_writes", stored, [("text", f"{name}-text-of-the-write")], "task")
            await saver("copy_thread", name, f"{name}-copied")
            assert disk.on_disk(server.folder, f"{name}-copied".encode())
            await saver("delete_thread", name)
            assert (await saver("get_tuple", config(name))) is None
            copied = await saver("get_tuple", config(f"{name}-copied"))
            assert copied.pending_writes == [("task", "text", f"{name}-text-of-the-write")]

    async with anyio.create_task_group() as together:  # each of many waits takes up to a second
        for kind in SAVERS:
            together.start_soon(write_everything, kind)


@pytest.mark.parametrize("kind", SAVERS)
async def test_reads_wait_for_nothing(kind: Any, server: Process) -> None:
    async with opened(kind, server) as saver:
        await put(saver, "text")
        with server.client() as client:
            before = client.info("commandstats")["cmdstat_waitaof"]["calls"]
            assert (await saver("get_tuple", config())).checkpoint["channel_values"] == {"text": "text"}
            assert client.info("commandstats")["cmdstat_waitaof"]["calls"] == before


async def test_a_write_that_is_not_proved_raises_and_can_be_read(server: Process, disk: Disk) -> None:
    async with AsyncRedisSaver.from_conn_string(
        server.url, ack="fsync", settings=Checkpoint(ack_timeout_ms=300)
    ) as made:
        saver = Face(made)
        disk.order(delay_ms=600_000)  # until the server is killed
        with pytest.raises(NotDurableError, match="executed and is readable"):
            await put(saver, "text")
        assert (await saver("get_tuple", config())).checkpoint["channel_values"] == {"text": "text"}


async def test_memory_is_the_default_and_sends_nothing_more(server: Process) -> None:
    async with AsyncRedisSaver.from_conn_string(server.url) as made:
        assert made.settings.ack == "memory"
        await put(Face(made), "text")
    with server.client() as client:
        assert not {"cmdstat_waitaof", "cmdstat_wait"} & client.info("commandstats").keys()
        assert not client.exists("rtmem:barrier")


@pytest.mark.parametrize("kind", SAVERS)
def test_an_ack_that_does_not_exist_is_refused(kind: Any) -> None:
    with pytest.raises(ConfigError, match="memory, fsync, replica"):
        kind("redis://localhost", ack="disk")
    with pytest.raises(ConfigError, match="1 or more"):
        kind("redis://localhost", ack="replica", replicas=0)


def test_settings_and_argument_say_the_same() -> None:
    saver = RedisSaver("redis://localhost", settings=Checkpoint(ack="replica", ack_replicas=2))
    assert (saver.promise("replica").replicas, saver.settings.ack) == (2, "replica")
    saver = RedisSaver("redis://localhost", ack="replica", replicas=3)
    assert (saver.promise(saver.settings.ack).replicas, saver.settings.ack) == (3, "replica")


class Counting(TypedDict):
    done: Annotated[list[str], operator.add]


def three_steps() -> StateGraph[Any]:
    builder = StateGraph(Counting)
    for number in range(3):
        builder.add_node(f"n{number}", lambda state, number=number: {"done": [f"step-{number}-done"]})
    builder.add_edge(START, "n0")
    builder.add_edge("n0", "n1")
    builder.add_edge("n1", "n2")
    builder.add_edge("n2", END)
    return builder


async def test_langgraphs_durability_decides_when_and_ack_how_durable(server: Process, disk: Disk) -> None:
    kept: dict[Durability, int] = {}

    async def run(durability: Durability) -> None:
        thread = config(durability)
        async with AsyncRedisSaver.from_conn_string(server.url, ack="fsync", settings=PATIENT) as saver:
            graph = three_steps().compile(checkpointer=patient(saver))
            await graph.ainvoke({"done": [durability]}, thread, durability=durability)
            newest = await saver.aget_tuple(thread)
            assert newest is not None
            assert disk.on_disk(server.folder, newest.checkpoint["id"].encode())
            kept[durability] = len([found async for found in saver.alist(thread)])

    async with anyio.create_task_group() as together:
        for durability in DURABILITIES:
            together.start_soon(run, durability)
    assert kept == {"sync": 5, "async": 5, "exit": 1}


@pytest.mark.parametrize("ack", ["replica"])
async def test_a_replica_has_the_checkpoint_when_the_call_returns(ack: Ack, spawn: Spawn) -> None:
    conf = ("appendonly yes", "repl-diskless-sync-delay 0")
    master = spawn(*conf).wait_until_answering()
    replica = spawn(*conf, f"replicaof 127.0.0.1 {master.port}").wait_until_answering()
    async with AsyncRedisSaver.from_conn_string(master.url, ack=ack, settings=PATIENT) as saver:
        await put(Face(patient(saver)), "text")
    master.kill()
    with replica.client() as client:
        client.replicaof("NO", "ONE")
    async with AsyncRedisSaver.from_conn_string(replica.url) as saver:
        assert (await saver.aget_tuple(config())).checkpoint["channel_values"] == {"text": "text"}  # type: ignore[union-attr]
