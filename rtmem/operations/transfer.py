"""All of a principal's memory as lines of JSON, and back: ids, times, history and values come out as they went in.

What can be computed is not in a line: scopes, tags and words of the index are made anew from what the line says, for
whoever imports, so no line can reach into somebody else's memory. An id is a hash of owner and content, so a line that
was changed, or is another principal's, is refused.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import msgspec
import zstandard
from langgraph.store.base import PutOp, validate_op_namespace

from rtmem.errors import CorruptRecordError, InvalidRequestError, RtmemError
from rtmem.keys import scope_tag
from rtmem.operations.fact_drafts import Draft
from rtmem.operations.fact_items import FOREVER, ID, READ_FIELDS, base_of, content_of, digest_of, read_row
from rtmem.operations.fact_scope import FactScope
from rtmem.operations.functions import call, calls
from rtmem.operations.memory_drafts import item_fields
from rtmem.operations.memory_items import (
    BARE,
    SEPARATOR,
    UNEMBEDDED,
    WHOLE,
    decode_key,
    read_namespace,
    read_paths,
    texts_of,
    write_value,
)
from rtmem.operations.serde import COMPRESSED
from rtmem.operations.text_query import stemmed
from rtmem.operations.transfer_lines import FORMAT, Header, Line, is_plain, read_line, write_line
from rtmem.records import Fact
from rtmem.steps import Argument, Command, Steps

Outcome: TypeAlias = Literal["restored", "there", "other", "over", "refused"]

# Of a line or a record that is none: JSON, base64, structs and the serialiser each have a word of their own for it.
_REFUSALS: Final = (
    *(RtmemError, ValueError, TypeError, LookupError, NotImplementedError, RecursionError),
    zstandard.ZstdError,
)
_REVIVING: Final = (b"j", b"p", b"z")  # JSON with constructors, pickle, and what is compressed twice


# Out -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exported:
    """A part of an export."""

    cursor: str  # for the next part; "0": that was all
    lines: list[bytes]  # each ends in a newline
    unreadable: list[str]  # why something that is there has no line


def export(scope: FactScope, cursor: str, *, count: int = 500, vectors: bool = False) -> Steps[Exported]:
    """Some lines. The cursor begins with "0".

    Facts of all scopes of the principal, what is left of forgotten ones included, and items of its store. All that is
    there from beginning to end is in it once at least; a line may come twice, and an import takes it once.

    Redis: 1 round trip, FCALL rtmem_v1_transfer_page; looks at everybody's memory.
    """
    args: tuple[Argument, ...] = (cursor, count, int(vectors), *_owners(scope))
    following, *rows = yield from call("rtmem_v1_transfer_page", scope.function_keys, args)
    lines, unreadable = [], []
    for row in rows:
        try:
            lines.append(write_line(_line(scope, row)))
        except _REFUSALS as exc:
            unreadable.append(f"{row[0].decode('ascii', 'replace')}: {type(exc).__name__}: {exc}")
    return Exported(following.decode(), lines, unreadable)


def _owners(scope: FactScope) -> list[str]:
    # The store knows users only, one of whom may be nobody: a store that was opened without a principal.
    return [*scope.labels, scope_tag(scope.principal.user, ())]


def header(scope: FactScope, now_ms: int, fingerprint: str = "", dims: int = 0) -> bytes:
    """The first line of an export."""
    whose = scope.principal
    made = Header(
        rtmem_memory=FORMAT, user=whose.user, teams=tuple(whose.teams), application=whose.application,
        exported_at_ms=now_ms, fingerprint=fingerprint, dims=dims,
    )  # fmt: skip
    return write_line(made)


def _line(scope: FactScope, row: Sequence[Any]) -> Line:
    key, ends_at_ms, flat, vectors = row
    fields: dict[str, bytes] = {flat[n].decode(): flat[n + 1] for n in range(0, len(flat), 2)}
    updated, _, rest = fields.get("u", b"0 0 0").partition(b" ")
    common: dict[str, Any] = {
        "marks": tuple((fields["mark"].decode("ascii").split(SEPARATOR)) if "mark" in fields else ()),
        "created_us": int(fields["created"]),
        "updated_us": int(updated),
        "ttl_ms": int(rest.split(b" ")[0]),
        "ends_at_ms": ends_at_ms,
        "vectors": tuple(base64.b64encode(vector).decode() for vector in vectors),
    }
    if "k" in fields:
        return _item_line(scope, fields, common)
    return _fact_line(scope, key.decode()[len(scope.keys.memories) + 1 : -1], fields, common)


def _item_line(scope: FactScope, fields: Mapping[str, bytes], common: dict[str, Any]) -> Line:
    stored = fields["v"]
    value = scope.serde.loads(stored)
    is_exact = is_plain(value) and scope.serde.dumps(value) == stored
    paths = read_paths(fields.get("ix"))
    return Line(
        namespace=read_namespace(fields["ns"])[1],
        key=decode_key(fields["k"]),
        value=value if is_exact else None,
        stored="" if is_exact else base64.b64encode(stored).decode(),
        index=None if paths is None else tuple(paths),
        words="s" in fields,
        **common,
    )


def _fact_line(scope: FactScope, fact_id: str, fields: Mapping[str, bytes], common: dict[str, Any]) -> Line:
    fact = read_row(scope.serde, [fact_id, *map(fields.get, READ_FIELDS)], scope.labels)
    if fact is None:
        raise CorruptRecordError(f"fact {fact_id} is of no scope of this principal", fact=fact_id)
    is_exact = "v" not in fields or (is_plain(fact.value) and scope.serde.dumps(content_of(fact)) == fields["v"])
    return Line(
        fact=fact if is_exact else msgspec.structs.replace(fact, value=None),
        stored="" if is_exact else base64.b64encode(fields["v"]).decode(),
        times=int(fields.get("n", 0)),
        **common,
    )


# In ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of one line, and if it is not there now, why."""

    outcome: Outcome
    why: str = ""


