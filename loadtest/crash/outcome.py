"""What one run of the crash lab found, and what is made of it. Everything that is printed or drawn aggregates these."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from loadtest.crash.prices import Prices
from rtmem.loadtest import Machine

Start = Literal["unattended", "repaired", "accept-loss", "failed"]
"""How the server came back: by itself on a whole log; by itself after a repair; after `repair --accept-loss` where it
had refused; or not at all."""

UNATTENDED = ("unattended", "repaired")

DISK_FAULT: Final = "disk fault: "
"""What the scenarios of failing disks begin with, and their rows of the table."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One crash and what was there afterwards.

    acked, lost: calls that had returned, or turns whose `completed` had arrived, before the crash.
    faults: what is wrong with what is stored, one sentence each; must be empty, whatever was lost.
    """

    scenario: str
    profile: str
    seed: str  # what repeats its decisions: `--seed` and the names below
    crash: str = ""  # what happened, where scenarios differ only in how it is looked at: they share a row of the table
    ack: str = "memory"
    volume: str = ""  # ext4, xfs, shim; empty where no disk takes part
    rewrite: bool = False  # BGREWRITEAOF shortly before
    side_fsync: bool = False  # another process fsyncs on the same volume
    acked: int = 0
    lost: int = 0
    turns: int = 0  # how many of those acknowledged were whole turns at a gateway
    turns_lost: int = 0
    window_ms: float = 0.0  # age of the oldest lost acknowledgement at the crash
    longest_fsync_ms: float = 0.0
    start: Start = "unattended"
    recovery_ms: float = 0.0  # from the beginning of the start to the first successful read
    faults: tuple[str, ...] = ()
    torn: int = 0  # half-written groups, where a control writes such groups
    raw_start: str = ""  # what Redis by itself makes of the same files: "starts", "refuses", or nobody asked
    note: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A promise, or a control that has to bite, and whether it was so in this run."""

    what: str
    promised: str
    found: str
    kept: bool


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run, as it is written to crash.json."""

    seed: int
    started_at: str
    duration_s: float
    versions: dict[str, str]
    outcomes: list[Outcome]
    verdicts: list[Verdict]
    prices: Prices | None = None
    machine: Machine | None = None
    not_covered: list[str] = []


class NotCovered(Exception):
    """Something cannot be had on this machine; says what is therefore not covered, and why."""
