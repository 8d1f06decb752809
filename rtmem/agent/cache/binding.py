"""What a chat model makes of itself (with tools, with a format of answers), made of another one."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableBinding, RunnableParallel, RunnableSequence

from rtmem.errors import UnsupportedError


def with_model(runnable: Runnable[Any, Any], old: BaseChatModel, new: BaseChatModel) -> Runnable[Any, Any]:
    """`runnable` with `new` in the place of `old`. Raises UnsupportedError if `old` is not found in it."""
    changed: Runnable[Any, Any] = _with(runnable, old, new)
    if changed is runnable:
        raise UnsupportedError(
            f"{type(old).__name__} makes a {type(runnable).__name__} of itself in which it cannot be replaced: bind "
            "tools and formats of answers by .bind(...)"
        )
    return changed


def _with(runnable: Any, old: BaseChatModel, new: BaseChatModel) -> Any:
    if runnable is old:
        return new
    if isinstance(runnable, RunnableBinding):
        bound = _with(runnable.bound, old, new)
        return runnable if bound is runnable.bound else runnable.model_copy(update={"bound": bound})
    if isinstance(runnable, RunnableSequence):
        steps = [_with(step, old, new) for step in runnable.steps]
        same = all(step is before for step, before in zip(steps, runnable.steps, strict=True))
        return runnable if same else RunnableSequence(*steps, name=runnable.name)
    if isinstance(runnable, RunnableParallel):
        branches = {name: _with(branch, old, new) for name, branch in runnable.steps__.items()}
        same = all(branches[name] is branch for name, branch in runnable.steps__.items())
        return runnable if same else RunnableParallel(branches)
    return runnable
