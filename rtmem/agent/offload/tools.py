"""ToolPointers: the edge between an agent's tools and its model, where values and pointers change places."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, get_args, get_type_hints

from langchain_core.runnables.config import RunnableConfig, ensure_config, run_in_executor
from langchain_core.tools import BaseTool, StructuredTool, Tool, ToolException, create_schema_from_function
from langchain_core.tools import tool as make_tool

from rtmem.agent.offload import reading
from rtmem.agent.offload.arguments import Arguments, PointerArgumentError, taking_pointers
from rtmem.agent.offload.counts import Counter, PointerCounts
from rtmem.agent.offload.results import Results
from rtmem.agent.served import SERVED, Served
from rtmem.errors import ConfigError, WrongColourError
from rtmem.operations.pointer_previews import MODEL_TOOLS
from rtmem.operations.pointer_uploads import TTL_MS_MAX
from rtmem.pointers import AsyncPointers, Pointers
from rtmem.steps import R, Steps

AnyPointers: TypeAlias = Pointers | AsyncPointers
Function: TypeAlias = Callable[..., Any]

_MARK: Final = "rtmem_pointers"
"""In the metadata of a tool whose results and arguments have been seen to."""


class ToolPointers:
    """Wraps tools so that large results become pointers and pointers become values, and lets a model look into them.

    One object serves any number of agents, threads and runs. What it offloads is pinned to the thread_id of the run's
    config, and belongs to the principal that is bound in `pointers`, whatever the config says; behind a gateway to who
    was authenticated there. `Pointers` serve blocking and awaiting runs (these through a thread), `AsyncPointers` only
    awaiting ones.

    Args:
        pointers: whose they are, and where. None: those of the gateway that serves the agent (`rtmem serve`).
        characters_max: a longer result becomes a pointer; `inline_characters_max` of the settings of the pointers. An
            answer of the tools for the model is no longer either.
        tools: which tools the model gets: "read_pointer", "search_pointer", "select_pointer".
        ttl_ms: how long pointers live at least. For a saver that is not rtmem's: a sweep takes its threads for gone.
    """

    def __init__(
        self,
        pointers: AnyPointers | None = None,
        *,
        characters_max: int | None = None,
        tools: Collection[str] = MODEL_TOOLS,
        ttl_ms: int | None = None,
    ) -> None:
        if pointers is not None and not isinstance(pointers, Pointers | AsyncPointers):
            raise ConfigError(
                f"pointers is a {type(pointers).__name__}: give Pointers or AsyncPointers, or nothing behind "
                "`rtmem serve`, which brings those of whoever is authenticated"
            )
        unknown = sorted(set(tools) - set(MODEL_TOOLS))
        if unknown:
            raise ConfigError(f"no tool {unknown[0]!r} for a model: there are {', '.join(MODEL_TOOLS)}")
        if characters_max is not None and characters_max < 500:
            raise ConfigError(f"characters_max is {characters_max}: at least 500, as a preview is about as long")
        if ttl_ms is not None and (type(ttl_ms) is not int or not 0 < ttl_ms <= TTL_MS_MAX):
            raise ConfigError(f"ttl_ms: from 1 to {TTL_MS_MAX} milliseconds, or None")
        self.pointers = pointers
        self.ttl_ms = ttl_ms
        self._characters_max = characters_max
        self._counter = Counter()
        self._names = tuple(name for name in MODEL_TOOLS if name in tools)
        self.tools: list[BaseTool] = [self._reading_tool(name) for name in self._names]
        """The tools for the model. They see what the principal may see, and their answers are never offloaded."""

    @property
    def counts(self) -> PointerCounts:
        """What was kept out, resolved and looked up so far."""
        return self._counter.counts

    def wrap(self, tool: BaseTool | Function, *, by_pointer: Collection[str] = ()) -> BaseTool:
        """A tool like `tool` whose large results become pointers, and whose arguments may be given by pointer.

        A tool that is wrapped already, or is one of `tools`, is given back as it is.

        Args:
            tool: any tool of LangChain, or a function that can be one (with a docstring); sync, async or both.
            by_pointer: names of arguments that may be given by pointer, besides those marked with `ByPointer`.

        Raises:
            ConfigError: no such argument.
        """
        made = tool if isinstance(tool, BaseTool) else make_tool(tool)
        if (made.metadata or {}).get(_MARK):
            return made
        if by_pointer:
            made = taking_pointers(made, by_pointer)
        made = _made_of_functions(made)
        call = _Call(self, made.name, made.response_format == "content_and_artifact", Arguments.of(made, by_pointer))
        awaiting = call.awaiting_in_thread(made.func) if made.func else None
        return made.model_copy(
            update={
                "func": call.blocking(made.func) if made.func else None,
                "coroutine": call.awaiting(made.coroutine) if made.coroutine else awaiting,
                "handle_tool_error": functools.partial(_told, made.handle_tool_error),
                "metadata": {**(made.metadata or {}), _MARK: True},
            }
        )

    def of_run(self) -> AnyPointers:
        """The pointers of the run at work, for its principal.

        Behind a gateway that is who was authenticated, whoever `pointers` was made for.

        Raises:
            ConfigError: made without pointers, and the run is behind no gateway.
        """
        served = _configurable().get(SERVED)
        if self.pointers is not None:
            return self.pointers.bind(served.principal) if isinstance(served, Served) else self.pointers
        if not isinstance(served, Served) or served.pointers is None:
            raise ConfigError(
                "this agent has no pointers: make it with PointerMiddleware(pointers), or serve it with `rtmem serve`, "
                "which brings those of whoever is authenticated"
            )
        return served.pointers

    def blocking_of_run(self) -> Pointers:
        """The same for a blocking run. Raises WrongColourError for AsyncPointers."""
        pointers = self.of_run()
        if isinstance(pointers, AsyncPointers):
            raise WrongColourError(
                "a blocking run (invoke, stream) with AsyncPointers: use ainvoke or astream, or build it with "
                "Pointers, which serve both"
            )
        return pointers

    def characters_max(self, pointers: AnyPointers) -> int:
        """The longest result that stays in the conversation."""
        return self._characters_max or pointers.settings.inline_characters_max

    def _reading_tool(self, name: str) -> BaseTool:
        _, schema, description = reading.TOOLS[name]

        def answered(pointers: AnyPointers, arguments: dict[str, Any]) -> Steps[str]:
            return reading.answered(name, pointers.scope, self.characters_max(pointers), self._counter, arguments)

        def blocking(**arguments: Any) -> str:
            pointers = self.blocking_of_run()
            return pointers.run(answered(pointers, arguments))

        async def awaiting(**arguments: Any) -> str:
            pointers = self.of_run()
            return await _arun(pointers, answered(pointers, arguments))

        return StructuredTool(
            name=name,
            description=description,
            args_schema=schema,
            func=blocking,
            coroutine=awaiting,
            handle_tool_error=True,
            metadata={_MARK: True},
        )


async def _arun(pointers: AnyPointers, steps: Steps[R]) -> R:
    """Run steps, awaiting; blocking pointers work in a thread."""
    if isinstance(pointers, AsyncPointers):
        return await pointers.run(steps)
    return await run_in_executor(None, pointers.run, steps)


@dataclass(frozen=True, slots=True)
class _Call:
    """What happens around each call of one tool."""

    edge: ToolPointers
    name: str
    has_artifact: bool
    arguments: Arguments

    def blocking(self, function: Function) -> Function:
        @functools.wraps(function)
        def run(*args: Any, **given: Any) -> Any:
            pointers = self.edge.blocking_of_run()  # before the tool does anything
            given = pointers.run(self._resolved(pointers, given))
            return pointers.run(self._replaced(pointers, function(*args, **given)))

        return run

    def awaiting(self, function: Callable[..., Awaitable[Any]]) -> Function:
        @functools.wraps(function)
        async def run(*args: Any, **given: Any) -> Any:
            pointers = self.edge.of_run()
            given = await _arun(pointers, self._resolved(pointers, given))
            return await _arun(pointers, self._replaced(pointers, await function(*args, **given)))

        return run

    def awaiting_in_thread(self, function: Function) -> Function:
        """For a tool that blocks: it works in a thread, as without us, and only its pointers are awaited."""

        @functools.wraps(function)
        async def run(*args: Any, **given: Any) -> Any:
            pointers = self.edge.of_run()
            given = await _arun(pointers, self._resolved(pointers, given))
            result = await run_in_executor(None, functools.partial(function, *args, **given))
            return await _arun(pointers, self._replaced(pointers, result))

        return run

    def _resolved(self, pointers: AnyPointers, given: dict[str, Any]) -> Steps[dict[str, Any]]:
        return self.arguments.resolved(pointers.scope, self.edge._counter, given)

    def _replaced(self, pointers: AnyPointers, result: Any) -> Steps[Any]:
        results = Results(
            scope=pointers.scope,
            counter=self.edge._counter,
            characters_max=self.edge.characters_max(pointers),
            tools=self.edge._names,
            name=self.name,
            thread_id=_thread_id(),
            ttl_ms=self.edge.ttl_ms,
        )
        return results.replaced(result, has_artifact=self.has_artifact)


def _thread_id() -> str | None:
    """The thread of the run that this tool was called in."""
    thread_id = _configurable().get("thread_id")
    return None if thread_id is None else str(thread_id)


def _configurable() -> Mapping[str, Any]:
    return ensure_config().get("configurable") or {}


def _made_of_functions(tool: BaseTool) -> StructuredTool | Tool:
    """A tool of any class as one of the classes that consist of a function for each colour."""
    if isinstance(tool, (StructuredTool, Tool)):
        return tool
    # `_run` and `_arun` are what a class of tools is made of.
    awaits = type(tool)._arun is not BaseTool._arun
    return StructuredTool(
        name=tool.name,
        description=tool.description,
        args_schema=tool.args_schema or _schema_of(tool),
        func=_without_run_manager(tool._run),
        coroutine=_without_run_manager(tool._arun) if awaits else None,
        return_direct=tool.return_direct,
        response_format=tool.response_format,
        tags=tool.tags,
        metadata=tool.metadata,
        callbacks=tool.callbacks,
        handle_tool_error=tool.handle_tool_error,
        handle_validation_error=tool.handle_validation_error,
    )


def _schema_of(tool: BaseTool) -> Any:
    """The arguments of a tool that says them by the signature of its method only."""
    kinds = get_type_hints(tool._run)
    config = [name for name, kind in kinds.items() if RunnableConfig in (kind, *get_args(kind))]
    return create_schema_from_function(tool.name, tool._run, filter_args=["run_manager", "callbacks", *config])


def _without_run_manager(method: Function) -> Function:
    # BaseTool passes a run manager to a method that takes one; a StructuredTool has none to pass on. What a tool calls
    # is traced below it all the same: the context carries that.
    if "run_manager" not in inspect.signature(method).parameters:
        return method

    @functools.wraps(method)
    def run(*args: Any, **given: Any) -> Any:
        return method(*args, run_manager=None, **given)

    return run


def _told(flag: Any, error: ToolException) -> Any:
    """Our errors are told to the model; those of the tool go on being treated as it says."""
    if isinstance(error, PointerArgumentError) or flag is True:
        return str(error.args[0]) if error.args else "Tool execution error"
    if isinstance(flag, str):
        return flag
    if callable(flag):
        return flag(error)
    raise error
