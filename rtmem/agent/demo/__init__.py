"""The agent that `rtmem up` serves: remembers, calculates, asks before it acts. Needs no key and no download."""

from __future__ import annotations

from rtmem.agent.demo.graph import DemoState, build, graph
from rtmem.agent.demo.model import RulesModel

__all__ = ["DemoState", "RulesModel", "build", "graph"]
