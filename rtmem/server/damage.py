"""What is wrong with a log, what it costs and what would make it start again: as data, and in words."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong.

    kind: torn (ends inside a command), open (a transaction without its end), zeros, garbage, short (once longer on
    disk), missing (a listed file), base (the image), unlisted (a file no manifest lists), manifest, marker.
    """

    kind: str
    file: str
    found: str
    offset: int | None = None  # where what can be kept ends
    bytes_lost: int = 0
    commands_lost: int = 0  # whole ones that can be read behind it; what is not whole cannot be counted
    since_s: int | None = None  # Unix time of the last second noted before the damage
    until_s: int | None = None  # about when the last lost byte was written
    consent: str = ""  # why nobody repairs this unasked; empty: it is repaired unasked


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a repair does. Every removed byte goes to quarantine."""

    keep: tuple[str, ...] = ()  # files of the log afterwards, in order; none: the log starts anew
    manifest: str | None = None  # its new text; None: as it is
    cut: tuple[str, int] | None = None  # file, and the bytes of it that stay
    drop: tuple[str, ...] = ()


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Everything found in one data directory."""

    data_dir: str
    damages: tuple[Damage, ...] = ()
    plan: Plan = Plan()

    @property
    def needs_consent(self) -> bool:
        """Whether something would be lost that nobody may give up but its owner."""
        return any(damage.consent for damage in self.damages)


def words(damage: Damage) -> str:
    """One sentence: file, place, what was found, what goes and about which seconds."""
    place = f"{damage.file}" + (f" at byte {damage.offset}" if damage.offset is not None else "")
    cost = []
    if damage.bytes_lost:
        cost.append(f"{damage.bytes_lost} bytes")
    if damage.commands_lost:
        cost.append(f"{damage.commands_lost} readable command{'s' if damage.commands_lost > 1 else ''}")
    if seconds := _seconds_words(damage):
        cost.append(seconds)
    return f"{place}: {damage.found}" + (f" ({', '.join(cost)})" if cost else "")


def _seconds_words(damage: Damage) -> str:
    if damage.until_s is None:
        return ""
    until = datetime.fromtimestamp(damage.until_s, UTC)
    if damage.since_s is None or damage.since_s >= damage.until_s:
        return f"about {until:%Y-%m-%d %H:%M:%S} UTC"
    return f"about {datetime.fromtimestamp(damage.since_s, UTC):%Y-%m-%d %H:%M:%S} to {until:%H:%M:%S} UTC"
