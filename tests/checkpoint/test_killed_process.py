"""kill -9 of the process that runs a graph: what LangGraph's `durability` leaves in Redis, as README.md tells it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from rtmem.checkpoint import RedisSaver

STEPS = ["n0", "n1", "n2"]

# Three steps, then two tasks at once: one ends, the other one ends the process.
PROGRAM = """
import asyncio, operator, os, signal, sys
from typing import Annotated, TypedDict
from langgraph.graph import START, StateGraph
from rtmem.checkpoint import AsyncRedisSaver

url, thread_id, durability = sys.argv[1:]
thread = {"configurable": {"thread_id": thread_id}}

class State(TypedDict):
    done: Annotated[list[str], operator.add]

async def main():
    async with AsyncRedisSaver.from_conn_string(url) as saver:
        async def deadly(state):
            while durability == "sync":
                found = await saver.aget_tuple(thread)
                if any(channel == "done" for _, channel, _ in found.pending_writes):
                    break  # what the other task did has arrived
                await asyncio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)

        builder = StateGraph(State)
        before = START
        for name in ("n0", "n1", "n2"):
            builder.add_node(name, lambda state, name=name: {"done": [name]})
            builder.add_edge(before, name)
            before = name
        builder.add_node("quick", lambda state: {"done": ["quick"]})
        builder.add_node("deadly", deadly)
        builder.add_edge(before, "quick")
        builder.add_edge(before, "deadly")
        await builder.compile(checkpointer=saver).ainvoke({"done": []}, thread, durability=durability)

asyncio.run(main())
"""


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_killed_process_takes_what_durability_had_not_written(
    durability: str, redis_url: str, tmp_path: Path
) -> None:
    thread_id = str(uuid4())
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), redis_url, thread_id, durability],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    with RedisSaver.from_conn_string(redis_url) as saver:
        found = saver.get_tuple({"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}})
    steps = found.checkpoint["channel_values"].get("done", []) if found else None
    if durability == "sync":
        assert found is not None
        assert steps == STEPS
        assert ("done", ["quick"]) in [(channel, value) for _, channel, value in found.pending_writes or ()]
    elif durability == "async":
        # Whatever had arrived, and always a beginning.
        assert steps is None or steps == STEPS[: len(steps)]
    else:
        assert found is None
