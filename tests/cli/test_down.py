from __future__ import annotations

from pathlib import Path

from tests.cli.commands import environment, rtmem
from tests.conftest import ServerFactory


def test_down_stops_the_embedded_server_and_says_so(tmp_path: Path, redis_server: ServerFactory) -> None:
    server = redis_server()
    env = environment(tmp_path)
    done = rtmem("down", "--data-dir", server.data_dir, env=env)
    assert (done.returncode, done.stdout) == (0, "Embedded Redis stopped; its data is kept.\n")
    again = rtmem("down", "--data-dir", server.data_dir, env=env)
    assert (again.returncode, again.stdout) == (0, "No embedded Redis was running.\n")
