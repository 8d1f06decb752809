"""What an agent takes from here is there, or it is said which extra brings it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("module", "statement", "extra"),
    [
        ("langgraph.config", "from rtmem.agent import Recall", "agent"),
        ("langgraph.types", "from rtmem.agent import ByPointer", "agent"),
        ("langchain", "from rtmem.agent import PointerMiddleware", "agent"),
        ("langchain", "from rtmem.agent import RecallMiddleware", "agent"),
        ("redisvl", "from rtmem.agent import Recall", "memory"),
        ("redisvl", "import rtmem.agent.recall", "memory"),
        ("langgraph.types", "import rtmem.agent.offload", "agent"),
        ("redisvl", "from rtmem import Memory", "memory"),
        ("langchain", "from rtmem.store.embedders import embedder_of; embedder_of('openai:m', 3)", "agent"),
        ("langchain_openai", "from rtmem.store.embedders import embedder_of; embedder_of('openai:m', 3)", ""),
        ("langchain", "from rtmem.agent.models import load_model; load_model('openai:m')", "model"),
        ("pyarrow", "from rtmem.operations.pointer_tables import read_table; read_table(b'')", "tables"),
    ],
)
def test_what_an_extra_brings_is_missed_by_its_name(module: str, statement: str, extra: str) -> None:
    # In a process of its own: this one has loaded them.
    program = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from rtmem.errors import ExtraMissingError\n"
        f"try: {statement}\n"
        "except ExtraMissingError as exc: print(exc.data['extra'] + '|' + str(exc))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=100)
    found, bar, message = done.stdout.partition("|")
    assert (found, bar) == (extra, "|"), done.stdout + done.stderr
    assert (f"rtmem[{extra}]" if extra else module.replace("_", "-")) in message
