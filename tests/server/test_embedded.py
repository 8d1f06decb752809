from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from rtmem.errors import (
    ConfigError,
    ServerStartError,
)
from rtmem.server import directory, embedded, lock
from tests.conftest import ServerFactory
from tests.server.processes import Sharer, client, eventually, is_alive, settings


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


def test_another_profile_is_refused_while_the_server_is_in_use(data_dir: Path) -> None:
    with embedded.start(settings(data_dir, profile="relaxed")):
        with pytest.raises(ConfigError, match=r"runs with profile 'relaxed'.*asked for 'durable'.*rtmem down"):
            embedded.start(settings(data_dir, profile="durable"))


def test_who_asks_for_no_profile_takes_what_runs_and_is_told(data_dir: Path) -> None:
    with embedded.start(settings(data_dir, profile="durable")) as first:
        with embedded.start(settings(data_dir)) as second:
            assert (second.pid, second.profile) == (first.pid, "durable")
            assert second.report == ("it runs already, with profile durable",)
        assert first.release()
    with embedded.start(settings(data_dir)) as alone:
        assert alone.profile == "balanced"


def test_an_unknown_profile_is_refused_with_those_that_can_be_started(data_dir: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^no profile 'durabel': choose one of ephemeral, relaxed, balanced, durable$"
    ):
        embedded.start(settings(data_dir, profile="durabel"))


def test_another_profile_restarts_a_server_that_nobody_uses(data_dir: Path) -> None:
    starter = Sharer(data_dir, "relaxed")
    starter.go()
    pid = int(starter.answer())
    starter.kill()
    with embedded.start(settings(data_dir, profile="durable")) as server, client(server) as connection:
        assert server.pid != pid
        assert "restarted" in server.report[0]
        assert connection.config_get("appendfsync") == {"appendfsync": "always"}


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


def test_a_transition_of_somebody_else_is_waited_for_until_the_deadline(data_dir: Path) -> None:
    layout = directory.prepare(str(data_dir))
    with lock.exclusive(layout.transition_lock, timeout_ms=1_000):
        with pytest.raises(TimeoutError, match="has been starting or stopping"):
            embedded.start(settings(data_dir, start_timeout_ms=50, stop_timeout_ms=50))
    assert not is_alive(data_dir)


def test_a_failed_start_leaves_no_share_and_no_server(data_dir: Path) -> None:
    with pytest.raises(ServerStartError):
        embedded.start(settings(data_dir), extra_conf=["no-such-directive 1"])
    server = embedded.start(settings(data_dir))
    assert server.release()