def read_header(raw: bytes, scope: FactScope) -> Header:
    """The first line of an export of this principal. Raises InvalidRequestError."""
    try:
        found = msgspec.convert(json.loads(raw), Header)
    except (ValueError, RecursionError, msgspec.ValidationError) as exc:
        raise InvalidRequestError(f"this is no export of memory: its first line is {raw[:80]!r} ({exc})") from exc
    if found.rtmem_memory > FORMAT:
        raise InvalidRequestError(
            f"this export has format {found.rtmem_memory}, known are 1 to {FORMAT}: upgrade rtmem"
        )
    if found.user != scope.principal.user:
        raise InvalidRequestError(
            f"this is the memory of principal {found.user!r}, and ids say whose a fact is: import it with "
            f"--principal {found.user!r}, or leave it"
        )
    return found


def restore(scope: FactScope, lines: Sequence[bytes], source: Header) -> Steps[list[Restored]]:
    """Write what lines say, as it was, where nothing is under their keys. Returns what became of each line.

    What had a vector and has none in the line, or one of another embedder than `scope` has, is marked: `reembed` gives
    it one. A line that cannot be taken is told of and hinders no other.

    Redis: 1 round trip.
    """
    results: list[Restored | None] = []
    commands: list[Command] = []
    for raw in lines:
        try:
            commands.append(_command(scope, read_line(raw), source))
            results.append(None)
        except _REFUSALS as exc:
            results.append(Restored("refused", str(exc)))
    replies = iter((yield from calls(commands)))
    return [_told(next(replies)) if result is None else result for result in results]


_WHY: Final = {"other": "something else is there under its key, and stays", "over": "its time is over"}


def _told(reply: bytes) -> Restored:
    outcome: Any = reply.decode()
    return Restored(outcome, _WHY.get(outcome, ""))


def _command(scope: FactScope, line: Line, source: Header) -> Command:
    index = scope.index
    is_ours = bool(line.vectors) and source.fingerprint == index.fingerprint and index.embedder is not None
    vectors = [base64.b64decode(each, validate=True) for each in line.vectors] if is_ours else []
    if any(len(vector) != 4 * index.dims for vector in vectors):
        raise InvalidRequestError(f"a vector has other than {index.dims} numbers")
    marks = line.marks
    if not vectors and BARE not in marks:
        marks = (BARE, UNEMBEDDED)  # it had one
    if line.fact is not None:
        key, common, fields = _fact(scope, line.fact, line)
    else:
        key, common, fields = _item(scope, line)
    if line.fact is None or line.fact.forgotten_at_ms is None:
        fields += ["u", f"{line.updated_us} {line.ttl_ms} {max(len(vectors) - 1, 0)}"]
        fields += ["mark", SEPARATOR.join(marks)] if marks else []
    head: list[Argument] = [key, line.ends_at_ms, index.vector_field, index.fingerprint, index.dims]
    head += [len(vectors), *vectors]
    function: Command = ("FCALL", "rtmem_v1_transfer_restore", 2, *scope.function_keys)
    return (*function, *head, len(common), *common, *fields, "created", line.created_us)


