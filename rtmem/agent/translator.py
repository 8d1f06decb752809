"""LangGraph's v3 stream in, events of the agent streaming protocol out.

`astream_events(version="v3")` emits almost what the official SDKs read; this closes the gap: message payloads without
their message's id, light checkpoints, child lifecycle in the child's namespace, tasks (which the v3 stream folds away)
and questions to a person as `input.requested`. The root's own lifecycle, which v3 does not tell, is told by `turn`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from langchain_core.language_models._compat_bridge import message_to_events
from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.stream import StreamChannel, StreamTransformer

from rtmem.records import TurnEvent

_TASKS: Final = "rtmem_tasks"
_METADATA_SHOWN: Final = (
    "langgraph_node",
    "langgraph_step",
    "checkpoint_ns",
    "ls_provider",
    "ls_model_name",
    "ls_model_type",
)


class AllChannels(StreamTransformer):
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


class Translator:
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
            case "custom:rtmem_tasks":  # see AllChannels
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
