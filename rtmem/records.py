"""What is stored or handed from floor to floor, as msgspec structs. No behaviour.

Every stored layout begins with its version, so that an older program can refuse what it does not understand.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

LOG_LAYOUT: Final = 1

ThreadStatus = Literal["running", "interrupted", "idle"]
"""running: a run is at work. interrupted: the graph waits for a person's answer. idle: neither."""


class TurnEvent(msgspec.Struct, frozen=True):
    """One thing that happened in a turn, in the words of the agent streaming protocol, not yet numbered."""

    method: str  # lifecycle, messages, values, updates, tools, tasks, checkpoints, custom, input.requested
    data: Any
    namespace: tuple[str, ...] = ()  # path of the subgraph, () is the graph itself
    node: str | None = None  # of a messages event: the node that speaks
    interrupts: tuple[Any, ...] = ()  # of a values event


class LogEvent(msgspec.Struct, frozen=True, array_like=True):
    """One event as clients receive it, with what a subscription filters on."""

    seq: int  # per thread, never decreases, never used twice
    channel: str  # values, messages, ..., input, custom:<name>
    namespace: tuple[str, ...]
    frame: bytes  # JSON, UTF-8
    without_state: bool = False  # the state was too large to be logged: the frame's data is null


class LogGroup(msgspec.Struct, frozen=True, array_like=True):
    """Events appended together: one entry of the thread's Redis stream, whose id is the seq of the last event."""

    layout: int
    previous_seq: int  # last seq of the group before; the chain by which a reader notices loss. 0: the log began here
    run_id: str
    run_after_seq: int  # the run's events are those after this one
    status: ThreadStatus  # of the thread once these events are true
    events: tuple[LogEvent, ...]


class LogHead(msgspec.Struct, frozen=True):
    """Where a thread's log ends."""

    last_seq: int
    run_id: str
    run_after_seq: int
    status: ThreadStatus
    unheard: bool = False  # the run ended in this process and no subscriber was there to hear it
    ended_ms: int = 0  # when, on this process' monotonic clock


class LostEvents(msgspec.Struct, frozen=True):
    """A place where the log does not continue."""

    after_seq: int  # the group before the place, if it is still there, ended with this seq
    before_seq: int  # the first event behind the place


class LogPage(msgspec.Struct, frozen=True):
    """Some events after a seq."""

    events: tuple[LogEvent, ...]
    last_seq: int  # where to read on
    complete: bool  # nothing more was there
    lost: LostEvents | None = None  # the last such place, if the page has one


PointerKind = Literal["text", "bytes", "json", "table", "dataframe", "object"]
"""What a value was when it was offloaded, and is again when it is resolved.

text: str. bytes: bytes, among them images and audio. json: lists, dicts, strings, numbers, exactly as JSON keeps them;
content blocks of messages too. table: pyarrow.Table. dataframe: pandas.DataFrame. object: whatever else LangGraph's
serialiser takes (tuples, dates, messages, numpy arrays): it can be resolved, not looked into.
"""

PointerUnit = Literal["characters", "lines", "items", "rows", "bytes"]
"""What a slice counts in. A line ends with \\n; an item is an element of an array or an entry of an object."""


class Pointer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value that was offloaded: what its record says, not the value itself. It is a name, and no right."""

    id: str  # mp_ and 26 characters of base 32; random, never used twice
    kind: PointerKind
    media_type: str
    bytes: int  # of the value as it is stored, before compression
    tokens: int  # about how many it would have cost in a conversation: bytes / 4 of text, / 3 of JSON and tables
    characters: int = 0  # of text and JSON
    lines: int = 0  # of text and JSON
    items: int = 0  # elements of an array, entries of an object, rows of a table
    shape: str = ""  # "array of 5,000 objects {id: integer, name: string}", "320 x 200 pixels"
    head: str = ""  # the beginning, as a model sees it; the same for the same value
    tail: str = ""  # the end; empty if the head is all
    name: str = ""  # what whoever offloaded it called it
    hash: str = ""  # BLAKE3 of the stored bytes, 64 hexadecimal digits
    created_at_ms: int = 0  # by the clock of Redis, Unix time
    expires_at_ms: int = 0  # 0: it lives as long as what pins it


class Slice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a value."""

    unit: PointerUnit
    start: int  # of the first one
    count: int  # how many there are in `content`; a last one may be cut, see `continuation`
    total: int  # of the whole value
    content: Any  # characters and lines: str. bytes: bytes. items and rows: list (entries of an object: pairs)
    excerpt: str = ""  # the beginning of the next item or row, where that one alone is too large for an answer
    continuation: str = ""  # gets what follows; empty: nothing does


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """A place where a pattern was found."""

    start: int  # in characters of the value
    line: int  # counted from 0
    text: str  # the match, with what stands around it in its line, cut at a bound
    match: str  # the match itself, cut at a bound


