"""Items of the store before they are written: the fields they will have, and the commands that write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langgraph.store.base import PutOp

from rtmem.keys import place_of
from rtmem.operations.memory_filters import told_of
from rtmem.operations.memory_items import BARE, SEPARATOR, UNEMBEDDED, WHOLE, encode_key, write_paths
from rtmem.operations.memory_scope import MemoryScope
from rtmem.operations.text_query import stemmed
from rtmem.steps import Argument, Command

# Puts in one call, and about their bytes: as much as Redis reads and executes of a client in one go, so that nobody
# else waits longer for it than for calls of their own.
_TOGETHER_MAX: Final = 8
_TOGETHER_BYTES_MAX: Final = 16 * 1024


@dataclass(slots=True)
class Draft:
    """What is about to be written, or deleted."""

    op: PutOp
    value: bytes | None
    ttl_ms: int
    texts: list[str]
    vectors: list[bytes] | None  # None: the embedder failed


def writes(scope: MemoryScope, drafts: Sequence[Draft]) -> list[Command]:
    """The commands that do what drafts say, in their order: it is that of a listing."""
    commands: list[Command] = []
    keys: list[str] = []
    args: list[Argument] = []
    size, with_vectors = 0, False
    for draft in drafts:
        key = scope.keys.memory(scope.principal, draft.op.namespace, draft.op.key)
        if draft.value is None:
            commands.append(("FCALL", "rtmem_v1_memories_delete", 1, key))
            continue
        # Without vectors each put is a call of its own: the keys of several may lie in several slots of a Cluster,
        # where nobody can put vectors.
        alone = not with_vectors or not draft.vectors
        if keys and (alone or len(keys) >= _TOGETHER_MAX or size >= _TOGETHER_BYTES_MAX):
            commands.append(_put_all(scope, keys, args, with_vectors=with_vectors))
            keys, args, size = [], [], 0
        words = _words(scope, draft)
        keys.append(key)
        args += [len(words), *words]
        size += len(draft.value) + sum(map(len, draft.vectors or ()))
        with_vectors = bool(draft.vectors)
    if keys:
        commands.append(_put_all(scope, keys, args, with_vectors=with_vectors))
    return commands


def _put_all(scope: MemoryScope, keys: Sequence[str], args: Sequence[Argument], *, with_vectors: bool) -> Command:
    index = scope.index
    head = (index.vector_field, index.fingerprint, index.dims, len(keys))
    all_keys = (*keys, index.alias) if with_vectors else keys
    return ("FCALL", "rtmem_v1_memories_put_all", len(all_keys), *all_keys, *head, *args)


def _words(scope: MemoryScope, draft: Draft) -> list[Argument]:
    """A put as the function takes it."""
    op = draft.op
    assert op.value is not None, "a delete has no words"
    assert draft.value is not None, "a delete has no words"
    # A reindex does not know how this store was opened, so an item says what of it was embedded.
    from_store = scope.fields if draft.texts and scope.fields != (WHOLE,) else None
    paths = op.index if isinstance(op.index, list | tuple) else from_store
    common, own = item_fields(scope.principal, op.namespace, op.key, op.value, draft.value, paths)
    if draft.texts and (scope.settings.ranking == "hybrid" or draft.vectors is None):
        own += ["s", stemmed("\n".join(draft.texts))]
    if not draft.vectors:
        own += ["mark", BARE if draft.vectors is not None else f"{BARE}{SEPARATOR}{UNEMBEDDED}"]
    first, *sides = draft.vectors or [b""]
    if first:
        own += [scope.index.vector_field, first]
    return [draft.ttl_ms, len(sides), *sides, len(common), *common, *own]


def item_fields(
    principal: str,
    namespace: Sequence[str],
    key: str,
    value: Mapping[str, Any],
    stored: bytes,
    paths: Sequence[str] | None,
) -> tuple[list[Argument], list[Argument]]:
    """Names and values in turn: what side documents carry too, and what only the item does.

    Args:
        stored: `value`, serialised. paths: what of it is embedded, if the item has to say so.
    """
    told = told_of(value)
    place = place_of(principal, namespace)
    common: list[Argument] = ["scope", SEPARATOR.join(place.tags)]
    if told.equalities:
        common += ["eq", SEPARATOR.join(told.equalities)]
    for name, number in told.numbers.items():
        common += [name, number]
    own: list[Argument] = ["ns", place.path, "k", encode_key(key), "v", stored]
    if paths is not None:
        own += ["ix", write_paths(paths)]
    return common, own
