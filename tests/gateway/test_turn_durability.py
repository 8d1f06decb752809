"""Turns that are on disk before their end is told; and turns that could not be proved, which say so."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from rtmem.settings import Cache, Checkpoint, Redis
from tests.conftest import ServerFactory
from tests.crash.faults import Disk
from tests.drivers.processes import Process, Spawn, spawning
from tests.gateway.cached import Counted
from tests.gateway.conftest import ServeGateway
from tests.gateway.graphs import chat
from tests.gateway.raw import RawClient, raw_client
from tests.gateway.waiting import eventually

pytestmark = pytest.mark.anyio

NEVER_MS = 600_000  # an fsync that is still at work when the server is killed


@pytest.fixture
def spawn() -> Any:
    with spawning() as spawn:
        yield spawn


@pytest.fixture
def disk(shim: Path, tmp_path: Path) -> Disk:
    return Disk(shim, tmp_path, Path("/"))


@pytest.fixture
def server(spawn: Spawn, disk: Disk) -> Process:
    conf = ("appendonly yes", "appendfsync everysec", "hz 100")
    return spawn(*conf, environment=disk.environment).wait_until_answering()


async def turn(client: RawClient, text: str, assistant_id: str = "chat", **params: Any) -> dict[str, Any]:
    """The end of one turn; `params` are those of run.start."""
    client.forget()
    question = {"messages": [{"role": "user", "content": text}]}
    reply = await client.ask("run.start", assistant_id=assistant_id, input=question, **params)
    assert reply["type"] == "success", reply
    return await client.until_end()


def doubted(end: dict[str, Any]) -> bool:
    """Was the machine so slow that a failed fsync could have been missed? Then the gateway rightly proves nothing."""
    return "so slow that a failure would not have been noticed" in end.get("durability_error", "")


async def undoubted_turn(client: RawClient, text: str, assistant_id: str = "chat", **params: Any) -> dict[str, Any]:
    """Like `turn`, once more as long as nothing could be told for sure."""
    while doubted(end := await turn(client, text, assistant_id, **params)):
        pass
    return end


async def test_a_turn_out_of_the_cache_is_on_disk_before_its_end_is_told(
    serve_gateway: ServeGateway, server: Process, disk: Disk
) -> None:
    counted = Counted(conversation="last_turn")
    patient = {"cache": Cache(lookup_deadline_ms=60_000, update_deadline_ms=60_000)}
    async with serve_gateway(
        url=server.url, graphs={"chat": counted.graph}, sections=patient, turn_durability="fsync"
    ) as served:
        await served.gateway.caches.awake.wait()
        for thread in ("live", "hit"):
            async with raw_client(served.ws_url, thread) as client:
                await client.subscribe()
                end = await undoubted_turn(client, "hello")
                await eventually(lambda: not served.gateway.runs.at_work)
                assert (end["event"], end["durability"]) == ("completed", "fsync")
                assert disk.on_disk(server.folder, checkpoint_bytes(end))
    assert counted.asked == ["hello"]


@pytest.mark.parametrize("assistant_id", ["chat", "approval", "nested"])
async def test_a_turn_is_on_disk_before_its_end_is_told(
    assistant_id: str, serve_gateway: ServeGateway, server: Process, disk: Disk
) -> None:
    async with serve_gateway(url=server.url, turn_durability="fsync") as served, raw_client(served.ws_url) as client:
        await client.subscribe()
        end = await undoubted_turn(client, "hello 3", assistant_id)
        assert end["event"] == ("interrupted" if assistant_id == "approval" else "completed")
        assert end["durability"] == "fsync"
        assert disk.on_disk(server.folder, checkpoint_bytes(end))
        if assistant_id == "approval":
            # The question is a pending write: it has to survive like the checkpoint that it belongs to.
            assert disk.on_disk(server.folder, b"really?")
            asked = next(event for event in client.events if event["method"] == "input.requested")
            client.forget()
            answer = {"interrupt_id": asked["params"]["data"]["interrupt_id"], "response": "yes"}
            await client.ask("input.respond", **answer)
            end = await client.until_end()
            assert end["durability"] == "fsync" or doubted(end)


def checkpoint_bytes(end: dict[str, Any]) -> bytes:
    """How the id of the last checkpoint is stored."""
    return str(end["checkpoint"]["id"]).encode()


async def test_without_it_a_turn_ends_before_it_is_on_disk(
    serve_gateway: ServeGateway, server: Process, disk: Disk
) -> None:
    disk.order(delay_ms=NEVER_MS)
    async with serve_gateway(url=server.url) as served, raw_client(served.ws_url) as client:
        await client.subscribe()
        await turn(client, "first 1")
        end = await turn(client, "hello 3")
        assert "durability" not in end
        assert not disk.on_disk(server.folder, checkpoint_bytes(end))


@pytest.mark.parametrize(
    "params", [{"config": {"configurable": {"rtmem_ack": "fsync"}}}, {"metadata": {"rtmem_ack": "fsync"}}]
)
async def test_a_run_may_ask_for_more(
    params: dict[str, Any], serve_gateway: ServeGateway, server: Process, disk: Disk
) -> None:
    async with serve_gateway(url=server.url) as served, raw_client(served.ws_url) as client:
        await client.subscribe()
        end = await undoubted_turn(client, "hello 3", **params)
        assert end["durability"] == "fsync"
        assert disk.on_disk(server.folder, checkpoint_bytes(end))


async def test_a_run_cannot_ask_for_less_or_for_nonsense(serve_gateway: ServeGateway, server: Process) -> None:
    async with serve_gateway(url=server.url, turn_durability="fsync") as served, raw_client(served.ws_url) as client:
        await client.subscribe()
        end = await undoubted_turn(client, "hello 3", metadata={"rtmem_ack": "memory"})
        assert end["durability"] == "fsync"
        refused = await client.ask("run.start", assistant_id="chat", input=None, metadata={"rtmem_ack": "paper"})
        assert refused["error"] == "invalid_argument"
        assert "'paper'" in refused["message"]


async def test_a_turn_that_a_slow_disk_does_not_prove_says_so(
    serve_gateway: ServeGateway, server: Process, disk: Disk
) -> None:
    async with saver_with(server.url, ack_timeout_ms=300) as saver:
        async with (
            serve_gateway(url=server.url, saver=saver, turn_durability="fsync") as served,
            raw_client(served.ws_url) as client,
        ):
            await client.subscribe()
            disk.order(delay_ms=NEVER_MS)
            await turn(client, "first 1")
            end = await turn(client, "hello 3")
            assert end["event"] == "completed"
            assert end["durability"] == "memory"
            assert "NotDurableError" in end["durability_error"]
            messages = (await client.ask("state.get"))["result"]["values"]["messages"]
            assert len(messages) == 4  # stored and readable all the same


async def test_an_fsync_that_fails_in_the_middle_of_a_turn_is_told_at_its_end(
    serve_gateway: ServeGateway, server: Process, disk: Disk
) -> None:
    gate = anyio.Event()
    graphs = {"chat": chat(), "gated": chat(words_max=2, gate=gate)}
    async with (
        serve_gateway(url=server.url, graphs=graphs, turn_durability="fsync") as served,
        raw_client(served.ws_url) as client,
    ):
        await client.subscribe()
        await turn(client, "first 1")
        client.forget()
        question = {"messages": [{"role": "user", "content": "hello 5"}]}
        await client.ask("run.start", assistant_id="gated", input=question)
        disk.fail_once()
        await eventually(disk.struck)
        gate.set()
        end = await client.until_end()
        # Either a write was refused meanwhile, and the run has failed; or the proof knows of the failure.
        assert end["event"] == "failed" or end["durability"] == "memory"
        assert "error" in end or "fsync" in end["durability_error"]


async def test_a_redis_that_was_restarted_during_a_turn_proves_nothing(
    serve_gateway: ServeGateway, redis_server: ServerFactory
) -> None:
    server = redis_server(profile="balanced", modules=False)
    patient = Redis(retries_max=50)
    async with (
        serve_gateway(url=server.url, turn_durability="fsync", redis_settings=patient, log_flush_ms=2_000) as served,
        raw_client(served.ws_url) as client,
    ):
        await client.subscribe()
        await client.start("slow", "hello 60")
        os.kill(server.pid, signal.SIGKILL)
        await anyio.to_thread.run_sync(
            lambda: redis_server(data_dir=server.data_dir, profile="balanced", modules=False)
        )
        end = await client.until_end()
        assert end["event"] == "failed" or end["durability"] == "memory"


async def test_a_redis_that_can_prove_nothing_refuses_the_run_before_it_begins(
    serve_gateway: ServeGateway, redis_server: ServerFactory
) -> None:
    server = redis_server(profile="ephemeral", modules=False)
    async with (
        serve_gateway(url=server.url, turn_durability="fsync") as served,
        raw_client(served.ws_url) as client,
    ):
        refused = await client.start("chat", "hello 3")
        assert refused["type"] == "error"
        assert "CONFIG SET appendonly yes" in refused["message"]
        assert (await client.ask("state.get"))["result"]["values"] == {}


async def test_many_turns_share_their_waits(serve_gateway: ServeGateway, server: Process) -> None:
    ends: list[dict[str, Any]] = []
    async with serve_gateway(url=server.url, turn_durability="fsync") as served:

        async def talk(number: int) -> None:
            async with raw_client(served.ws_url, f"t{number}") as client:
                await client.subscribe()
                ends.append(await turn(client, "hello 3"))

        started = time.monotonic()
        async with anyio.create_task_group() as tasks:
            for number in range(16):
                tasks.start_soon(talk, number)
        elapsed_s = time.monotonic() - started
    assert [end for end in ends if end["durability"] != "fsync" and not doubted(end)] == []
    assert len(ends) == 16
    with server.client() as client:
        polls_alone = elapsed_s / 0.05 * 16
        assert client.info("commandstats")["cmdstat_waitaof"]["calls"] < 16 + polls_alone / 2


def saver_with(url: str, **settings: Any) -> Any:
    from rtmem.checkpoint import AsyncRedisSaver

    return AsyncRedisSaver.from_conn_string(url, settings=Checkpoint(**settings))
