"""The command line restores only known types from stored bytes, unless it is told otherwise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SERVED = """
import dataclasses, os, sys
from rtmem.cli.main import main
try:
    main(["--version"])
except SystemExit:
    pass
from typing_extensions import TypedDict
from langgraph.graph import START, StateGraph
from rtmem.checkpoint import AsyncRedisSaver
from rtmem.gateway.runs import _restricted
sys.modules["app"] = sys.modules["__main__"]

@dataclasses.dataclass
class Named:
    n: int

@dataclasses.dataclass
class Unnamed:
    n: int

class State(TypedDict):
    named: Named

builder = StateGraph(State)
builder.add_node("a", lambda state: {})
builder.add_edge(START, "a")
saver = _restricted(AsyncRedisSaver("unix:///nowhere"), builder.compile()).bind("ann")
for value in (Named(1), Unnamed(1)):
    print(type(saver.serde.loads_typed(saver.serde.dumps_typed(value))).__name__)
"""


def types_restored(**environ: str) -> list[str]:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SERVED],
        env={"PYTHONPATH": str(root), "PATH": "", **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()[2:]


def test_a_served_graph_restores_the_types_its_schema_names_and_no_others() -> None:
    assert types_restored() == ["Named", "dict"]


def test_the_operator_may_allow_every_type() -> None:
    assert types_restored(LANGGRAPH_STRICT_MSGPACK="false") == ["Named", "Unnamed"]
