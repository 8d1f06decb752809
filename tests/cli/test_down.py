from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import Up, environment, rtmem
from tests.conftest import ServerFactory


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ("balanced", "its data is kept"),
        ("ephemeral", "and nothing is kept: it ran with profile ephemeral"),
    ],
)
def test_down_stops_the_embedded_server_and_says_what_is_kept(
    profile: str, said: str, tmp_path: Path, redis_server: ServerFactory
) -> None:
    server = redis_server(profile=profile)
    env = environment(tmp_path)
    done = rtmem("down", "--data-dir", server.data_dir, env=env)
    assert (done.returncode, done.stdout) == (0, f"Embedded Redis stopped; {said}.\n")
    again = rtmem("down", "--data-dir", server.data_dir, env=env)
    assert (again.returncode, again.stdout) == (0, "No embedded Redis was running.\n")


def test_a_gateway_does_not_call_a_redis_in_use_that_was_stopped_under_it(tmp_path: Path) -> None:
    env = environment(tmp_path)
    with Up(env=env, data_dir=tmp_path / "data") as up:
        assert rtmem("down", "--data-dir", up.data_dir, env=env).returncode == 0
        up.stop()
        assert "still in use" not in up.output()
