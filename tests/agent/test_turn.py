"""A turn told in the protocol's words: what LangGraph's v3 stream says, and what it leaves out."""

from __future__ import annotations

import contextlib
import inspect
import json
import uuid
from typing import Any

import anyio
import pytest
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send

from rtmem.agent import turn
from rtmem.errors import ServerUnavailableError
from rtmem.records import TurnEvent
from tests.gateway import graphs
from tests.gateway.graphs import Graph, Parrot, approval, chat, failing, nested

pytestmark = pytest.mark.anyio

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "hello 3"}]}


async def told(graph: Graph, turn_input: Any = HELLO, config: RunnableConfig = CONFIG) -> list[TurnEvent]:
    events: list[TurnEvent] = []

    async def tell(event: TurnEvent) -> None:
        events.append(event)

    await turn.run(graph, turn_input, config, graph_name="g", tell=tell)
    return events


def of(events: list[TurnEvent], method: str, namespace: tuple[str, ...] | None = ()) -> list[Any]:
    return [event.data for event in events if event.method == method and namespace in (None, event.namespace)]


async def test_it_begins_with_running_and_ends_with_completed_at_the_last_checkpoint() -> None:
    graph = chat()
    events = await told(graph)
    state = await graph.aget_state(CONFIG)
    last = state.config["configurable"]["checkpoint_id"]
    assert events[0] == TurnEvent("lifecycle", {"event": "running", "graph_name": "g"})
    completed = {"event": "completed", "graph_name": "g", "checkpoint": {"id": last}}
    assert events[-1] == TurnEvent("lifecycle", completed)


async def test_a_message_streams_and_each_part_names_it() -> None:
    events = await told(chat())
    parts = of(events, "messages")
    assert [part["event"] for part in parts] == [
        "message-start",
        "content-block-start",
        *["content-block-delta"] * 4,
        "content-block-finish",
        "message-finish",
    ]
    assert "".join(part["delta"]["text"] for part in parts[2:6]) == "You said hello 3: word0 word1 word2"
    (message_id,) = {part["id"] for part in parts}
    (run_id,) = {part["run_id"] for part in parts}
    assert message_id
    assert run_id
    assert {event.node for event in events if event.method == "messages"} == {"answer"}
    assert parts[0]["metadata"]["langgraph_node"] == "answer"


async def test_two_models_that_speak_at_once_are_told_apart() -> None:
    model = Parrot(pause_s=0.001)

    async def speak(state: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [await model.ainvoke([("user", state["topic"])])]}

    builder = StateGraph(MessagesState)
    builder.add_node("speak", speak)
    builder.add_conditional_edges(START, lambda state: [Send("speak", {"topic": f"{name} 5"}) for name in "ab"])
    events = await told(builder.compile(checkpointer=InMemorySaver()))
    texts: dict[str, str] = {}
    for part in of(events, "messages"):
        if part["event"] == "content-block-delta":
            texts[part["id"]] = texts.get(part["id"], "") + part["delta"]["text"]
    words = "".join(f" word{number}" for number in range(5))
    assert sorted(texts.values()) == [f"You said a 5:{words}", f"You said b 5:{words}"]


async def test_a_nodes_own_message_arrives_whole_in_the_same_parts() -> None:
    graph = approval()
    await told(graph)
    parts = of(await told(graph, Command(resume="yes")), "messages")
    assert (parts[0]["event"], parts[-1]["event"]) == ("message-start", "message-finish")
    assert "".join(part["delta"]["text"] for part in parts if part["event"] == "content-block-delta") == "told yes"


async def returned(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage("You said hello 3: word0 word1 word2")]}


async def summed(state: MessagesState) -> dict[str, Any]:
    whole = AIMessageChunk(content="")
    async for chunk in Parrot().astream(state["messages"]):
        whole = whole + chunk
    return {"messages": [whole]}


async def made_of_chunks(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessageChunk(content="You said hello 3:") + AIMessageChunk(content=" word0 word1 word2")]}


async def invoked(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await Parrot().ainvoke(state["messages"])]}


async def streamed(state: MessagesState) -> dict[str, Any]:
    text = "".join([str(chunk.text) async for chunk in Parrot().astream(state["messages"])])
    return {"spoken": text}


def streamed_by_a_sync_node(state: MessagesState) -> dict[str, Any]:
    whole = AIMessageChunk(content="")
    for chunk in Parrot().stream(state["messages"]):
        whole = whole + chunk
    return {"messages": [whole]}


