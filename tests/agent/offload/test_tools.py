"""Tools of every kind are wrapped and stay what they are."""

from __future__ import annotations

import threading
import time
from typing import Annotated, Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler, CallbackManagerForToolRun
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, Tool, ToolException, tool
from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt

from rtmem.agent import ByPointer, PointerMiddleware, ToolPointers
from rtmem.errors import ConfigError, PointerExpiredError, ServerUnavailableError, WrongColourError
from rtmem.pointers import AsyncPointers, Pointers
from rtmem.settings import Redis
from tests.agent.offload.worlds import World, pointer_in

LOG = "".join(f"2026-11-30 12:00:{second % 60:02} INFO request {second} served\n" for second in range(500))


class Archive(BaseTool):
    """A class of tools, as packages of the community have."""

    name: str = "archive"
    description: str = "Look something up."

    def _run(self, query: str, config: RunnableConfig, run_manager: CallbackManagerForToolRun | None = None) -> str:
        return f"{query} in {config['configurable']['thread_id']}\n{LOG}"


class AsyncArchive(Archive):
    """One that awaits."""

    async def _arun(self, query: str, run_manager: CallbackManagerForToolRun) -> str:  # type: ignore[override]
        return f"{query} awaited\n{LOG}"


@tool
def sync_log(query: str) -> str:
    """Look something up."""
    return f"{query} in {threading.current_thread() is threading.main_thread()}\n{LOG}"


@tool
async def async_log(query: str) -> str:
    """Look something up."""
    return f"{query} awaited\n{LOG}"


def kept(world: World, pointers: Any, made: BaseTool, args: dict[str, Any]) -> str:
    text: str = world.now(pointers.resolve(pointer_in(world.call(made, args).content)))
    assert text.endswith(LOG)
    return text.removesuffix(LOG)


def test_classes_of_tools_and_tools_of_functions_are_wrapped(world: World) -> None:
    with world.pointers() as pointers:
        edge = ToolPointers(pointers)
        assert kept(world, pointers, edge.wrap(Archive()), {"query": "a"}) == "a in t1\n"
        assert kept(world, pointers, edge.wrap(sync_log), {"query": "a"}).startswith("a in ")
        single = Tool(name="single", description="Look up.", func=lambda query: f"{query}\n{LOG}")
        assert kept(world, pointers, edge.wrap(single), {"__arg1": "a"}) == "a\n"
        plain = edge.wrap(sync_log.func)
        assert (plain.name, plain.description) == ("sync_log", "Look something up.")
        if world.awaiting:
            assert kept(world, pointers, edge.wrap(async_log), {"query": "a"}) == "a awaited\n"
            assert kept(world, pointers, edge.wrap(AsyncArchive()), {"query": "a"}) == "a awaited\n"


def test_what_a_model_is_told_of_a_tool_stays(redis_url: str) -> None:
    with Pointers(redis_url) as pointers:
        edge = ToolPointers(pointers)
        for made in (sync_log, Archive()):
            wrapped = edge.wrap(made)
            assert wrapped.tool_call_schema.model_json_schema()["properties"].keys() == {"query"}
            assert (wrapped.name, wrapped.description) == (made.name, made.description)


def test_injected_arguments_reach_the_tool(world: World) -> None:
    @tool
    def whose(query: str, config: RunnableConfig, user: Annotated[str, InjectedToolArg] = "nobody") -> str:
        """Tell whose it is."""
        return f"{query} {user} {config['configurable']['thread_id']}"

    with world.pointers() as pointers:
        wrapped = ToolPointers(pointers).wrap(whose)
        assert world.call(wrapped, {"query": "a", "user": "ann"}).content == "a ann t1"
        assert "user" not in wrapped.tool_call_schema.model_json_schema()["properties"]


def test_wrapping_twice_is_wrapping_once(world: World) -> None:
    with world.pointers() as pointers:
        edge = ToolPointers(pointers)
        once = edge.wrap(sync_log)
        assert edge.wrap(once) is once
        assert [edge.wrap(made) for made in edge.tools] == edge.tools


def test_what_is_offloaded_belongs_to_the_thread_of_the_run(world: World) -> None:
    with world.pointers() as pointers:
        wrapped = ToolPointers(pointers).wrap(sync_log)
        first = pointer_in(world.call(wrapped, {"query": "a"}, thread_id="t1").content)
        second = pointer_in(world.call(wrapped, {"query": "a"}, thread_id="t2").content)
        assert [pointer.id for pointer in world.now(pointers.list("t1")).pointers] == [first]
        assert [pointer.id for pointer in world.now(pointers.list("t2")).pointers] == [second]
        assert world.now(pointers.describe(first)).expires_at_ms == 0


def test_without_a_thread_it_expires_as_the_settings_say(world: World) -> None:
    with world.pointers() as pointers:
        pointer = pointer_in(world.call(ToolPointers(pointers).wrap(sync_log), {"query": "a"}, thread_id=None).content)
        assert world.now(pointers.describe(pointer)).expires_at_ms > 0


