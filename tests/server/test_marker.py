from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from rtmem.server import directory, embedded, marker
from rtmem.server.marker import Marker, Seen
from tests.conftest import kill_server
from tests.server import logs
from tests.server.processes import client, eventually, settings

FIRST = "appendonly.aof.1.incr.aof"


def seen(data_dir: Path, name: str = FIRST) -> Seen:
    found = marker.read(directory.locate(str(data_dir)))
    assert found is not None
    return found.seen(name)


def size(data_dir: Path, name: str = FIRST) -> int:
    return (data_dir / "appendonlydir" / name).stat().st_size


def test_a_stop_in_good_order_marks_the_log_whole_to_its_end(data_dir: Path) -> None:
    with logs.start(data_dir) as server, client(server) as connection:
        connection.set("k", "v")
        assert seen(data_dir) == Seen()
    assert size(data_dir) > 0
    assert seen(data_dir) == Seen(synced_bytes=size(data_dir), whole_bytes=size(data_dir))


def test_whoever_joins_or_leaves_marks_what_is_on_disk_but_not_where_it_is_whole(data_dir: Path) -> None:
    with logs.start(data_dir) as server, client(server) as connection:
        connection.set("k", "v")
        second = logs.start(data_dir)
        assert seen(data_dir) == Seen(synced_bytes=size(data_dir), whole_bytes=0)
        connection.set("k", "w")
        second.release()
        assert seen(data_dir) == Seen(synced_bytes=size(data_dir), whole_bytes=0)


def test_a_killed_servers_log_is_read_before_it_counts_as_whole(data_dir: Path) -> None:
    server = logs.start(data_dir)
    with client(server) as connection:
        connection.set("k", "v")
    os.kill(server.pid, signal.SIGKILL)
    kill_server(data_dir)
    server.release()
    assert seen(data_dir).whole_bytes == 0
    with logs.start(data_dir):
        assert seen(data_dir).whole_bytes == size(data_dir)


def test_a_rewrite_leaves_an_older_marker_true(data_dir: Path) -> None:
    with logs.start(data_dir) as server, client(server) as connection:
        connection.set("k", "v")
        logs.start(data_dir).release()
        connection.bgrewriteaof()
        eventually(lambda: (data_dir / "appendonlydir" / "appendonly.aof.2.base.rdb").exists())
        eventually(lambda: not connection.info("persistence")["aof_rewrite_in_progress"])
        connection.set("l", "w")
        os.kill(server.pid, signal.SIGKILL)
        kill_server(data_dir)
    with logs.start(data_dir) as server, client(server) as connection:
        assert connection.get("l") == b"w"
        assert server.report == ("started with profile durable",)


def test_without_a_log_there_is_no_marker(data_dir: Path) -> None:
    with embedded.start(settings(data_dir, profile="ephemeral"), program=logs.program()):
        pass
    assert not (data_dir / "aof.marker").exists()


def test_a_marker_that_cannot_be_written_hinders_nobody_and_is_told(data_dir: Path) -> None:
    with logs.start(data_dir) as server, client(server) as connection:
        connection.set("k", "v")
        before = (data_dir / "aof.marker").read_bytes()
        layout = directory.locate(str(data_dir))
        (data_dir / "aof.marker").unlink()
        (data_dir / "aof.marker").mkdir()
        (line,) = marker.keep(layout)
        assert "was not renewed" in line
        (data_dir / "aof.marker").rmdir()
        (data_dir / "aof.marker").write_bytes(before)


def test_what_is_no_marker_is_not_read_as_one(data_dir: Path) -> None:
    layout = directory.prepare(str(data_dir))
    assert marker.read(layout) is None
    for text in (b"", b"{}", b'{"manifest": "nonsense", "files": {}}'):
        layout.marker.write_bytes(text)
        with pytest.raises(ValueError, match=r".+"):
            marker.read(layout)
    whole = Marker(manifest=f"file {FIRST} seq 1 type i\n", files={FIRST: Seen(synced_bytes=3)})
    marker.write(layout, whole)
    assert marker.read(layout) == whole
