"""Whose memory a run may use: what its gateway says, or what the agent was made with; never what a message says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.runnables.config import ensure_config

from rtmem.agent.recall.recall import Recall
from rtmem.agent.served import SERVED, Served
from rtmem.errors import ConfigError


def recall_of_run(given: Recall | None) -> Recall:
    """The memory of the run at work, for its principal.

    Behind a gateway that is who was authenticated, whoever `given` was made for.

    Raises:
        ConfigError: the agent was made without a memory, and runs behind no gateway.
    """
    served = _configurable().get(SERVED)
    if isinstance(served, Served):
        return served.recall() if given is None else given.bind(served.principal)
    if given is None:
        raise ConfigError(
            "this agent has no memory: make it with RecallMiddleware(memory), or serve it with `rtmem serve`, which "
            "brings one for whoever is authenticated"
        )
    return given


def checked(given: Recall | None) -> Recall | None:
    """What an agent is made with. Raises ConfigError."""
    if given is not None and not isinstance(given, Recall):
        raise ConfigError(
            f"recall is a {type(given).__name__}: give Recall(memory), or None behind `rtmem serve`, which brings the "
            "memory of whoever is authenticated"
        )
    return given


def thread_of_run() -> str:
    """The thread_id of the run at work; empty if it has none."""
    return str(_configurable().get("thread_id") or "")


def _configurable() -> Mapping[str, Any]:
    return ensure_config().get("configurable") or {}
