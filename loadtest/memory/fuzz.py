"""Whatever strings come in, nothing breaks, and nobody sees, counts or deletes what is not theirs.

Each input is one hostile text, set of tags, filter, namespace, key or scope, used by two principals whose names are
nearly the same. Both write the same under it. Then each looks with every verb, deletes what the other one has, too, and
must see all of its own and nothing else. What memory refuses, it refuses with a typed error; anything else counts.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import numpy as np
import redis.asyncio
from langgraph.store.base import InvalidNamespaceError
from numpy.typing import NDArray

from loadtest.memory.hostile import Hostile
from rtmem import settings
from rtmem.drivers import AsyncDriver
from rtmem.errors import InvalidRequestError, ScopeNotFoundError
from rtmem.loadtest import Experiment, Measured
from rtmem.memory import AsyncMemory, Principal
from rtmem.operations.memory_state import count
from rtmem.steps import TextKind
from rtmem.store import AsyncRedisStore

NAME: Final = "fuzz"
INPUTS, REFUSED, CROSSED, MISSED = "inputs", "refused", "crossed", "missed"
SERVER, RESTARTS = "server", "restarts"
WRONG: Final = (CROSSED, MISSED, RESTARTS)
_PARALLEL: Final = 32
_LIMIT: Final = 50
_DIMS: Final = 64
_REFUSALS: Final = (InvalidRequestError, InvalidNamespaceError, ScopeNotFoundError)


class Characters:
    """An embedder of hostile texts: counts their characters."""

    name, fingerprint, dims = "characters", "characters64", _DIMS

    def embed(self, texts: Any, what: TextKind = "document") -> NDArray[np.float32]:
        """See steps.Embedder."""
        rows = np.full((len(texts), _DIMS), 0.01, np.float32)
        for row, text in zip(rows, texts, strict=True):
            np.add.at(row, np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8) % _DIMS, 1)
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)

    async def aembed(self, texts: Any, what: TextKind = "document") -> NDArray[np.float32]:
        """See steps.Embedder."""
        return self.embed(texts, what)


@dataclass(slots=True)
class Tally:
    """What became of the inputs of one target."""

    inputs: int = 0
    refused: int = 0  # by a typed error
    crossed: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)  # one's own was not found
    errors: list[str] = field(default_factory=list)

    def see(self, found: set[Any], own: set[Any], others: set[Any], what: str) -> None:
        """Note what a look found of others, and what it did not find of one's own."""
        if found & others or found - own:
            self.crossed.append(f"{what}: {found - own!r}")
        if own - found:
            self.missed.append(f"{what}: {own - found!r}")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two principals, and what both write."""

    number: int
    names: tuple[str, str]
    hostile: Hostile
    store: AsyncRedisStore
    memory: AsyncMemory
    tally: Tally

    def stores(self) -> list[AsyncRedisStore]:
        return [self.store.bind(name) for name in self.names]

    def memories(self) -> list[AsyncMemory]:
        return [self.memory.bind(name) for name in self.names]


# Targets -------------------------------------------------------------------------------------------------------------


async def _text(pair: Pair) -> None:
    text = pair.hostile.text()
    await _items(pair, ("t",), "k", text, {"text": text})
    await _facts(pair, text or "_", [])


async def _tags(pair: Pair) -> None:
    await _facts(pair, f"tagged {pair.number}", [pair.hostile.text()[:128] or "_" for _ in range(2)])


async def _filters(pair: Pair) -> None:
    name, value = pair.hostile.text(), pair.hostile.scalar()
    await _items(pair, ("f",), "k", "f", {name: value}, [pair.hostile.filter(), {name: value}])


async def _namespaces(pair: Pair) -> None:
    namespace = pair.hostile.namespace()
    await _items(pair, namespace, "k", "n", {})


async def _keys(pair: Pair) -> None:
    await _items(pair, ("k",), pair.hostile.text(), "k", {})
    key = pair.hostile.text()
    first, second = pair.memories()
    fact = await first.write(key=f"{pair.number}{key}", value={"mine": True}, kind="preference")
    for known in (fact.id, f"{pair.number}{key}"):
        pair.tally.see({known} if await second.read(known) else set(), set(), {known}, "read of another's fact")
    if await first.read(f"{pair.number}{key}") is None:
        pair.tally.missed.append(f"read of {key!r}")


async def _scopes(pair: Pair) -> None:
    """A scope that is missing, empty or another's: refused, and nothing found."""
    first, second = pair.memories()
    fact = await first.write(f"scoped {pair.number}")
    word = pair.hostile.text()
    nobody, nobodys = pair.memory.bind(Principal()), pair.store.bind("")
    await pair.stores()[0].aput(("s",), "k", {"text": word})
    asks: list[Callable[[], Awaitable[Any]]] = [
        lambda: second.query(scopes=[word]),
        lambda: second.retrieve("scoped", scopes=[f"team:{word}"]),
        lambda: second.query(scopes=[]),
        lambda: nobody.query(),
        lambda: nobody.retrieve(f"scoped {pair.number}"),
        lambda: nobody.read(fact.id),
        lambda: nobodys.asearch((), query=word),
        lambda: nobodys.asearch(("s",), filter={"text": word}),
        lambda: nobodys.alist_namespaces(),
    ]
    for ask in asks:
        try:
            found = await ask()
        except _REFUSALS:
            continue
        known = getattr(found, "facts", None) or getattr(found, "hits", found)
        # Neither of them has anything of their own.
        pair.tally.see({repr(each) for each in known or ()}, set(), set(), f"scope {word!r}")


