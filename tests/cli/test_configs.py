from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from rtmem.settings import Settings
from tests.cli.commands import environment, rtmem


def test_show_prints_every_setting_in_force_as_toml_with_its_reason(tmp_path: Path) -> None:
    done = rtmem("configs", "show", env=environment(tmp_path, RTMEM_GATEWAY__PORT="8100"))
    expected = msgspec.to_builtins(Settings())
    expected["gateway"]["port"] = 8100
    assert tomllib.loads(done.stdout) == expected
    assert "# " in done.stdout


def test_show_can_be_written_to_a_file_and_loaded_again(tmp_path: Path) -> None:
    env = environment(tmp_path, RTMEM_SERVER__PROFILE="durable")
    (tmp_path / "rtmem.toml").write_text(rtmem("configs", "show", env=env).stdout)
    again = rtmem("configs", "show", "--config", tmp_path / "rtmem.toml", env=environment(tmp_path))
    assert tomllib.loads(again.stdout)["server"]["profile"] == "durable"


def test_show_keeps_secrets(tmp_path: Path) -> None:
    env = environment(tmp_path, RTMEM_REDIS__URL="redis://:pa55@localhost", RTMEM_GATEWAY__TOKENS='{"t0ken": "ann"}')
    shown = rtmem("configs", "show", env=env).stdout
    assert "pa55" not in shown
    assert "t0ken" not in shown
    tomllib.loads(shown)


def test_show_prints_a_profile_as_redis_conf(tmp_path: Path) -> None:
    shown = rtmem("configs", "show", "durable", env=environment(tmp_path)).stdout
    assert "appendfsync always" in shown
