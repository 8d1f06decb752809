"""What the blocking class can do, the awaiting one can do in the same words."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import rtmem


def classes() -> dict[str, type]:
    """Every public class of rtmem by name."""
    found = {}
    for module in pkgutil.walk_packages(rtmem.__path__, "rtmem."):
        if module.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if inspect.isclass(value) and value.__module__.startswith("rtmem.") and not name.startswith("_"):
                found[value.__name__] = value
    return found


def twins() -> Iterator[tuple[type, type]]:
    by_name = classes()
    for name, twin in sorted(by_name.items()):
        if name.startswith("Async"):
            bare = name.removeprefix("Async")
            original = by_name.get(bare) or by_name.get(f"Sync{bare}")
            if original is not None:
                yield original, twin


TWINS = list(twins())


def own_method(kind: type, name: str) -> Any:
    """The method as rtmem defines it; what a foreign base class offers does not count."""
    for base in kind.__mro__:
        if base.__module__.startswith("rtmem.") and name in vars(base):
            return vars(base)[name]
    return None


def parameters(method: Any) -> list[tuple[str, Any, Any]]:
    function = inspect.unwrap(getattr(method, "__func__", method))
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def missing_twins(original: type, twin: type) -> list[str]:
    """The public methods of `original` that `twin` lacks, or takes in other words."""
    problems = []
    for name in sorted(
        {name for base in original.__mro__ if base.__module__.startswith("rtmem.") for name in vars(base)}
    ):
        method = own_method(original, name)
        if name.startswith("_") or not (inspect.isfunction(method) or isinstance(method, classmethod | staticmethod)):
            continue
        others = [other for other in (own_method(twin, f"a{name}"), own_method(twin, name)) if other is not None]
        if not others:
            problems.append(f"{original.__name__}.{name} has no twin in {twin.__name__}")
        elif all(parameters(other) != parameters(method) for other in others):
            problems.append(
                f"{original.__name__}.{name}{parameters(method)} and its twin {parameters(others[0])} differ"
            )
    return problems


@pytest.mark.parametrize(("original", "twin"), TWINS, ids=lambda kind: kind.__name__)
def test_every_public_method_has_its_twin(original: type, twin: type) -> None:
    assert missing_twins(original, twin) == []


def test_pairs_are_found() -> None:
    assert {original.__name__ for original, _ in TWINS} >= {"SyncDriver"}


def test_a_missing_or_different_twin_is_named() -> None:
    class Base:
        def get(self, key: str, *, default: int = 0) -> int:
            return default

        def put(self, key: str) -> None: ...

        def drop(self, key: str) -> None: ...

    class Twin:
        async def aget(self, key: str, *, default: int = 1) -> int:
            return default

        async def aput(self, key: str) -> None: ...

    Base.__module__ = Twin.__module__ = "rtmem.example"
    problems = missing_twins(Base, Twin)
    assert len(problems) == 2
    assert "Base.drop has no twin" in problems[0]
    assert "Base.get" in problems[1]
