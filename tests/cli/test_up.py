from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent import openai_server
from tests.cli.commands import Up, environment, rtmem


def test_a_real_model_talks_through_the_same_gateway(tmp_path: Path) -> None:
    with openai_server.running() as model_server:
        env = environment(
            tmp_path,
            RTMEM_MODEL="openai:tiny",
            RTMEM_AGENT__MODEL_BASE_URL=f"http://127.0.0.1:{model_server.server_port}/v1",
            OPENAI_API_KEY="not-a-key",
        )
        with Up(env=env, data_dir=tmp_path / "data") as up:
            said = "My name is Ann. How much is six times seven?\nsend it\nyes\n"
            done = rtmem("chat", "--data-dir", up.data_dir, env=env, given=said)
        assert done.stdout == (
            "you> My name is Ann. How much is six times seven?\n"
            "  calculate(expression='6 * 7')\n"
            "It is 42.\n"
            "you> send it\n"
            "  send_message(recipient='Bob', text='hi')\n"
            "? Send to Bob: hi\n"
            "yes or no> yes\n"
            "It is put into the outbox for Bob; the demo delivers nothing outside.\n"
        ), done.stderr
        assert '{"name": ["Ann"]}' in str(model_server.requests[0]["messages"][0]["content"])  # type: ignore[attr-defined]


def test_what_the_demo_was_told_in_one_conversation_it_knows_in_another(tmp_path: Path) -> None:
    # The first write loads the embedder's model, which a busy machine may take long for.
    env = environment(tmp_path, RTMEM_AGENT__MEMORY="principal", RTMEM_RECALL__TOOL_DEADLINE_MS="60000")
    with Up("up", "--profile", "ephemeral", env=env, data_dir=tmp_path / "data") as up:
        for thread, said, answer in (
            ("one", "My name is Ann", "Nice to meet you, Ann. I will remember your name."),
            ("two", "who am I?", "Your name is Ann."),
        ):
            done = rtmem("chat", thread, "--data-dir", up.data_dir, env=env, given=f"{said}\n")
            assert done.stdout == f"you> {said}\n{answer}\n", done.stderr


@pytest.mark.parametrize("profile", ["ephemeral", "relaxed"])
def test_a_promise_that_the_redis_cannot_keep_is_refused_before_anybody_talks_to_it(
    profile: str, tmp_path: Path
) -> None:
    env = environment(tmp_path, RTMEM_GATEWAY__TURN_DURABILITY="fsync")
    done = rtmem("up", "--profile", profile, "--data-dir", tmp_path / "data", "--port", "0", env=env)
    assert done.returncode == 2
    assert "error: ack 'fsync': this Redis" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_profile_for_several_machines_is_refused_with_the_way_to_them(tmp_path: Path) -> None:
    done = rtmem("up", "--profile", "replicated", "--data-dir", tmp_path / "data", env=environment(tmp_path))
    assert done.returncode == 2
    assert "rtmem configs show replicated" in " ".join(done.stderr.split())


def test_an_unknown_profile_is_refused_with_those_that_can_be_started(tmp_path: Path) -> None:
    done = rtmem("up", "--profile", "durabel", "--data-dir", tmp_path / "data", env=environment(tmp_path))
    assert done.returncode == 2
    assert "no profile 'durabel': choose one of ephemeral, relaxed, balanced, durable\n" in done.stderr


def test_redis_only_serves_savers_of_other_programs(tmp_path: Path) -> None:
    env = environment(tmp_path)
    with Up("up", "--redis-only", env=env, data_dir=tmp_path / "data", answers=False) as up:
        doctor = rtmem("doctor", "--data-dir", up.data_dir, env=env)
        assert "embedded Redis: Redis 8." in doctor.stdout
        assert "URL         unix://" in up.output()
        assert up.stop() == 0
        assert "embedded Redis stopped" in up.output()