def test_with_another_saver_it_lives_as_long_as_a_ttl_although_a_sweep_does_not_find_the_thread(world: World) -> None:
    with world.pointers(grace_ms=1) as pointers:
        lasting = world.call(ToolPointers(pointers, ttl_ms=3_600_000).wrap(sync_log), {"query": "a"}).content
        pinned = world.call(ToolPointers(pointers).wrap(sync_log), {"query": "b"}).content
        deadline = time.monotonic() + 30
        while not world.now(pointers.sweep()).threads:
            assert time.monotonic() < deadline
        assert world.now(pointers.describe(pointer_in(lasting))).expires_at_ms > 0
        with pytest.raises(PointerExpiredError):
            world.now(pointers.describe(pointer_in(pinned)))


def test_errors_of_a_tool_go_their_own_way(world: World) -> None:
    @tool
    def fail(how: str) -> str:
        """Fail."""
        if how == "interrupt":
            raise GraphInterrupt([Interrupt("sure?", id="1")])
        raise ToolException("no such thing") if how == "tool" else ValueError("a bug")

    with world.pointers() as pointers:
        edge = ToolPointers(pointers)
        for how, kind in (("tool", ToolException), ("bug", ValueError), ("interrupt", GraphInterrupt)):
            with pytest.raises(kind):
                world.call(edge.wrap(fail), {"how": how})
        for flag, told in (
            (True, "no such thing"),
            ("sorry", "sorry"),
            (lambda error: f"<{error}>", "<no such thing>"),
        ):
            handled = fail.model_copy(update={"handle_tool_error": flag})
            answer = world.call(edge.wrap(handled), {"how": "tool"})
            assert (answer.status, answer.content) == ("error", told)


def test_a_tracer_sees_one_call_with_pointers_for_values(world: World) -> None:
    @tool
    def double(rows: Annotated[list[int], ByPointer]) -> list[int]:
        """Double."""
        return [2 * row for row in rows]

    class Tracer(BaseCallbackHandler):
        seen: list[str]

        def on_tool_start(self, serialized: Any, input_str: str, **kwargs: Any) -> None:
            self.seen.append(input_str)

        def on_tool_end(self, output: Any, **kwargs: Any) -> None:
            self.seen.append(str(output.content))

    tracer = Tracer()
    tracer.seen = []
    with world.pointers() as pointers:
        pointer = world.now(pointers.offload(list(range(9_000)), thread_id="t1")).id
        wrapped = ToolPointers(pointers).wrap(double).model_copy(update={"callbacks": [tracer]})
        world.call(wrapped, {"rows": pointer})
        assert len(tracer.seen) == 2
        assert max(map(len, tracer.seen)) < 1_200
        assert pointer in tracer.seen[0]


def test_a_blocking_run_with_awaiting_pointers_fails_before_the_tool_does_anything(redis_url: str) -> None:
    called = []

    @tool
    def send(text: str) -> str:
        """Send it."""
        called.append(text)
        return text

    edge = ToolPointers(AsyncPointers(redis_url))
    call = {"name": "send", "args": {"text": "a"}, "id": "1", "type": "tool_call"}
    with pytest.raises(WrongColourError, match="ainvoke"):
        edge.wrap(send).invoke(call)
    with pytest.raises(WrongColourError, match="ainvoke"):
        edge.tools[0].invoke({**call, "name": "read_pointer", "args": {"pointer": "mp_" + "a" * 26}})
    assert called == []


def test_a_redis_that_is_away_fails_the_run_as_it_fails_the_saver() -> None:
    with Pointers("unix:///nowhere/redis.sock", redis=Redis(retries_max=0)) as pointers:
        wrapped = ToolPointers(pointers).wrap(sync_log)
        with pytest.raises(ServerUnavailableError):
            wrapped.invoke({"name": "sync_log", "args": {"query": "a"}, "id": "1", "type": "tool_call"})


def test_options_that_make_no_sense_are_refused(redis_url: str) -> None:
    with Pointers(redis_url) as pointers:
        with pytest.raises(ConfigError, match="at least 500"):
            ToolPointers(pointers, characters_max=100)
        with pytest.raises(ConfigError, match="no tool 'read'"):
            ToolPointers(pointers, tools=["read"])
        for wrong in (0, 1.5, 10**15):
            with pytest.raises(ConfigError, match="ttl_ms"):
                ToolPointers(pointers, ttl_ms=wrong)  # type: ignore[arg-type]  # what a user may write


def test_what_was_kept_out_is_counted(world: World) -> None:
    with world.pointers() as pointers:
        edge = ToolPointers(pointers)
        preview = world.call(edge.wrap(StructuredTool.from_function(lambda: LOG, name="log", description="Log")), {})
        counts = edge.counts
        assert (counts.offloaded, counts.bytes_kept_out) == (1, len(LOG) - len(preview.content.encode()))
        assert (
            counts.tokens_kept_out == counts.bytes_kept_out // 4
            or abs(counts.tokens_kept_out - counts.bytes_kept_out / 4) <= 1
        )


def test_without_pointers_and_behind_no_gateway_it_is_said_what_to_do(world: World) -> None:
    with pytest.raises(ConfigError, match=r"PointerMiddleware\(pointers\).*rtmem serve"):
        world.call(ToolPointers().wrap(async_log if world.awaiting else sync_log), {"query": "a"})


@pytest.mark.parametrize("wrong", ["ann", Pointers, object()])
def test_what_are_no_pointers_is_refused_at_once(wrong: Any) -> None:
    for make in (ToolPointers, PointerMiddleware):
        with pytest.raises(ConfigError, match="give Pointers or AsyncPointers"):
            make(wrong)
