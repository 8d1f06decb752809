"""Round trips of each verb, counted on the wire: these are the same in every run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from langgraph.store.base import GetOp, ListNamespacesOp, PutOp, SearchOp

from loadtest.memory.notes import Note
from loadtest.memory.raw import LIMIT
from loadtest.memory.stores import OURS, rtmem_store
from loadtest.memory.verbs import BATCH, Bench
from loadtest.tap import tapped
from rtmem import settings
from rtmem.loadtest import Experiment, Measured

NAME: Final = "on the wire"
COUNTED: Final = "round trips"
TARGETS: Final = {
    "get": 1,
    "get, TTL refreshed": 1,
    "put": 1,
    f"put batch of {BATCH}": 1,
    "search": 1,
    "search, TTL refreshed": 1,
    "search, filter": 1,
    "search, hybrid": 1,
    "list_namespaces": 1,
    "batch of gets and puts": 2,
    "batch of everything": 2,
    "delete": 1,
}
_TTL_MINUTES: Final = 60.0


async def round_trips(bench: Bench, url: str) -> Experiment:
    """Each verb once, on a store that has been used before, whose items have a sliding TTL."""
    counts: dict[str, float] = {}
    notes = [bench.texts.note("wire", f"note-{number}") for number in range(BATCH)]
    question = bench.texts.question("wire")
    texts = [*(note.value["text"] for note in notes), question.text]
    bench.known.learn(texts, bench.topics.draw("wire", len(texts)))
    bench.bar.describe(NAME)
    bench.bar.announce(len(TARGETS))
    async with tapped(url) as tap:
        for kept in (settings.Store(), settings.Store(ranking="hybrid")):
            async with rtmem_store(tap.url, bench.known, f"wire-{kept.ranking}", kept) as store:
                await store.abatch([_put(note) for note in notes])
                verbs = _verbs(store, notes, question.text)
                if kept.ranking == "hybrid":
                    find = verbs["search"]
                    verbs = {"search, hybrid": find}
                for name, verb in verbs.items():
                    await store.asearch(("wire",), query=question.text)  # it knows that the index is whole
                    tap.reset()
                    await verb()
                    counts[name] = tap.round_trips
                    bench.bar.step()
    rows = [
        Measured(contender=f"{OURS} {name}", facts={COUNTED: counts[name], "at most": float(most)})
        for name, most in TARGETS.items()
    ]
    return Experiment(name=NAME, baseline="", concurrency=1, rounds=1, operations=1, rows=rows)


def _put(note: Note) -> PutOp:
    return PutOp(note.namespace, note.key, note.value, ttl=_TTL_MINUTES)


def _verbs(store: Any, notes: list[Note], query: str) -> dict[str, Callable[[], Awaitable[object]]]:
    first = notes[0]
    kind = {"kind": first.value["kind"]}
    get = GetOp(first.namespace, first.key)
    find = SearchOp(("wire",), query=query, limit=LIMIT)
    return {
        "get": lambda: store.aget(first.namespace, first.key, refresh_ttl=False),
        "get, TTL refreshed": lambda: store.aget(first.namespace, first.key, refresh_ttl=True),
        "put": lambda: store.aput(first.namespace, first.key, first.value),
        f"put batch of {BATCH}": lambda: store.abatch([_put(note) for note in notes]),
        "search": lambda: store.asearch(("wire",), query=query, refresh_ttl=False),
        "search, TTL refreshed": lambda: store.asearch(("wire",), query=query, refresh_ttl=True),
        "search, filter": lambda: store.asearch(("wire",), query=query, filter=kind),
        "list_namespaces": lambda: store.alist_namespaces(prefix=("wire",)),
        "batch of gets and puts": lambda: store.abatch([get, _put(first), get, _put(notes[1])]),
        "batch of everything": lambda: store.abatch([get, _put(first), find, ListNamespacesOp(), _put(notes[1])]),
        "delete": lambda: store.adelete(first.namespace, first.key),
    }
