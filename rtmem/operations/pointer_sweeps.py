"""Freeing what is over of everybody's pointers, for a program that serves many principals."""

from __future__ import annotations

from rtmem import settings as all_settings
from rtmem.keys import Keys
from rtmem.operations.pointer_lifetimes import sweep
from rtmem.operations.pointers import PointerScope
from rtmem.records import SweepReport
from rtmem.steps import Batch, Steps

_SCANNED = 1_000  # keys of the database per round trip
_PAGES_MAX = 20  # round trips of one call that look for principals
_STEPS_MAX = 20  # and that are spent on one of them


def sweep_all(settings: all_settings.Pointers, cursor: bytes = b"0") -> Steps[tuple[bytes, SweepReport]]:
    """Sweep the pointers of the principals that are found among some keys; answers where to go on, b"0" at the end.

    Redis: at most 20 round trips of a SCAN over 1,000 keys each, and at most 20 steps of `pointer_lifetimes.sweep` for
        each principal they find: what is left waits for the next round.
    """
    keys, expired, threads, uploads, more = Keys(settings.prefix), 0, 0, 0, False
    for _ in range(_PAGES_MAX):
        scan = ("SCAN", cursor, "MATCH", keys.pointer_pattern(), "COUNT", _SCANNED)
        ((cursor, found),) = yield Batch((scan,))
        for key in found:
            principal, _ = keys.parse_thread(key.decode())
            report = yield from sweep(PointerScope(principal, settings, keys), steps_max=_STEPS_MAX)
            expired, threads, uploads = expired + report.expired, threads + report.threads, uploads + report.uploads
            more = more or report.more
        if cursor == b"0":
            break
    return cursor, SweepReport(expired=expired, threads=threads, uploads=uploads, more=more or cursor != b"0")
