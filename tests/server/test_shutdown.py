from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from rtmem.errors import (
    PersistenceError,
)
from rtmem.server import embedded
from tests.conftest import ServerFactory
from tests.server.processes import client, is_alive, settings


def test_down_stops_a_server_that_others_use(data_dir: Path) -> None:
    server = embedded.start(settings(data_dir))
    assert embedded.stop(settings(data_dir))
    assert not is_alive(data_dir)
    assert not embedded.stop(settings(data_dir))
    assert not server.release()


def test_stopping_where_no_server_ever_was_creates_nothing(tmp_path: Path) -> None:
    assert not embedded.stop(settings(tmp_path / "never"))
    assert not (tmp_path / "never").exists()


def test_a_stop_keeps_what_was_written(data_dir: Path) -> None:
    with embedded.start(settings(data_dir)) as server, client(server) as connection:
        connection.set("k", "v")
    assert not is_alive(data_dir)
    with embedded.start(settings(data_dir)) as server, client(server) as connection:
        assert connection.get("k") == b"v"


def test_a_frozen_server_is_stopped_by_force(data_dir: Path) -> None:
    server = embedded.start(settings(data_dir))
    with client(server) as connection:
        connection.set("k", "v")
    os.kill(server.pid, signal.SIGSTOP)
    assert embedded.stop(settings(data_dir, stop_timeout_ms=1_500))
    server.release()
    with embedded.start(settings(data_dir)) as server, client(server) as connection:
        assert connection.get("k") == b"v"


def test_a_server_that_cannot_save_refuses_to_stop(redis_server: ServerFactory) -> None:
    server = redis_server(extra_conf=["save 3600 1"])
    with client(server) as connection:
        connection.set("k", "v")
        (server.data_dir / "dump.rdb").mkdir()
        with pytest.raises(PersistenceError, match="refused to stop"):
            embedded.stop(settings(server.data_dir, stop_timeout_ms=1_500))
        assert connection.get("k") == b"v"
    (server.data_dir / "dump.rdb").rmdir()


def test_a_refusal_that_passes_is_waited_for(redis_server: ServerFactory) -> None:
    server = redis_server(extra_conf=["rdb-key-save-delay 20000"])
    with client(server) as connection:
        for number in range(50):
            connection.set(f"k{number}", number)
        connection.config_set("appendonly", "yes")  # writes its first log for a second, and refuses to stop meanwhile
    assert embedded.stop(settings(server.data_dir))
    assert "can't exit" in (server.data_dir / "redis.log").read_text()
