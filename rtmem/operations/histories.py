"""What a thread remembers beyond its latest checkpoint: listing, deleting, pruning. `copies.py` copies it.

Long jobs are made of short steps, each one Redis Function call of a few milliseconds at most. A job that was broken
off, by a crash or a cancellation, is finished by asking for it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.base.id import uuid6

from rtmem.errors import InvalidRequestError
from rtmem.operations.checkpoints import index_commands, sweep
from rtmem.operations.functions import call, call_with
from rtmem.operations.offloading import ids_in, release
from rtmem.operations.places import Place, Scope, decode_id, encode_id, split_member, thread_place
from rtmem.operations.pointer_lifetimes import pins_command, release_thread, scope_of
from rtmem.operations.restore import Restored, settled_head
from rtmem.steps import Argument, Batch, Compute, Steps

PAGE_BYTES_MAX = 1024 * 1024
_SKELETON_SIZE = 100
_FORGET_SIZE = 50
_INDEX_PAGE = 100


# list ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Query:
    """What `list` was asked for, apart from the thread."""

    filter: dict[str, Any]
    before_id: str
    ns: str | None
    checkpoint_id: str

    def matches(self, metadata: dict[str, Any]) -> bool:
        """Whether every key of the filter has exactly that value."""
        return all(metadata.get(key) == value for key, value in self.filter.items())


def query_of(config: RunnableConfig | None, filter: dict[str, Any] | None, before: RunnableConfig | None) -> Query:
    """The arguments of `list` in one piece. A namespace counts only if config names one; "" names the root."""
    configurable = (config or {}).get("configurable", {})
    return Query(
        filter or {},
        (before or {}).get("configurable", {}).get("checkpoint_id") or "",
        configurable.get("checkpoint_ns"),
        configurable.get("checkpoint_id") or "",
    )


@dataclass(frozen=True, slots=True)
class Page:
    """Some checkpoints, newest first, and where to go on: empty when there are no more."""

    tuples: list[CheckpointTuple]
    cursor: bytes


def list_page(scope: Scope, thread_id: str, query: Query, cursor: bytes, limit: int) -> Steps[Page]:
    """One page of the checkpoints of a thread, newest first, complete with state and pending writes.

    Text values of the filter are compared at the server, so that states which cannot match do not travel; everything
    is compared again here. A page ends after `limit` checkpoints, 1 MB, or 2,000 entries looked at; it may be empty
    and still have a cursor.

    Redis: 1 round trip, FCALL rtmem_v2_checkpoint_list_page, and 1 for each checkpoint with values of 64 KB or more;
        for values at pointers those of `offloading.fetch`.
    Source: BaseCheckpointSaver.list (langgraph-checkpoint 4.3).
    """
    place = thread_place(scope, thread_id)
    start = cursor or (b"(" + encode_id(query.before_id) if query.before_id else b"+")
    args: list[Argument] = [
        start,
        "0" if query.ns is None else "1",
        b"\0" + encode_id(query.ns or ""),
        encode_id(query.checkpoint_id),
        limit,
        PAGE_BYTES_MAX,
    ]
    for key, value in query.filter.items():
        if isinstance(value, str):
            args += (key, value)
    reply = yield from call("rtmem_v2_checkpoint_list_page", place.function_keys, args)
    tuples: list[CheckpointTuple] = []
    for found in reply[1:]:
        # `before` as well: with a checkpoint_id in config the server looks that one up directly.
        checkpoint_id, _ = split_member(found[0])
        if query.before_id and encode_id(checkpoint_id) >= encode_id(query.before_id):
            continue
        if not query.matches(scope.serde.loads(found[4])):
            continue
        head = yield from settled_head(scope, place, found[0], found)
        if head is None:
            continue  # deleted while the page travelled
        restored = Restored(scope.serde, thread_id, head)
        yield Compute(restored.fill())
        tuples.append(restored.tuple)
    return Page(tuples, reply[0])


def threads_page(scope: Scope, cursor: bytes) -> Steps[tuple[list[str], bytes]]:
    """Some thread_ids of this principal in the order of their bytes, and where to go on.

    Threads that expired are taken out of the index on the way.

    Redis: 1 round trip; 2 if some had expired. The index is derived: `rebuild_index` makes it anew.
    """
    index = scope.keys.threads(scope.principal)
    (raw,) = yield Batch((("ZRANGEBYLEX", index, cursor or "-", "+", "LIMIT", 0, _INDEX_PAGE),))
    if not raw:
        return [], b""
    names = [decode_id(name) for name in raw]
    found = yield Batch(tuple(("EXISTS", scope.keys.thread(scope.principal, name).checkpoints) for name in names))
    gone = [name for name, exists in zip(names, found, strict=True) if not exists]
    if gone:
        # Looked at once more afterwards: a thread that was put in between must not be missing from the index.
        looks = (("EXISTS", scope.keys.thread(scope.principal, name).checkpoints) for name in gone)
        _, *found_again = yield Batch((("ZREM", index, *map(encode_id, gone)), *looks))
        back = [encode_id(name) for name, exists in zip(gone, found_again, strict=True) if exists]
        if back:
            yield Batch((("ZADD", index, *(part for name in back for part in (0, name))),))
    alive = [name for name, exists in zip(names, found, strict=True) if exists]
    return alive, b"(" + raw[-1] if len(raw) == _INDEX_PAGE else b""


def rebuild_index(scope: Scope) -> Steps[int]:
    """Make the indexes of this principal's threads and runs anew from what is stored; answers how many threads.

    Redis: 1 round trip per 1,000 keys of the database (SCAN), however many of them are threads; 2 for each thread,
        and 1 more per 100 of its checkpoints.
    """
    cursor, count = b"0", 0
    while True:
        scan = ("SCAN", cursor, "MATCH", scope.keys.thread_pattern(scope.principal), "COUNT", 1000)
        ((cursor, keys),) = yield Batch((scan,))
        for key in keys:
            yield from _index_again(scope, scope.keys.parse_thread(key.decode())[1])
        count += len(keys)
        if cursor == b"0":
            return count


def _index_again(scope: Scope, thread_id: str) -> Steps[None]:
    place = thread_place(scope, thread_id)
    nodes = yield from _skeleton(place)
    runs = {node.run_id for node in nodes} - {""}
    commands = [command for run_id in sorted(runs) or [""] for command, _ in index_commands(scope, place, run_id)]
    yield Batch(tuple(dict.fromkeys(commands)))


# delete --------------------------------------------------------------------------------------------------------------


def delete_thread(scope: Scope, thread_id: str) -> Steps[None]:
    """Delete everything of a thread. Runs that began before are refused when they write afterwards.

    Pointers that only this thread pins end with it.

    Redis: 1 round trip, and 1 more per 100 pointers that the thread pins; the memory is freed in the background.
    Source: BaseCheckpointSaver.delete_thread (langgraph-checkpoint 4.3).
    """
    place = thread_place(scope, thread_id)
    # Ids sort by time: whatever was created until now is at most a fresh id.
    grave = encode_id(str(uuid6())) + b"\0\xff"
    index = scope.keys.threads(scope.principal)
    unlist = ("ZREM", index, encode_id(place.thread_id))
    pointers = scope_of(scope)
    deleted_ms, _, pins = yield from call_with(
        "rtmem_v2_checkpoint_delete_thread",
        place.function_keys,
        (grave, scope.settings.tombstone_ttl_ms, scope.fence),
        beside=(unlist, pins_command(pointers, place.thread_id)),
    )
    if pins:
        # Afterwards, so that no checkpoint is there without its values; a sweep does it if this process cannot.
        yield from release_thread(pointers, place.thread_id, int(deleted_ms))
    scope.indexed.pop((index, place.thread_id), None)
    scope.heads.forget_thread(place.keys.checkpoints)


def delete_for_runs(scope: Scope, run_ids: Sequence[str]) -> Steps[None]:
    """Delete the checkpoints that these runs wrote, with their writes, in whatever thread they are.

    Redis: per run 1 round trip for its threads; per thread 1 per 100 checkpoints to look at, 1 per 50 to delete, and
        what `sweep` takes. The index of a run expires after that, so a job that was broken off can be asked for again.
    Source: BaseCheckpointSaver.delete_for_runs (langgraph-checkpoint 4.3).
    """
    for run_id in run_ids:
        index = scope.keys.run(scope.principal, run_id)
        (threads,) = yield Batch((("SMEMBERS", index),))
        for raw in sorted(threads):
            place = thread_place(scope, decode_id(raw))
            nodes = yield from _skeleton(place)
            doomed = [node.member for node in nodes if node.run_id == run_id]
            yield from _forget(scope, place, doomed)
        # Not DEL: another process that goes on with this run believes that the index names its threads.
        yield Batch((("PEXPIRE", index, scope.settings.tombstone_ttl_ms),))
        for raw in threads:
            scope.indexed.pop((index, decode_id(raw)), None)


# prune ---------------------------------------------------------------------------------------------------------------


def prune(scope: Scope, thread_id: str, strategy: str) -> Steps[None]:
    """Delete all checkpoints of a thread (`delete`) or all but the latest of each namespace (`keep_latest`).

    `keep_latest` also keeps whatever a delta channel of a kept checkpoint is rebuilt from: every ancestor with its
    writes, up to the one that stores a value of the channel.

    Redis: 1 round trip per 100 checkpoints to look at, 1 per 50 to delete, and what `sweep` takes.
    Source: BaseCheckpointSaver.prune (langgraph-checkpoint 4.3).
    """
    if strategy == "delete":
        yield from delete_thread(scope, thread_id)
        return
    if strategy != "keep_latest":
        raise InvalidRequestError(f"prune strategy {strategy!r}: use 'keep_latest' or 'delete'")
    place = thread_place(scope, thread_id)
    nodes = yield from _skeleton(place)
    keep = _to_keep(nodes)
    yield from _forget(scope, place, [node.member for node in nodes if node.member not in keep])
    if nodes:
        args = (nodes[-1].member, scope.fence)
        _, unneeded = yield from call("rtmem_v2_checkpoint_forget_early", place.function_keys, args)
        yield from release(scope, place, ids_in(unneeded))


@dataclass(frozen=True, slots=True)
class Node:
    """What prune has to know of a checkpoint."""

    member: bytes
    parent: bytes
    run_id: str
    deltas: tuple[bytes, ...]  # channels that are rebuilt from the writes of ancestors
    valued: frozenset[bytes]  # channels that are stored


def _skeleton(place: Place) -> Steps[list[Node]]:
    nodes: list[Node] = []
    cursor = b"-"
    while cursor:
        reply = yield from call("rtmem_v2_checkpoint_skeleton", place.function_keys, (cursor, _SKELETON_SIZE))
        cursor = reply[0]
        for at in range(1, len(reply), 5):
            member, parent, run_id, deltas, valued = reply[at : at + 5]
            names = tuple(encode_id(decode_id(name)) for name in deltas.split(b"\0")) if deltas else ()
            nodes.append(Node(member, parent, decode_id(run_id), names, frozenset(valued)))
    return nodes


def _to_keep(nodes: list[Node]) -> set[bytes]:
    by_member = {node.member: node for node in nodes}
    latest = {node.member.partition(b"\0")[2]: node for node in nodes}  # nodes come oldest first
    keep: set[bytes] = set()
    for node in latest.values():
        keep.add(node.member)
        missing = {channel for channel in node.deltas if _raw_name(channel) not in node.valued}
        ancestor = by_member.get(node.parent)
        while missing and ancestor is not None:
            keep.add(ancestor.member)
            missing = {channel for channel in missing if _raw_name(channel) not in ancestor.valued}
            ancestor = by_member.get(ancestor.parent)
    return keep


def _raw_name(channel: bytes) -> bytes:
    return decode_id(channel).encode("utf-8", "surrogatepass")


def _forget(scope: Scope, place: Place, members: list[bytes]) -> Steps[None]:
    for at in range(0, len(members), _FORGET_SIZE):
        some = members[at : at + _FORGET_SIZE]
        _, unneeded = yield from call("rtmem_v2_checkpoint_forget", place.function_keys, (scope.fence, *some))
        yield from release(scope, place, ids_in(unneeded))
    scope.heads.forget_thread(place.keys.checkpoints)
    # Also with nothing to forget: an earlier job may have been broken off before its sweep.
    yield from sweep(scope, place)


def several(thread_ids: Sequence[str]) -> Sequence[str]:
    """`thread_ids`, unless it is one string, whose characters would be taken for threads."""
    if isinstance(thread_ids, str):
        raise TypeError("thread_ids must be a sequence of thread ids, not one string: pass [thread_id]")
    return thread_ids
