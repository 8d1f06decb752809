from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from rtmem.cli.main import app
from tests.cli.commands import environment, rtmem


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path)


@pytest.mark.parametrize("command", [[], ["up"], ["serve"], ["chat"], ["doctor"], ["down"], ["configs", "show"]])
def test_help_teaches_with_examples(command: list[str], env: dict[str, str]) -> None:
    done = rtmem(*command, "--help", env=env)
    assert done.returncode == 0
    assert "Examples:" in done.stdout or not command or command == ["down"]
    assert "rtmem" in done.stdout


def commands(of: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """`of` and every command below it, with what has to be typed for it."""
    yield path, of
    for name, below in getattr(of, "commands", {}).items():
        yield from commands(below, *path, name)


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_prints_every_word_that_was_written_for_it(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    done = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "1000", "NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    printed = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", done.output).split())
    written = [command.help, command.epilog, *(getattr(param, "help", None) for param in command.params)]
    for text in filter(None, written):
        # In square brackets markup is meant, of which bold is all we use; anything else that is lost was not escaped.
        assert " ".join(re.sub(r"\[/?bold\]", "", text).replace("\\[", "[").split()) in printed


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_prose_of_help_fits_a_window_of_80_columns(path: tuple[str, ...]) -> None:
    _, *paragraphs = inspect.cleandoc(COMMANDS[path].help or "").split("\n\n")  # the first is wrapped by typer
    lines = re.sub(r"\[/?bold\]|\\\\", "", "\n".join(paragraphs)).splitlines()
    assert [line for line in lines if len(line) > 78 and not line.startswith(" ")] == []


def test_help_imports_neither_langgraph_nor_redis(env: dict[str, str]) -> None:
    code = (
        "import sys, rtmem.cli.main\n"
        "heavy = {'langgraph', 'langchain_core', 'redis', 'langgraph_sdk', 'starlette'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_without_its_extra_says_what_to_install(env: dict[str, str]) -> None:
    code = "import sys; sys.modules['typer'] = None; from rtmem.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: the rtmem command needs typer, which is not installed: pip install 'rtmem[all]'\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nonsense"], 2, "No such command"),
        (["up", "--port", "70000"], 2, "65535"),
        (["up", "--config", "nowhere.toml"], 2, "settings file nowhere.toml"),
        (["up", "--redis-url", "http://localhost"], 2, "http"),
        (["up", "--redis-url", "unix:///nowhere/redis.sock"], 1, "/nowhere/redis.sock"),
        (["up", "--data-dir", "/proc/nowhere"], 2, "data directory /proc/nowhere"),
        (["serve", "nowhere:graph"], 2, "no module 'nowhere'"),
        (["serve", "a=rtmem.agent.demo:graph", "a=rtmem.agent.demo:graph"], 2, "two graphs are called 'a'"),
        (["serve", "=rtmem.agent.demo:graph"], 2, "write name=rtmem.agent.demo:graph"),
        (["chat", "--url", "http://127.0.0.1:9"], 1, "no gateway answers at http://127.0.0.1:9"),
        (["configs", "show", "nowhere"], 2, "profile 'nowhere'"),
    ],
)
def test_a_user_error_is_one_message_and_an_exit_code(
    arguments: list[str], code: int, message: str, env: dict[str, str]
) -> None:
    done = rtmem(*arguments, env=env)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_debug_shows_the_traceback(env: dict[str, str]) -> None:
    done = rtmem("up", "--config", "nowhere.toml", env={**env, "RTMEM_DEBUG": "1"})
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_an_unknown_model_is_a_user_error(env: dict[str, str]) -> None:
    done = rtmem("up", env={**env, "RTMEM_MODEL": "nobody:tiny"})
    assert done.returncode == 2
    assert "model 'nobody:tiny': LangChain knows no provider for it. Supported providers: " in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_end_no_command(closed: str, env: dict[str, str], tmp_path: Path) -> None:
    command = f"exec {shlex.quote(sys.executable)} -m rtmem down --data-dir {shlex.quote(str(tmp_path))} {closed}"
    done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_output_to_a_full_disk_is_one_message_and_an_exit_code(env: dict[str, str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "rtmem", "configs", "show"]
        done = subprocess.run(command, env=env, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_what_an_encoding_lacks_is_shown_as_a_question_mark(env: dict[str, str]) -> None:
    code = "from rtmem.cli import screen; screen.out.print('naïve Имя'); screen.note('Имя')"
    ascii_only = {**env, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], env=ascii_only, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "na?ve ???\n", "???\n")
