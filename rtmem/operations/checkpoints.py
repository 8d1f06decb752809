"""put, put_writes and get_tuple, of the full and of the shallow saver: one round trip each.

What the bytes look like and what each step does at the server is told in `lua/checkpoints_v2/`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_metadata,
)

from rtmem.errors import InvalidRequestError, RtmemError
from rtmem.keys import check_id
from rtmem.operations.drafts import Draft
from rtmem.operations.functions import call
from rtmem.operations.offloading import Offloads, ids_in, read_writes, release
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
        TooLargeError, QuotaExceededError: an oversized value found no room at a pointer; nothing was stored.

    Redis: 1 round trip, FCALL rtmem_v2_checkpoint_put; 2 if what this process remembers of the thread is outdated.
        The first put of a thread or run also adds it to the indexes, in the same round trip.
        With `offload_bytes_min`, before it, for each oversized value that is new, 1 up to `batch_bytes` (1 MB), for a
        larger one 1 and 1 per 256 KB, or 2 if an equal value is there; after it, 1 where a shallow saver frees what it
        replaced.
    Source: BaseCheckpointSaver.put (langgraph-checkpoint 4.3).
    """
    place = place_of(scope, config)
    check_id(checkpoint["id"], "checkpoint_id")
    checkpoint = _as_of_now(checkpoint)
    merged: dict[str, Any] = dict(get_checkpoint_metadata(config, metadata))
    stored_metadata = scope.serde.dumps(merged)
    member = place.member(checkpoint["id"])
    parent = place.member(place.checkpoint_id) if place.checkpoint_id else b""

    known, offloads = scope.heads.get(place.head_key), Offloads(scope, place)
    draft = Draft(scope.serde, scope.settings, checkpoint, new_versions, parent, known)
    try:
        while True:
            yield Compute(draft.fill())
            references = yield from _move_out(draft, offloads)
            reply = yield from _put(scope, place, member, parent, merged, stored_metadata, draft, references)
            if reply[0] != b"stale" and offloads.are_kept(reply):
                break
            # Somebody else wrote meanwhile, or the thread expired: send everything.
            draft = Draft(scope.serde, scope.settings, checkpoint, new_versions, b"", None)
    except RtmemError as exc:
        yield from offloads.give_up(exc)
        raise
    yield from offloads.settle(reply)
    if reply[0] == b"ok":
        scope.heads.remember(place.head_key, draft.head(member, parent, stored_metadata, int(reply[1])))
        if reply[2] == b"shrink":
            yield from _shrink(scope, place)
    return config_of(place.thread_id, place.ns, checkpoint["id"])


def _move_out(draft: Draft, offloads: Offloads) -> Steps[list[Argument]]:
    """Store the oversized pieces at pointers; answers their numbers, each with the reference to it."""
    references: list[Argument] = []
    offloads.begin_again()
    for number, stored in draft.fresh.offloaded.items():
        references += (number, (yield from offloads.store(stored)))
    return references


def _as_of_now(checkpoint: Checkpoint) -> Checkpoint:
    """`checkpoint` with lists of its own. Encoding takes turns with other tasks, and is done again when the memory of
    the thread was outdated; a channel may go on appending to its list meanwhile (`Topic.checkpoint` hands out its own).
    """
    values = {
        name: value.copy() if type(value) is list else value for name, value in checkpoint["channel_values"].items()
    }
    return {**checkpoint, "channel_values": values}


