from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.cli.commands import environment, rtmem
from tests.server import logs
from tests.server.logs import Log


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path)


@pytest.fixture(scope="module")
def original() -> Iterator[Log]:
    path = Path(tempfile.mkdtemp(prefix="rtmem-test-"))
    yield logs.make(path)
    shutil.rmtree(path)


@pytest.fixture
def log(original: Log) -> Iterator[Log]:
    with original.copy() as copy:
        yield copy


def iter_until(word: str, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield line
        if word in line:
            return


def test_a_whole_log_is_said_to_be_whole(log: Log, env: dict[str, str]) -> None:
    done = rtmem("repair", "--data-dir", log.data_dir, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing to repair" in done.stdout


def test_a_torn_end_is_reported_and_repaired_unasked(log: Log, env: dict[str, str]) -> None:
    with log.increments[0].open("ab") as file:
        file.write(bytes(512))
    done = rtmem("repair", "--data-dir", log.data_dir, env=env)
    assert done.returncode == 0
    assert "512 bytes" in done.stdout
    assert done.stdout.index("tail") < done.stdout.index("repaired") < done.stdout.index("rtmem up")
    assert logs.state_after_start(log.data_dir) == log.ledger[-1][2]


def test_a_loss_is_refused_until_it_is_accepted(log: Log, env: dict[str, str]) -> None:
    shutil.rmtree(log.log_dir)
    refused = rtmem("repair", "--data-dir", log.data_dir, env=env)
    assert refused.returncode == 1
    assert "everything would be lost" in refused.stdout
    assert "Nothing was changed" in refused.stdout
    assert f"rtmem repair --accept-loss --data-dir {log.data_dir}" in refused.stdout
    accepted = rtmem("repair", "--accept-loss", "--data-dir", log.data_dir, env=env)
    assert accepted.returncode == 0
    assert logs.state_after_start(log.data_dir) == {}


def test_json_tells_the_same(log: Log, env: dict[str, str]) -> None:
    log.increments[0].write_bytes(bytes(10) + log.increments[0].read_bytes()[10:])
    refused = json.loads(rtmem("repair", "--json", "--data-dir", log.data_dir, env=env).stdout)
    assert refused["state"] == "refused"
    (damage,) = refused["damages"]
    assert (damage["file"], damage["offset"], damage["kind"]) == (log.increments[0].name, 0, "garbage")
    assert damage["consent"]
    accepted = json.loads(rtmem("repair", "--accept-loss", "--json", "--data-dir", log.data_dir, env=env).stdout)
    assert accepted["state"] == "repaired"
    assert accepted["done"]


def test_a_running_server_is_usage_and_not_damage(log: Log, env: dict[str, str]) -> None:
    with logs.start(log.data_dir):
        done = rtmem("repair", "--data-dir", log.data_dir, env=env)
    assert done.returncode == 2
    assert "rtmem down" in done.stderr


def test_up_says_what_it_repaired_and_refuses_with_the_way_on(log: Log, env: dict[str, str]) -> None:
    with log.increments[0].open("ab") as file:
        file.write(b"*3\r\n$3")
    arguments = ("up", "--redis-only", "--profile", "durable", "--data-dir", str(log.data_dir))
    with subprocess.Popen(
        [sys.executable, "-m", "rtmem", *arguments],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = "".join(iter_until("Ctrl-C", process.stdout))
        process.send_signal(signal.SIGINT)
    assert "repaired appendonly.aof.1.incr.aof at byte" in said
    shutil.rmtree(log.log_dir)
    refused = rtmem(*arguments, env=env)
    assert refused.returncode == 1
    assert f"`rtmem repair --accept-loss --data-dir {log.data_dir}`" in refused.stderr
