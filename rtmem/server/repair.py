"""Make a damaged log start again: copy first, cut what is damaged, keep every removed byte, survive being broken off.

A repair is a row of steps, each of them durable before the next begins. Broken off after any of them, by kill -9 or a
power cut, it is run again from the start: what is done already is found whole, and the rest is diagnosed anew.

    1  report   quarantine/<time>/report.json and a copy of the manifest
    2  tail     a copy of the bytes that will be cut
    3  marker   no longer promises what goes
    4  manifest lists what stays
    5  cut      the damaged file ends where its last whole command ends
    6  moved    files that are no longer listed, into quarantine
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from rtmem.errors import ConfigError, DataDamagedError, DataDirectoryError
from rtmem.server import aof, damage, directory, durable_file, examination, lock
from rtmem.server import marker as marker_file
from rtmem.server.damage import Damage, Diagnosis, Plan
from rtmem.server.directory import Layout
from rtmem.server.marker import Marker, Seen
from rtmem.settings import Server

_QUARANTINES_A_SECOND_MAX: Final = 1_000


@contextmanager
def at_rest(settings: Server) -> Iterator[Layout]:
    """The files of a server that does not run, and that nobody can start meanwhile.

    Raises:
        ConfigError: it runs.
        DataDirectoryError: there is no such directory.
        DeadlineExceededError: somebody is starting or stopping it.
    """
    layout = directory.locate(settings.data_dir)
    if not layout.root.is_dir():
        raise DataDirectoryError(
            f"data directory {layout.root} does not exist: name the right one with --data-dir",
            data_dir=str(layout.root),
        )
    with lock.exclusive(layout.transition_lock, settings.start_timeout_ms + settings.stop_timeout_ms):
        if not lock.is_free(layout.life_lock):
            raise ConfigError(
                f"embedded Redis in {layout.root} is running, and its log cannot be examined while it is written: "
                f"stop it with `{layout.command('down')}`",
                data_dir=str(layout.root),
            )
        yield layout


def before_start(layout: Layout) -> tuple[str, ...]:
    """Look at the log of a server about to be started, and repair it where that loses nothing but an unfinished end.

    Returns:
        What was found and done, one sentence each; nothing for a whole log.

    Raises:
        DataDamagedError: starting would lose more than that.
        DataDirectoryError: the files cannot be read or written.
    """
    return _mended_unasked(layout, thorough=False) + marker_file.keep(layout, at_rest=True)


def after_refusal(settings: Server, layout: Layout) -> tuple[str, ...]:
    """As `before_start`, for a log that Redis has just refused: every byte of it is read. Nothing if it seems whole."""
    with lock.exclusive(layout.transition_lock, settings.start_timeout_ms + settings.stop_timeout_ms):
        if not lock.is_free(layout.life_lock):
            return ("another process has started the server meanwhile",)
        return _mended_unasked(layout, thorough=True)


def _mended_unasked(layout: Layout, *, thorough: bool) -> tuple[str, ...]:
    found = examine(layout, thorough=thorough)
    if found.needs_consent:
        raise DataDamagedError(
            f"data directory {layout.root}: the log has lost something that a repair must not give up unasked:\n"
            + "".join(f"  {line}\n" for line in explained(found))
            + "Nothing was changed: restore it from a copy if there is one, or read the report of "
            f"`{layout.command('repair')}` and agree to the loss with `{layout.command('repair --accept-loss')}`",
            data_dir=str(layout.root),
            report=msgspec.to_builtins(found),
        )
    return mend(layout, found)


def explained(found: Diagnosis) -> list[str]:
    """Every damage in a sentence, and after it why it is not repaired unasked."""
    return [damage.words(one) + (f": {one.consent}" if one.consent else "; repaired unasked") for one in found.damages]


def examine(layout: Layout, *, thorough: bool) -> Diagnosis:
    """See examination.examine. Raises DataDirectoryError for files that cannot be read."""
    try:
        return examination.examine(layout, thorough=thorough)
    except OSError as exc:
        raise _unusable(layout, exc) from exc


def mend(layout: Layout, found: Diagnosis) -> tuple[str, ...]:
    """Carry out the plan of a diagnosis, whatever it loses: consent is the caller's business.

    Returns:
        What was done, one sentence each.

    Raises:
        DataDirectoryError: the disk refuses; what is done stays done, and can be continued.
        DataDamagedError: the result is not whole after all.
    """
    if not found.damages:
        return ()
    place = new_quarantine(layout)
    try:
        for _ in carry_out(layout, found, place):
            pass
    except OSError as exc:
        raise _unusable(layout, exc) from exc
    again = examine(layout, thorough=False)
    if again.damages:
        raise DataDamagedError(
            f"data directory {layout.root}: still damaged after a repair: {'; '.join(explained(again))}: "
            f"everything removed is in {place}; run `{layout.command('repair')}`",
            data_dir=str(layout.root),
        )
    done = (f"repaired {_done_words(one, found.plan)}" for one in found.damages)
    return (*done, f"report and everything removed: {place.relative_to(layout.root)}")


def _done_words(one: Damage, plan: Plan) -> str:
    if one.file in plan.drop:
        return f"{damage.words(one)}: moved to quarantine"
    if plan.cut is not None and one.file == plan.cut[0]:
        return f"{damage.words(one)}: cut there"
    return f"{damage.words(one)}: {'written again' if plan.manifest else 'started anew'}"


def carry_out(layout: Layout, found: Diagnosis, place: Path) -> Iterator[str]:
    """The steps of a repair; yields the name of each one that has become durable."""
    plan, log = found.plan, layout.append_only
    durable_file.replace(place / "report.json", msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    for kept in (log / aof.MANIFEST, layout.marker):
        if kept.exists():
            durable_file.replace(place / kept.name, kept.read_bytes())
    yield "report"
    if plan.cut is not None:
        name, end = plan.cut
        _copy_tail(log / name, end, place / f"{name}.from-{end}")
        yield "tail"
    _lower_marker(layout, plan)
    yield "marker"
    if plan.manifest is not None:
        _write_manifest(log, plan.manifest)
        yield "manifest"
    if plan.cut is not None:
        _cut(log / plan.cut[0], plan.cut[1])
        yield "cut"
    for name in plan.drop:
        _move(log / name, place / name)
        yield "moved"
    if plan.keep:
        marker_file.keep(layout, at_rest=True)
        yield "kept"


def new_quarantine(layout: Layout) -> Path:
    """A new directory for what one repair removes."""
    moment = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    try:
        layout.quarantine.mkdir(mode=0o700, exist_ok=True)
        for number in range(1, _QUARANTINES_A_SECOND_MAX):
            place = layout.quarantine / (moment if number == 1 else f"{moment}-{number}")
            if not place.exists():
                place.mkdir(mode=0o700)
                durable_file.sync_directory(layout.quarantine)
                durable_file.sync_directory(layout.root)
                return place
    except OSError as exc:
        raise _unusable(layout, exc) from exc
    raise DataDirectoryError(f"{layout.quarantine}: too many repairs in one second: try again")


def _copy_tail(path: Path, start: int, target: Path) -> None:
    with path.open("rb") as source, target.open("wb") as copy:
        source.seek(start)
        shutil.copyfileobj(source, copy, 1024 * 1024)
        copy.flush()
        os.fsync(copy.fileno())
    durable_file.sync_directory(target.parent)


def _lower_marker(layout: Layout, plan: Plan) -> None:
    """Stop promising what is about to go; before it goes, or a broken-off repair would look like a loss."""
    if not plan.keep:
        marker_file.forget(layout)
        return
    try:
        before = marker_file.read(layout)
    except ValueError:
        before = None
    files = {}
    for name in plan.keep:
        seen = before.seen(name) if before else Seen()
        end = plan.cut[1] if plan.cut is not None and plan.cut[0] == name else seen.synced_bytes
        files[name] = Seen(synced_bytes=min(seen.synced_bytes, end), whole_bytes=min(seen.whole_bytes, end))
    text = plan.manifest
    if text is None:
        text = (layout.append_only / aof.MANIFEST).read_text("utf-8", "replace")
    marker_file.write(layout, Marker(manifest=text, files=files))


def _write_manifest(log: Path, text: str) -> None:
    if text:
        durable_file.replace(log / aof.MANIFEST, text.encode())
    elif log.exists():
        (log / aof.MANIFEST).unlink(missing_ok=True)
        durable_file.sync_directory(log)


def _cut(path: Path, end: int) -> None:
    # In place: shortening a file is one transaction of the file system, and a log may be too large to be copied.
    with path.open("r+b") as file:
        file.truncate(end)
        os.fsync(file.fileno())


def _move(path: Path, target: Path) -> None:
    if not path.exists():
        return
    try:
        path.replace(target)
    except OSError:
        # The log's directory may be on a volume of its own.
        _copy_tail(path, 0, target)
        path.unlink()
    durable_file.sync_directory(target.parent)
    durable_file.sync_directory(path.parent)


def _unusable(layout: Layout, exc: OSError) -> DataDirectoryError:
    return DataDirectoryError(
        f"data directory {layout.root}: its log cannot be examined or repaired: {exc}: make room, or give the files "
        f"to this user",
        data_dir=str(layout.root),
    )
