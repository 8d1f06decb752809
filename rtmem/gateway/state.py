"""A thread's state in the shapes the SDKs read: `GET /threads/{id}/state` and the result of `state.get`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.types import PregelTask, StateSnapshot


def body_of(thread_id: str, snapshot: StateSnapshot | None) -> dict[str, Any]:
    """The SDKs' `ThreadState`. Without checkpoints it is empty, not an error: any id is one's own empty thread."""
    if snapshot is None:
        return {
            "values": {},
            "next": [],
            "tasks": [],
            "interrupts": [],
            "metadata": {},
            "created_at": None,
            "checkpoint": {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": None},
            "parent_checkpoint": None,
        }
    return {
        "values": snapshot.values,
        "next": snapshot.next,
        "tasks": [_task(task) for task in snapshot.tasks],
        "interrupts": snapshot.interrupts,
        "metadata": snapshot.metadata,
        "created_at": snapshot.created_at,
        "checkpoint": _checkpoint(snapshot.config),
        "parent_checkpoint": _checkpoint(snapshot.parent_config) if snapshot.parent_config else None,
    }


def result_of(snapshot: StateSnapshot | None, keys: Sequence[str] | None) -> dict[str, Any]:
    """The protocol's `StateGetResult`; with `keys` only those values."""
    if snapshot is None:
        return {"values": {}}
    values = snapshot.values
    if keys is not None and isinstance(values, Mapping):
        values = {key: values[key] for key in keys if key in values}
    checkpoint = _checkpoint(snapshot.config)
    return {"values": values, "checkpoint": {"id": checkpoint["checkpoint_id"], "ns": checkpoint["checkpoint_ns"]}}


def _task(task: PregelTask) -> dict[str, Any]:
    return {
        "id": task.id,
        "name": task.name,
        "path": task.path,
        "error": _described(task.error),
        "interrupts": task.interrupts,
        "checkpoint": None,
        "state": None,
        "result": task.result,
    }


def _described(error: Any) -> str | None:
    """A stored error comes back as its repr, which names its type already."""
    return f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else error


def _checkpoint(config: Mapping[str, Any]) -> dict[str, Any]:
    configurable = config.get("configurable", {})
    return {name: configurable.get(name) for name in ("thread_id", "checkpoint_ns", "checkpoint_id")}
