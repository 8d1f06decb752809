"""What INFO tells of a server's AOF: whether its fsyncs succeed, and since when one of them may have failed.

After a failed fsync WAITAOF answers as if it had succeeded (Redis 8.2: the offset moves on when nothing is left to
sync, or with the next fsync that succeeds; 10 of 10 such writes were lost): `aof_last_write_status` says so, but with
other writers on the server only until that next fsync. So one look at the end is not enough.

What this cannot see: an fsync that fails in the very second in which an AOF rewrite starts, whose own fsync clears the
status; and one that failed while nobody looked, whose hole later writes lie behind. An embedded Redis is looked at
twice a second (server/recovery.py). Under `always` none of this arises: the server exits at a failed fsync, before it
answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, Final, NamedTuple

_REMEMBERED_S: Final = 0.9
_REWRITE_PAUSE_S: Final = 8.0  # a rewrite forks the server; on a disk that is still sick it fails


class ServerId(NamedTuple):
    """One life of one server as a master."""

    run_id: str  # changes with every start
    replication_id: str  # changes when a replica becomes the master


def fields_of(info: Any) -> dict[str, str]:
    """What INFO has answered, as names and texts."""
    text = info.decode("utf-8", "replace") if isinstance(info, bytes) else str(info)
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line and not line.startswith("#"))


def server_of(fields: dict[str, str]) -> ServerId:
    """Who has answered INFO."""
    return ServerId(fields.get("run_id", ""), fields.get("master_replid", ""))


@dataclass(slots=True)
class Watch:
    """What looking at INFO has told about failed fsyncs, by the clock of whoever looks.

    Under everysec Redis reports a failed fsync until the next one succeeds, which begins a second after the failed one
    began, at the earliest. So of two looks at most 900 ms apart, both at a moment when no fsync is under way, the
    second sees every failure of an fsync that began between them.

    And what a failed fsync has lost is a hole in the log, which no start gets past: an fsync that succeeds behind it
    proves nothing, until a rewrite that began after the failure has succeeded.
    """

    looked_s: float = -inf
    quiet_s: float = -inf  # the last look that found no fsync under way
    failed_s: float = -inf  # what was written before this may have been lost by a failure that was seen
    unseen_s: float = -inf  # what was written before this may have been lost by a failure that nobody saw
    broken: tuple[str, int] | None = None  # the log may have a hole: run_id, and how many rewrites had begun by then
    asked_s: float = -inf  # when a rewrite was asked for

    def note(self, fields: dict[str, str], began_s: float, ended_s: float) -> None:
        """Take in an INFO that was answered between the two times."""
        self.looked_s = max(self.looked_s, began_s)
        if fields.get("aof_last_write_status") != "ok":
            self.failed_s = max(self.failed_s, ended_s)
            self.broken = (fields.get("run_id", ""), int(fields.get("aof_rewrites", 0)))
        elif self.broken and _was_written_anew(fields, *self.broken):
            self.broken = None
        if ended_s - self.quiet_s > _REMEMBERED_S:
            self.unseen_s = max(self.unseen_s, ended_s - _REMEMBERED_S)
        if fields.get("aof_pending_bio_fsync", "0") == "0":
            self.quiet_s = max(self.quiet_s, began_s)

    def owes_rewrite(self, fields: dict[str, str], now_s: float) -> bool:
        """Whether to ask for a rewrite now: Redis has forgotten the failure, and so may all others have."""
        idle = fields.get("aof_rewrite_in_progress") == fields.get("aof_rewrite_scheduled") == "0"
        forgotten = self.broken is not None and fields.get("aof_last_write_status") == "ok"
        return forgotten and idle and now_s - self.asked_s > _REWRITE_PAUSE_S


def _was_written_anew(fields: dict[str, str], run_id: str, rewrites: int) -> bool:
    """Whether a rewrite that began later has succeeded; or another life of the server, or another server, answers."""
    if fields.get("run_id", "") != run_id:
        return True
    succeeded = fields.get("aof_rewrite_in_progress") == "0" and fields.get("aof_last_bgrewrite_status") == "ok"
    return succeeded and int(fields.get("aof_rewrites", 0)) > rewrites
