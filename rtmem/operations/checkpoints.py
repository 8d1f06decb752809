"""put, put_writes and get_tuple, of the full and of the shallow saver: one round trip each.

What the bytes look like and what each step does at the server is told in `lua/checkpoints_v1.lua`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_metadata,
)

from rtmem.errors import InvalidRequestError
from rtmem.keys import check_id
from rtmem.operations.drafts import Draft
from rtmem.operations.functions import call
from rtmem.operations.places import Place, Scope, config_of, encode_id, place_of
from rtmem.operations.restore import Restored, settled_head
from rtmem.steps import Argument, Batch, Command, Compute, Steps

# put -----------------------------------------------------------------------------------------------------------------


def put(
    scope: Scope,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> Steps[RunnableConfig]:
    """Store a checkpoint; what did not change since the one it builds on is neither sent nor stored again.

    Returns:
        The config that names the new checkpoint.

    Raises:
        ThreadDeletedError: the thread was deleted after this run began.
        StaleWriterError: another runner holds a newer fencing token.
        ServerFullError, PersistenceError: nothing was stored.

    Redis: 1 round trip, FCALL rtmem_v1_checkpoint_put; 2 if what this process remembers of the thread is outdated.
        The first put of a thread or run also adds it to the indexes, in the same round trip.
    Source: BaseCheckpointSaver.put (langgraph-checkpoint 4.3).
    """
    place = place_of(scope, config)
    check_id(checkpoint["id"], "checkpoint_id")
    merged: dict[str, Any] = dict(get_checkpoint_metadata(config, metadata))
    stored_metadata = scope.serde.dumps(merged)
    member = place.member(checkpoint["id"])
    parent = place.member(place.checkpoint_id) if place.checkpoint_id else b""

    known = scope.heads.get(place.head_key)
    draft = Draft(scope.serde, scope.settings, checkpoint, new_versions, parent, known)
    yield Compute(draft.fill())
    reply = yield from _put(scope, place, member, parent, merged, stored_metadata, draft)
    if reply[0] == b"stale":
        # Somebody else wrote meanwhile, or the thread expired: send everything.
        draft = Draft(scope.serde, scope.settings, checkpoint, new_versions, b"", None)
        yield Compute(draft.fill())
        reply = yield from _put(scope, place, member, parent, merged, stored_metadata, draft)
    if reply[0] == b"ok":
        scope.heads.remember(place.head_key, draft.head(member, parent, stored_metadata, int(reply[1])))
        if reply[2] == b"shrink":
            yield from _shrink(place)
    return config_of(place.thread_id, place.ns, checkpoint["id"])


def _put(
    scope: Scope,
    place: Place,
    member: bytes,
    parent: bytes,
    metadata: dict[str, Any],
    stored_metadata: bytes,
    draft: Draft,
) -> Steps[list[bytes]]:
    run_id = metadata.get("run_id")
    run_id = run_id if isinstance(run_id, str) else ""
    deltas = metadata.get("counters_since_delta_snapshot") or {}
    args: list[Argument] = [
        scope.mode,
        member,
        place.head_field,
        parent,
        draft.nonce,
        encode_id(run_id),
        b"\0".join(encode_id(channel) for channel in deltas),
        draft.base,
        draft.base_nonce,
        scope.settings.ttl_ms,
        scope.fence,
        draft.body,
        stored_metadata,
        len(draft.entries) // 4,
        *draft.entries,
        len(draft.fresh.large),
        *draft.fresh.large,
        *draft.fresh.small,
    ]
    beside = [command for command, index in index_commands(scope, place, run_id) if not scope.is_indexed(index, place)]
    large = [("HSET", place.keys.checkpoints, number, stored) for number, stored in draft.fresh.large.items()]
    reply: list[bytes] = yield from call(
        "rtmem_v1_checkpoint_put", place.function_keys, args, before=large, beside=beside
    )
    if reply[0] == b"ok":
        missing = [command for command, _ in index_commands(scope, place, run_id) if command not in beside]
        if reply[3] == b"new" and missing:
            # The thread expired or was deleted since this process put it into the indexes, and may be in none now.
            yield Batch(tuple(missing))
        for _, index in index_commands(scope, place, run_id):
            scope.mark_indexed(index, place.thread_id)
    return reply


def index_commands(scope: Scope, place: Place, run_id: str) -> list[tuple[Command, str]]:
    """What puts a thread and a run into the derived indexes, each with the index it is about."""
    thread = encode_id(place.thread_id)
    threads = scope.keys.threads(scope.principal)
    commands: list[tuple[Command, str]] = [(("ZADD", threads, 0, thread), threads)]
    if run_id:
        run = scope.keys.run(scope.principal, run_id)
        commands.append((("SADD", run, thread), run))
        if scope.settings.ttl_ms:
            # Renewed every ttl / 4 (`Scope.is_indexed`), so that it does not expire before its threads.
            commands.append((("PEXPIRE", run, 2 * scope.settings.ttl_ms), run))
        else:
            commands.append((("PERSIST", run), run))  # it may be on its way out, after delete_for_runs
    return commands


# put_writes ----------------------------------------------------------------------------------------------------------


def put_writes(
    scope: Scope, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
) -> Steps[None]:
    """Store what a task wrote. Normal writes insert once (a replayed task must not overwrite), special ones upsert.

    Writes may come before their checkpoint. Writes of a checkpoint that this process stored and that is gone since
    (expired, replaced by a shallow saver) are dropped: they must not bring a thread back.

    Raises:
        ThreadDeletedError, StaleWriterError, ServerFullError, PersistenceError.

    Redis: 1 round trip, FCALL rtmem_v1_checkpoint_put_writes.
    Source: BaseCheckpointSaver.put_writes (langgraph-checkpoint 4.3).
    """
    place = place_of(scope, config)
    if not place.checkpoint_id:
        raise InvalidRequestError("put_writes needs a checkpoint_id in config: writes belong to one checkpoint")
    member = place.member(place.checkpoint_id)
    known = scope.heads.get(place.head_key)
    args: list[Argument] = [
        scope.mode,
        member,
        place.head_field,
        os.urandom(8),
        scope.settings.ttl_ms,
        scope.fence,
        "1" if known and known.member == member else "0",
        encode_id(check_id(task_id, "task_id")),
        task_path,
    ]
    for position, (channel, value) in enumerate(writes):
        args += (WRITES_IDX_MAP.get(channel, position), channel, scope.serde.dumps(value))
    yield from call("rtmem_v1_checkpoint_put_writes", place.function_keys, args)


# get_tuple -----------------------------------------------------------------------------------------------------------


def get_tuple(scope: Scope, config: RunnableConfig) -> Steps[CheckpointTuple | None]:
    """Fetch one checkpoint with its pending writes.

    The read is conditional where this process remembers the head: the server answers that it is the same, and about
    150 bytes travel; what is handed out is a copy.

    Args:
        config: thread_id is required; no checkpoint_id means the latest of the namespace.

    Returns:
        The tuple, pending writes in `writes_sort_key` order, or None when there is no such checkpoint.

    Raises:
        CorruptRecordError: a record or a piece is gone, or does not decode.
        NewerLayoutError: stored by a newer rtmem.

    Redis: 1 round trip, FCALL rtmem_v1_checkpoint_get (and PEXPIRE in the same one with refresh_on_read); 2 if a
        large piece has to travel: a value or message of 64 KB or more, or a long list that was put all at once.
    Source: BaseCheckpointSaver.get_tuple (langgraph-checkpoint 4.3).
    """
    place = place_of(scope, config)
    member = place.member(place.checkpoint_id) if place.checkpoint_id else b""
    known = scope.heads.get(place.head_key)
    if known is not None and (not known.readable or member not in (b"", known.member)):
        known = None
    reply = yield from call(
        "rtmem_v1_checkpoint_get",
        (place.keys.checkpoints,),
        (member, place.head_field, *((known.nonce, known.stamp) if known else ())),
        beside=refresh_commands(scope, place),
    )
    if reply is None:
        return None
    if reply[0] == b"same":
        assert known is not None, "the server knows a head that this process did not name"
        if reply[1] != known.stamp:
            known = replace(known, stamp=reply[1], writes=reply[2])
            scope.heads.remember(place.head_key, known)
        restored = Restored(scope.serde, place.thread_id, known, remembered=True)
        yield Compute(restored.fill())
        return restored.tuple
    head = yield from settled_head(place, member, reply)
    if head is None:
        return None
    restored = Restored(scope.serde, place.thread_id, head, noting=not member)
    yield Compute(restored.fill())
    if not member:
        scope.heads.remember(place.head_key, head)
    return restored.tuple


def refresh_commands(scope: Scope, place: Place) -> list[Command]:
    """What pushes the expiry of a thread away when it is read, if the saver was asked to."""
    if not (scope.settings.refresh_on_read and scope.settings.ttl_ms):
        return []
    return [("PEXPIRE", key, scope.settings.ttl_ms) for key in (place.keys.checkpoints, place.keys.index)]


# Freeing -------------------------------------------------------------------------------------------------------------


def sweep(place: Place) -> Steps[None]:
    """Free the pieces of a thread that no checkpoint refers to any more, in steps of a few milliseconds at most.

    Redis: 1 round trip per 100 checkpoints that are left and per 2,000 pieces that are freed.
    """
    while (yield from call("rtmem_v1_checkpoint_sweep", place.function_keys, ())):
        pass


def _shrink(place: Place) -> Steps[None]:
    """Leave one checkpoint in a namespace in which a full saver wrote before this shallow one.

    Redis: 1 round trip per 100 checkpoints of the thread, and what `sweep` takes.
    """
    cursor = b"-"
    while cursor:
        cursor = yield from call("rtmem_v1_checkpoint_shrink", place.function_keys, (place.head_field, cursor))
    yield from sweep(place)
