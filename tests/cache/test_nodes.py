"""What nodes of a graph returned, given again: NodeCache in both colours, under LangGraph's own rules."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langgraph.cache.base import FullKey
from langgraph.cache.memory import InMemoryCache
from langgraph.graph import END, START, StateGraph
from langgraph.types import CachePolicy
from typing_extensions import TypedDict

from rtmem import settings as all_settings
from rtmem.cache import SemanticCache
from rtmem.cache.nodes import NodeCache
from rtmem.errors import ConfigError, ServerUnavailableError
from rtmem.keys import Keys
from tests.checkpoint.colours import Loop
from tests.conftest import ServerFactory, kill_server

ROOT = Path(__file__).parents[2]
NODE = ("__pregel_ns_writes", "m.f", "f")


PATIENT: Any = {
    # Nothing here may depend on how fast a machine is.
    "settings": all_settings.Cache(lookup_deadline_ms=60_000, update_deadline_ms=60_000),
    "redis": all_settings.Redis(deadline_ms=60_000),
}


@dataclass
class Both:
    """A NodeCache whose verbs are called in one colour."""

    cache: NodeCache
    loop: Loop | None  # None: blocking
    requests: list[Any] = field(default_factory=list)

    def get(self, keys: list[FullKey]) -> dict[FullKey, Any]:
        return self.cache.get(keys) if self.loop is None else self.loop.wait(self.cache.aget(keys))

    def set(self, pairs: dict[FullKey, tuple[Any, int | None]]) -> None:
        return self.cache.set(pairs) if self.loop is None else self.loop.wait(self.cache.aset(pairs))

    def clear(self, namespaces: list[tuple[str, ...]] | None = None) -> None:
        if self.loop is None:
            self.cache.clear(namespaces)
        else:
            self.loop.wait(self.cache.aclear(namespaces))

    def bind(self, principal: str) -> Both:
        return Both(self.cache.bind(principal), self.loop)

    def count_requests(self) -> None:
        driver: Any = self.cache._driver if self.loop is None else self.cache._adriver
        answer = driver.answer

        def noted(request: Any) -> Any:
            self.requests.append(request)
            return answer(request)

        driver.answer = noted


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture(params=["blocking", "awaiting"])
def cache(request: pytest.FixtureRequest, redis_url: str, loop: Loop) -> Iterator[Both]:
    made = NodeCache(redis_url, principal=str(uuid4()), **PATIENT)
    yield Both(made, loop if request.param == "awaiting" else None)
    loop.wait(made.aclose())


def test_what_was_set_is_given_with_its_type(cache: Both) -> None:
    values: list[Any] = [None, b"\x00", "text", {"a": [1, {2, 3}]}, deque([["channel", AIMessage("hi", id="1")]])]
    keys: list[FullKey] = [(NODE, str(number)) for number in range(len(values))]
    cache.set({key: (value, None) for key, value in zip(keys, values, strict=True)})
    assert cache.get([*keys, (NODE, "nothing")]) == dict(zip(keys, values, strict=True))


def test_the_other_colour_reads_what_one_wrote(redis_url: str, loop: Loop) -> None:
    cache = NodeCache(redis_url, principal=str(uuid4()), **PATIENT)
    cache.set({(NODE, "k"): (1, None)})
    assert loop.wait(cache.aget([(NODE, "k")])) == {(NODE, "k"): 1}
    loop.wait(cache.aclear())
    assert cache.get([(NODE, "k")]) == {}
    loop.wait(cache.aclose())


def test_any_number_of_keys_takes_one_round_trip(cache: Both) -> None:
    keys: list[FullKey] = [((f"n{number % 7}",), str(number)) for number in range(300)]
    cache.set({})
    cache.set({keys[0]: (0, None)})  # a server that lacks the functions gets them here
    cache.count_requests()
    cache.set({key: (number, number % 2 or None) for number, key in enumerate(keys)})
    assert len(cache.requests) == 1
    assert cache.get(keys) == {key: number for number, key in enumerate(keys)}
    assert len(cache.requests) == 2
    cache.clear([("n1",), ("n2",)])
    assert len(cache.requests) == 3
    assert {namespace for namespace, _ in cache.get(keys)} == {("n0",), ("n3",), ("n4",), ("n5",), ("n6",)}
    assert cache.get([]) == {}
    cache.set({})
    cache.clear([])
    assert len(cache.requests) == 4


def test_a_value_ends_after_its_seconds_and_leaves_no_key(cache: Both, redis_url: str) -> None:
    cache.set({(NODE, "short"): ("a", 1), (NODE, "long"): ("b", 3_600), (NODE, "stays"): ("c", None)})
    keys: list[FullKey] = [(NODE, name) for name in ("short", "long", "stays")]
    wait_until(lambda: (NODE, "short") not in cache.get(keys))
    assert cache.get(keys) == {(NODE, "long"): "b", (NODE, "stays"): "c"}
    cache.set({(NODE, "long"): ("d", 0), (NODE, "stays"): ("e", 3_600)})
    assert cache.get(keys) == {(NODE, "stays"): "e"}
    names = Keys().nodes(cache.cache.principal)
    with redis.Redis.from_url(redis_url) as client:
        ids: Any = client.zrange(names.ids, 0, -1)
        assert ids == client.zrange(names.ends, 0, -1) == [names.value_id(NODE, "stays").encode()]
        left_ms: Any = client.pttl(names.values + names.value_id(NODE, "stays"))
        assert 3_000_000 < left_ms <= 3_600_000
        cache.set({(NODE, "stays"): ("f", None)})
        assert client.pttl(names.values + names.value_id(NODE, "stays")) == -1
        assert client.zcard(names.ends) == 0
        cache.clear()
        assert list(client.scan_iter(f"*{names.ids[:-1]}*")) == []


def test_clear_is_complete_however_many_there_are_and_takes_no_other_namespace(cache: Both) -> None:
    many: list[FullKey] = [(NODE, str(number)) for number in range(2_500)]
    others: list[FullKey] = [((*NODE, "deeper"), "k"), (NODE[:2], "k"), ((), "k"), (("",), "k")]
    cache.set(dict.fromkeys([*many, *others], (1, None)))
    cache.clear([NODE])
    assert cache.get([*many, *others]) == dict.fromkeys(others, 1)
    cache.clear()
    assert cache.get(others) == {}


def test_no_principal_gets_or_clears_what_is_another_ones(cache: Both) -> None:
    bob = cache.bind(str(uuid4()))
    cache.set({(NODE, "k"): ("ann's", None)})
    assert bob.get([(NODE, "k")]) == {}
    bob.set({(NODE, "k"): ("bob's", None)})
    assert cache.get([(NODE, "k")]) == {(NODE, "k"): "ann's"}
    bob.clear()
    bob.clear([NODE])
    assert cache.get([(NODE, "k")]) == {(NODE, "k"): "ann's"}


hostile = st.text(st.characters(exclude_categories=()), max_size=8) | st.sampled_from(["", ":", "*", "{}", "[", "\x00"])
full_keys = st.tuples(st.lists(hostile, max_size=3).map(tuple), hostile)
steps = st.lists(
    st.tuples(st.just("set"), st.dictionaries(full_keys, st.tuples(st.integers(0, 9), st.sampled_from([None, 60]))))
    | st.tuples(st.just("clear"), st.none() | st.lists(st.lists(hostile, max_size=2).map(tuple), max_size=2)),
    max_size=6,
)


@settings(max_examples=25)
@given(steps=steps, asked=st.lists(full_keys, max_size=3))
def test_it_behaves_as_langgraphs_own_whatever_namespaces_and_keys_hold(
    redis_url: str, steps: list[tuple[str, Any]], asked: list[FullKey]
) -> None:
    ours, theirs = NodeCache(redis_url, principal=str(uuid4()), **PATIENT), InMemoryCache[Any]()
    seen = dict.fromkeys(asked)
    for verb, given_ in steps:
        getattr(ours, verb)(given_)
        getattr(theirs, verb)(given_)
        if verb == "set":
            seen |= dict.fromkeys(given_)
        assert ours.get(list(seen)) == theirs.get(list(seen))
    ours.clear()
    ours.close()


def test_without_redis_nothing_is_found_nothing_is_raised_and_clear_says_so(
    loop: Loop, redis_server: ServerFactory
) -> None:
    server = redis_server(modules=False)
    settings = all_settings.Cache(pause_ms=600_000, lookup_deadline_ms=60_000, update_deadline_ms=60_000)
    for colour in (None, loop):
        cache = Both(NodeCache(server.url, settings=settings, redis=all_settings.Redis(retries_max=0)), colour)
        cache.set({(NODE, "k"): (1, None)})
        assert cache.get([(NODE, "k")]) == {(NODE, "k"): 1}  # and this server has no query engine
        if colour is not None:
            kill_server(server.data_dir)
            assert cache.get([(NODE, "k")]) == {}
            cache.set({(NODE, "k"): (2, None)})
            cache.count_requests()
            assert cache.get([(NODE, "k")]) == {}
            assert cache.requests == []  # it is left alone for a while
            assert sum(cache.cache.counts.get(what, 0) for what in ("unavailable", "deadline")) == 1
            with pytest.raises(ServerUnavailableError):
                cache.clear()
        loop.wait(cache.cache.aclose())


def test_a_value_that_cannot_be_read_or_written_is_none_and_fails_no_node(cache: Both, redis_url: str) -> None:
    cache.set({(NODE, "odd"): (iter(()), None), (NODE, "fine"): (1, None)})
    assert cache.get([(NODE, "odd"), (NODE, "fine")]) == {(NODE, "fine"): 1}
    names = Keys().nodes(cache.cache.principal)
    with redis.Redis.from_url(redis_url) as client:
        client.set(names.values + names.value_id(NODE, "fine"), b"?? damaged")
    assert cache.get([(NODE, "fine")]) == {}
    assert cache.cache.counts["unstored_unserialisable"] == cache.cache.counts["unreadable"] == 1


def test_an_address_is_needed() -> None:
    with pytest.raises(ConfigError, match="redis_url"):
        NodeCache("")


class State(TypedDict):
    x: int
    y: int


@pytest.mark.anyio
async def test_a_graph_skips_a_node_that_was_given_the_same_and_again_after_clear(redis_url: str) -> None:
    ran: list[int] = []

    def square(state: State) -> dict[str, int]:
        ran.append(state["x"])
        return {"y": state["x"] ** 2}

    builder = StateGraph(State)
    builder.add_node("square", square, cache_policy=CachePolicy(ttl=60))
    builder.add_edge(START, "square")
    builder.add_edge("square", END)
    async with NodeCache.from_conn_string(redis_url, principal=str(uuid4()), **PATIENT) as cache:
        graph = builder.compile(cache=cache)
        start: Any = {"x": 3}
        assert graph.invoke(start) == {"x": 3, "y": 9}
        assert graph.invoke(start) == {"x": 3, "y": 9}
        assert await graph.ainvoke(start) == {"x": 3, "y": 9}
        assert ran == [3]
        events = [event async for event in graph.astream(start, stream_mode="updates")]
        assert events == [{"square": {"y": 9}, "__metadata__": {"cached": True}}]
        await graph.aclear_cache()
        await graph.ainvoke(start)
        graph.clear_cache(["square"])
        graph.invoke(start)
        assert ran == [3, 3, 3]
        # Another principal, the same graph.
        other = graph.copy({"cache": cache.bind("bob")})
        assert other.invoke(start) == {"x": 3, "y": 9}
        assert ran == [3, 3, 3, 3]


def test_a_cache_of_answers_says_which_cache_nodes_and_models_need(redis_url: str) -> None:
    builder = StateGraph(State).add_edge(START, "square")
    builder.add_node("square", lambda state: {"y": state["x"] ** 2}, cache_policy=CachePolicy(ttl=60))
    with SemanticCache(redis_url, **PATIENT) as answers:
        wrong: Any = answers
        with pytest.raises(AttributeError, match=r"give rtmem\.cache\.nodes\.NodeCache\(url\) to builder\.compile"):
            builder.compile(cache=wrong).invoke({"x": 3})
        with pytest.raises(AttributeError, match=r"give rtmem\.cache\.langchain\.LangChainCache"):
            _ = wrong.alookup
        with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
            _ = wrong.nothing


def wait_until(true: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not become true"
        time.sleep(0.02)


def test_it_needs_no_extra_and_what_searches_by_meaning_names_its_own() -> None:
    # In a process of its own: this one has loaded them.
    program = (
        "import sys; sys.modules |= {'redisvl': None, 'numpy': None}\n"
        "import rtmem.cache.nodes\n"
        "for module in ('rtmem.cache', 'rtmem.cache.sync', 'rtmem.cache.langchain'):\n"
        "    try: exec(f'from {module} import SemanticCache')\n"
        "    except ImportError as exc: print(exc)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("pip install 'rtmem[memory]'") == 3, done.stdout
