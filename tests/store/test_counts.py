"""What each verb of a store did is counted, whoever it is bound to."""

from __future__ import annotations

import pytest
from langgraph.store.base import GetOp, PutOp

from rtmem.errors import QueryError
from tests.store.colours import Stores


def test_each_verb_is_counted_with_its_errors(stores: Stores) -> None:
    with stores.open() as store:
        store.put(("a",), "k", {"text": "x"})
        store.put(("a",), "gone", {"text": "x"})
        store.delete(("a",), "gone")
        store.bind("bob").get(("a",), "k")
        store.search(("a",))
        with pytest.raises(QueryError):
            store.search(("a",), filter={"n": {"$no": 1}})
        store.list_namespaces()
        store.batch([GetOp(("a",), "k"), PutOp(("a",), "k2", {"text": "y"})])
        counted = {verb: (each.calls, each.errors, each.timeouts) for verb, each in store.counts.items()}
        assert counted == {
            "put": (2, 0, 0),
            "delete": (1, 0, 0),
            "get": (1, 0, 0),
            "search": (2, 1, 0),
            "list_namespaces": (1, 0, 0),
            "batch": (1, 0, 0),
        }
        assert all(0 < each.latency_us_max <= each.latency_us_total for each in store.counts.values())
