from __future__ import annotations

from pathlib import Path

import pytest

from rtmem.server import aof, directory, listing
from rtmem.server.directory import Layout
from rtmem.server.marker import Marker

BASE = "appendonly.aof.{}.base.rdb"
INCREMENT = "appendonly.aof.{}.incr.aof"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    found = directory.prepare(str(tmp_path / "data"))
    found.append_only.mkdir()
    return found


def put(layout: Layout, *names: str) -> None:
    for name in names:
        (layout.append_only / name).write_bytes(b"REDIS0012 and whatever follows")


def marker_of(*names: str) -> Marker:
    entries = [entry for name in names if (entry := aof.entry_of(name)) is not None]
    return Marker(manifest=aof.write_manifest(tuple(entries)).decode(), files={})


def names(found: listing.Listed) -> list[str]:
    return [entry.name for entry in found.entries]


def test_one_base_goes_with_every_incremental_file(layout: Layout) -> None:
    put(layout, INCREMENT.format(3), BASE.format(2), INCREMENT.format(10))
    found = listing.listed(layout, None)
    assert names(found) == [BASE.format(2), INCREMENT.format(3), INCREMENT.format(10)]
    assert found.damage is not None
    assert found.damage.consent


def test_the_newer_of_two_bases_goes_with_the_last_incremental_file(layout: Layout) -> None:
    put(layout, BASE.format(2), INCREMENT.format(2), BASE.format(3), INCREMENT.format(3))
    found = listing.listed(layout, None)
    assert names(found) == [BASE.format(3), INCREMENT.format(3)]
    assert found.drop == (BASE.format(2), INCREMENT.format(2))


def test_the_markers_list_is_certain_while_nothing_newer_is_there(layout: Layout) -> None:
    put(layout, BASE.format(2), INCREMENT.format(2))
    marker = marker_of(BASE.format(2), INCREMENT.format(2))
    found = listing.listed(layout, marker)
    assert found.damage is not None
    assert (names(found), found.damage.consent) == ([BASE.format(2), INCREMENT.format(2)], "")
    for newer in (INCREMENT.format(3), BASE.format(3)):
        put(layout, newer)
        again = listing.listed(layout, marker)
        assert again.damage is not None
        assert again.damage.consent
        (layout.append_only / newer).unlink()


def test_a_list_after_a_rewrite_is_not_older(layout: Layout) -> None:
    put(layout, BASE.format(3), INCREMENT.format(3))
    entries = aof.read_manifest(marker_of(BASE.format(3), INCREMENT.format(3)).manifest.encode())
    (layout.append_only / aof.MANIFEST).write_bytes(aof.write_manifest(entries))
    assert listing.listed(layout, marker_of(BASE.format(2), INCREMENT.format(2), INCREMENT.format(3))).damage is None
    for newer in ((BASE.format(4), INCREMENT.format(3)), (BASE.format(3), INCREMENT.format(4))):
        older = listing.listed(layout, marker_of(*newer))
        assert older.damage is not None
        assert "older than one that was seen" in older.damage.found
