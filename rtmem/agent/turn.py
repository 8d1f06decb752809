"""Run one turn of a graph and tell what happens, in the words of the agent streaming protocol.

The order of a turn is written here and nowhere else. Today it is short: say that the run is running, let the graph
work, say how it ended. (A cache lookup and a recall come before the graph, a cache update after it.)

LangGraph's `astream_events(version="v3")` emits almost what the official SDKs read; `translate` closes the gap: message
payloads without their message's id, light checkpoints, child lifecycle in the child's namespace, tasks (which the v3
stream folds away), questions to a person as `input.requested`, and the root's own lifecycle, which v3 does not tell.
"""

from __future__ import annotations

import logging
import os
import sysconfig
import traceback
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel
from langchain_core._api import LangChainBetaWarning
from langchain_core.language_models._compat_bridge import message_to_events
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.pregel import Pregel
from langgraph.stream import StreamChannel, StreamTransformer
from langgraph.stream.run_stream import AsyncGraphRunStream
from langgraph.types import Command

from rtmem.errors import NotDurableError, RtmemError, ServerError
from rtmem.records import TurnEvent

_logger: Final = logging.getLogger(__name__)
_LIBRARIES: Final = tuple(f"{folder}{os.sep}" for folder in (sysconfig.get_path("stdlib"), Path(__file__).parents[1]))

Graph = Pregel[Any, Any, Any, Any]

_TASKS = "rtmem_tasks"
_METADATA_SHOWN = ("langgraph_node", "langgraph_step", "checkpoint_ns", "ls_provider", "ls_model_name", "ls_model_type")


Tell = Callable[[TurnEvent], Awaitable[None]]
"""Takes one event, and may make the turn wait: for room, or until the event is stored."""

BeforeEnd = Callable[[], Awaitable[Mapping[str, Any]]]
"""Does what has to be done before the end of a turn is told, and says what shall be told with it."""


async def run(
    graph: Graph,
    turn_input: Mapping[str, Any] | Command[Any] | None,
    config: RunnableConfig,
    *,
    graph_name: str,
    tell: Tell,
    before_end: BeforeEnd | None = None,
) -> None:
    """Run one turn; `tell` its events, from lifecycle `running` to `completed`, `interrupted` or `failed`.

    A failing graph ends in `failed`. What is raised comes from `tell` (in an exception group), or is cancellation; each
    node has been stopped by then. `completed` comes after LangGraph has waited for the last checkpoint to be stored:
    the v3 stream ends only when the loop has left its executor, which awaits every put, and a put that failed ends the
    run in `failed`.

    Args:
        turn_input: the graph's input; a Command resumes an interrupted run, None continues from the last checkpoint.
        config: with thread_id; the graph must carry the saver of the right principal.
        before_end: awaited when everything is stored, before `completed` or `interrupted` is told; what it returns is
            told with it.
    """
    await tell(_lifecycle("running", graph_name))
    translator = _Translator()
    error: Exception | None = None
    try:
        stream = await _start(graph, turn_input, config)
    except Exception as exc:  # noqa: BLE001 - any error of the user's graph is the run's outcome, told to its clients
        await tell(_failed_of_itself(exc, graph_name, config))
        return
    async with anyio.create_task_group() as beside:
        beside.start_soon(_abort_when_cancelled, stream)
        events = aiter(stream)
        while True:
            try:
                # Shielded, because this wait is ended by `abort`: anyio cancels again and again, and a second
                # cancellation interrupts LangGraph's own clean-up, which leaves nodes at work that nobody waits for.
                with anyio.CancelScope(shield=True):
                    event = await anext(events)
            except StopAsyncIteration:
                break
            except Exception as exc:  # noqa: BLE001 - as above
                error = exc
                break
            for translated in translator.translate(event):
                await tell(translated)
        beside.cancel_scope.cancel()
    # An aborted stream ends like a finished one: if this turn was cancelled, it must not say that it is complete.
    await anyio.lowlevel.checkpoint()
    if error is not None:
        await tell(_failed_of_itself(error, graph_name, config))
    else:
        outcome = "interrupted" if translator.waiting else "completed"
        end = _lifecycle(outcome, graph_name, checkpoint_id=translator.checkpoint_id)
        if before_end is not None:
            end.data.update(await before_end())
        await tell(end)