@pytest.mark.parametrize(
    ("node", "deltas"),
    [(returned, 1), (summed, 1), (made_of_chunks, 1), (invoked, 4), (streamed, 1), (streamed_by_a_sync_node, 1)],
)
async def test_however_a_node_makes_its_message_it_is_told_once_and_whole(node: Any, deltas: int) -> None:
    class State(MessagesState):
        spoken: str

    builder = StateGraph(State)
    builder.add_node("answer", node)
    builder.add_edge(START, "answer")
    parts = of(await told(builder.compile(checkpointer=InMemorySaver())), "messages")
    texts = [part["delta"]["text"] for part in parts if part["event"] == "content-block-delta"]
    assert "".join(texts) == "You said hello 3: word0 word1 word2"
    assert len(texts) == deltas
    assert [part["role"] for part in parts if part["event"] == "message-start"] == ["ai"]
    assert [part["event"] for part in parts].count("message-finish") == 1
    assert len({part["id"] for part in parts}) == 1


async def test_a_tool_call_in_chunks_is_told_as_a_tool_call() -> None:
    async def call(state: MessagesState) -> dict[str, Any]:
        first = AIMessageChunk(
            content="", tool_call_chunks=[{"name": "add", "args": '{"a": ', "id": "call", "index": 0}]
        )
        rest = AIMessageChunk(content="", tool_call_chunks=[{"name": None, "args": "1}", "id": None, "index": 0}])
        return {"messages": [first + rest]}

    builder = StateGraph(MessagesState)
    builder.add_node("call", call)
    builder.add_edge(START, "call")
    parts = of(await told(builder.compile(checkpointer=InMemorySaver())), "messages")
    (block,) = [part["content"] for part in parts if part["event"] == "content-block-finish"]
    assert (block["type"], block["name"], block["args"]) == ("tool_call", "add", {"a": 1})


async def test_a_question_is_asked_once_and_the_run_is_interrupted_not_completed() -> None:
    graph = approval()
    events = await told(graph)
    (asked,) = of(events, "input.requested")
    (interrupt,) = (await graph.aget_state(CONFIG)).interrupts
    question = {"question": "really?"}
    assert asked == {"interrupt_id": interrupt.id, "payload": question, "value": question}
    assert events[-1].data["event"] == "interrupted"
    resumed = await told(graph, Command(resume={interrupt.id: "yes"}))
    assert of(resumed, "input.requested") == []
    assert resumed[-1].data["event"] == "completed"


async def test_a_failing_graph_ends_in_failed_with_its_error() -> None:
    events = await told(failing(), {"done": []})
    error = "RuntimeError: the second step broke"
    assert events[-1].data == {"event": "failed", "graph_name": "g", "error": error, "resumable": False}
    assert of(events, "values")[-1] == {"done": [1]}


async def test_a_failing_graph_is_logged_with_its_run_its_place_and_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run_id = uuid.uuid4()
    await told(failing(), {"done": []}, {**CONFIG, "run_id": run_id})
    (record,) = caplog.records
    line = inspect.getsourcelines(graphs.failing)[1] + 7  # `raise` in the second step
    place = f"{graphs.__file__}:{line}"
    assert record.levelname == "ERROR"
    assert record.getMessage() == (
        f"run {run_id} of thread 't': graph 'g' failed at {place}: RuntimeError: the second step broke"
    )
    assert f'File "{graphs.__file__}", line {line}, in second' in caplog.text


async def test_a_node_that_fails_inside_a_library_is_placed_at_its_own_line(caplog: pytest.LogCaptureFixture) -> None:
    async def decode(state: MessagesState) -> dict[str, Any]:
        return {"messages": json.loads("{")}

    builder = StateGraph(MessagesState)
    builder.add_node("decode", decode)
    builder.add_edge(START, "decode")
    await told(builder.compile(checkpointer=InMemorySaver()))
    line = decode.__code__.co_firstlineno + 1
    assert f"failed at {__file__}:{line}: JSONDecodeError" in caplog.records[0].getMessage()


async def test_a_redis_that_is_away_is_no_fault_of_the_graph_and_the_run_may_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Away(InMemorySaver):
        async def aput(self, *args: Any) -> RunnableConfig:
            raise ServerUnavailableError("no Redis answers: start it")

    events = await told(chat().copy(update={"checkpointer": Away()}))
    assert events[-1].data["resumable"] is True
    assert "ServerUnavailableError: no Redis answers: start it" in caplog.records[0].getMessage()
    assert caplog.records[0].exc_info is None


async def test_checkpoints_are_told_by_their_place_not_by_their_state() -> None:
    checkpoints = of(await told(chat()), "checkpoints")
    assert [checkpoint["step"] for checkpoint in checkpoints] == [-1, 0, 1]
    assert [checkpoint["source"] for checkpoint in checkpoints] == ["input", "loop", "loop"]
    assert [checkpoint.get("parent_id") for checkpoint in checkpoints[1:]] == [one["id"] for one in checkpoints[:-1]]
    assert all(set(checkpoint) <= {"id", "parent_id", "step", "source"} for checkpoint in checkpoints)


