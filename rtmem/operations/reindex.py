"""Another embedder, or another kind of index, for all of long-term memory, while everybody reads and writes.

    reindex = Reindex(memory.scope.index, memory.scope.serde)     # whose index is that of the new embedder
    while not memory.run(reindex.advance()).finished: ...

A new index is made beside the old one, over the same documents. Every document gets its new vectors beside the old
ones, in a field of another name. What is written meanwhile is found by both indexes, and a function notes what still
has to be embedded anew. When nothing is left, one function makes the alias lead to the new index; then the old vectors
go. All that was done is to be seen in the documents, so after a crash it goes on where it was.

A program that still has the old embedder is refused from the switch on (EmbedderMismatchError), and works until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec

from rtmem.errors import EmbeddingError, InvalidRequestError, ModuleMissingError
from rtmem.operations import vector_index
from rtmem.operations.functions import call, calls
from rtmem.operations.index_choice import Algorithm, choose
from rtmem.operations.memory_items import BARE, SEPARATOR, UNEMBEDDED, WHOLE, read_paths, texts_of, updated_us
from rtmem.operations.memory_state import function_keys, look
from rtmem.operations.memory_vectors import vectors_apart
from rtmem.operations.serde import Serde
from rtmem.operations.vector_index import Index
from rtmem.steps import Argument, Command, Steps

Phase: TypeAlias = Literal["looking", "clearing", "embedding", "catching up", "tidying", "done"]

_WAIT_MS: Final = 50


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a reindex is."""

    phase: Phase
    done: int  # of the phase
    total: int  # about; 0 where it is not known
    embedded: int  # items, since it was begun here
    failed: int  # items that this embedder cannot embed; no search by meaning finds them
    wait_ms: int = 0  # nothing to do for so long

    @property
    def finished(self) -> bool:
        """Whether that was all."""
        return self.phase == "done"