async def _start(graph: Graph, turn_input: Any, config: RunnableConfig) -> AsyncGraphRunStream:
    with warnings.catch_warnings():
        # v3 is declared beta. We pin langgraph's major version and test every event shape we read.
        warnings.simplefilter("ignore", LangChainBetaWarning)
        return await graph.astream_events(turn_input, config, version="v3", transformers=[_AllChannels])


async def _abort_when_cancelled(stream: AsyncGraphRunStream) -> None:
    """Stop the nodes at work when the turn is cancelled; does nothing after a stream that has ended."""
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await stream.abort()


def _failed_of_itself(error: Exception, graph_name: str, config: RunnableConfig) -> TurnEvent:
    """The end of a run whose graph raised: its developer gets the traceback, its clients type and message."""
    described = f"{type(error).__name__}: {error}"
    # Ours says by itself what is wrong and what to do; that a traceback leads through a saver helps nobody.
    ours = isinstance(error, RtmemError)
    _logger.error(
        "run %s of thread %r: graph %r failed%s: %s",
        config.get("run_id"),
        (config.get("configurable") or {}).get("thread_id"),
        graph_name,
        "" if ours else f" at {_place(error)}",
        described,
        exc_info=None if ours else error,
    )
    return failed(graph_name, described, resumable=can_be_resumed(error))


def _place(error: Exception) -> str:
    """File and line of the innermost frame in code that is nobody's library; of the innermost one if there is none."""
    frames = list(traceback.walk_tb(error.__traceback__))
    own = [(frame, line) for frame, line in frames if not _is_library(frame.f_code.co_filename)]
    frame, line = (own or frames)[-1]
    return f"{frame.f_code.co_filename}:{line}"


def _is_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


def failed(graph_name: str, error: str, *, resumable: bool) -> TurnEvent:
    """The end of a run that failed.

    Args:
        resumable: it did not fail of itself (its process died, Redis is away or full, the gateway shuts down): a run
            without input goes on after its last stored step.
    """
    told = _lifecycle("failed", graph_name)
    told.data.update(error=error, resumable=resumable)
    return told


def can_be_resumed(error: Exception) -> bool:
    """Whether this error is none of the run itself: Redis could not do something, or the time was wrong for it."""
    return isinstance(error, ServerError | NotDurableError) or (isinstance(error, RtmemError) and error.retryable)


def _lifecycle(event: str, graph_name: str, *, checkpoint_id: str = "") -> TurnEvent:
    data: dict[str, Any] = {"event": event}
    if graph_name:
        data["graph_name"] = graph_name
    if checkpoint_id:
        data["checkpoint"] = {"id": checkpoint_id}
    return TurnEvent("lifecycle", data)


class _AllChannels(StreamTransformer):
    """Asks LangGraph for every stream mode the protocol has a channel for, and keeps task events in the stream.

    v3 derives its stream modes from its transformers, and its own lifecycle transformer removes `tasks` events from the
    main stream. This one stands before it and sends them on through a channel of its own.
    """

    before_builtins = True
    required_stream_modes = ("updates", "checkpoints", "tasks", "custom", "tools")

    def __init__(self, scope: tuple[str, ...]) -> None:
        super().__init__(scope)
        self._tasks: StreamChannel[dict[str, Any]] = StreamChannel(name=_TASKS)

    def init(self) -> dict[str, Any]:
        # Children of the root mux see the same events again: only the root sends them on.
        return {} if self.scope else {_TASKS: self._tasks}

    def process(self, event: Any) -> bool:
        if event["method"] == "tasks" and not self.scope:
            params = event["params"]
            # A task's input is the whole state, which `values` has just told; with it the log would hold it twice.
            data = {name: value for name, value in params["data"].items() if name != "input"}
            self._tasks.push({"namespace": params["namespace"], "data": data})
        return True


