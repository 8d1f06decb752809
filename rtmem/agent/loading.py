"""`module:graph` or `path/to/file.py:graph` -> a compiled graph. What is found may also be a factory.

Resolving (import, look up, check) is separate from building, because a factory may be async: what it opens must
live on the event loop that will run the graph.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from langgraph.graph import StateGraph
from langgraph.pregel import Pregel

from rtmem.errors import GraphNotFoundError, RtmemError

Target = Pregel[Any, Any, Any, Any] | StateGraph[Any, Any, Any, Any] | Callable[[], Any]


def resolve(spec: str) -> Target:
    """What `spec` names: a graph or a factory of one, not yet called.

    Raises:
        GraphNotFoundError: no such module, file or attribute, or it is no graph; lists what the module has.
    """
    place, _, name = spec.rpartition(":")
    # A Windows drive or a bare module has no attribute behind the last colon.
    if not place or not name.isidentifier():
        raise GraphNotFoundError(
            f"{spec!r} does not name a graph: write module:attribute or path/to/file.py:attribute", spec=spec
        )
    module = _import_file(place, spec) if _is_path(place) else _import_module(place, spec)
    found: Any = getattr(module, name, None)
    if isinstance(found, Pregel | StateGraph) or _is_factory(found):
        target: Target = found
        return target
    what = f"{place} has no {name!r}"
    if found is not None:
        what = f"{spec} is of type {type(found).__name__}, not a graph or a factory without arguments"
    raise GraphNotFoundError(f"{what}: {_suggest(module, place, name)}", spec=spec)


async def build(target: Target, spec: str = "") -> Pregel[Any, Any, Any, Any]:
    """The compiled graph behind what `resolve` returned; awaits an async factory on the running loop.

    Raises:
        GraphNotFoundError: a factory that fails or returns something else, or a graph that does not compile.
    """
    try:
        made = target if isinstance(target, Pregel | StateGraph) else target()
        if inspect.isawaitable(made):
            made = await made
        return _compiled(made, spec)
    except RtmemError:
        raise
    except Exception as exc:
        raise _failed(spec or "the graph", "cannot be built", exc, spec) from exc


def load_graph(spec: str) -> Pregel[Any, Any, Any, Any]:
    """`resolve` and build in one go, for graphs and sync factories.

    Raises:
        GraphNotFoundError: see `resolve`; also for an async factory, which needs `await build(resolve(spec))`.
    """
    target = resolve(spec)
    if inspect.iscoroutinefunction(target):
        raise GraphNotFoundError(f"{spec} is an async factory: load it with `await build(resolve(spec))`", spec=spec)
    try:
        return _compiled(target if isinstance(target, Pregel | StateGraph) else target(), spec)
    except RtmemError:
        raise
    except Exception as exc:
        raise _failed(spec, "cannot be built", exc, spec) from exc


def _compiled(made: Any, spec: str) -> Pregel[Any, Any, Any, Any]:
    if isinstance(made, StateGraph):
        return made.compile()
    if isinstance(made, Pregel):
        return made
    raise GraphNotFoundError(
        f"{spec or 'the factory'} returned something of type {type(made).__name__}: return a StateGraph or what "
        ".compile() returns",
        spec=spec,
    )


def _is_path(place: str) -> bool:
    return place.endswith(".py") or "/" in place or "\\" in place


def _import_module(name: str, spec: str) -> ModuleType:
    # A console script does not have the working directory on its path; the user's module usually lies there.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is None or not (name == exc.name or name.startswith(exc.name + ".")):
            hint = _neighbour_hint(name, exc.name or "", spec)
            raise GraphNotFoundError(f"{name} needs a module that is not installed: {exc}{hint}", spec=spec) from exc
        raise GraphNotFoundError(
            f"no module {exc.name!r}, looked in {here} and in the environment: "
            "check the spelling, or give the file: path/to/file.py:attribute",
            spec=spec,
        ) from exc
    except Exception as exc:
        raise _failed(name, "fails when imported", exc, spec) from exc


def _neighbour_hint(name: str, missing: str, spec: str) -> str:
    """`import neighbour` inside a package finds nothing; run as a file, as with `python file.py`, it does."""
    try:
        found = importlib.util.find_spec(name)
    except ImportError:  # its package does not import either
        return ""
    file = Path(found.origin) if found is not None and found.origin else None
    if not missing or file is None or not (file.parent / f"{missing.partition('.')[0]}.py").is_file():
        return ""
    return f": it lies beside {file.name}, so give the file: {os.path.relpath(file)}:{spec.rpartition(':')[2]}"


def _import_file(place: str, spec: str) -> ModuleType:
    path = Path(place).expanduser().resolve()
    if not path.is_file():
        near = get_close_matches(path.name, [other.name for other in path.parent.glob("*.py")], 1)
        hint = f"did you mean {near[0]}?" if near else "check the path"
        raise GraphNotFoundError(f"no file {path}: {hint}", spec=spec)
    # Two files of one name in two folders are two modules.
    name = f"rtmem_graph_{path.stem}_{hashlib.blake2b(str(path).encode(), digest_size=4).hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or module_spec.loader is None:
        raise GraphNotFoundError(f"{path} is no Python file", spec=spec)
    module = importlib.util.module_from_spec(module_spec)
    # Registered before it runs: LangGraph resolves the annotations of a state class through sys.modules.
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))  # its neighbours, as with `python file.py`
    try:
        module_spec.loader.exec_module(module)
    except Exception as exc:
        del sys.modules[name]
        raise _failed(str(path), "fails when imported", exc, spec) from exc
    finally:
        sys.path.remove(str(path.parent))
    return module


def _failed(place: str, what: str, exc: Exception, spec: str) -> GraphNotFoundError:
    return GraphNotFoundError(f"{place} {what}: {type(exc).__name__}: {exc}: RTMEM_DEBUG=1 shows where", spec=spec)


def _is_factory(found: Any) -> bool:
    if not callable(found) or inspect.isclass(found):
        return False
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return False
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(each.default is not each.empty or each.kind in variadic for each in parameters)


def _suggest(module: ModuleType, place: str, name: str) -> str:
    graphs = [key for key, value in vars(module).items() if isinstance(value, Pregel | StateGraph)]
    factories = [
        key
        for key, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not key.startswith("_")
        and _is_factory(value)
    ]
    if near := get_close_matches(name, graphs + factories, 1, 0.5):
        return f"did you mean {place}:{near[0]}?"
    if graphs:
        return f"its graphs are {', '.join(graphs)}"
    if factories:
        return f"it has no graph; functions that could build one: {', '.join(factories)}"
    return "it has no graph: assign what builder.compile() returns to a name"
