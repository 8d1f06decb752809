from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import redis

from rtmem.cli import doctor
from rtmem.operations.functions import library_of
from tests.cli.commands import ROOT, environment, rtmem
from tests.conftest import ServerFactory
from tests.server import logs


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path)


def by_name(text: str) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in json.loads(text)["checks"]}


def test_a_healthy_installation_passes_and_nothing_is_left_behind(env: dict[str, str], tmp_path: Path) -> None:
    done = rtmem("doctor", "--data-dir", tmp_path / "data", "--json", env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    checks = by_name(done.stdout)
    assert json.loads(done.stdout)["healthy"]
    assert checks["trial Redis"]["found"].startswith("Redis 8.")
    assert not (tmp_path / "data").exists()


def test_every_extra_that_users_install_is_looked_for_by_its_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    def names(requirements: list[str]) -> set[str]:
        found = {re.split(r"[<>=;~! ]", requirement)[0] for requirement in requirements}
        return {part for name in found for part in (("redis", "hiredis") if name == "redis[hiredis]" else (name,))}

    extras = {name: names(packages) for name, packages in project["optional-dependencies"].items()}
    for others in ("all", "bench", "bench-postgres", "dev"):  # made of the others, or for who works on rtmem
        del extras[others]
    assert {name: set(packages) for name, packages in doctor._EXTRAS.items()} == extras
    assert set(doctor._REQUIRED) == names(project["dependencies"])


def test_a_data_directory_that_cannot_be_made_is_an_error(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = rtmem("doctor", "--data-dir", tmp_path / "file", "--json", env=env)
    assert done.returncode == 1
    assert by_name(done.stdout)["data directory"]["status"] == "error"


def test_a_given_redis_is_judged(env: dict[str, str], redis_url: str) -> None:
    done = rtmem("doctor", "--redis-url", redis_url, env=env)
    assert done.returncode == 0
    assert "Redis 8." in done.stdout
    # The session's server has no AOF, and the doctor says what that means.
    assert "warn" in done.stdout


def test_functions_of_another_rtmem_with_our_names_are_named(env: dict[str, str], redis_server: ServerFactory) -> None:
    server = redis_server()
    with redis.Redis.from_url(server.url) as client:
        client.function_load(library_of("rtmem_v1_nodes"))
        assert "functions" not in by_name(rtmem("doctor", "--redis-url", server.url, "--json", env=env).stdout)
        client.function_load(library_of("rtmem_v1_cache") + "\n-- as it was yesterday")
        client.function_load("#!lua name=rtmem_v9_later\nredis.register_function('rtmem_v9_x', function() end)")
    done = rtmem("doctor", "--redis-url", server.url, "--json", env=env)
    assert done.returncode == 0  # somebody else may need it
    found = by_name(done.stdout)["functions"]
    assert found["status"] == "warning"
    assert "rtmem_v1_cache " in found["found"]
    assert found["fix"].startswith("FUNCTION DELETE rtmem_v1_cache,")


def test_a_redis_that_does_not_answer_fails_with_the_next_step(env: dict[str, str]) -> None:
    done = rtmem("doctor", "--redis-url", "redis://127.0.0.1:9", "--json", env=env)
    assert done.returncode == 1
    assert by_name(done.stdout)["Redis"]["status"] == "error"
    assert not json.loads(done.stdout)["healthy"]


def test_a_redis_is_held_to_a_profile(env: dict[str, str], redis_url: str) -> None:
    # The session's server is ephemeral: less than any other profile promises.
    done = rtmem("doctor", "--redis-url", redis_url, "--profile", "durable", "--json", env=env)
    assert done.returncode == 1
    found = by_name(done.stdout)["AOF is off, and durable keeps a log"]
    assert (found["status"], found["fix"].partition(",")[0]) == (
        "error",
        "CONFIG SET appendonly yes appendfsync always",
    )
    assert rtmem("doctor", "--redis-url", redis_url, "--profile", "ephemeral", env=env).returncode == 0


def test_a_trial_is_held_to_the_profile_it_is_tried_with(env: dict[str, str], tmp_path: Path) -> None:
    # Not its exit code: what the machine lacks for this profile is another matter.
    done = rtmem("doctor", "--data-dir", tmp_path / "data", "--profile", "durable", "--json", env=env)
    trial = by_name(done.stdout)["trial Redis"]
    assert trial["status"] == "ok", done.stdout
    assert "AOF always" in trial["found"]


def test_the_log_of_a_stopped_redis_is_looked_at_and_left_alone(env: dict[str, str], tmp_path: Path) -> None:
    log = logs.make(tmp_path / "data")
    done = rtmem("doctor", "--data-dir", log.data_dir, "--json", env=env)
    assert by_name(done.stdout)["log"]["status"] == "ok"
    with log.increments[0].open("ab") as file:
        file.write(bytes(512))
    done = rtmem("doctor", "--data-dir", log.data_dir, "--json", env=env)
    assert (done.returncode, by_name(done.stdout)["log"]["status"]) == (0, "info")
    shutil.rmtree(log.log_dir)
    done = rtmem("doctor", "--data-dir", log.data_dir, "--json", env=env)
    assert done.returncode == 1
    assert by_name(done.stdout)["log"]["fix"] == f"rtmem repair --data-dir {log.data_dir}"
    assert not log.layout.quarantine.exists()
