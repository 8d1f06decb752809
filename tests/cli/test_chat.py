from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.cli.commands import TIMEOUT_S, Up, environment, rtmem


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return environment(tmp_path_factory.mktemp("home"), RTMEM_AGENT__TOKEN_INTERVAL_MS="0")


@pytest.fixture(scope="module")
def up(env: dict[str, str]) -> Iterator[Up]:
    with Up(env=env, data_dir=Path(env["HOME"]) / "data") as up:
        yield up


def test_a_pipe_holds_a_conversation_with_tools_and_approval(up: Up, env: dict[str, str]) -> None:
    done = rtmem(
        "chat",
        "piped",
        "--data-dir",
        up.data_dir,
        env=env,
        given="what is 6*7?\n\nsend a message to Bob: hi\nyes\nforget everything\nno\n",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "you> what is 6*7?\n"
        "  calculate(expression='6*7')\n"
        "6*7 = 42.\n"
        "you> send a message to Bob: hi\n"
        "  send_message(recipient='Bob', text='hi')\n"
        "? Send to Bob: hi\n"
        "yes or no> yes\n"
        "The message to Bob is in the outbox. (The demo delivers nothing outside.)\n"
        "you> forget everything\n"
        "? Forget every fact and this conversation so far?\n"
        "yes or no> no\n"
        "As you wish: I have kept everything.\n"
    )


def test_a_question_left_open_fails_the_script_and_waits_for_the_next(up: Up, env: dict[str, str]) -> None:
    command = ("chat", "open", "--data-dir", up.data_dir, "--assistant", "demo")
    left = rtmem(*command, env=env, given="send a message to Bob: hi\n")
    assert left.returncode == 1
    again = " ".join(("rtmem", *map(str, command)))
    assert f"the thread waits for it. Come back with `{again}` to decide." in left.stderr
    decided = rtmem(*command, env=env, given="yes\nwho am i?\n")
    assert decided.returncode == 0
    assert decided.stdout.startswith("? Send to Bob: hi\nyes or no> yes\nThe message to Bob is in the outbox.")


def test_a_wrong_token_and_an_unknown_assistant_get_the_next_step(up: Up, env: dict[str, str]) -> None:
    wrong = rtmem("chat", "--data-dir", up.data_dir, "--token", "x", env=env)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "give it with --token or RTMEM_TOKEN" in wrong.stderr
    unknown = rtmem("chat", "--data-dir", up.data_dir, "--assistant", "nobody", env=env)
    assert unknown.returncode == 2
    assert "choose one with --assistant: demo" in unknown.stderr


def test_a_directory_that_never_had_a_gateway_is_told_apart_from_a_wrong_token(
    up: Up, env: dict[str, str], tmp_path: Path
) -> None:
    done = rtmem("chat", "--data-dir", tmp_path / "nodir", "--url", up.url, env=env)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"data directory {tmp_path}/nodir has none, because no gateway of it was ever started" in done.stderr
    assert f"start one with `rtmem up --data-dir {tmp_path}/nodir`, or give --data-dir or --token" in done.stderr


def test_a_thread_name_may_be_anything(up: Up, env: dict[str, str]) -> None:
    for thread in ("a/b c?#%", "беседа"):
        done = rtmem("chat", thread, "--data-dir", up.data_dir, env=env, given="send a message to Bob: hi\nyes\n")
        assert done.returncode == 0, done.stderr
        assert "in the outbox" in done.stdout


def test_a_thread_without_a_name_is_refused_with_what_to_type(env: dict[str, str]) -> None:
    done = rtmem("chat", "", env=env)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "`rtmem chat NAME`" in done.stderr


@pytest.mark.parametrize("url", ["foo", "localhost:8123", "ws://localhost:8123", "http://"])
def test_an_address_that_is_no_url_is_refused_with_the_form_it_needs(url: str, env: dict[str, str]) -> None:
    done = rtmem("chat", "--url", url, env=env)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "write http://host:port" in done.stderr


def test_an_unclear_answer_is_asked_for_again(up: Up, env: dict[str, str]) -> None:
    given = "send a message to Bob: hi\nhm\nyes please\nno, not now\n"
    done = rtmem("chat", "unclear", "--data-dir", up.data_dir, env=env, given=given)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("yes or no> ") == 3
    assert done.stderr.count("Please answer yes or no") == 2
    assert "outbox" not in done.stdout


FAILING_GRAPH = """
from langgraph.graph import START, MessagesState, StateGraph

def answer(state):
    if "fail" in state["messages"][-1].text:
        raise ValueError("on purpose")
    return {"messages": [("ai", "fine")]}

graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer").compile()
"""


def test_a_run_that_fails_ends_neither_a_pipe_nor_a_terminal_and_fails_the_script(
    env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "failing.py").write_text(FAILING_GRAPH)
    with Up("serve", tmp_path / "failing.py:graph", env=env, data_dir=tmp_path / "data") as up:
        done = rtmem("chat", "piped", "--data-dir", up.data_dir, env=env, given="fail\nhello\n")
        assert (done.returncode, done.stdout) == (1, "you> fail\nyou> hello\nfine\n")
        assert "on purpose" in done.stderr
        with terminal("typed", up, env) as (master, chat):
            read_until(master, "you> ")
            os.write(master, b"fail\n")
            assert "on purpose" in read_until(master, "you> ")
            os.write(master, b"/quit\n")
            assert chat.wait(TIMEOUT_S) == 0