class _Translator:
    """v3 envelopes in, protocol events out."""

    def __init__(self) -> None:
        self.checkpoint_id = ""  # newest of the root graph
        self.waiting = False  # somebody has to answer before the graph goes on
        self._message_ids: dict[str, str] = {}  # model run -> message it is writing
        self._asked: set[str] = set()

    def translate(self, event: Mapping[str, Any]) -> Iterator[TurnEvent]:
        method, params = event["method"], event["params"]
        namespace, data = tuple(params["namespace"]), params["data"]
        match method:
            case "messages":
                yield from self._messages(namespace, *data)
            case "values":
                yield from self._values(namespace, data, tuple(params.get("interrupts") or ()))
            case "updates":
                yield from _updates(namespace, data)
            case "checkpoints":
                yield self._checkpoint(namespace, data)
            case "lifecycle":
                told = {name: value for name, value in data.items() if name != "namespace"}
                yield TurnEvent("lifecycle", told, tuple(data.get("namespace") or namespace))
            case "custom":
                yield TurnEvent("custom", _custom(data), namespace)
            case "custom:rtmem_tasks":  # see _AllChannels
                yield TurnEvent("tasks", data["data"], tuple(data["namespace"]))
            case "tools":
                yield TurnEvent("tools", data, namespace)
            case _:
                # A named channel of one of the graph's own transformers ("custom:<name>").
                yield TurnEvent("custom", {"name": method.removeprefix("custom:"), "payload": data}, namespace)

    def _messages(self, namespace: tuple[str, ...], payload: Any, metadata: Mapping[str, Any]) -> Iterator[TurnEvent]:
        node = metadata.get("langgraph_node")
        if isinstance(payload, BaseMessage):
            # A node's own message arrives whole. So does what `model.astream` gave in a node, as one chunk: v3 takes
            # tokens from `ainvoke` only. Tool results have their own channel.
            if isinstance(payload, ToolMessage):
                return
            run_id = f"message-{payload.id}"
            for part in message_to_events(payload, message_id=payload.id):
                yield TurnEvent("messages", self._message(part, run_id, metadata), namespace, node)
        elif isinstance(payload, Mapping):
            run_id = str(metadata.get("run_id") or "")
            yield TurnEvent("messages", self._message(payload, run_id, metadata), namespace, node)

    def _message(self, payload: Mapping[str, Any], run_id: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """One message event that says which message it belongs to.

        Python's SDK routes by `id`, JavaScript's by `run_id`; without them two models that speak at the same time
        would be mixed. Only the start carries the metadata that every later event would repeat.
        """
        shown: dict[str, Any] = {"run_id": run_id, "langgraph_node": metadata.get("langgraph_node")}
        if payload.get("event") == "message-start":
            self._message_ids[run_id] = str(payload.get("id") or payload.get("message_id") or run_id)
            shown |= {name: metadata[name] for name in _METADATA_SHOWN if name in metadata}
        message_id = self._message_ids.get(run_id, run_id)
        if payload.get("event") in ("message-finish", "error"):
            self._message_ids.pop(run_id, None)
        own = payload.get("metadata")
        if isinstance(own, Mapping):
            shown = {**own, **shown}
        return {**payload, "id": message_id, "run_id": run_id, "metadata": shown}

    def _values(self, namespace: tuple[str, ...], data: Any, interrupts: tuple[Any, ...]) -> Iterator[TurnEvent]:
        yield TurnEvent("values", data, namespace, interrupts=interrupts)
        if namespace:
            return  # a child's questions rise to the root, and are answered there
        self.waiting = bool(interrupts)
        for asked in interrupts:
            if asked.id not in self._asked:
                self._asked.add(asked.id)
                # The protocol and the JavaScript SDK say `payload`, the Python SDK reads `value`.
                yield TurnEvent(
                    "input.requested", {"interrupt_id": asked.id, "payload": asked.value, "value": asked.value}
                )

    def _checkpoint(self, namespace: tuple[str, ...], data: Mapping[str, Any]) -> TurnEvent:
        """Which checkpoint was made; the state in it is told by `values`."""
        metadata = data.get("metadata") or {}
        made: dict[str, Any] = {
            "id": _checkpoint_id(data.get("config")),
            "step": metadata.get("step", 0),
            "source": metadata.get("source", "loop"),
        }
        if parent := _checkpoint_id(data.get("parent_config")):
            made["parent_id"] = parent
        if not namespace:
            self.checkpoint_id = made["id"]
        return TurnEvent("checkpoints", made, namespace)


def _updates(namespace: tuple[str, ...], data: Any) -> Iterator[TurnEvent]:
    for node, values in data.items():
        if node != "__interrupt__":  # told as input.requested
            yield TurnEvent("updates", {"node": node, "values": values}, namespace)


def _custom(data: Any) -> dict[str, Any]:
    """As the protocol has it: `name` selects the subscription `custom:<name>`, `payload` is what a node wrote."""
    if isinstance(data, Mapping) and isinstance(data.get("name"), str):
        return {"name": data["name"], "payload": data}
    return {"payload": data}


def _checkpoint_id(config: Mapping[str, Any] | None) -> str:
    return str(((config or {}).get("configurable") or {}).get("checkpoint_id") or "")