async def test_tasks_which_v3_folds_away_are_told_without_the_state() -> None:
    start, result = of(await told(chat()), "tasks")
    assert (start["name"], "input" in start) == ("answer", False)
    assert result["id"] == start["id"]
    assert result["error"] is None
    assert "messages" in result["result"]


async def test_updates_name_their_node() -> None:
    assert [update["node"] for update in of(await told(approval()), "updates")] == []
    assert [update["node"] for update in of(await told(chat()), "updates")] == ["answer"]


async def test_a_childs_life_is_told_in_its_own_namespace() -> None:
    events = await told(nested())
    (child,) = {event.namespace for event in events if event.namespace}
    assert child[0].startswith("child:")
    life = of(events, "lifecycle", child)
    assert [data["event"] for data in life] == ["started", "completed"]
    assert life[0]["graph_name"] == "child"
    assert [data["event"] for data in of(events, "lifecycle")] == ["running", "completed"]
    assert of(events, "messages") == []
    assert of(events, "messages", child)


async def test_tools_and_custom_events_are_told() -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        get_stream_writer()({"name": "progress", "percent": 50})
        get_stream_writer()("plain")
        return a + b

    def call(state: MessagesState) -> dict[str, Any]:
        wanted = {"name": "add", "args": {"a": 1, "b": 2}, "id": "call"}
        return {"messages": [AIMessage("", tool_calls=[wanted])]}

    builder = StateGraph(MessagesState)
    builder.add_node("call", call)
    builder.add_node("tools", ToolNode([add]))
    builder.add_edge(START, "call")
    builder.add_edge("call", "tools")
    builder.add_edge("tools", END)
    events = await told(builder.compile(checkpointer=InMemorySaver()))
    started, finished = of(events, "tools")
    assert (started["event"], started["tool_name"], started["input"]) == ("tool-started", "add", {"a": 1, "b": 2})
    assert (finished["event"], finished["output"].content) == ("tool-finished", "3")
    named, plain = of(events, "custom")
    assert named == {"name": "progress", "payload": {"name": "progress", "percent": 50}}
    assert plain == {"payload": "plain"}


class SlowSaver(InMemorySaver):
    """Takes its time to acknowledge, or fails."""

    def __init__(self, *, fail_at_step: int | None = None) -> None:
        super().__init__()
        self.stored: list[str] = []
        self._fail_at_step = fail_at_step

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> RunnableConfig:
        await anyio.sleep(0.05)
        if metadata["step"] == self._fail_at_step:
            raise ConnectionError("the last put was not acknowledged")
        result = await super().aput(config, checkpoint, metadata, new_versions)
        self.stored.append(checkpoint["id"])
        return result


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_completed_is_not_told_before_the_last_checkpoint_is_acknowledged(durability: Any) -> None:
    saver = SlowSaver()
    graph = chat().copy(update={"checkpointer": saver})
    stored: list[str] = []
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}

    async def tell(event: TurnEvent) -> None:
        if event.data.get("event") == "completed":
            stored.extend(saver.stored)

    await turn.run(graph, HELLO, config, graph_name="g", tell=tell)
    assert stored == saver.stored
    assert (await graph.aget_state(config)).config["configurable"]["checkpoint_id"] == stored[-1]


async def test_a_last_checkpoint_that_could_not_be_stored_is_a_failed_run() -> None:
    events = await told(chat().copy(update={"checkpointer": SlowSaver(fail_at_step=1)}))
    assert events[-1].data["event"] == "failed"
    assert "not acknowledged" in events[-1].data["error"]


@pytest.mark.parametrize("how", ["cancelled", "tell fails"])
async def test_a_turn_that_is_left_stops_its_nodes_and_is_not_complete(how: str) -> None:
    stopped = anyio.Event()
    events: list[TurnEvent] = []

    async def tell(event: TurnEvent) -> None:
        events.append(event)
        if event.method == "custom" and how == "tell fails":
            raise ConnectionError("nobody takes events")
        if event.method == "custom":
            leaving.cancel()

    async def linger(state: MessagesState) -> dict[str, Any]:
        get_stream_writer()("at work")
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()
        return {}

    builder = StateGraph(MessagesState)
    builder.add_node("linger", linger)
    builder.add_edge(START, "linger")
    graph = builder.compile(checkpointer=InMemorySaver())
    with anyio.CancelScope() as leaving, contextlib.suppress(ExceptionGroup):
        await turn.run(graph, HELLO, CONFIG, graph_name="g", tell=tell)
    assert stopped.is_set()
    assert of(events, "lifecycle") == [{"event": "running", "graph_name": "g"}]