def test_a_gateway_that_ends_in_the_middle_of_an_answer_is_said_to_be_away(tmp_path: Path) -> None:
    env = environment(tmp_path, RTMEM_AGENT__TOKEN_INTERVAL_MS="300", RTMEM_GATEWAY__DRAIN_TIMEOUT_MS="1")
    with Up(env=env, data_dir=tmp_path / "data") as up, terminal("away", up, env) as (master, chat):
        read_until(master, "you> ")
        os.write(master, b"tell me about the weather\n")
        read_until(master, "demo", "demo ")
        assert up.stop() == 0
        read_until(master, "(connection lost, waiting for the gateway)")
        chat.kill()


def test_ctrl_c_at_the_prompt_ends_its_line(up: Up, env: dict[str, str]) -> None:
    with terminal("ended", up, env) as (master, chat):
        read_until(master, "you> ")
        while chat.poll() is None:
            # Once more only after long: Python notices a signal at its next key if it comes between the prompt and the
            # wait for keys, and one that comes while it ends kills it.
            os.write(master, b"\x03")
            with suppress(subprocess.TimeoutExpired):
                chat.wait(TIMEOUT_S / 2)
        assert chat.returncode == 130
        assert os.read(master, 1024).endswith(b"\n")


@pytest.mark.parametrize("name", [".", "..", b"caf\xe9"])
def test_a_thread_name_that_no_url_can_tell_is_refused(name: str | bytes, env: dict[str, str]) -> None:
    done = rtmem("chat", os.fsdecode(name), env=env)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "choose one of UTF-8 characters" in done.stderr


def test_input_that_is_no_text_is_refused_and_not_sent(up: Up, env: dict[str, str]) -> None:
    command = [sys.executable, "-m", "rtmem", "chat", "bytes", "--data-dir", up.data_dir]
    done = subprocess.run(command, env=env, input=b"caf\xe9\n", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"error: a line of the input is not utf-8: send UTF-8")


def test_a_message_that_is_too_large_is_refused_in_the_gateways_words(up: Up, env: dict[str, str]) -> None:
    done = rtmem("chat", "large", "--data-dir", up.data_dir, env=env, given="x" * 5_000_000 + "\nhello\n")
    assert done.returncode == 1
    assert done.stderr.startswith("error: the gateway at ")
    assert "raise frame_bytes_max" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_terminal_shows_where_the_thread_stands(up: Up, env: dict[str, str]) -> None:
    rtmem("chat", "kept", "--data-dir", up.data_dir, env=env, given="my name is Ann\n")
    with terminal("kept", up, env) as (master, chat):
        shown = read_until(master, "you> ")
        assert "you> my name is Ann" in shown
        assert "Nice to meet you, Ann." in shown
        os.write(master, b"who am i?\n")
        assert "Your name is Ann." in read_until(master, "Your name is Ann.")
        os.write(master, b"/quit\n")
        assert chat.wait(TIMEOUT_S) == 0


def test_what_others_wrote_cannot_command_the_terminal(up: Up, env: dict[str, str]) -> None:
    rtmem("chat", "hostile", "--data-dir", up.data_dir, env=env, given="my name is Eve\x1b[2J\n")
    with terminal("hostile", up, env) as (master, _):
        shown = read_until(master, "you> ")
        os.write(master, b"who am i?\n")
        shown += read_until(master, "you> ")
    assert "Nice to meet you, Eve\N{SYMBOL FOR ESCAPE}[2J" in shown
    assert "Your name is Eve\N{SYMBOL FOR ESCAPE}[2J" in shown
    assert "\x1b" not in shown


@contextmanager
def terminal(thread: str, up: Up, env: dict[str, str]) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A chat in a terminal of its own: the terminal's other end, and the process."""
    master, slave = pty.openpty()
    chat = subprocess.Popen(
        [sys.executable, "-m", "rtmem", "chat", thread, "--data-dir", str(up.data_dir)],
        env={**env, "TERM": "dumb"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        preexec_fn=lambda: _own_terminal(slave),
    )
    os.close(slave)
    try:
        yield master, chat
    finally:
        chat.kill()
        chat.wait()
        os.close(master)


def _own_terminal(slave: int) -> None:
    # Ctrl-C reaches only those whose controlling terminal it is typed into, and who do not ignore it: what was started
    # in the background does.
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def read_until(terminal: int, *endings: str) -> str:
    """What a terminal shows until it ends with one of `endings`."""
    shown = b""
    deadline = time.monotonic() + TIMEOUT_S
    while not shown.decode(errors="ignore").replace("\r", "").rstrip("\n").endswith(endings):
        assert time.monotonic() < deadline, shown
        shown += os.read(terminal, 1024)
    return shown.decode(errors="ignore").replace("\r", "")
