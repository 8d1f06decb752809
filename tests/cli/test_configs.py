from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from rtmem.server import conf
from rtmem.settings import Settings
from tests.cli.commands import environment, rtmem


def test_show_prints_every_setting_in_force_as_toml_with_its_reason(tmp_path: Path) -> None:
    env = environment(tmp_path, RTMEM_GATEWAY__PORT="8100", RTMEM_AGENT__MEMORY="principal")
    done = rtmem("configs", "show", env=env)
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


def test_show_knows_the_files_for_several_machines(tmp_path: Path) -> None:
    assert "min-replicas-to-write 1" in rtmem("configs", "show", "replicated", env=environment(tmp_path)).stdout
    assert "sentinel monitor rtmem" in rtmem("configs", "show", "sentinel", env=environment(tmp_path)).stdout


def test_write_makes_a_file_and_replaces_none_unasked(tmp_path: Path) -> None:
    env = environment(tmp_path)
    target = tmp_path / "redis.conf"
    assert rtmem("configs", "write", "durable", target, env=env).returncode == 0
    assert target.read_text() == conf.profile_text("durable")
    refused = rtmem("configs", "write", "relaxed", target, env=env)
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert target.read_text() == conf.profile_text("durable")
    assert rtmem("configs", "write", "relaxed", target, "--force", env=env).returncode == 0
    assert target.read_text() == conf.profile_text("relaxed")


def test_write_asks_for_what_the_file_can_take(tmp_path: Path) -> None:
    env = environment(tmp_path)
    assert "maxmemory" in rtmem("configs", "write", "durable", tmp_path / "redis.conf", env=env).stdout
    sentinel = rtmem("configs", "write", "sentinel", tmp_path / "sentinel.conf", env=env).stdout
    assert "the address of the master" in sentinel
    assert "maxmemory" not in sentinel


def test_write_refuses_a_profile_that_does_not_exist(tmp_path: Path) -> None:
    refused = rtmem("configs", "write", "fast", tmp_path / "redis.conf", env=environment(tmp_path))
    assert refused.returncode == 2
    assert "choose one of" in refused.stderr
    assert not (tmp_path / "redis.conf").exists()
