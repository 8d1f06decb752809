"""The Redis that rtmem talks to: one of its own (`embedded.start`), and what any server can promise (`probe.probe`)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rtmem.server import embedded, probe
    from rtmem.server.embedded import Embedded
    from rtmem.server.judgement import Finding, ServerReport

__all__ = ["Embedded", "Finding", "ServerReport", "embedded", "probe"]

_HOME = {
    "Embedded": "rtmem.server.embedded",
    "Finding": "rtmem.server.judgement",
    "ServerReport": "rtmem.server.judgement",
}


def __getattr__(name: str) -> Any:
    # Lazily, so that `rtmem chat`, which only looks into the data directory, does not import redis.
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in __all__:
        return import_module(f"rtmem.server.{name}")
    raise AttributeError(f"module 'rtmem.server' has no attribute {name!r}")
