"""README.md tells the truth: its examples run as printed there and print what it says they print."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from rtmem.gateway.http import Http
from rtmem.server import embedded
from rtmem.settings import Server
from tests.cli.commands import TIMEOUT_S, Up, environment, rtmem

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
URL = "http://127.0.0.1:8123"


def blocks(kind: str) -> dict[str, str]:
    """The fenced blocks below `<!-- kind: name -->`, or below `<!-- kind -->`, by name."""
    found = re.findall(rf"<!-- {kind}(?:: ([^>]+))? -->\n```\w+\n(.*?)```", README, re.DOTALL)
    return dict(found)


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return environment(tmp_path_factory.mktemp("readme"), RTMEM_AGENT__TOKEN_INTERVAL_MS="0")


@pytest.fixture(scope="module")
def up(env: dict[str, str]) -> Iterator[Up]:
    with Up(env=env, data_dir=Path(env["HOME"]) / "data") as up:
        yield up


def run(name: str, env: dict[str, str], url: str = URL) -> str:
    """What the example prints, without white space at the ends of its lines."""
    script = Path(env["HOME"]) / name
    script.write_text(blocks("example")[name].replace(URL, url))
    done = subprocess.run(
        [sys.executable, script], env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return plain(done.stdout)


def plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


@pytest.mark.parametrize("mark", ["start", "tests"])
def test_there_are_exactly_two_set_up_lines(mark: str) -> None:
    (line,) = blocks(mark).values()
    assert line.count("\n") == 1
    assert line.startswith("python3 -m venv .venv && .venv/bin/pip install -q -e ")


def headings() -> dict[str, str]:
    """Chapters and sections outside of fenced blocks, by the anchor that GitHub gives them."""
    prose = re.sub(r"^```.*?^```$", "", README, flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^##+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-"): title for title in titles}


def test_the_table_of_contents_names_every_section_in_its_order() -> None:
    contents = README.split("\n## ")[0].split("\n|---|---|\n")[1]
    named = re.findall(r"\]\(#([^)]+)\)", contents)
    assert named == list(headings())


def test_links_within_the_repository_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        path, _, anchor = target.partition("#")
        if not path:
            assert anchor in headings()
        elif ":" not in path:
            assert (Path(__file__).parents[1] / path).exists()


def test_an_example_that_needs_more_than_the_first_line_installs_says_so() -> None:
    for name, source in blocks("example").items():
        section = re.split(r"^##+ ", README.split(f"<!-- example: {name} -->")[0], flags=re.MULTILINE)[-1]
        assert ".[all,agent]" in section or not re.search(r"^from langchain\.", source, re.MULTILINE), name


def test_every_extra_is_explained_at_the_start() -> None:
    start = README.split("\n## Start")[1].split("\n## Tests")[0]
    extras = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for extra in extras.keys() - {"dev", "bench", "bench-postgres", "loadtest"}:
        assert f"`{extra}`" in start


def test_every_example_is_run_by_a_test() -> None:
    assert set(blocks("example")) == {
        *("saver.py", "tenants.py", "pointers.py", "agent_pointers.py"),
        *("embedders.py", "store.py", "facts.py", "recall.py", "cache.py", "doors.py", "cached.py"),
        *("app.py", "client.py", "resume.py"),
    }


@pytest.mark.parametrize(
    "name",
    [
        *("saver.py", "tenants.py", "pointers.py", "agent_pointers.py", "store.py", "facts.py", "recall.py"),
        *("cache.py", "doors.py"),
    ],
)
def test_examples_of_savers_print_what_the_readme_says_each_time(name: str, env: dict[str, str]) -> None:
    for _ in range(2):
        assert run(name, env) == plain(blocks("prints")[name])


def test_the_example_of_embedders_prints_what_the_readme_says(env: dict[str, str]) -> None:
    assert run("embedders.py", env) == plain(blocks("prints")["embedders.py"])


@pytest.mark.parametrize("name", ["client.py", "resume.py"])
def test_examples_of_clients_print_what_the_readme_says(name: str, up: Up, env: dict[str, str]) -> None:
    assert run(name, {**env, "RTMEM_TOKEN": up.token}, up.url) == plain(blocks("prints")[name])


def test_the_endpoints_said_to_be_served_are_those_of_the_gateway() -> None:
    section = README.split("### What is served")[1].split("Not served yet")[0]
    said = set(re.findall(r"(GET|POST) (/[^` ]+)", section))
    routes = Http(cast(Any, None)).routes()
    assert said == {
        (min(route.methods - {"HEAD"}), re.sub(r"{\w+}", "{id}", route.path)) for route in routes if route.methods
    }


def test_the_first_conversation_is_real(up: Up, env: dict[str, str]) -> None:
    transcript = blocks("from")["rtmem chat"]
    typed = re.findall(r"^(?:you|yes or no)> (.*)$", transcript, re.MULTILINE)
    done = rtmem(
        "chat", "readme-chat", "--data-dir", up.data_dir, env=env, given="".join(f"{line}\n" for line in typed)
    )
    assert done.stdout == transcript


def test_the_commands_of_memory_print_what_the_readme_says(env: dict[str, str], tmp_path: Path) -> None:
    def lines(text: str) -> list[str]:
        """Without times, sizes and scores (of another processor), and in no order: notes go to another stream."""
        return sorted(re.sub(r"[\d-]+ [\d:]+ UTC|[\d,]+ bytes|\d\.\d+", "~", text).splitlines())

    transcript = blocks("from")["rtmem memory"]
    typed = re.findall(r"^\$ rtmem (.*)\n((?:(?!\$ ).*\n)*)", transcript, re.MULTILINE)
    assert len(typed) == 6
    with embedded.start(Server(data_dir=str(tmp_path / "data"), profile="ephemeral")) as redis:
        for arguments, printed in typed:
            done = rtmem(*shlex.split(arguments), "--redis-url", redis.url, env=env)
            assert lines(done.stdout + done.stderr) == lines(printed), arguments


def test_the_error_shown_is_real(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(blocks("example")["app.py"])
    done = rtmem("serve", "ap.py:grph", env=env, cwd=tmp_path)
    assert done.stderr == blocks("from")["rtmem serve ap.py:grph"].replace("/home/ann", str(tmp_path))


def test_the_turns_of_a_graph_are_answered_from_the_cache(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "cached.py").write_text(blocks("example")["cached.py"])
    with Up("serve", "cached.py:graph", env=env, data_dir=tmp_path / "data", cwd=tmp_path) as served:
        for number in range(100):  # the cache is opened beside what a gateway does at its start
            command = ("chat", str(number), "--data-dir", served.data_dir)
            done = rtmem(*command, env=env, given="What is the capital of France?\n")
            assert "Thought of for half a second: 'What is the capital of France?'." in done.stdout, done.stderr
            if "(from the cache: the same question took" in done.stderr:
                break
        else:
            pytest.fail(f"never from the cache: {served.output()}")
        shown = rtmem("cache", "show", "--data-dir", served.data_dir, env=env)
        assert "What is the capital of France?" in shown.stdout, shown.stderr


def test_a_graph_of_ones_own_is_served_by_its_name(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(blocks("example")["app.py"])
    with Up(
        "serve", "support=app.py:graph", "app:builder", env=env, data_dir=tmp_path / "data", cwd=tmp_path
    ) as served:
        several = rtmem("chat", "--data-dir", served.data_dir, env=env, given="hello\n")
        assert several.returncode == 2
        assert "several assistants" in several.stderr
        for assistant in ("support", "builder"):
            command = ("chat", assistant, "--assistant", assistant, "--data-dir", served.data_dir)
            done = rtmem(*command, env=env, given="hello\n")
            assert done.stdout == "you> hello\nYou said 'hello'.\n", done.stderr
