"""Whole runs of create_agent: results become pointers, pointers become values, and the model looks inside."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.types import Command

import rtmem.agent
from rtmem.agent import ByPointer, PointerMiddleware, ToolPointers
from rtmem.errors import ConfigError
from tests.agent.offload.worlds import Scripted, World, call, last_result, pointer_in, say


@tool
def measure(size: int) -> list[dict[str, float]]:
    """Measure something."""
    return [{"at": number / 2, "value": number * 1.5} for number in range(size)]


@tool
def total(rows: Annotated[list[dict[str, float]], ByPointer]) -> float:
    """Add up the values."""
    return sum(row["value"] for row in rows)


@tool
async def atotal(rows: Annotated[list[dict[str, float]], ByPointer]) -> float:
    """Add up the values."""
    return sum(row["value"] for row in rows)


TRUTH = sum(number * 1.5 for number in range(2_000))


def test_a_table_goes_from_tool_to_tool_and_no_message_grows(world: World) -> None:
    adding = atotal if world.awaiting else total
    with world.pointers() as pointers:
        middleware = PointerMiddleware(pointers)
        messages = world.run(
            [measure, adding],
            [
                call(measure={"size": 2_000}),
                lambda messages: {adding.name: {"rows": pointer_in(last_result(messages).content)}},
                lambda messages: f"The total is {last_result(messages).content}.",
            ],
            middleware=[middleware],
        )
        assert messages[-1].content == f"The total is {TRUTH}."
        assert max(len(str(message.content)) for message in messages) < 1_200
        counts = middleware.counts
        assert (counts.offloaded, counts.resolved, counts.refetches, counts.dangling) == (1, 1, 0, 0)
        assert counts.bytes_kept_out > 50_000


def test_a_model_looks_inside_with_the_tools_it_was_given(world: World) -> None:
    with world.pointers() as pointers:
        middleware = PointerMiddleware(pointers)
        messages = world.run(
            [measure],
            [
                call(measure={"size": 2_000}),
                lambda messages: {
                    "select_pointer": {
                        "pointer": pointer_in(last_result(messages).content),
                        "expression": "[?at == `500`].value | [0]",
                    }
                },
                lambda messages: str(last_result(messages).content),
            ],
            middleware=[middleware],
        )
        assert messages[-1].content == "1500.0"


def test_an_answer_about_a_value_is_never_offloaded_again(world: World) -> None:
    with world.pointers() as pointers:
        middleware = PointerMiddleware(pointers)
        messages = world.run(
            [measure],
            [
                call(measure={"size": 2_000}),
                lambda messages: {"read_pointer": {"pointer": pointer_in(last_result(messages).content)}},
                say("done"),
            ],
            middleware=[middleware],
        )
        assert 2_000 < len(str(messages[-2].content)) <= 4_000
        assert middleware.counts.offloaded == 1


def test_a_wrong_pointer_does_not_end_the_run(world: World) -> None:
    with world.pointers() as pointers:
        middleware = PointerMiddleware(pointers)
        messages = world.run(
            [measure, total],
            [
                call(total={"rows": "mp_" + "a" * 26}),
                call(read_pointer={"pointer": "mp_" + "a" * 26}, search_pointer={"pointer": "x", "pattern": ""}),
                call(measure={"size": 2_000}),
                lambda messages: {"total": {"rows": pointer_in(last_result(messages).content)}},
                lambda messages: str(last_result(messages).content),
            ],
            middleware=[middleware],
        )
        statuses = [message.status for message in messages if isinstance(message, ToolMessage)]
        assert statuses == ["error", "error", "error", "success", "success"]
        assert messages[-1].content == str(TRUTH)


def test_tools_called_at_once_have_each_their_pointer(world: World) -> None:
    @tool
    def again(size: int) -> list[dict[str, float]]:
        """Measure again."""
        return [{"value": 1.0}] * size

    with world.pointers() as pointers:
        messages = world.run(
            [measure, again], [call(measure={"size": 2_000}, again={"size": 999}), say("done")],
            middleware=[PointerMiddleware(pointers)],
        )  # fmt: skip
        first, second = (pointer_in(message.content) for message in messages if isinstance(message, ToolMessage))
        assert len(world.now(pointers.resolve(first))) == 2_000
        assert len(world.now(pointers.resolve(second))) == 999


def test_state_and_call_ids_are_injected_as_ever(world: World) -> None:
    with world.pointers() as pointers:
        messages = world.run([stateful], [call(stateful={}), say("done")], middleware=[PointerMiddleware(pointers)])
        (result,) = (message for message in messages if isinstance(message, ToolMessage))
        assert world.now(pointers.resolve(pointer_in(result.content))) == "2 messages " * 1_000


@pytest.mark.parametrize("by", ["middleware", "wrap"])
def test_the_runtime_is_injected_as_ever(world: World, by: str) -> None:
    with world.pointers() as pointers:
        edge = ToolPointers(pointers)
        tools: list[Any] = [running, Running()] if by == "middleware" else [edge.wrap(running), edge.wrap(Running())]
        middleware = [PointerMiddleware(pointers)] if by == "middleware" else []
        messages = world.run(tools, [call(running={}, classy={"times": 1_000}), say("done")], middleware=middleware)
        first, second = (message for message in messages if isinstance(message, ToolMessage))
        assert world.now(pointers.resolve(pointer_in(first.content))) == "t1 call-1-0 " * 1_000
        assert world.now(pointers.resolve(pointer_in(second.content))) == "t1 call-1-1 " * 1_000


@tool
def running(runtime: ToolRuntime) -> str:
    """Look at the run."""
    return f"{runtime.config['configurable']['thread_id']} {runtime.tool_call_id} " * 1_000


class Running(BaseTool):
    """The same as a class."""

    name: str = "classy"
    description: str = "Look at the run."

    def _run(self, times: int, runtime: ToolRuntime) -> str:
        return f"{runtime.config['configurable']['thread_id']} {runtime.tool_call_id} " * times


@tool
def stateful(
    state: Annotated[dict[str, Any], InjectedState], call_id: Annotated[str, InjectedToolCallId]
) -> Command[Any]:
    """Look at the state."""
    text = f"{len(state['messages'])} messages " * 1_000
    return Command(update={"messages": [ToolMessage(text, tool_call_id=call_id)]})


def test_a_graph_without_middleware_does_the_same_with_wrapped_tools(world: World) -> None:
    with world.pointers() as pointers:
        edge = ToolPointers(pointers)
        messages = world.run(
            [edge.wrap(measure), edge.wrap(total), *edge.tools],
            [
                call(measure={"size": 2_000}),
                lambda messages: {"total": {"rows": pointer_in(last_result(messages).content)}},
                lambda messages: str(last_result(messages).content),
            ],
        )
        assert messages[-1].content == str(TRUTH)


def test_wrapped_tools_in_an_agent_with_middleware_are_wrapped_once(world: World) -> None:
    with world.pointers() as pointers:
        edge, middleware = ToolPointers(pointers), PointerMiddleware(pointers)
        world.run([edge.wrap(measure)], [call(measure={"size": 2_000}), say("done")], middleware=[middleware])
        assert (edge.counts.offloaded, middleware.counts.offloaded) == (1, 0)


def test_a_tool_that_is_not_there_is_left_to_the_agent(world: World) -> None:
    with world.pointers() as pointers:
        messages = world.run([measure], [call(no_such_tool={}), say("done")], middleware=[PointerMiddleware(pointers)])
        assert "not a valid tool" in str(last_result(messages).content)


def test_one_middleware_serves_agents_whose_tools_share_a_name(world: World) -> None:
    @tool("measure")
    def other(size: int) -> str:
        """Measure something else."""
        return "x" * size

    with world.pointers() as pointers:
        middleware = PointerMiddleware(pointers)
        for made, value in ((measure, measure.func(5_000)), (other, "x" * 5_000)):
            messages = world.run([made], [call(measure={"size": 5_000}), say("done")], middleware=[middleware])
            assert world.now(pointers.resolve(pointer_in(last_result(messages).content))) == value


def test_without_langchain_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from rtmem.agent import offload

    monkeypatch.delattr(offload, "middleware", raising=False)
    monkeypatch.delitem(sys.modules, "rtmem.agent.offload.middleware", raising=False)
    monkeypatch.setitem(sys.modules, "langchain.agents.middleware", None)
    with pytest.raises(ConfigError, match=r"rtmem\[agent\]"):
        _ = rtmem.agent.PointerMiddleware
    assert rtmem.agent.ToolPointers is ToolPointers


def test_the_model_is_told_of_pointers_and_of_the_tools_for_them(redis_url: str) -> None:
    from langchain.agents import create_agent

    from rtmem.pointers import Pointers

    with Pointers(redis_url) as pointers:
        model = Scripted(turns=[say("done")])
        create_agent(model, [measure], middleware=[PointerMiddleware(pointers)]).invoke({"messages": [("user", "go")]})
        names = [made.name for made in model.bound]
        assert sorted(names) == ["measure", "read_pointer", "search_pointer", "select_pointer"]


def test_names_are_found_where_a_user_looks() -> None:
    for name in rtmem.agent.__all__:
        assert getattr(rtmem.agent, name).__name__ == name
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = rtmem.agent.no_such_name
