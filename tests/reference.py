"""What savers have to do, on plain dicts: no bytes, no sharing, no server."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from langgraph.checkpoint.base import WRITES_IDX_MAP, Checkpoint, CheckpointTuple

Key = tuple[str, str]  # checkpoint_id, checkpoint_ns


@dataclass
class Kept:
    """One checkpoint."""

    checkpoint: Checkpoint
    metadata: dict[str, Any]
    parent_id: str | None
    writes: dict[tuple[str, str, int], tuple[str, Any]] = field(default_factory=dict)  # path, task, idx


@dataclass
class Reference:
    """Threads by id, each a dict of checkpoints."""

    threads: dict[str, dict[Key, Kept]] = field(default_factory=dict)

    def of(self, thread_id: str) -> dict[Key, Kept]:
        return self.threads.setdefault(thread_id, {})

    def latest(self, thread_id: str, ns: str) -> str | None:
        return max((key[0] for key in self.of(thread_id) if key[1] == ns), default=None)

    def put(
        self, thread_id: str, ns: str, parent_id: str | None, checkpoint: Checkpoint, metadata: Any, *, shallow: bool
    ) -> None:
        thread = self.of(thread_id)
        key = (checkpoint["id"], ns)
        if shallow:
            if (self.latest(thread_id, ns) or "") > checkpoint["id"]:
                return
            for other in [other for other in thread if other[1] == ns and other != key]:
                del thread[other]
        writes = thread[key].writes if key in thread else {}
        thread[key] = Kept(deepcopy(checkpoint), deepcopy(metadata), parent_id, writes)

    def put_writes(self, thread_id: str, key: Key, writes: list[tuple[str, Any]], task_id: str, task_path: str) -> None:
        kept = self.of(thread_id)[key].writes
        # The path of a task is that of its first write.
        path = next((p for p, task, _ in kept if task == task_id), task_path)
        for position, (channel, value) in enumerate(writes):
            idx = WRITES_IDX_MAP.get(channel, position)
            if idx < 0 or (path, task_id, idx) not in kept:
                kept[path, task_id, idx] = (channel, deepcopy(value))

    def get(self, thread_id: str, ns: str, checkpoint_id: str | None = None) -> CheckpointTuple | None:
        checkpoint_id = checkpoint_id or self.latest(thread_id, ns)
        kept = self.of(thread_id).get((checkpoint_id or "", ns))
        if kept is None:
            return None

        def config(name: str | None) -> Any:
            return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": name}}

        return CheckpointTuple(
            config(checkpoint_id),
            kept.checkpoint,
            kept.metadata,  # type: ignore[arg-type]  # a TypedDict
            config(kept.parent_id) if kept.parent_id else None,
            [(task_id, channel, value) for (_, task_id, _), (channel, value) in sorted(kept.writes.items(), key=first)],
        )

    def list(self, thread_id: str) -> list[CheckpointTuple]:
        keys = sorted(self.of(thread_id), reverse=True)
        return [found for key in keys if (found := self.get(thread_id, key[1], key[0]))]

    def copy(self, source: str, target: str) -> None:
        if source != target:
            self.of(target).update(deepcopy(self.of(source)))

    def delete_run(self, run_id: str) -> None:
        for thread in self.threads.values():
            for key in [key for key, kept in thread.items() if kept.metadata.get("run_id") == run_id]:
                del thread[key]

    def prune(self, thread_id: str) -> None:
        thread = self.of(thread_id)
        keep: set[Key] = set()
        for ns in {key[1] for key in thread}:
            latest = self.latest(thread_id, ns)
            keep.add((latest or "", ns))
            for channel in thread[latest or "", ns].metadata.get("counters_since_delta_snapshot", {}):
                at: str | None = latest
                while at and (at, ns) in thread:
                    keep.add((at, ns))
                    if channel in thread[at, ns].checkpoint["channel_values"]:
                        break
                    at = thread[at, ns].parent_id
        for key in [key for key in thread if key not in keep]:
            del thread[key]


def first(item: tuple[Any, Any]) -> Any:
    return item[0]
