"""Packages that only some installations have."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rtmem.errors import ExtraMissingError


def imported(module: str, extra: str) -> Any:
    """The module. Raises ExtraMissingError, naming the extra that brings it; or another, if that is what it lacks."""
    try:
        return import_module(module)
    except ExtraMissingError:
        raise
    except ImportError as exc:
        raise ExtraMissingError(
            f"{module} cannot be imported ({exc}): install what it needs with `pip install 'rtmem[{extra}]'`",
            extra=extra,
        ) from exc