async def _items(
    pair: Pair, namespace: tuple[str, ...], key: str, query: str, value: dict[str, Any], filters: Any = ()
) -> None:
    """The same item of both, looked for with every verb of the store, and deleted."""
    stores, left = pair.stores(), set(pair.names)
    for store in stores:
        # As ascii, because half a character comes back as "?".
        await store.aput(namespace, key, {**value, "owner": ascii(store.principal)})
    for store in stores:
        others = left - {store.principal}
        item = await store.aget(namespace, key)
        pair.tally.see(_owners([item] if item else []), {store.principal}, others, "get")
        for asked in (None, query):
            for prefix in {namespace, namespace[:1], ()}:
                found = await store.asearch(prefix, query=asked, limit=_LIMIT)
                pair.tally.see(_owners(found), {store.principal}, others, f"search {prefix!r} {asked!r}")
        for wanted in filters:
            pair.tally.see(_owners(await _narrowed(store, wanted)) - {store.principal}, set(), others, f"{wanted!r}")
        there = set(await store.alist_namespaces(limit=_LIMIT))
        pair.tally.see(there, {namespace}, set(), "list_namespaces")
        counted = await pair.memory.run(count(pair.memory.bind(store.principal).scope))
        if counted.items != 1:
            (pair.tally.crossed if counted.items else pair.tally.missed).append(f"count: {counted.items}")
    for store in stores:
        await store.adelete(namespace, key)
        left.remove(store.principal)
        for other in stores:
            found = await other.asearch((), limit=_LIMIT)
            pair.tally.see(_owners(found), left & {other.principal}, left - {other.principal}, "search after delete")


async def _narrowed(store: AsyncRedisStore, wanted: dict[str, Any]) -> list[Any]:
    try:
        return await store.asearch((), filter=wanted, limit=_LIMIT)
    except _REFUSALS:
        return []


