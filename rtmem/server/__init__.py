"""The Redis that rtmem talks to: one of its own (`embedded.start`), and what any server can promise (`probe.probe`)."""

from __future__ import annotations

from rtmem.server import embedded
from rtmem.server.embedded import Embedded

__all__ = ["Embedded", "embedded"]
