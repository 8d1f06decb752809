from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from langgraph.pregel import Pregel

from rtmem.agent.loading import build, load_graph, resolve
from rtmem.errors import GraphNotFoundError

SOURCE = """
from __future__ import annotations
from langgraph.graph import END, START, MessagesState, StateGraph
import neighbour

class State(MessagesState):
    extra: int

def _echo(state: State) -> dict:
    return {"messages": [("ai", neighbour.WORD)]}

builder = StateGraph(State)
builder.add_node("echo", _echo)
builder.add_edge(START, "echo")
builder.add_edge("echo", END)
graph = builder.compile()

def make_graph():
    return builder.compile()

async def make_graph_async():
    return builder.compile()

def make_nothing():
    return "nothing"

def needs_argument(x):
    return builder.compile()

def make_trouble():
    raise KeyError("no key")

hollow = StateGraph(State)
answer = 42
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's project as the working directory: app.py with graphs, and a module next to it."""
    (tmp_path / "app.py").write_text(SOURCE)
    (tmp_path / "neighbour.py").write_text("WORD = 'hello'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("app", "neighbour"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield tmp_path
    for name in ("app", "neighbour"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["graph", "builder", "make_graph"])
@pytest.mark.parametrize("place", ["app", "app.py", "./app.py"])
def test_loads_graph_builder_and_factory_by_module_and_by_file(project: Path, place: str, name: str) -> None:
    graph = load_graph(f"{place}:{name}")
    assert isinstance(graph, Pregel)
    assert graph.invoke({"messages": [("user", "hi")]})["messages"][-1].content == "hello"


def test_loads_a_file_by_absolute_path(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert isinstance(load_graph(f"{project}/app.py:graph"), Pregel)


@pytest.mark.anyio
async def test_an_async_factory_is_built_on_the_running_loop(project: Path) -> None:
    assert isinstance(await build(resolve("app:make_graph_async")), Pregel)
    with pytest.raises(GraphNotFoundError, match="async factory"):
        load_graph("app:make_graph_async")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("app", "write module:attribute"),
        ("app:", "write module:attribute"),
        (":graph", "write module:attribute"),
        ("app:a.b", "write module:attribute"),
        ("nowhere:graph", "no module 'nowhere'"),
        ("nowhere.deeper:graph", "no module 'nowhere'"),
        ("ap.py:graph", "did you mean app.py"),
        ("other/app.py:graph", "no file .*: check the path"),
        ("app:grap", "did you mean app:graph"),
        ("app:zzz", "its graphs are builder, graph, hollow"),
        ("app:answer", "is of type int, not a graph"),
        ("app:State", "not a graph"),
        ("app:needs_argument", "is of type function, not a graph"),
        ("app:make_nothing", "returned something of type str"),
        ("app:make_trouble", "cannot be built: KeyError: 'no key'"),
        ("app:hollow", "cannot be built: ValueError"),
    ],
)
async def test_a_wrong_name_gets_the_next_step(project: Path, spec: str, message: str) -> None:
    with pytest.raises(GraphNotFoundError, match=message):
        load_graph(spec)
    with pytest.raises(GraphNotFoundError, match=message):
        await build(resolve(spec), spec)


def test_an_error_inside_the_module_is_told_as_such(project: Path) -> None:
    (project / "broken.py").write_text("1 / 0\n")
    (project / "needy.py").write_text("import not_installed_here\n")
    for place in ("broken", "broken.py"):
        with pytest.raises(GraphNotFoundError, match="ZeroDivisionError: division by zero") as caught:
            load_graph(f"{place}:graph")
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(GraphNotFoundError, match=r"needs a module that is not installed: .*not_installed_here"):
        load_graph("needy:graph")


def test_the_demo_agent_loads_by_name() -> None:
    assert load_graph("rtmem.agent.demo:graph").name == "demo"


def test_a_module_that_imports_its_neighbour_is_offered_as_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "neighbour_of_it.py").write_text("")
    (tmp_path / "pack" / "module_of_it.py").write_text("import neighbour_of_it\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(GraphNotFoundError, match=r"lies beside .* give the file: pack/module_of_it\.py:graph"):
        resolve("pack.module_of_it:graph")
