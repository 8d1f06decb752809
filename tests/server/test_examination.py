"""What a diagnosis says, without a server; that its plans are right is proved in test_repair.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtmem.server import directory, examination, marker
from rtmem.server.damage import Plan
from rtmem.server.directory import Layout
from rtmem.server.marker import Marker, Seen

SET = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n"
FIRST, SECOND = "appendonly.aof.1.incr.aof", "appendonly.aof.2.incr.aof"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    found = directory.prepare(str(tmp_path / "data"))
    found.append_only.mkdir()
    return found


def fill(layout: Layout, **files: bytes) -> None:
    """Incremental files `first` and `second`, and a manifest that lists them."""
    names = {"first": FIRST, "second": SECOND}
    for which, data in files.items():
        (layout.append_only / names[which]).write_bytes(data)
    lines = [f"file {names[which]} seq {number} type i\n" for number, which in enumerate(files, start=1)]
    (layout.append_only / "appendonly.aof.manifest").write_text("".join(lines))


def kinds(layout: Layout) -> list[tuple[str, str, bool]]:
    return [(one.kind, one.file, bool(one.consent)) for one in examination.examine(layout).damages]


def test_nothing_at_all_is_whole(tmp_path: Path) -> None:
    found = examination.examine(directory.locate(str(tmp_path / "none")))
    assert (found.damages, found.plan, found.needs_consent) == ((), Plan(), False)


def test_a_whole_log_needs_no_plan(layout: Layout) -> None:
    fill(layout, first=SET, second=SET)
    found = examination.examine(layout)
    assert found.damages == ()
    assert (found.plan.manifest, found.plan.cut, found.plan.drop) == (None, None, ())


def test_everything_behind_the_first_damage_is_named_with_what_it_holds(layout: Layout) -> None:
    fill(layout, first=SET + SET[:-1], second=SET + SET)
    assert kinds(layout) == [("torn", FIRST, False), ("behind", SECOND, True)]
    found = examination.examine(layout)
    assert found.damages[1].commands_lost == 2
    assert found.plan.keep == (FIRST,)
    assert found.plan.cut == (FIRST, len(SET))
    assert found.plan.drop == (SECOND,)
    assert found.plan.manifest == f"file {FIRST} seq 1 type i\n"


def test_an_empty_file_behind_the_damage_goes_without_a_word(layout: Layout) -> None:
    fill(layout, first=SET + bytes(10), second=b"")
    assert kinds(layout) == [("zeros", FIRST, False)]
    assert examination.examine(layout).plan.drop == (SECOND,)


def test_a_file_behind_the_damage_that_was_once_longer_needs_consent(layout: Layout) -> None:
    fill(layout, first=SET + bytes(10), second=b"")
    text = (layout.append_only / "appendonly.aof.manifest").read_text()
    marker.write(layout, Marker(manifest=text, files={SECOND: Seen(synced_bytes=5)}))
    assert kinds(layout) == [("zeros", FIRST, False), ("behind", SECOND, True)]


def test_what_was_whole_once_is_read_again_only_on_request(layout: Layout) -> None:
    fill(layout, first=bytes(len(SET)) + SET)
    text = (layout.append_only / "appendonly.aof.manifest").read_text()
    seen = Seen(synced_bytes=len(SET), whole_bytes=len(SET))
    marker.write(layout, Marker(manifest=text, files={FIRST: seen}))
    assert examination.examine(layout).damages == ()
    (one,) = examination.examine(layout, thorough=True).damages
    assert (one.offset, one.kind) == (0, "garbage")
