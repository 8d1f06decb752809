"""What a process remembers of a cache."""

from __future__ import annotations

import os

import pytest

from rtmem import settings
from rtmem.operations.cache_state import CacheState


def test_a_forked_child_tells_nothing_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    state = CacheState(settings.Cache())
    state.usage.add("tenant", "entry", 12, "exact")
    state.flights["entry"] = object()  # type: ignore[assignment]
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    assert state.usage.take("tenant") == []
    assert state.flights == {}
    state.usage.add("tenant", "entry", 3, "exact")
    assert state.usage.take("tenant") == ["entry", 1, 3, "=exact", 1, 0]