def _loads(scope: FactScope, stored: bytes) -> Any:
    """A value that stands in a line as it was stored. A line may be anybody's: nothing is unpickled or revived."""
    raw = stored
    if stored[:1] == COMPRESSED:
        size = zstandard.frame_content_size(stored[1:])
        if not 0 <= size <= scope.index.settings.value_bytes_max:
            raise InvalidRequestError(f"`stored` unpacks to {size} bytes (value_bytes_max in [store])")
        raw = zstandard.decompress(stored[1:])
    if raw[:1] in _REVIVING:
        raise InvalidRequestError(f"`stored` is of a type ({raw[:1].decode()}) that no memory is stored as")
    return scope.serde.loads(raw)


def _item(scope: FactScope, line: Line) -> tuple[str, list[Argument], list[Argument]]:
    if not line.namespace or line.key is None:
        raise InvalidRequestError("neither a fact nor an item: an item has a namespace and a key")
    validate_op_namespace(PutOp(line.namespace, line.key, {}))
    stored = base64.b64decode(line.stored, validate=True)
    value = line.value if line.value is not None else _loads(scope, stored)
    raw = write_value(scope.serde, value, scope.index.settings.value_bytes_max)
    user = scope.principal.user
    common, own = item_fields(user, line.namespace, line.key, value, stored or raw, line.index)
    if line.words:
        own += ["s", stemmed("\n".join(texts_of(value, line.index or (WHOLE,))))]
    return scope.keys.memory(user, line.namespace, line.key), common, own


def _fact(scope: FactScope, fact: Fact, line: Line) -> tuple[str, list[Argument], list[Argument]]:
    return scope.keys.fact(fact.id), [], _fact_fields(scope, fact, line)


def _fact_fields(scope: FactScope, fact: Fact, line: Line) -> list[Argument]:
    if not ID.fullmatch(fact.id) or not all(map(ID.fullmatch, filter(None, (fact.superseded_by, *fact.supersedes)))):
        raise InvalidRequestError(f"id, superseded_by or supersedes of {fact.id[:60]!r} is no id of a fact")
    scope.owner(fact.scope)
    links: list[Argument] = ["n", line.times] if line.times else []
    links += ["prev", SEPARATOR.join(fact.supersedes)] if fact.supersedes else []
    links += ["next", fact.superseded_by] if fact.superseded_by is not None else []
    if fact.forgotten_at_ms is not None:
        return ["owner", scope.tag(fact.scope), "gone", fact.forgotten_at_ms, *links]
    stored = base64.b64decode(line.stored, validate=True)
    if stored:
        content = _loads(scope, stored)
        if not isinstance(content, dict):
            raise InvalidRequestError(f"fact {fact.id} has a {type(content).__name__} in `stored`")
        fact = msgspec.structs.replace(fact, value=content.get("value"))
        if content_of(fact) != content:
            raise InvalidRequestError(f"fact {fact.id} says something else in `stored` than beside it")
    draft = Draft(scope, fact, True, True, True)
    if draft.id != base_of(fact.id):
        raise InvalidRequestError(f"fact {fact.id} would have the id {draft.id} here: it was changed, or is another's")
    fields, _ = draft.fields()
    if stored:
        fields[fields.index("v") + 1] = stored
    fields += ["scope", scope.tag(fact.scope), "seen", f"{fact.last_seen_ms} {fact.times_seen}"]
    fields += ["valid_from", fact.valid_from_ms, "valid_to", FOREVER if fact.valid_to_ms is None else fact.valid_to_ms]
    if digest := digest_of(draft.fact, scope.serde):
        fields += ["digest", digest]
    if fact.ended_at_ms is not None:
        fields += ["ended", fact.ended_at_ms, "reason", fact.invalidated_reason]
    return fields + links
