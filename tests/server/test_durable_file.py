from __future__ import annotations

from pathlib import Path

import pytest

from rtmem.server import durable_file


def test_a_file_is_replaced_and_no_draft_is_left(tmp_path: Path) -> None:
    for data in (b"one", b"two"):
        durable_file.replace(tmp_path / "f", data)
        assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("f", data)]
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_replaced_keeps_what_it_had(tmp_path: Path) -> None:
    durable_file.replace(tmp_path / "f", b"one")
    tmp_path.joinpath("d").mkdir()
    with pytest.raises(OSError, match="directory"):
        durable_file.replace(tmp_path / "d", b"two")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "f"]
    assert (tmp_path / "f").read_bytes() == b"one"
    durable_file.sync_directory(tmp_path)
