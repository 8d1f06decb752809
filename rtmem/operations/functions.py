"""Calling a Redis Function, and loading its library where the server lacks it.

Functions rather than EVAL scripts: with AOF on, a function is still there after kill -9, a loaded script is not.
Library and function names carry a version, so an old and a new process can share a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from rtmem.errors import FunctionMissingError
from rtmem.steps import Argument, Batch, Command, Lane, Steps

_LIBRARIES = {
    "rtmem_v2_checkpoint": "checkpoints_v2",
    "rtmem_v2_pointers": "pointers_v2",
    "rtmem_v1_memories": "memories_v1",
    "rtmem_v1_facts": "facts_v1",
    "rtmem_v1_cache": "cache_v1",
    "rtmem_v1_nodes": "nodes_v1",
    "rtmem_v1_reindex": "reindex_v1",
    "rtmem_v1_transfer": "transfer_v1",
}
# A long library is a folder. Its files are one chunk of Lua, in this order: what is local in one serves those after it.
_PARTS = {
    "checkpoints_v2": ("records", "pending_writes", "reading", "putting", "deleting", "copying", "inspecting"),
    "cache_v1": ("records", "leases", "writing", "invalidating", "reading", "indexing"),
}
_CALLS = ("FCALL", "FCALL_RO")


def call(
    name: str,
    keys: Sequence[str],
    args: Sequence[Argument],
    *,
    before: Sequence[Command] = (),
    ahead: Sequence[Command] = (),
    beside: Sequence[Command] = (),
    lane: Lane = "auto",
    read_only: bool = False,
    timeout_ms: int | None = None,
) -> Steps[Any]:
    """Call function `name` and return its raw reply; `beside` are commands that travel in the same round trip.
    Commands `before` run with the function as one transaction; those `ahead` only come before it.

    Redis: 1 round trip, 2 with both `before` and `beside`; 2 more when a server is met that lacks the library.
    """
    replies = yield from call_with(
        name,
        keys,
        args,
        before=before,
        ahead=ahead,
        beside=beside,
        lane=lane,
        read_only=read_only,
        timeout_ms=timeout_ms,
    )
    return replies[0]


def call_with(
    name: str,
    keys: Sequence[str],
    args: Sequence[Argument],
    *,
    before: Sequence[Command] = (),
    ahead: Sequence[Command] = (),
    beside: Sequence[Command] = (),
    lane: Lane = "auto",
    read_only: bool = False,
    timeout_ms: int | None = None,
) -> Steps[list[Any]]:
    """Like `call`, and return the replies of the commands `beside` too, behind that of the function."""
    command: Command = ("FCALL_RO" if read_only else "FCALL", name, len(keys), *keys, *args)
    if before:
        # A transaction must stay in one slot of a Cluster, and the commands beside are about other keys.
        batch = Batch((*before, command), atomic=True, lane=lane, timeout_ms=timeout_ms)
    else:
        batch = Batch((*ahead, command, *beside), lane=lane, timeout_ms=timeout_ms)
    try:
        replies = yield batch
    except FunctionMissingError:
        yield from _load(batch.commands)
        replies = yield batch
    replies = replies[len(before) + len(ahead) :]
    if before and beside:
        replies += yield Batch(tuple(beside))
    return replies


def calls(commands: Sequence[Command], *, lane: Lane = "auto") -> Steps[list[Any]]:
    """The replies to several commands, functions among them.

    Redis: 1 round trip; 1 more for each library that the server lacks, and 1.
    """
    if len(commands) == 0:
        return []
    batch = Batch(commands, lane=lane)
    try:
        return (yield batch)
    except FunctionMissingError:
        yield from _load(commands)
        return (yield batch)


def foreign() -> Steps[tuple[str, ...]]:
    """Names of libraries at the server whose code is not that of this program.

    A library is loaded where it is missing, and never in place of another: a version is in its name, so that one name
    always means one code. Here that has been broken, mostly by a program that was never released.

    Redis: 1 round trip.
    """
    ours = {name.partition("\n")[0].rpartition("=")[2]: name for name in map(library_of, _LIBRARIES)}
    (found,) = yield Batch((("FUNCTION", "LIST", "LIBRARYNAME", "rtmem_*", "WITHCODE"),))
    stored = (each if isinstance(each, dict) else dict(zip(each[::2], each[1::2], strict=True)) for each in found)
    codes = {each[b"library_name"].decode(): each[b"library_code"].decode("utf-8", "replace") for each in stored}
    return tuple(sorted(name for name, code in codes.items() if name in ours and code != ours[name]))


def _load(commands: Sequence[Command]) -> Steps[None]:
    # FLUSHALL keeps functions; FUNCTION FLUSH, a new server and a replica that was promoted early do not.
    for library in dict.fromkeys(library_of(str(each[1])) for each in commands if str(each[0]) in _CALLS):
        yield Batch((("FUNCTION", "LOAD", "REPLACE", library),))


@cache
def library_of(name: str) -> str:
    """Source of the library that holds function `name`."""
    prefix = next(prefix for prefix in _LIBRARIES if name.startswith(prefix))
    library, lua = _LIBRARIES[prefix], files("rtmem.operations").joinpath("lua")
    names = [f"{library}/{part}.lua" for part in _PARTS.get(library, ())] or [f"{library}.lua"]
    return "\n".join(lua.joinpath(name).read_text("utf-8") for name in names)
