"""Checkpoints of a conversation, as LangGraph would hand them to a saver."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6


def at(thread_id: str, ns: str = "", checkpoint_id: str | None = None) -> RunnableConfig:
    """A config."""
    configurable = {"thread_id": thread_id, "checkpoint_ns": ns}
    if checkpoint_id is not None:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}


def message(number: int, size: int = 40) -> AnyMessage:
    """A message with something nested."""
    text = f"message {number} " + "x" * size
    if number % 2:
        call = {"name": "search", "args": {"q": [number, {"deep": True}]}, "id": f"c{number}", "type": "tool_call"}
        return AIMessage(text, id=f"m{number}", additional_kwargs={"n": {"at": [number]}}, tool_calls=[call])
    return HumanMessage(text, id=f"m{number}", additional_kwargs={"n": {"at": [number]}})


def checkpoint_of(
    saver: BaseCheckpointSaver[Any],
    values: dict[str, Any],
    before: Checkpoint | None = None,
    *,
    changed: set[str] | None = None,
    checkpoint_id: str | None = None,
    absent: tuple[str, ...] = (),
) -> tuple[Checkpoint, dict[str, Any]]:
    """A checkpoint with these values after `before`, and its new versions.

    Args:
        changed: channels that get a new version; all of them by default.
        absent: channels that have a version and no value.
    """
    old = before["channel_versions"] if before else {}
    changed = {*values, *absent} if changed is None else changed
    new = {name: saver.get_next_version(old.get(name), None) for name in changed}
    checkpoint = empty_checkpoint()
    checkpoint["id"] = checkpoint_id or str(uuid6())
    checkpoint["channel_values"] = values
    checkpoint["channel_versions"] = {**{k: v for k, v in old.items() if k in values or k in absent}, **new}
    return checkpoint, new


def put(
    saver: BaseCheckpointSaver[Any],
    config: RunnableConfig,
    values: dict[str, Any],
    before: Checkpoint | None = None,
    metadata: dict[str, Any] | None = None,
    **options: Any,
) -> CheckpointTuple:
    """Put values, and answer what a read has to find."""
    checkpoint, new = checkpoint_of(saver, values, before, **options)
    expected = deepcopy(checkpoint)
    meta: Any = {"source": "loop", "step": 1, **(metadata or {})}
    stored = saver.put(config, checkpoint, meta, new)
    parent = config["configurable"].get("checkpoint_id")
    parent_config = at(config["configurable"]["thread_id"], config["configurable"]["checkpoint_ns"], parent)
    return CheckpointTuple(stored, expected, meta, parent_config if parent else None, [])


def grow(saver: BaseCheckpointSaver[Any], thread_id: str, steps: int, ns: str = "", **options: Any) -> RunnableConfig:
    """A conversation of `steps` super-steps, each with one message and one write; answers the last config."""
    config = at(thread_id, ns)
    found = saver.get_tuple(config)
    messages: list[Any] = list(found.checkpoint["channel_values"]["messages"]) if found else []
    before = found.checkpoint if found else None
    if found:
        config = found.config
    for step in range(steps):
        messages = [*messages, message(len(messages))]
        done = put(saver, config, {"messages": messages, "step": step}, before, {"step": step}, **options)
        config, before = done.config, done.checkpoint
        saver.put_writes(config, [("messages", message(step)), ("step", step)], f"task-{step}", f"~{step}")
    return config


def same(one: CheckpointTuple | None, other: CheckpointTuple | None) -> bool:
    """Equal, also in what == does not tell: classes (1 == True == 1.0) and the order of keys in values."""
    return one == other and _shown(one) == _shown(other)


def _shown(found: CheckpointTuple | None) -> list[str]:
    if found is None:
        return []
    parts = [*found.checkpoint["channel_values"].items(), *found.metadata.items()]
    return [*sorted(map(repr, parts)), repr(found.pending_writes)]
