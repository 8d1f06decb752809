"""What `rtmem up` and `rtmem serve` say and do around their gateway, from the outside."""

from __future__ import annotations

import shlex
import signal
import time
from pathlib import Path

import httpx
import pytest

from tests.cli.commands import TIMEOUT_S, Up, environment, rtmem


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path, RTMEM_AGENT__TOKEN_INTERVAL_MS="0")


def said(up: Up, words: str) -> str:
    """Its output, once `words` are in it."""
    deadline = time.monotonic() + TIMEOUT_S
    while words not in up.output():
        assert time.monotonic() < deadline, up.output()
        time.sleep(0.02)
    return up.output()


def test_the_second_ctrl_c_ends_the_wait_for_answers_without_a_traceback(tmp_path: Path) -> None:
    env = environment(tmp_path, RTMEM_AGENT__TOKEN_INTERVAL_MS="600000", RTMEM_GATEWAY__DRAIN_TIMEOUT_MS="600000")
    with Up(env=env, data_dir=tmp_path / "data") as up:
        start = {"assistant_id": "demo", "input": {"messages": [{"role": "user", "content": "hello"}]}}
        httpx.post(
            f"{up.url}/threads/slow/commands",
            headers={"Authorization": f"Bearer {up.token}"},
            json={"id": 1, "method": "run.start", "params": start},
        ).raise_for_status()
        assert up.process is not None
        up.process.send_signal(signal.SIGINT)
        said(up, "(waiting for 1 answer, at most 600 s; Ctrl-C again stops at once)")
        assert up.stop() == 0
        assert "Traceback" not in up.output()
        assert "embedded Redis stopped" in up.output()


def test_the_hint_of_serve_works_as_pasted(env: dict[str, str], tmp_path: Path) -> None:
    graph = "rtmem.agent.demo:build"
    with_token = {**env, "RTMEM_GATEWAY__TOKENS": '{"a b": "ann"}'}
    up = Up("serve", f"one={graph}", f"two={graph}", env=with_token, data_dir=tmp_path / "my data")
    with up:
        hint = next(line for line in said(up, "Ctrl-C stops").splitlines() if line.startswith("  rtmem chat"))
        done = rtmem(*shlex.split(hint)[1:], env=env, given="hello\n")
        assert (done.returncode, done.stdout.splitlines()[0]) == (0, "you> hello"), done.stderr


def test_a_second_gateway_is_refused_before_it_touches_anything(env: dict[str, str], tmp_path: Path) -> None:
    with Up(env=env, data_dir=tmp_path / "data") as up:
        second = rtmem("up", "--data-dir", up.data_dir, "--port", "0", env=env)
        assert (second.returncode, second.stdout) == (2, "")
        assert f"runs already, at {up.url}: talk to it with `rtmem chat" in second.stderr
        assert "Traceback" not in second.stderr
        assert rtmem("chat", "--data-dir", up.data_dir, env=env, given="hello\n").returncode == 0
        other = rtmem("up", "--data-dir", tmp_path / "other", "--port", str(up.port), env=env)
        assert other.returncode == 2
        assert f"an rtmem gateway listens at {up.url} already: talk to it with `rtmem chat --url" in other.stderr


def test_a_profile_is_not_silently_ignored_and_only_startable_ones_are_offered(env: dict[str, str]) -> None:
    both = rtmem("up", "--profile", "durable", "--redis-url", "redis://localhost:9", env=env)
    assert both.returncode == 2
    assert "--profile is for the embedded Redis" in both.stderr
    assert "replicated" not in rtmem("up", "--help", env=env).stdout