@dataclass(slots=True)
class Reindex:
    """One reindex, from wherever it is to its end, a bounded piece at a time.

    Args:
        index: with the embedder that the vectors shall be of.
        fields: what of an item is embedded that does not say it itself, as the store has it.
        algorithm: of the new index; None: what `index_choice.choose` says.
        yielding: change the kind of index only, and do nothing where anything else is being made of it.
        batch: about how many documents in one step.
    """

    index: Index
    serde: Serde
    fields: tuple[str, ...] = (WHOLE,)
    algorithm: Algorithm | None = None
    yielding: bool = False
    batch: int = 64
    _phase: Phase = "looking"
    _cursor: bytes = b"0"
    _looked: int = 0
    _total: int = 0
    _embedded: int = 0
    _failed: int = 0
    _leftovers: bytes | None = None

    @property
    def looked(self) -> int:
        """Documents that this phase has looked at."""
        return self._looked

    def advance(self) -> Steps[Progress]:
        """Do one piece of it.

        Raises:
            EmbeddingError: the embedder is not there. What was done stays done; call it again, or later in another
                process, and it goes on.
            StaleWriterError: another reindex, to another embedder, has taken its place.
            ModuleMissingError: no query engine. InvalidRequestError: the index has no embedder.

        Redis: 1 to 3 round trips.
        """
        phase = self._phase
        if phase == "looking":
            yield from self._begin()
        elif phase == "clearing":
            yield from self._tidy("looking", find_unembedded=False)
        elif phase == "embedding":
            yield from self._embed_some()
        elif phase == "catching up":
            return (yield from self._catch_up())
        elif phase == "tidying":
            yield from self._tidy("done", find_unembedded=True)
        return self._progress()

    def _progress(self, wait_ms: int = 0) -> Progress:
        return Progress(self._phase, self._looked, self._total, self._embedded, self._failed, wait_ms)

    def _enter(self, phase: Phase) -> None:
        self._phase, self._cursor, self._looked, self._leftovers = phase, b"0", 0, None

    def _begin(self) -> Steps[None]:
        index = self.index
        if index.embedder is None:
            raise InvalidRequestError("a reindex needs the embedder that the vectors shall be of: open it with one")
        state = yield from look(index)
        current = state.index
        self._total = 0 if current is None else current.documents
        chosen: Algorithm = self.algorithm or (yield from choose(index, state)).algorithm
        made = msgspec.structs.replace(index.settings, vectors=chosen)
        create = vector_index.create_words(
            Index(index.keys, made, index.embedder), () if current is None else current.fields
        )
        head: list[Argument] = [index.fingerprint, index.dims, chosen, index.vector_field, index.embedder_name]
        head.append(int(self.yielding))
        reply = yield from call("rtmem_v1_reindex_begin", function_keys(index), [*head, *create])
        if reply == b"no engine":
            raise ModuleMissingError(vector_index.NO_ENGINE)
        is_same = state.fingerprint == index.fingerprint
        if reply == b"build":
            self._enter("catching up" if is_same else "embedding")
        else:
            after: dict[bytes, Phase] = {b"clear": "clearing", b"done": "tidying", b"busy": "done"}
            self._enter(after[reply])

    # New vectors -----------------------------------------------------------------------------------------------------

    def _embed_some(self) -> Steps[None]:
        index = self.index
        args: tuple[Argument, ...] = (index.fingerprint, index.vector_field, self._cursor, self.batch)
        cursor, looked, *rows = yield from call("rtmem_v1_reindex_pending", function_keys(index), args)
        yield from self._give_vectors(rows)
        self._cursor, self._looked = cursor, self._looked + looked
        if self._cursor == b"0":
            self._enter("catching up")

    def _catch_up(self) -> Steps[Progress]:
        index = self.index
        args: tuple[Argument, ...] = (index.fingerprint, index.vector_field, self.batch)
        left, *rows = yield from call("rtmem_v1_reindex_again", function_keys(index), args)
        yield from self._give_vectors(rows)
        if left > len(rows):
            return self._progress()
        if (yield from call("rtmem_v1_reindex_switch", function_keys(index), (index.fingerprint,))):
            self._enter("tidying")
            return self._progress()
        state = yield from look(index)
        if state.next_index is not None:
            self._looked = round(self._total * state.next_index.indexed_share)
        return self._progress(0 if state.again else _WAIT_MS)

    def _give_vectors(self, rows: Sequence[list[bytes]]) -> Steps[None]:
        vectors = yield from self._vectors(rows)
        commands: list[Command] = []
        for (key, u, _, _), each in zip(rows, vectors, strict=True):
            mark = BARE if each is not None else f"{BARE}{SEPARATOR}{UNEMBEDDED}"
            args = (self.index.fingerprint, self.index.vector_field, key, u, mark, *(each or ()))
            commands.append(("FCALL", "rtmem_v1_reindex_embed", 2, *function_keys(self.index), *args))
        written = yield from calls(commands)
        self._embedded += sum(done for done, each in zip(written, vectors, strict=True) if each is not None)
        self._failed += sum(done for done, each in zip(written, vectors, strict=True) if each is None)

    def _vectors(self, rows: Sequence[list[bytes]]) -> Steps[list[list[bytes] | None]]:
        """The vectors of each item; None where the embedder cannot."""
        vectors = yield from vectors_apart([self._texts(row) for row in rows])
        return [None if isinstance(each, EmbeddingError) else each for each in vectors]

    def _texts(self, row: list[bytes]) -> list[str]:
        return texts_of(self.serde.loads(row[2]), read_paths(row[3] or None) or self.fields)

    # Afterwards ------------------------------------------------------------------------------------------------------

    def _tidy(self, then: Phase, *, find_unembedded: bool) -> Steps[None]:
        """Old vectors go; and what never got one, because the embedder failed when it was written, gets it now."""
        index = self.index
        args: tuple[Argument, ...] = (self._cursor, self.batch, int(find_unembedded))
        cursor, looked, leftovers, *rows = yield from call("rtmem_v1_reindex_tidy", function_keys(index), args)
        self._leftovers = leftovers if self._leftovers is None else self._leftovers
        vectors = yield from self._vectors(rows)
        head = (index.vector_field, index.fingerprint, index.dims)
        written = yield from calls(
            [
                ("FCALL", "rtmem_v1_memories_embed", 2, row[0], index.alias, *head, updated_us(row[1]), *each)
                for row, each in zip(rows, vectors, strict=True)
                if each is not None
            ]
        )
        self._embedded += sum(written)
        self._cursor, self._looked = cursor, self._looked + looked
        if self._cursor == b"0":
            yield from call("rtmem_v1_reindex_tidied", function_keys(index), (self._leftovers or b"",))
            self._enter(then)
