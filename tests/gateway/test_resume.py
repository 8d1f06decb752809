"""A client that comes back receives what it missed, once and in order, or is told that it cannot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anyio
import msgspec
import pytest
import redis
from langgraph_sdk import get_client
from websockets.exceptions import ConnectionClosedError

from rtmem.keys import Keys
from rtmem.records import LOG_LAYOUT
from rtmem.settings import Gateway, Redis, Settings
from tests.gateway.conftest import TOKENS, ServeGateway
from tests.gateway.graphs import chat
from tests.gateway.process import GatewayProcess
from tests.gateway.raw import RawClient, raw_client, seqs_of, text_in
from tests.gateway.relay import relay_to
from tests.gateway.test_python_sdk import said, tokens_of
from tests.gateway.waiting import eventually

pytestmark = pytest.mark.anyio

LOG_KEY = Keys().thread("alice", "t").event_log


@pytest.fixture
def gateway_process(redis_url: str, redis_client: redis.Redis) -> Iterator[GatewayProcess]:
    gateway = Gateway(port=0, tokens=TOKENS, log_flush_ms=5, drain_timeout_ms=60_000)
    process = GatewayProcess(Settings(redis=Redis(url=redis_url), gateway=gateway))
    process.start()
    try:
        yield process
    finally:
        process.kill()


async def receive_tokens(client: RawClient, count: int) -> None:
    """Receive until the deltas seen are at least `count`."""
    while text_in(client.events).count("word") < count:
        await client.receive()


def words(count: int) -> str:
    return f"You said hello {count}:" + "".join(f" word{number}" for number in range(count))


async def test_a_socket_dropped_in_mid_answer_resumes_without_loss_or_repetition(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served, raw_client(served.ws_url) as witness:
        await witness.subscribe()
        received: list[dict[str, Any]] = []
        async with raw_client(served.ws_url) as client:
            await client.subscribe()
            await client.start("slow", "hello 20")
            await receive_tokens(client, 5)
            received += client.events
            client.socket.transport.abort()
        async with raw_client(served.ws_url) as client:
            await client.subscribe(since=received[-1]["seq"])
            await client.until_end()
            received += client.events
        await witness.until_end()
    assert [event["event_id"] for event in received] == [event["event_id"] for event in witness.events]
    assert received == witness.events
    assert seqs_of(received) == sorted(set(seqs_of(received)))
    assert text_in(received) == words(20)


async def test_reconnecting_at_every_seq_gives_the_rest(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served:
        async with raw_client(served.ws_url) as client:
            await client.subscribe()
            await client.start("chat", "hello 5")
            await client.until_end()
            everything = client.events
        for position, event in enumerate(everything[:-1]):
            async with raw_client(served.ws_url) as client:
                await client.subscribe(since=event["seq"])
                await client.until_end()
                assert client.events == everything[position + 1 :]


@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_the_python_sdk_streams_on_over_a_cut_connection(serve_gateway: ServeGateway, transport: Any) -> None:
    gate = anyio.Event()
    gated = chat(0.02, words_max=0, gate=gate)
    async with serve_gateway(graphs={"gated": gated}) as served, relay_to(served.url) as relay:
        async with get_client(url=relay.url, api_key="token-of-alice") as client:
            async with client.threads.stream("t", assistant_id="gated", transport=transport) as thread:
                relay.cut_after(b" word5", b" word15")
                await thread.run.start(input=said("hello 30"))
                (tokens,) = await tokens_of(thread, gate)
                output = await thread.output
    assert relay.cuts == 2
    assert "".join(tokens) == words(30)
    assert len(output["messages"]) == 2


async def test_kill_9_of_the_gateway_loses_no_logged_event_and_tells_that_the_run_was_cut_off(
    gateway_process: GatewayProcess, redis_client: redis.Redis
) -> None:
    async with raw_client(gateway_process.ws_url) as client, raw_client(gateway_process.ws_url) as behind:
        await client.subscribe()
        await behind.subscribe()
        await client.start("held", "hello 200")
        await receive_tokens(behind, 3)
        await receive_tokens(client, 20)
        gateway_process.kill()
    seen = client.events
    gateway_process.start()
    async with raw_client(gateway_process.ws_url) as client, raw_client(gateway_process.ws_url) as late:
        await client.subscribe(since=seen[-1]["seq"])
        end = await client.until_end()
        assert end["event"] == "failed"
        assert "was cut off: its gateway stopped" in end["error"]
        assert end["resumable"] is True
        # What one client has seen and what the log gives to another are the same events.
        await late.subscribe(since=behind.events[-1]["seq"])
        await late.until_end()
        assert behind.events + late.events == seen + client.events
        seqs = seqs_of(seen + client.events)
        assert seqs == sorted(set(seqs))
        # The thread is free, and goes on from its last step without being told what to do.
        client.forget()
        await client.ask("run.start", assistant_id="chat", input=None)
        assert (await client.until_end())["event"] == "completed"
        assert min(seqs_of(client.events)) > max(seqs)
        values = (await client.ask("state.get"))["result"]["values"]
        assert [message["type"] for message in values["messages"]] == ["human", "ai"]


async def test_a_question_survives_kill_9_and_is_answered_at_the_next_gateway(gateway_process: GatewayProcess) -> None:
    async with raw_client(gateway_process.ws_url) as client:
        await client.subscribe()
        await client.start("approval", "do it")
        assert (await client.until_end())["event"] == "interrupted"
    gateway_process.kill()
    gateway_process.start()
    async with raw_client(gateway_process.ws_url) as client:
        await client.subscribe()
        assert (await client.until_end())["event"] == "interrupted"
        (asked,) = [event for event in client.events if event["method"] == "input.requested"]
        assert asked["params"]["data"]["payload"] == {"question": "really?"}
        client.forget()
        interrupt_id = asked["params"]["data"]["interrupt_id"]
        await client.ask("input.respond", namespace=[], interrupt_id=interrupt_id, response="yes")
        assert (await client.until_end())["event"] == "completed"
        assert text_in(client.events) == "told yes"
        again = await client.ask("input.respond", namespace=[], interrupt_id=interrupt_id, response="yes")
        assert again["error"] == "no_such_interrupt"


async def test_seqs_rise_over_runs_and_restarts_even_when_the_log_has_gone(
    gateway_process: GatewayProcess, redis_client: redis.Redis
) -> None:
    seqs: list[int] = []
    for lost in (False, True):
        async with raw_client(gateway_process.ws_url) as client:
            await client.subscribe()
            for _ in range(2):
                client.forget()
                await client.start("chat", "hello")
                await client.until_end()
                seqs += seqs_of(client.events)
        gateway_process.kill()
        if lost:
            redis_client.delete(LOG_KEY)
        gateway_process.start()
    assert seqs == sorted(set(seqs))


async def test_without_since_an_idle_thread_replays_nothing_and_a_running_one_its_run(
    serve_gateway: ServeGateway,
) -> None:
    async with serve_gateway() as served, raw_client(served.ws_url) as first:
        await first.subscribe()
        await first.start("chat", "old")
        await first.until_end()
        first.forget()
        async with raw_client(served.ws_url) as client:
            await client.subscribe()
            await first.start("slow", "hello 10")
            await receive_tokens(first, 4)
            async with raw_client(served.ws_url) as late:
                await late.subscribe()
                await late.until_end()
            await client.until_end()
            await first.until_end()
        assert client.events == late.events == first.events
        assert "old" not in text_in(client.events)


async def test_a_client_that_reconnects_without_since_gets_the_run_that_ended_meanwhile(
    serve_gateway: ServeGateway,
) -> None:
    async with serve_gateway() as served, raw_client(served.ws_url) as first:
        await first.subscribe()
        await first.start("chat", "hello")
        await first.until_end()
        async with raw_client(served.ws_url) as again:
            again._commands = 4  # the JavaScript SDK keeps counting on its new socket
            await again.subscribe()
            await again.until_end()
        assert again.events == first.events


async def test_a_run_that_ended_unheard_is_replayed_to_the_first_who_asks(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served:
        async with get_client(url=served.url, api_key="token-of-alice") as http:
            command = {"assistant_id": "chat", "input": said("hello 1")}
            await http.http.post("/threads/t/commands", json={"id": 1, "method": "run.start", "params": command})
        thread = served.gateway.threads.get("alice", "t")
        await eventually(lambda: thread.run is None)
        async with raw_client(served.ws_url) as late:
            await late.subscribe()
            assert (await late.until_end())["event"] == "completed"
            assert text_in(late.events) == words(1)
            # Another turn, heard by `late`: it is nobody else's business any more.
            late.forget()
            await late.start("chat", "hello 2")
            await late.until_end()
        async with raw_client(served.ws_url) as later:
            await later.subscribe()
            await later.ask("state.get")
            assert later.events == []


async def test_a_trimmed_log_is_told_with_the_state_that_it_led_to(
    serve_gateway: ServeGateway, redis_client: redis.Redis
) -> None:
    async with serve_gateway() as served:
        async with raw_client(served.ws_url) as client:
            await client.subscribe()
            await client.start("slow", "hello 10")
            await client.until_end()
            everything = client.events
        redis_client.xtrim(LOG_KEY, maxlen=2, approximate=False)
        async with raw_client(served.ws_url) as client:
            await client.subscribe(since=everything[3]["seq"])
            assert (await client.until_end())["event"] == "completed"
        gap, values, *rest = client.events
        assert gap["params"]["data"]["name"] == "rtmem.replay_gap"
        assert gap["params"]["data"]["payload"]["since"] == everything[3]["seq"]
        assert len(values["params"]["data"]["messages"]) == 2
        assert rest == everything[-len(rest) :]
        assert seqs_of(client.events) == sorted(seqs_of(client.events))


@pytest.mark.parametrize(
    ("assistant", "told"), [("chat", "completed"), ("approval", "interrupted"), ("failing", "failed")]
)
async def test_a_lost_log_is_told_with_how_the_run_ended(
    serve_gateway: ServeGateway, redis_client: redis.Redis, assistant: str, told: str
) -> None:
    async with serve_gateway() as served:
        async with raw_client(served.ws_url) as client:
            await client.subscribe()
            await client.ask("run.start", assistant_id=assistant, input=said("hello") | {"done": []})
            await client.until_end()
            seen = client.events
        redis_client.delete(LOG_KEY)
        async with raw_client(served.ws_url) as client:
            await client.subscribe(since=seen[2]["seq"])
            end = await client.until_end()
            assert (end["event"], end.get("resumable")) == (told, False if told == "failed" else None)
            assert client.events[0]["params"]["data"]["name"] == "rtmem.replay_gap"
            assert ("input.requested" in [event["method"] for event in client.events]) == (told == "interrupted")


async def test_a_redis_that_came_back_without_its_last_writes_is_noticed(
    gateway_process: GatewayProcess, redis_client: redis.Redis
) -> None:
    async with raw_client(gateway_process.ws_url) as client:
        await client.subscribe()
        await client.start("chat", "hello")
        await client.until_end()
        seen = client.events
    gateway_process.kill()
    # A stream whose tail is gone is what a server without fsync leaves behind; XSETID takes the id back with it.
    entries = redis_client.xrange(LOG_KEY)
    redis_client.delete(LOG_KEY)
    redis_client.xadd(LOG_KEY, entries[0][1], id=entries[0][0])
    gateway_process.start()
    async with raw_client(gateway_process.ws_url) as client:
        await client.subscribe(since=seen[-1]["seq"])
        await eventually_gap(client)
        await client.start("chat", "hello again")
        while "You said hello again" not in text_in(client.events):
            await client.receive()
        new = [event for event in client.events if event["seq"] > seen[-1]["seq"]]
    assert not {event["seq"] for event in new} & {event["seq"] for event in seen}


async def eventually_gap(client: RawClient) -> None:
    while not any("rtmem.replay_gap" in json.dumps(event) for event in client.events):
        await client.receive()


async def test_a_large_state_is_not_logged_and_its_replay_holds_the_current_one(
    serve_gateway: ServeGateway, redis_client: redis.Redis
) -> None:
    async with serve_gateway(log_values_bytes_max=1_000) as served:
        async with raw_client(served.ws_url) as client:
            await client.subscribe()
            for text in ("x" * 2_000 + " 1", "y 1"):
                await client.start("slow", text)
                await client.until_end()
                seen, client.events = client.events, []
        async with raw_client(served.ws_url) as again:
            await again.subscribe(since=0)
            while again.events[-1:] != seen[-1:]:
                await again.receive()
            state = (await again.ask("state.get"))["result"]["values"]
    replayed = [event for event in again.events if event["method"] == "values"]
    assert [event["params"]["data"] for event in replayed] == [state] * len(replayed)
    assert [event["event_id"] for event in again.events[-len(seen) :]] == [event["event_id"] for event in seen]
    logged = b"".join(fields[b"g"] for _, fields in redis_client.xrange(LOG_KEY))
    assert logged.count(b"x" * 2_000) <= 4  # its own message and updates, not the state of every step
    # Live, the state of each step was told as it was.
    assert [len(event["params"]["data"]["messages"]) for event in seen if event["method"] == "values"] == [3, 4]


async def test_a_run_goes_on_when_everybody_has_left(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served:
        async with raw_client(served.ws_url) as client:
            await client.subscribe()
            await client.start("slow", "hello 10")
            await receive_tokens(client, 2)
        thread = served.gateway.threads.get("alice", "t")
        await eventually(lambda: thread.run is None)
        async with raw_client(served.ws_url) as client:
            await client.subscribe(since=0)
            assert (await client.until_end())["event"] == "completed"
            assert text_in(client.events) == words(10)


@pytest.mark.parametrize(
    ("stored", "error_type"),
    [(b"\xc1", "CorruptRecordError"), (msgspec.msgpack.encode([LOG_LAYOUT + 1]), "NewerLayoutError")],
)
async def test_a_log_that_cannot_be_read_is_told_and_not_asked_for_again(
    serve_gateway: ServeGateway, redis_client: redis.Redis, stored: bytes, error_type: str
) -> None:
    async with serve_gateway() as served, raw_client(served.ws_url) as client:
        redis_client.xadd(LOG_KEY, {"g": stored}, id="5-0")
        refused = await client.ask("subscription.subscribe", channels=["lifecycle"])
        assert refused["meta"]["error_type"] == error_type
        with pytest.raises(ConnectionClosedError, match="4409"):
            await client.receive_for_ever()
        assert client.replies[None]["meta"]["error_type"] == error_type  # what the Python SDK reads
