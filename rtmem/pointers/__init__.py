"""Pointers: large values stay out of the context window, and stay reachable.

    with Pointers.from_conn_string(url, principal="alice") as pointers:
        pointer = pointers.offload(rows, thread_id="support-7", name="search results")
        pointers.resolve(pointer.id)                             # the same rows, type and all; hash verified
        pointers.slice(pointer.id, "items", 100, 20)             # 20 of them, at most output_characters_max of text
        pointers.search(pointer.id, "timeout", ignore_case=True)
        pointers.select(pointer.id, "[?price > `100`].name")     # JMESPath

`AsyncPointers` has the same verbs, awaited. A pointer belongs to a principal, which is bound in the object
(`pointers.bind("bob")`) and never read from a message: an id is a name and no right. Somebody else's id is answered
like one that never existed: same commands, same round trips, same words.

    verb                                                          answers         round trips
    offload(value, *, thread_id, ttl_ms, media_type, name)        Pointer         1; above 1 MB 1 more, 1 per 256 KB
    resolve(pointer)                                              the value       1; above 1 MB 1 more per MB
    describe(pointer)                                             Pointer         1
    slice(pointer, unit, start, count, *,                         Slice           1; 2 where chunks must be looked into
          characters_max, continuation)
    search(pointer, pattern, *, regex, ignore_case,               Matches         1 per MB looked at
           matches_max, characters_max, continuation)
    select(pointer, expression, *, characters_max, continuation)  Selection       as resolve
    pin(pointer, thread_id)  unpin(pointer, thread_id)            None            1
    delete(pointer)                                               bool            1
    list(thread_id, *, limit, continuation)                       PointerPage     1
    usage()                                                       PointerUsage    1
    sweep(steps_max)                                              SweepReport     1 per 100 due things, 2 with threads
    inspect()                                                     PointerReport   a scan of the database

What the answers carry (`rtmem.records` explains each field):

    Pointer         .id .kind .media_type .bytes .tokens .characters .lines .items .shape .head .tail .name .hash
                    .created_at_ms .expires_at_ms
    Slice           .content .unit .start .count .total .excerpt .continuation
    Matches         .matches (each .start .line .text .match) .searched_characters .characters .continuation
    Selection       .text .characters .start .continuation
    PointerPage     .pointers .continuation
    PointerUsage    .pointers .values .bytes .bytes_max .uploading_bytes
    SweepReport     .expired .threads .uploads .more
    PointerReport   .pointers .values .bytes .uploads .dangling .orphans

`pointer` is an id or a `Pointer`. A pointer lives as long as the longest of its reasons: each thread that pins it
(`thread_id`), a pin by hand (`pin(pointer)`), its `ttl_ms`. Without `thread_id` and `ttl_ms` it gets the ttl of the
settings. `delete` ends it at once, whatever pins it. Savers let a thread's pins share the thread's fate: deleted,
expired or copied.

Errors: PointerNotFoundError (also for ids of others), PointerExpiredError (one's own; a subclass), TooLargeError,
QuotaExceededError, CorruptRecordError, QueryError for what cannot be asked, QueryLimitError for what would take too
long, and those of Redis. Every answer of slice, search and select is bounded and carries a `continuation`: pass it
with the same arguments to get what follows.
"""

from rtmem.operations.pointer_previews import render
from rtmem.pointers.aio import AsyncPointers
from rtmem.pointers.sync import Pointers

__all__ = ["AsyncPointers", "Pointers", "render"]