async def _facts(pair: Pair, text: str, tags: list[str]) -> None:
    """The same fact of both, looked for with every verb, and forgotten."""
    memories = pair.memories()
    ids = [(await memory.write(text, tags=tags)).id for memory in memories]
    for memory, own, other in zip(memories, ids, reversed(ids), strict=True):
        for tag in (None, *tags):
            page = await memory.query(tags=None if tag is None else [tag])
            pair.tally.see({fact.id for fact in page.facts}, {own}, {other}, f"query {tag!r}")
        known = await memory.retrieve(text, tags=tags or None)
        pair.tally.see({hit.fact.id for hit in known.hits} - {own}, set(), {other}, "retrieve")
        known_id = [await memory.read(other), *await memory.history(other)]
        pair.tally.see({fact.id for fact in known_id if fact}, set(), {other}, "read of another's id")
    if await memories[0].forget(ids[1]) or not await memories[0].forget(ids[0]):
        pair.tally.crossed.append("forget")
    for memory, left in zip(memories, ([], [ids[1]]), strict=True):
        page = await memory.query()
        pair.tally.see({fact.id for fact in page.facts}, set(left), set(ids) - set(left), "query after forget")


def _owners(items: list[Any]) -> set[str]:
    return {literal_eval(item.value["owner"]) for item in items}


TARGETS: Final = {
    "text": _text,
    "tags": _tags,
    "filters": _filters,
    "namespaces": _namespaces,
    "keys": _keys,
    "scopes": _scopes,
}

# The run -------------------------------------------------------------------------------------------------------------


async def fuzz(url: str, inputs: int, seed: int, on_input: Callable[[], object]) -> Experiment:
    """Send `inputs` hostile inputs, an equal share to each target, to an empty server."""
    tallies = {name: Tally() for name in TARGETS}
    async with (
        redis.asyncio.Redis.from_url(url) as client,
        await AsyncDriver.connect(url, settings.Redis(deadline_ms=60_000)) as driver,
    ):
        life = (await client.info("server"))["run_id"]
        memory = AsyncMemory(driver=driver, embedder=Characters())
        # Half of the inputs are ranked by meaning, half by words too.
        stores = [
            AsyncRedisStore(driver=driver, index=Characters(), settings=settings.Store(numbers=["a"], ranking=ranking))
            for ranking in ("vector", "hybrid")
        ]
        await stores[0].setup()
        numbers = iter(range(inputs))

        async def work() -> None:
            for number in numbers:
                store = stores[number // len(TARGETS) % 2]
                await _one(number, seed, store, memory, tallies)
                on_input()

        async with anyio.create_task_group() as tasks:
            for _ in range(_PARALLEL):
                tasks.start_soon(work)
        restarts = (await client.info("server"))["run_id"] != life
    rows = [_row(name, tally) for name, tally in tallies.items()]
    rows.append(Measured(contender=SERVER, facts={RESTARTS: float(restarts)}))
    return Experiment(name=NAME, baseline="", concurrency=_PARALLEL, rounds=1, operations=inputs, rows=rows)


async def _one(number: int, seed: int, store: AsyncRedisStore, memory: AsyncMemory, tallies: dict[str, Tally]) -> None:
    name = list(TARGETS)[number % len(TARGETS)]
    tally, hostile = tallies[name], Hostile(f"{seed} {number}")
    twins = hostile.twins()
    # Other inputs have other principals. The number stands where neither twin ends, so that they stay as alike.
    pair = Pair(number, (f"{number}#{twins[0]}", f"{number}#{twins[1]}"), hostile, store, memory, tally)
    tally.inputs += 1
    try:
        await TARGETS[name](pair)
    except _REFUSALS:
        tally.refused += 1
    except Exception as exc:  # noqa: BLE001 - whatever it is, it is what we look for
        tally.errors.append(f"input {number}: {type(exc).__name__}: {exc}")


def _row(name: str, tally: Tally) -> Measured:
    wrong = [*tally.errors, *tally.crossed, *tally.missed]
    facts = {INPUTS: tally.inputs, REFUSED: tally.refused, CROSSED: len(tally.crossed), MISSED: len(tally.missed)}
    return Measured(
        contender=name,
        errors=len(tally.errors),
        first_error=wrong[0].encode("unicode_escape").decode() if wrong else "",
        facts={what: float(many) for what, many in facts.items()},
    )
