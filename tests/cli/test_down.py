from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import environment, rtmem
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
    assert (again.returncode, again.stdout) == (0, f"No embedded Redis was running in {server.data_dir}.\n")


def test_down_tells_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    typo = tmp_path / "typo"
    done = rtmem("down", "--data-dir", typo, env=environment(tmp_path))
    assert done.stdout == f"No embedded Redis was running in {typo}, which does not exist.\n"
    assert not typo.exists()
