"""What a newcomer does first, and what must survive it: `rtmem up`, `rtmem chat`, kill -9 of everything, `rtmem up`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph_sdk import get_sync_client

from rtmem.agent.demo import answers as demo_answers
from rtmem.cli.conversation import GATEWAY_WAIT_MS
from rtmem.cli.states import text_of
from rtmem.server import lock
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
FALLBACK = demo_answers.line("fallback", "en")
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


# The demo agent, whose answers stop after their first word until a file is there: the middle of an answer is then a
# place, which no machine can be too slow or too fast for.
GATED_AGENT = """\
import asyncio
from pathlib import Path

from rtmem.agent import demo

GATE = Path(__file__).with_name("gate")


class Gated(demo.RulesModel):
    async def _astream(self, *args, **options):
        async for chunk in super()._astream(*args, **options):
            yield chunk
            while not GATE.exists():
                await asyncio.sleep(0.01)


def build():
    return demo.build(Gated())
"""
FOR_EVER = {"RTMEM_AGENT__TOKEN_INTERVAL_MS": "600000"}
# Under `balanced`, a Redis that is killed while a slow disk syncs may lose what it had acknowledged last.
DURABLE = {"RTMEM_SERVER__PROFILE": "durable"}


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    env = environment(tmp_path, RTMEM_AGENT__TOKEN_INTERVAL_MS="0")
    with Up(env=env, data_dir=tmp_path / "data") as up:
        yield up


@pytest.fixture(scope="module")
def serving_gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    home = tmp_path_factory.mktemp("gated")
    (home / "agent.py").write_text(GATED_AGENT)
    with Up("serve", f"demo={home}/agent.py:build", env=environment(home, **DURABLE), data_dir=home / "data") as up:
        yield up


@pytest.fixture
def gated(serving_gated: Up) -> Up:
    gate_of(serving_gated).unlink(missing_ok=True)
    return serving_gated


def gate_of(gated: Up) -> Path:
    return gated.data_dir.parent / "gate"


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
def chatting(up: Up, thread: str, env: dict[str, str], said: str) -> Iterator[subprocess.Popen[str]]:
    """A chat that has printed the first letter of an answer; not of its own, if the thread was busy with another."""
    with subprocess.Popen(
        [sys.executable, "-m", "rtmem", "chat", thread, "--data-dir", str(up.data_dir)],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as chat:
        try:
            assert chat.stdin is not None
            assert chat.stdout is not None
            chat.stdin.write(f"{said}\n")
            chat.stdin.flush()
            assert chat.stdout.readline() == f"you> {said}\n"
            assert chat.stdout.read(1) == FALLBACK[0]
            yield chat
        finally:
            chat.kill()


@pytest.mark.timeout(400)  # forty processes' worth of imports, on machines that do other things too
def test_twenty_turns_survive_kill_9_of_gateway_and_redis(up: Up, tmp_path: Path) -> None:
    env = environment(tmp_path)
    before = rtmem("chat", "t", "--data-dir", up.data_dir, env=env, given=spoken(FIRST_TURNS))
    assert (before.returncode, answers(before.stdout)) == (0, FIRST_TURNS), before.stderr

    assert up.stop() == 0
    up.start(**FOR_EVER, **DURABLE)
    with chatting(up, "t", env, CUT_TURN) as chat:
        up.kill_everything()
        up.start()
        rest, notices = chat.communicate(timeout=TIMEOUT_S)
    assert chat.returncode == 0, notices
    assert "connection lost" in notices
    assert "the answer was cut off" in notices
    assert rest.endswith(f"{FALLBACK}\n")

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


def test_a_redis_that_dies_under_the_gateway_comes_back(gated: Up, tmp_path: Path) -> None:
    with chatting(gated, "t", environment(tmp_path), CUT_TURN) as chat:
        # Nobody can start Redis again before the run has met that it is away.
        with lock.exclusive(gated.data_dir / "transition.lock", timeout_ms=1_000):
            os.kill(int((gated.data_dir / "redis.pid").read_text()), signal.SIGKILL)
            gate_of(gated).touch()
            eventually(lambda: "its end is not in the log yet" in gated.output(), timeout_s=TIMEOUT_S)
        rest, notices = chat.communicate("thank you\n", timeout=TIMEOUT_S)
    assert chat.returncode == 0, notices
    assert "the answer was cut off" in notices
    assert rest.endswith(f"{FALLBACK}\nyou> thank you\nYou are welcome.\n")
    assert "embedded Redis had died and was started again" in gated.output()


def test_a_redis_that_was_stopped_on_purpose_stays_stopped_and_everybody_is_told(up: Up, tmp_path: Path) -> None:
    env = environment(tmp_path)
    rtmem("down", "--data-dir", up.data_dir, env=env)
    eventually(lambda: "embedded Redis was stopped" in up.output(), timeout_s=TIMEOUT_S)
    started = time.monotonic()
    chat = rtmem("chat", "--data-dir", up.data_dir, env=env, given="hello\n")
    assert time.monotonic() - started < GATEWAY_WAIT_MS / 2_000, "nothing is lost yet that could be waited for"
    assert (chat.returncode, chat.stdout, len(chat.stderr.splitlines())) == (1, "", 1)
    assert "cannot reach Redis" in chat.stderr
    assert "`rtmem up`" in chat.stderr
    assert up.stop() == 0
    assert "started again" not in up.output()
    assert "still in use" not in up.output()


def test_a_message_to_a_busy_thread_waits_for_its_turn(gated: Up, tmp_path: Path) -> None:
    env = environment(tmp_path)
    with chatting(gated, "busy", env, CUT_TURN) as first:
        # The second chat is refused, and shows the answer that the thread is busy with.
        with chatting(gated, "busy", env, "what is 6*7?") as second:
            gate_of(gated).touch()
            rest, notices = second.communicate(timeout=TIMEOUT_S)
        heard, _ = first.communicate(timeout=TIMEOUT_S)
    assert heard == f"{FALLBACK[1:]}\n"
    assert second.returncode == 0, notices
    assert rest.endswith("calculate(expression='6*7')\n6*7 = 42.\n")


def test_up_says_how_to_talk_to_it_and_ends_in_good_order(up: Up, tmp_path: Path) -> None:
    printed = up.output()
    assert up.url in printed
    assert up.token in printed
    assert f"rtmem chat --data-dir {up.data_dir}" in printed
    assert "AOF everysec: a power cut loses about a second" in printed

    assert up.stop() == 0, up.output()
    assert "embedded Redis stopped, its data is kept" in up.output()
    down = rtmem("down", "--data-dir", up.data_dir, env=environment(tmp_path))
    assert down.stdout == f"No embedded Redis was running in {up.data_dir}.\n"
