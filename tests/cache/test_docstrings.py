"""What an IDE shows of a verb says what it does: it sends nobody elsewhere."""

from __future__ import annotations

import inspect

import pytest

from rtmem.cache import AsyncSemanticCache, SemanticCache


@pytest.mark.parametrize("colour", [SemanticCache, AsyncSemanticCache])
def test_help_of_each_verb_names_its_arguments_errors_and_round_trips(colour: type) -> None:
    verbs = ("lookup", "explain", "update", "get_or_compute", "invalidate", "report", "stats", "entries", "entry")
    for verb in verbs:
        method = getattr(colour, verb)
        told = inspect.getdoc(method) or ""
        assert not told.startswith("See "), verb
        assert "Raises" in told, verb
        assert "Redis: " in told, verb
        if "Args:" in told:
            names = [each for each in inspect.signature(method).parameters if each not in ("self", "correct")]
            assert [name for name in names if name not in told] == [], verb
