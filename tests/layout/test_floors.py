"""Who may call whom. A break is named with its file and line."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "rtmem"

# A file may import from floors below it and from its own folder; folders on one floor do not know each other.
FLOORS = {
    "errors": 0,
    "settings": 0,
    "records": 0,
    "keys": 0,
    "steps": 0,
    "served": 0,
    "counts": 0,
    "operations": 1,
    "drivers": 2,
    "embedding": 2,
    "server": 2,
    "checkpoint": 3,
    "store": 3,
    "memory": 3,
    "cache": 3,
    "pointers": 3,
    "eventlog": 3,
    "runs": 3,
    "agent": 4,
    "gateway": 5,
    "mcp": 5,
    "cli": 6,
    "loadtest": 6,
}
# Floor 2 does I/O and floor 1 asks for it: neither knows the other, both know floor 0.
STRANGERS = {(2, 1)}

# Inside operations/: subjects -> shared moves -> shapes. A module that is not named here is a subject.
SHARED_MOVES = {
    *("durability_proof", "pointer_uploads", "pointer_slices"),
    *("pointers", "retrieval", "vector_index", "functions", "text_query", "lexical_guard"),
    *("drafts", "restore", "heads", "places", "sharing", "offloading"),
    *("memory_scope", "memory_search", "memory_queries", "memory_ranking", "memory_state", "memory_drafts"),
    "memory_vectors",
    *("fact_scope", "fact_drafts", "fact_filters"),
    *(
        "guard_lexicon",
        "guard_reading",
        "guard_tokens",
        "guard_features",
        "guard_kinship",
        "guard_order",
        "guard_lists",
    ),
    *("guard_pairs", "guard_endings", "guard_whether"),
    *("cache_state", "cache_notes", "cache_index", "semantic_cache", "cache_writing"),
    *("pointer_lifetimes", "pointer_reading", "pointer_search", "pointer_select", "pointer_inspection"),
}
SHAPES = {
    "aof_watch",
    *("guard_frames", "words", "serde", "fingerprints", "messages", "replies", "expiry", "clones"),
    *("vector_fields", "cache_records", "cache_prompts", "cache_answers", "cached_messages", "langchain_prompts"),
    *("guard_english", "guard_russian"),
    *("memory_items", "transfer_lines", "memory_filters", "fact_items"),
    *("pointer_values", "pointer_cuts", "pointer_tables", "pointer_objects", "pointer_media", "pointer_decoding"),
    *("pointer_chunks", "pointer_previews", "pointer_continuations"),
}

IO_LIBRARIES = {"redis", "socket", "asyncio", "anyio", "subprocess", "selectors", "httpx", "websockets"}
# Folders that must not reach for these: who asks never acts, and who translates never speaks to Redis itself.
FORBIDDEN = {
    **{name: IO_LIBRARIES for name, floor in FLOORS.items() if floor < 2},
    "agent": {"redis"},
    "gateway": {"redis"},
    "mcp": {"redis"},
}


@dataclass(frozen=True)
class Import:
    importer: tuple[str, ...]  # ("checkpoint", "sync")
    imported: tuple[str, ...]  # ("rtmem", "operations", "checkpoints") or ("redis", "asyncio")
    line: int

    def __str__(self) -> str:
        return f"rtmem/{'/'.join(self.importer)}.py:{self.line} imports {'.'.join(self.imported)}"


def imports_in(path: Path, root: Path) -> Iterator[Import]:
    """Every import of a file, also those inside functions and under TYPE_CHECKING: knowing a type is knowing."""
    importer = path.relative_to(root).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(importer, tuple(alias.name.split(".")), node.lineno)
        elif isinstance(node, ast.ImportFrom):
            above = ("rtmem", *importer[: len(importer) - node.level]) if node.level else ()
            module = (*above, *(node.module.split(".") if node.module else ()))
            for alias in node.names:
                yield Import(importer, (*module, alias.name), node.lineno)


def breaks(root: Path) -> list[str]:
    """Each line below `root` that breaks the table, with the reason."""
    found = []
    for path in sorted(root.rglob("*.py")):
        for line in imports_in(path, root):
            reason = reason_against(line)
            if reason:
                found.append(f"{line}: {reason}")
    return found


def reason_against(line: Import) -> str | None:
    folder = line.importer[0]
    if folder in ("__init__", "__main__"):  # the doors of the package lead to every floor
        return None
    if folder not in FLOORS:
        return f"{folder!r} stands on no floor: add it to FLOORS in {Path(__file__).name}"
    if line.imported[0] in FORBIDDEN.get(folder, ()):
        return f"{folder} must not use {line.imported[0]}"
    if line.imported[0] != "rtmem" or len(line.imported) < 2 or line.imported[1] == folder:
        return _reason_inside_operations(line) if folder == "operations" else None
    other = line.imported[1]
    if other not in FLOORS:  # a name of the package itself, such as __version__
        return None
    floor, below = FLOORS[folder], FLOORS[other]
    if below == floor and floor == 0:
        return None
    if below >= floor:
        return f"{folder} (floor {floor}) must not know {other} (floor {below})"
    if (floor, below) in STRANGERS:
        return f"floors {floor} and {below} do not know each other"
    return None


def _reason_inside_operations(line: Import) -> str | None:
    if line.imported[:2] != ("rtmem", "operations") or len(line.imported) < 3:
        return None
    importer, imported = line.importer[1], line.imported[2]
    if layer(imported) > layer(importer):
        return "inside operations/ imports go from subjects to shared moves to shapes"
    return None


def layer(name: str) -> int:
    if name == "__init__":
        return 3
    return 0 if name in SHAPES else 1 if name in SHARED_MOVES else 2


def test_imports_go_down_the_floors() -> None:
    assert breaks(PACKAGE) == []


def test_operations_import_each_other_without_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for path in (PACKAGE / "operations").glob("*.py"):
        wanted = {
            line.imported[2] for line in imports_in(path, PACKAGE) if line.imported[:2] == ("rtmem", "operations")
        }
        graph[path.stem] = {name for name in wanted if (PACKAGE / "operations" / f"{name}.py").exists()}
    while graph:
        free = {name for name, wanted in graph.items() if not wanted & graph.keys()}
        assert free, f"a circle among {sorted(graph)}"
        graph = {name: wanted for name, wanted in graph.items() if name not in free}


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("checkpoint/sync.py", "from rtmem.gateway import app", "must not know gateway"),
        ("checkpoint/sync.py", "from rtmem.eventlog.aio import EventLog", "must not know eventlog"),
        ("server/probe.py", "from rtmem.operations import functions", "do not know each other"),
        ("server/probe.py", "def f():\n    import rtmem.drivers.sync", "must not know drivers"),
        ("server/probe.py", "from ..operations import functions", "do not know each other"),
        ("operations/serde.py", "from .checkpoints import put", "from subjects to shared moves"),
        ("operations/functions.py", "from rtmem.operations.checkpoints import put", "from subjects to shared moves"),
        ("operations/checkpoints.py", "import redis.asyncio", "must not use redis"),
        ("gateway/app.py", "from redis import Redis", "must not use redis"),
        ("errors.py", "from rtmem.server import probe", "must not know server"),
        ("misc/app.py", "import os", "stands on no floor"),
    ],
)
def test_a_break_is_named(tmp_path: Path, file: str, text: str, reason: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    (found,) = breaks(tmp_path)
    assert f"rtmem/{file}:{len(text.splitlines())}" in found
    assert reason in found


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("gateway/app.py", "from rtmem.agent.turn import run_turn\nfrom rtmem.checkpoint import AsyncRedisSaver"),
        ("checkpoint/sync.py", "from rtmem.operations import checkpoints\nfrom rtmem.drivers import SyncDriver"),
        ("checkpoint/sync.py", "from . import serde\nfrom rtmem import __version__"),
        ("operations/checkpoints.py", "from rtmem.operations import functions, serde\nfrom rtmem import errors"),
    ],
)
def test_the_way_down_is_free(tmp_path: Path, file: str, text: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert breaks(tmp_path) == []
