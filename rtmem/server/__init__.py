"""The Redis that rtmem talks to: one of its own (`embedded.start`), and what any server can promise (`probe.probe`)."""

from __future__ import annotations

from rtmem.server import embedded, probe
from rtmem.server.embedded import Embedded
from rtmem.server.judgement import Finding, ServerReport

__all__ = ["Embedded", "Finding", "ServerReport", "embedded", "probe"]
