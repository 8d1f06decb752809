"""What a newcomer does first, and what must survive it: `rtmem up`, `rtmem chat`, kill -9 of everything, `rtmem up`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph_sdk import get_sync_client

from rtmem.cli.states import text_of
from tests.cli.commands import TIMEOUT_S, Up, environment, rtmem
from tests.server.processes import eventually

FIRST_TURNS = [
    ("hello", "Hello! Ask me what I can do, or tell me your name."),
    ("My name is Ann", "Nice to meet you, Ann. I will remember your name."),
    ("I live in Oslo and I like tea", "Noted: you live in Oslo. Noted: you like tea."),
    ("what is 17 * 23?", "17 * 23 = 391."),
    ("who am I?", "Your name is Ann."),
    ("Меня зовут Анна", "Приятно познакомиться, Анна. Я запомню ваше имя."),
    ("как меня зовут?", "Вас зовут Анна."),
    ("сколько будет 2+2?", "2+2 = 4."),
    ("where do I live?", "You live in Oslo."),
]
CUT_TURN = "tell me something about the weather"
LAST_TURNS = [
    ("who am I?", "Your name is Анна."),
    ("what do you know about me?", "Your name is Анна. You live in Oslo. You like tea."),
    ("I like jazz", "Noted: you like jazz."),
    ("what do I like?", "You like tea; jazz."),
    ("forget where I live", "I have forgotten where you live."),
    ("where do I live?", "I do not know where you live yet: you have not told me."),
    ("my name is Eve", "Nice to meet you, Eve. I will remember your name."),
    ("what is my name?", "Your name is Eve."),
    ("(1 + 2) * 3.5", "(1 + 2) * 3.5 = 10.5."),
    ("thank you", "You are welcome."),
]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    # Slow enough that an answer can be cut off in its middle.
    env = environment(tmp_path, RTMEM_AGENT__TOKEN_INTERVAL_MS="25")
    with Up(env=env, data_dir=tmp_path / "data") as up:
        yield up


def spoken(turns: list[tuple[str, str]]) -> str:
    return "".join(f"{said}\n" for said, _ in turns)


def answers(printed: str) -> list[tuple[str, str]]:
    """(what was said, what was answered) of a transcript; tool calls are left out."""
    turns = []
    for line in printed.splitlines():
        if line.startswith("you> "):
            turns.append((line.removeprefix("you> "), ""))
        elif not line.startswith("  "):
            turns[-1] = (turns[-1][0], turns[-1][1] + line)
    return turns


@contextmanager
def in_mid_answer(up: Up, thread: str, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A chat that has printed the beginning of a long answer."""
    with subprocess.Popen(
        [sys.executable, "-m", "rtmem", "chat", thread, "--data-dir", str(up.data_dir)],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as chat:
        assert chat.stdin is not None
        assert chat.stdout is not None
        chat.stdin.write(f"{CUT_TURN}\n")
        chat.stdin.flush()
        assert chat.stdout.readline() == f"you> {CUT_TURN}\n"
        heard = ""
        while "language model" not in heard:
            heard += chat.stdout.read(1)
        yield chat


@pytest.mark.timeout(400)  # forty processes' worth of imports, on machines that do other things too
def test_twenty_turns_survive_kill_9_of_gateway_and_redis(up: Up, tmp_path: Path) -> None:
    env = environment(tmp_path)
    before = rtmem("chat", "t", "--data-dir", up.data_dir, env=env, given=spoken(FIRST_TURNS))
    assert (before.returncode, answers(before.stdout)) == (0, FIRST_TURNS), before.stderr

    with in_mid_answer(up, "t", env) as chat:
        up.kill_everything()
        up.start()
        rest, notices = chat.communicate(timeout=TIMEOUT_S)
    assert chat.returncode == 0, notices
    assert "connection lost" in notices
    assert rest.rstrip().endswith("when RTMEM_MODEL=provider:name is set.")

    after = rtmem("chat", "t", "--data-dir", up.data_dir, env=env, given=spoken(LAST_TURNS))
    assert (after.returncode, answers(after.stdout)) == (0, LAST_TURNS), after.stderr

    with get_sync_client(url=up.url, api_key=up.token) as client:
        state: Any = client.threads.get_state("t")
    messages = [message for message in state["values"]["messages"] if message["type"] in ("human", "ai")]
    kept = [text_of(message) for message in messages if text_of(message)]
    said = [said for said, _ in [*FIRST_TURNS, (CUT_TURN, ""), *LAST_TURNS]]
    assert [text_of(message) for message in messages if message["type"] == "human"] == said
    assert kept[1::2][:9] == [answer for _, answer in FIRST_TURNS]
    assert kept[1::2][10:] == [answer for _, answer in LAST_TURNS]
    assert len(kept) == 40


def test_a_redis_that_dies_under_the_gateway_comes_back(up: Up, tmp_path: Path) -> None:
    env = environment(tmp_path)
    with in_mid_answer(up, "t", env) as chat:
        os.kill(int((up.data_dir / "redis.pid").read_text()), signal.SIGKILL)
        rest, notices = chat.communicate("thank you\n", timeout=TIMEOUT_S)
    assert chat.returncode == 0, notices
    assert "the answer was cut off" in notices
    assert rest.endswith("when RTMEM_MODEL=provider:name is set.\nyou> thank you\nYou are welcome.\n")
    assert "embedded Redis had died and was started again" in up.output()


def test_a_redis_that_was_stopped_on_purpose_stays_stopped(up: Up, tmp_path: Path) -> None:
    rtmem("down", "--data-dir", up.data_dir, env=environment(tmp_path))
    eventually(lambda: "embedded Redis was stopped" in up.output())
    assert "started again" not in up.output()
    assert up.stop() == 0


def test_a_message_to_a_busy_thread_waits_for_its_turn(up: Up, tmp_path: Path) -> None:
    env = environment(tmp_path)
    with in_mid_answer(up, "busy", env) as first:
        second = rtmem("chat", "busy", "--data-dir", up.data_dir, env=env, given="what is 6*7?\n")
        first.communicate(timeout=TIMEOUT_S)
    assert second.returncode == 0, second.stderr
    assert second.stdout.endswith("calculate(expression='6*7')\n6*7 = 42.\n")


def test_up_says_how_to_talk_to_it_and_ends_in_good_order(up: Up, tmp_path: Path) -> None:
    printed = up.output()
    assert up.url in printed
    assert up.token in printed
    assert f"rtmem chat --data-dir {up.data_dir}" in printed
    assert "AOF everysec: a power cut loses about a second" in printed

    second = rtmem("up", "--data-dir", up.data_dir, "--port", str(up.port), env=environment(tmp_path))
    assert second.returncode == 2
    assert f"runs already, at {up.url}" in second.stderr
    assert "Traceback" not in second.stderr

    assert up.stop() == 0, up.output()
    assert "embedded Redis stopped, its data is kept" in up.output()
    down = rtmem("down", "--data-dir", up.data_dir, env=environment(tmp_path))
    assert down.stdout == "No embedded Redis was running.\n"
