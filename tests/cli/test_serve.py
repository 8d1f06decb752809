"""`rtmem serve`: what the developer of a graph sees of it."""

from __future__ import annotations

from pathlib import Path

from tests.cli.commands import Up, environment, rtmem

APP = """\
from langgraph.graph import START, MessagesState, StateGraph


def answer(state: MessagesState):
    raise RuntimeError("no model today")


builder = StateGraph(MessagesState)
builder.add_node("answer", answer)
builder.add_edge(START, "answer")
"""


def test_a_failing_node_is_shown_with_file_line_and_traceback_to_its_developer_only(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    env = environment(tmp_path)
    command = ("serve", "app.py:builder")
    with Up(*command, env=env, data_dir=tmp_path / "data", cwd=tmp_path) as served:
        done = rtmem("chat", "talk", "--data-dir", served.data_dir, env=env, given="hello\n")
        assert done.stderr == "error: no answer: RuntimeError: no model today\n"
        printed = served.output()
    place = tmp_path / "app.py"
    assert f"of thread 'talk': graph 'builder' failed at {place}:5: RuntimeError: no model today" in printed
    assert f'File "{place}", line 5, in answer' in printed