def _put(
    scope: Scope,
    place: Place,
    member: bytes,
    parent: bytes,
    metadata: dict[str, Any],
    stored_metadata: bytes,
    draft: Draft,
    references: list[Argument],
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
        len(references) // 2,
        *references,
        *draft.fresh.small,
    ]
    beside = [command for command, index in index_commands(scope, place, run_id) if not scope.is_indexed(index, place)]
    large = [("HSET", place.keys.checkpoints, number, stored) for number, stored in draft.fresh.large.items()]
    reply: list[bytes] = yield from call(
        "rtmem_v2_checkpoint_put", place.function_keys, args, before=large, beside=beside
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


_LOST: Final = 6  # of the arguments of put_writes


def put_writes(
    scope: Scope, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
) -> Steps[None]:
    """Store what a task wrote. Normal writes insert once (a replayed task must not overwrite), special ones upsert.

    Writes may come before their checkpoint. Writes of a checkpoint that this process stored and that is gone since
    (expired, replaced by a shallow saver) are dropped: they must not bring a thread back.

    Raises:
        ThreadDeletedError, StaleWriterError, ServerFullError, PersistenceError, TooLargeError, QuotaExceededError.

    Redis: 1 round trip, FCALL rtmem_v2_checkpoint_put_writes. With `offload_bytes_min`, before it what `put` takes for
        an oversized value, and after it 1 where such a value was not taken or took the place of another.
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
    oversized: dict[int, bytes] = {}  # by their place in args
    for position, (channel, value) in enumerate(writes):
        stored = scope.serde.dumps(value)
        args += (WRITES_IDX_MAP.get(channel, position), channel, stored)
        if 0 < scope.settings.offload_bytes_min <= len(stored):
            oversized[len(args) - 1] = stored
    if not oversized:
        reply = yield from call("rtmem_v2_checkpoint_put_writes", place.function_keys, args)
        if reply[0] == b"ok" and reply[1]:  # it took the place of values that had been moved out
            yield from Offloads(scope, place).settle(reply)
        return
    offloads = Offloads(scope, place)
    try:
        while True:
            offloads.begin_again()
            for at, stored in oversized.items():
                args[at] = yield from offloads.store(stored)
            reply = yield from call("rtmem_v2_checkpoint_put_writes", place.function_keys, args)
            if offloads.are_kept(reply):
                break
            args[_LOST] = offloads.lost
    except RtmemError as exc:
        yield from offloads.give_up(exc)
        raise
    yield from offloads.settle(reply)


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

    Redis: 1 round trip, FCALL rtmem_v2_checkpoint_get (and PEXPIRE in the same one with refresh_on_read); 2 if a
        large piece has to travel: a value or message of 64 KB or more, or a long list that was put all at once. For
        each value that lies at a pointer 1 up to `batch_bytes` (1 MB) and 1 more per batch, unless it is remembered;
        1 more where another thread brought an equal one before.
    Source: BaseCheckpointSaver.get_tuple (langgraph-checkpoint 4.3).
    """
    place = place_of(scope, config)
    member = place.member(place.checkpoint_id) if place.checkpoint_id else b""
    known = scope.heads.get(place.head_key)
    if known is not None and (not known.readable or member not in (b"", known.member)):
        known = None
    reply = yield from call(
        "rtmem_v2_checkpoint_get",
        (place.keys.checkpoints,),
        (member, place.head_field, *((known.nonce, known.stamp) if known else ())),
        beside=refresh_commands(scope, place),
    )
    if reply is None:
        return None
    if reply[0] == b"same":
        assert known is not None, "the server knows a head that this process did not name"
        writes = known.writes if reply[1] == known.stamp else (yield from read_writes(scope, place, reply[2]))
        if writes is not None:
            if reply[1] != known.stamp:
                known = replace(known, stamp=reply[1], writes=writes)
                scope.heads.remember(place.head_key, known)
            restored = Restored(scope.serde, place.thread_id, known, remembered=True)
            yield Compute(restored.fill())
            return restored.tuple
        # A write went while its value was read.
        reply = yield from call("rtmem_v2_checkpoint_get", (place.keys.checkpoints,), (member, place.head_field))
    head = yield from settled_head(scope, place, member, reply)
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


def sweep(scope: Scope, place: Place) -> Steps[None]:
    """Free the pieces of a thread that no checkpoint refers to any more, in steps of a few milliseconds at most.

    Redis: 1 round trip per 100 checkpoints that are left and per 2,000 pieces that are freed, and 1 more per 100
        pointers that are freed.
    """
    more = 1
    while more:
        more, unneeded = yield from call("rtmem_v2_checkpoint_sweep", place.function_keys, ())
        yield from release(scope, place, ids_in(unneeded))


def _shrink(scope: Scope, place: Place) -> Steps[None]:
    """Leave one checkpoint in a namespace in which a full saver wrote before this shallow one.

    Redis: 1 round trip per 100 checkpoints of the thread, and what `sweep` takes.
    """
    cursor = b"-"
    while cursor:
        args = (place.head_field, cursor)
        cursor, unneeded = yield from call("rtmem_v2_checkpoint_shrink", place.function_keys, args)
        yield from release(scope, place, ids_in(unneeded))
    yield from sweep(scope, place)