class Matches(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a search found."""

    matches: tuple[Match, ...]
    searched_characters: int  # how far this answer looked, from the beginning of the value
    characters: int  # of the value
    continuation: str = ""  # looks further; empty: all was looked at


class Selection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an expression selected, as JSON text: whole, or as much as one answer may have."""

    text: str
    characters: int  # of the whole answer
    start: int = 0  # where in it `text` begins
    continuation: str = ""


class PointerPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Some pointers of a scope, newest first."""

    pointers: tuple[Pointer, ...]
    continuation: str = ""


class PointerUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What the pointers of a scope take."""

    pointers: int
    values: int  # equal ones are stored once
    bytes: int  # stored, records included
    bytes_max: int  # the quota; 0: none
    uploading_bytes: int = 0  # promised to uploads that are under way; they count too


class SweepReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep did."""

    expired: int  # pointers whose time was over
    threads: int  # that were gone, and what only they pinned with them
    uploads: int  # that had stopped half-way
    more: bool = False  # it was broken off by its bound: sweep again


class PointerReport(msgspec.Struct, frozen=True, kw_only=True):
    """Whether what is stored of a scope's pointers fits together."""

    pointers: int
    values: int
    bytes: int
    uploads: int
    dangling: tuple[str, ...]  # what leads to something that is gone: data was lost
    orphans: tuple[str, ...]  # what nothing leads to: memory is lost

    @property
    def sound(self) -> bool:
        """Neither."""
        return not (self.dangling or self.orphans)


# Facts ---------------------------------------------------------------------------------------------------------------

FactKind = Literal["semantic", "episodic", "procedural", "preference"]
"""semantic: what is so. episodic: what happened. procedural: how something is done. preference: what somebody likes."""

Scalar = str | int | float | bool
"""What the object of a fact can be: compared by value and type."""


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and what that gives access to. Comes from the server's own authentication, never from a message.

    A fact belongs to one user, one team or one application. What is empty gives access to nothing.
    """

    user: str = ""
    teams: tuple[str, ...] = ()
    application: str = ""


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that is remembered. Times are Unix times in milliseconds, UTC."""

    id: str  # the same for whoever says the same of the same owner; `.2` behind it: believed again after it had ended
    text: str  # as a sentence
    kind: FactKind = "semantic"
    scope: str = "user"  # user, application, or team:NAME
    key: str = ""  # of a profile: what it is read by
    subject: str | None = None
    predicate: str | None = None
    object: Scalar | None = None
    value: Any = None  # data that comes back as it was given
    importance: float = 0.5  # 0..1
    tags: tuple[str, ...] = ()

    # Where it is from; of several times, the last.
    thread_id: str = ""
    message_id: str = ""
    position: int | None = None  # in its thread: facts beside each other lift each other in retrieval
    document: str = ""
    writer: str = ""  # the agent or tool that wrote it
    principal: str = ""  # the user it was written for

    # When it is true: from .. to, without to. None: until it is superseded or invalidated.
    valid_from_ms: int = 0
    valid_to_ms: int | None = None

    # What became of it.
    created_at_ms: int = 0  # first written
    last_seen_ms: int = 0  # last written
    times_seen: int = 1
    ended_at_ms: int | None = None  # superseded or invalidated
    invalidated_reason: str = ""
    superseded_by: str | None = None
    supersedes: tuple[str, ...] = ()
    forgotten_at_ms: int | None = None  # nothing is left of what it said
    embedded: bool = True  # False: its embedding failed; until `reembed` it is found by its words only

    def is_valid_at(self, time_ms: int) -> bool:
        """Whether it was true at a time, as far as is known now."""
        if self.forgotten_at_ms is not None:
            return False
        return self.valid_from_ms <= time_ms and (self.valid_to_ms is None or time_ms < self.valid_to_ms)


class FactPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Some facts, the last created first."""

    facts: tuple[Fact, ...]
    continuation: str = ""  # pass it with the same arguments for what follows; empty: that was all
    index_ready: bool = True  # False: the engine still reads memory back after a restart, and there may be more
