"""The unmodified Python SDK against a real socket: what issue 2 promises of the gateway."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Literal

import anyio
import httpx
import pytest
from langgraph_sdk import get_client, get_sync_client
from langgraph_sdk.errors import AuthenticationError

from tests.gateway.conftest import Served, ServeGateway
from tests.gateway.graphs import approval, chat, nested
from tests.gateway.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.anyio


def said(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


async def tokens_of(thread: Any, gate: anyio.Event | None = None) -> list[list[str]]:
    """The tokens of each message of the run at work, which may wait for `gate` until one was heard.

    The SDK opens streams when they are first read. One that is opened after the end of the run hears nothing of it if
    another one of the same client has heard that end, as it should be.

    A task for each message: iterating `message.text` inside `async for message in thread.messages` starves the SDK's
    own pump, and both wait for ever.
    """
    messages: list[list[str]] = []

    async def collect(message: Any, into: list[str]) -> None:
        async for token in message.text:
            into.append(token)
            if gate is not None:
                gate.set()

    async with anyio.create_task_group() as tasks:
        async for message in thread.messages:
            messages.append([])
            tasks.start_soon(collect, message, messages[-1])
    return messages


Transport = Literal["websocket", "sse"]
BOTH = pytest.mark.parametrize("transport", ["websocket", "sse"])


@BOTH
async def test_a_run_streams_its_message_token_by_token(serve_gateway: ServeGateway, transport: Transport) -> None:
    gate = anyio.Event()
    async with serve_gateway(graphs={"gated": chat(words_max=0, gate=gate)}) as served:
        async with get_client(url=served.url, api_key="token-of-alice") as client:
            async with client.threads.stream("t", assistant_id="gated", transport=transport) as thread:
                await thread.run.start(input=said("hello 8"))
                (tokens,) = await tokens_of(thread, gate)
                output = await thread.output
        assert tokens == ["You said hello 8:", *(f" word{n}" for n in range(8))]
        assert output["messages"][-1]["content"][0]["text"] == "".join(tokens)


def text_of(message: Any) -> str:
    """Stored content is a string or a list of blocks, as LangChain made it."""
    content = message["content"]
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


@pytest.mark.parametrize("assistant", ["chat", "slow"])
async def test_several_turns_on_one_stream_each_end_with_their_own_output(
    serve_gateway: ServeGateway, assistant: str
) -> None:
    async with serve_gateway() as served:
        async with get_client(url=served.url, api_key="token-of-alice") as client:
            for number in range(5):
                # A new stream object on the same thread: an old `completed` must not end its first run.
                async with client.threads.stream("t", assistant_id=assistant, transport="websocket") as thread:
                    await thread.run.start(input=said(f"turn {number}"))
                    output = await thread.output
                assert len(output["messages"]) == 2 * (number + 1)
                assert text_of(output["messages"][-2]) == f"turn {number}"


@BOTH
async def test_a_run_that_ends_before_its_client_listens_is_heard(
    serve_gateway: ServeGateway, transport: Transport
) -> None:
    async with serve_gateway() as served:
        async with get_client(url=served.url, api_key="token-of-alice") as client:
            # Without a thread id the SDK opens its first stream after run.start has been answered.
            async with client.threads.stream(assistant_id="chat", transport=transport) as thread:
                await thread.run.start(input=said("quick"))
                await served_idle(served, thread.thread_id)
                output = await thread.output.with_timeout(PATIENCE_S)
                assert [tokens[0] for tokens in await tokens_of(thread)] == ["You said quick:"]
        assert text_of(output["messages"][-1]).startswith("You said quick")


async def served_idle(served: Served, thread_id: str) -> None:
    """Waits until the gateway has nothing more to do on a thread."""
    thread = served.gateway.threads.get("alice", thread_id)
    await eventually(lambda: thread.run is None)


@BOTH
async def test_values_are_told_after_each_step_and_end_in_the_stored_state(
    serve_gateway: ServeGateway, transport: Transport
) -> None:
    gate = anyio.Event()
    async with serve_gateway(graphs={"gated": chat(words_max=0, gate=gate)}) as served:
        async with get_client(url=served.url, api_key="token-of-alice") as client:
            async with client.threads.stream("t", assistant_id="gated", transport=transport) as thread:
                await thread.run.start(input=said("hello 2"))
                snapshots = []
                async for snapshot in thread.values:
                    snapshots.append(snapshot)
                    gate.set()
            state = await client.threads.get_state("t")
        graph = served.gateway.runs._graph("alice", "gated")
        stored = await graph.aget_state({"configurable": {"thread_id": "t"}})
        messages = [message.model_dump() for message in stored.values["messages"]]
        assert state["values"]["messages"] == snapshots[-1]["messages"] == messages
        assert [len(snapshot["messages"]) for snapshot in snapshots[-2:]] == [1, 2]
        assert state["next"] == []
        assert state["checkpoint"]["checkpoint_id"] == stored.config["configurable"]["checkpoint_id"]
        assert state["metadata"]["assistant_id"] == "gated"


@BOTH
async def test_an_interrupt_is_asked_answered_and_resumed(serve_gateway: ServeGateway, transport: Transport) -> None:
    async with serve_gateway() as served:
        async with get_client(url=served.url, api_key="token-of-alice") as client:
            async with client.threads.stream("t", assistant_id="approval", transport=transport) as thread:
                await thread.run.start(input=said("do it"))
                await eventually(lambda: thread.interrupted)
                assert thread.interrupts[0]["value"] == {"question": "really?"}
                state = await client.threads.get_state("t")
                assert state["next"] == ["ask"]
                assert state["tasks"][0]["interrupts"][0]["value"] == {"question": "really?"}
                await thread.run.respond({"approved": True})
                output = await thread.output
        assert output["messages"][-1]["content"] == "told {'approved': True}"


@BOTH
async def test_a_new_client_of_a_waiting_thread_is_asked_again(
    serve_gateway: ServeGateway, transport: Transport
) -> None:
    async with serve_gateway() as served:
        async with get_client(url=served.url, api_key="token-of-alice") as client:
            async with client.threads.stream("t", assistant_id="approval", transport=transport) as thread:
                await thread.run.start(input=said("do it"))
                await served_idle(served, "t")
            async with client.threads.stream("t", assistant_id="approval", transport=transport) as thread:
                await eventually(lambda: thread.interrupted)
                await thread.run.respond("yes")
                output = await thread.output
        assert output["messages"][-1]["content"] == "told yes"


async def test_a_failing_graph_fails_the_output_with_its_error(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served:
        async with get_client(url=served.url, api_key="token-of-alice") as client:
            async with client.threads.stream("t", assistant_id="failing", transport="websocket") as thread:
                await thread.run.start(input={"done": []})
                with pytest.raises(RuntimeError, match="RuntimeError: the second step broke"):
                    await thread.output
            state = await client.threads.get_state("t")
        assert state["values"] == {"done": [1]}
        assert state["next"] == ["second"]
        assert [task["error"] for task in state["tasks"]] == ["RuntimeError('the second step broke')"]


@BOTH
async def test_subgraphs_are_discovered_with_their_messages(serve_gateway: ServeGateway, transport: Transport) -> None:
    gate = anyio.Event()
    async with serve_gateway(graphs={"nested": nested(chat(words_max=0, gate=gate))}) as served:
        async with get_client(url=served.url, api_key="token-of-alice") as client:
            async with client.threads.stream("t", assistant_id="nested", transport=transport) as thread:
                await thread.run.start(input=said("deep"))
                children = []
                async for child in thread.subgraphs:
                    children.append(child)
                    gate.set()
                assert [child.graph_name for child in children] == ["child"]
                assert children[0].status == "completed"


async def test_custom_events_reach_their_extension(serve_gateway: ServeGateway) -> None:
    gate = anyio.Event()
    async with serve_gateway(graphs={"approval": approval(gate)}) as served:
        async with get_client(url=served.url, api_key="token-of-alice") as client:
            async with client.threads.stream("t", assistant_id="approval", transport="websocket") as thread:
                await thread.run.start(input=said("do it"))
                await eventually(lambda: thread.interrupted)
                await thread.run.respond("yes")
                events = []
                async for event in thread.subscribe(["custom:progress"]):
                    events.append(event)
                    gate.set()
        assert [event["params"]["data"]["payload"]["done"] for event in events] == [True]


async def test_an_unknown_assistant_is_a_typed_error_with_the_known_ones(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served:
        async with get_client(url=served.url, api_key="token-of-alice") as client:
            async with client.threads.stream("t", assistant_id="nobody", transport="websocket") as thread:
                with pytest.raises(RuntimeError, match=r"invalid_argument.*no assistant 'nobody'.*chat"):
                    await thread.run.start(input=said("hello"))


async def test_a_second_run_on_a_busy_thread_is_refused(serve_gateway: ServeGateway) -> None:
    gate = anyio.Event()
    async with serve_gateway(graphs={"gated": chat(words_max=2, gate=gate)}) as served:
        async with get_client(url=served.url, api_key="token-of-alice") as client:
            async with client.threads.stream("t", assistant_id="gated", transport="websocket") as thread:
                await thread.run.start(input=said("hello 8"))
                with pytest.raises(RuntimeError, match="busy with run"):
                    await thread.run.start(input=said("me too"))
                gate.set()
                output = await thread.output
        assert len(output["messages"]) == 2


async def test_a_wrong_token_is_refused_for_good(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served:
        async with get_client(url=served.url, api_key="not-a-token") as client:
            async with client.threads.stream("t", assistant_id="chat", transport="websocket") as thread:
                with pytest.raises(httpx.HTTPStatusError, match="401"):
                    await thread.run.start(input=said("hello"))
                with pytest.raises(AuthenticationError, match="not known here"):
                    await thread.output


async def test_a_client_may_pass_its_token_as_a_header_of_the_stream(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served:
        async with get_client(url=served.url, api_key=None) as client:
            stream = client.threads.stream("t", assistant_id="chat", headers=served.auth, transport="websocket")
            async with stream as thread:
                await thread.run.start(input=said("hello"))
                assert len((await thread.output)["messages"]) == 2


async def test_the_sync_sdk_holds_a_conversation(serve_gateway: ServeGateway) -> None:
    def converse(url: str) -> list[int]:
        lengths = []
        with get_sync_client(url=url, api_key="token-of-alice") as client:
            for number in range(3):
                with client.threads.stream("t", assistant_id="chat", transport="websocket") as thread:
                    thread.run.start(input=said(f"turn {number}"))
                    lengths.append(len(thread.output["messages"]))
        return lengths

    async with serve_gateway() as served:
        assert await anyio.to_thread.run_sync(converse, served.url) == [2, 4, 6]


async def test_threads_and_assistants_can_be_asked_for(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served:
        async with get_client(url=served.url, api_key="token-of-alice") as client:
            created = await client.threads.create(thread_id="t")
            assert (created["thread_id"], created["status"]) == ("t", "idle")
            assert len((await client.threads.create())["thread_id"]) == 36
            assistants = await client.assistants.search()
            assert "chat" in [assistant["assistant_id"] for assistant in assistants]
            assert (await client.assistants.get("chat"))["graph_id"] == "chat"
            assert (await client.threads.get_state("never-used"))["values"] == {}


async def test_what_the_sdk_offers_and_this_gateway_does_not_is_refused_with_what_is_served(
    serve_gateway: ServeGateway,
) -> None:
    async with serve_gateway() as served:
        async with get_client(url=served.url, api_key="token-of-alice") as client:
            calls: tuple[Awaitable[Any], ...] = (
                client.threads.search(),
                client.threads.update_state("t", {"messages": []}),
                client.threads.delete("t"),
                client.threads.get_history("t"),
                client.runs.wait("t", "chat", input=said("hello")),
                client.store.get_item(["a"], "b"),
            )
            for call in calls:
                with pytest.raises(httpx.HTTPStatusError) as refused:
                    await call
                assert refused.value.response.status_code in (404, 405)
                assert "is not served here: use GET /ok, " in refused.value.response.json()["message"]
