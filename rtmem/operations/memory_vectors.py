"""Vectors that failed to come: items and facts that were stored without theirs get them later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from rtmem.errors import EmbeddingError, EmbeddingUnavailableError
from rtmem.operations import memory_queries
from rtmem.operations.functions import calls
from rtmem.operations.memory_items import WHOLE, read_paths, texts_of, updated_us
from rtmem.operations.serde import Serde
from rtmem.operations.vector_index import Index
from rtmem.steps import Command, Embed, Steps

_TOGETHER_MAX: Final = 64  # texts of so many items go to the embedder at once


def with_direction(vectors: Iterable[Any]) -> list[bytes]:
    """Those of an embedder's vectors that have a length; nothing is near the others, whose numbers are 0 or -0."""
    stored = [vector.tobytes() for vector in vectors]
    # numpy takes 2 us to tell. Numbers of these bytes alone that are not 0 have no length in float32, so no driver lets
    # them pass.
    return [each for each in stored if each.strip(b"\x00\x80")]


def vectors_apart(texts: Sequence[Sequence[str]]) -> Steps[list[list[bytes] | EmbeddingError]]:
    """The vectors of each of several items; an error for one that the embedder cannot embed, and for that one only.

    Raises EmbeddingUnavailableError.
    """
    asked = tuple(dict.fromkeys(text for each in texts for text in each))
    try:
        found = dict(zip(asked, (yield Embed(asked)), strict=True)) if asked else {}
    except EmbeddingUnavailableError:
        raise
    except EmbeddingError as exc:
        if len(texts) == 1:
            return [exc]
        # One text may be to blame: the others shall not be without vectors for it.
        apart: list[list[bytes] | EmbeddingError] = []
        for each in texts:
            apart += yield from vectors_apart([each])
        return apart
    return [with_direction([found[text] for text in each]) for each in texts]


def reembed_all(index: Index, serde: Serde, limit: int) -> Steps[int]:
    """Embed what is marked as without vectors, whosesoever it is, facts and items. Returns and raises as `reembed`."""
    return (
        yield from reembed(
            index, "", limit, ("ix",), lambda row: texts_of(serde.loads(row[2]), read_paths(row[5]) or (WHOLE,))
        )
    )


def reembed(
    index: Index, clauses: str, limit: int, fields: Sequence[str], texts_of_row: Callable[[list[bytes]], list[str]]
) -> Steps[int]:
    """Embed what is marked as without vectors. Returns how many have theirs now.

    Args:
        clauses: of whose memory; none: of everybody's.
        fields: what a row has behind id, score, v, created and u.

    Raises:
        EmbeddingError: nothing at all could be embedded. What cannot be, beside what can, stays marked.

    Redis: 2 round trips for each 64.
    """
    done = failed = 0
    while done + failed < limit:
        most = min(limit - done - failed, _TOGETHER_MAX)
        query = memory_queries.unembedded(index, clauses, failed + most)
        found = yield from memory_queries.find(
            index, [query], skip=failed, take=most, enough=failed + most, refresh=False, with_vectors=False,
            fields=fields,
        )  # fmt: skip
        vectors = yield from vectors_apart([texts_of_row(row) for row in found.rows])
        errors = [each for each in vectors if isinstance(each, EmbeddingError)]
        if errors and not done and len(errors) == len(vectors):
            raise errors[0]
        commands: list[Command] = []
        for row, each in zip(found.rows, vectors, strict=True):
            if not isinstance(each, EmbeddingError):
                head = (index.vector_field, index.fingerprint, index.dims, updated_us(row[4]))
                commands.append(("FCALL", "rtmem_v1_memories_embed", 2, row[0], index.alias, *head, *each))
        written = sum((yield from calls(commands)))
        done, failed = done + written, failed + len(errors)
        if not found.has_more or not (written or errors):
            break
    return done
