"""Many ask the same at the same time: one computes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
import redis
from langchain_core.messages import AIMessage

from rtmem.cache import AsyncSemanticCache, SemanticCache
from rtmem.errors import InvalidRequestError, WrongColourError
from tests.cache.colours import FRANCE, SCOPE, World, settings
from tests.callers import Caller
from tests.conftest import ServerFactory
from tests.drivers.processes import becomes, eventually

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120


def test_a_miss_computes_and_stores_and_the_next_one_hits(world: World, ann: Caller) -> None:
    async def acompute() -> str:
        return "Paris."

    def compute() -> str:
        return "Paris."

    outcome = ann.get_or_compute(FRANCE, SCOPE, acompute if world.awaiting else compute, tags=["t"], ttl_ms=60_000)
    assert (outcome.answer, outcome.hit, outcome.written.stored) == ("Paris.", None, True)
    again = ann.get_or_compute(FRANCE, SCOPE, acompute)
    assert (again.answer, again.hit.kind, again.hit.tags, again.written) == ("Paris.", "exact", ("t",), None)
    assert ann.entries().entries[0].expires_in_ms <= 60_000
    assert ann.counts["computed"] == 1
    assert not world.client.keys("*lease:*")


def test_how_long_it_took_is_what_a_hit_saves(ann: Caller) -> None:
    now = iter(range(0, 10_000, 5))
    ann.context.state.clock = lambda: float(next(now))
    assert ann.get_or_compute(FRANCE, SCOPE, lambda: "Paris.").written.stored
    assert ann.entries().entries[0].took_ms == 5_000


def test_a_blocking_cache_says_that_it_cannot_await(redis_url: str) -> None:
    async def compute() -> str:
        return "Paris."

    with SemanticCache(redis_url, principal=str(uuid4()), guard=False) as cache:
        with pytest.raises(WrongColourError, match="compute"):
            cache.get_or_compute(FRANCE, SCOPE, compute)
        assert cache.get_or_compute(FRANCE, SCOPE, lambda: "Paris.").written is not None


class Model:
    """Answers when it is told to, and counts. All calls but the first wait for each other, if there are `together`."""

    def __init__(self, answers: list[Any], awaiting: bool, together: int = 0) -> None:
        self.answers = answers
        self.together = together
        self.calls = 0
        self.awaiting = awaiting
        self.go_on = threading.Event()
        self._lock = threading.Lock()

    @property
    def compute(self) -> Callable[[], Any]:
        return self._acompute if self.awaiting else self._compute

    def _compute(self) -> Any:
        with self._lock:
            self.calls += 1
            mine = self.calls
            answer = self.answers[min(mine, len(self.answers)) - 1]
        assert self.go_on.wait(PATIENCE_S)
        if mine > 1:
            eventually(lambda: self.calls >= self.together, PATIENCE_S)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _acompute(self) -> Any:
        self.calls += 1
        answer = self.answers[min(self.calls, len(self.answers)) - 1]
        mine = self.calls
        await becomes(lambda: self.go_on.is_set() and (mine == 1 or self.calls >= self.together), PATIENCE_S)
        if isinstance(answer, Exception):
            raise answer
        return answer


def ask_at_once(caches: list[Any], model: Model, count: int, ready: Callable[[], bool]) -> list[Any]:
    """What `count` callers of each cache get; the model goes on when `ready`."""

    def ask(cache: Caller) -> Any:
        try:
            return cache.get_or_compute(FRANCE, SCOPE, model.compute)
        except RuntimeError as exc:
            return exc

    with ThreadPoolExecutor(count * len(caches)) as threads:
        futures = [threads.submit(ask, cache) for cache in caches for _ in range(count)]
        eventually(ready, PATIENCE_S)
        model.go_on.set()
        return [future.result(PATIENCE_S) for future in futures]


def waiting(caches: list[Any], count: int) -> Callable[[], bool]:
    """Of the callers of each cache one has looked up and found nothing, and the others wait for it."""
    return lambda: all(cache.counts.get("miss", 0) + cache.counts.get("joined", 0) >= count for cache in caches)


def test_concurrent_identical_misses_compute_once(world: World) -> None:
    # Three caches are three processes: they share nothing but Redis.
    with world.open() as one, world.open() as two, world.open() as three:
        caches = [one, two, three]
        model = Model(["Paris."], world.awaiting)
        outcomes = ask_at_once(caches, model, 10, waiting(caches, 10))
        assert model.calls == 1
        assert [outcome.answer for outcome in outcomes] == ["Paris."] * 30
        assert sum(outcome.hit is None for outcome in outcomes) == 1
        assert all(outcome.hit.kind == "exact" for outcome in outcomes if outcome.hit)


def test_different_questions_do_not_wait_for_each_other(world: World, ann: Caller) -> None:
    model = Model(["Paris."], world.awaiting)
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(lambda: ann.get_or_compute(FRANCE, SCOPE, model.compute))
        eventually(lambda: model.calls == 1, PATIENCE_S)
        assert ann.get_or_compute("Who wrote Faust?", SCOPE, lambda: "Goethe.").answer == "Goethe."
        assert ann.bind("bob").get_or_compute(FRANCE, SCOPE, lambda: "Lyon.").answer == "Lyon."
        model.go_on.set()
        assert slow.result(PATIENCE_S).answer == "Paris."


def test_the_error_of_the_holder_is_its_caller_s_and_one_other_tries(world: World) -> None:
    with world.open() as one, world.open() as two:
        caches = [one, two]
        model = Model([RuntimeError("overloaded"), "Paris."], world.awaiting)
        outcomes = ask_at_once(caches, model, 5, waiting(caches, 5))
        assert model.calls == 2
        errors = [outcome for outcome in outcomes if isinstance(outcome, RuntimeError)]
        assert [str(error) for error in errors] == ["overloaded"]
        assert [outcome.answer for outcome in outcomes if outcome not in errors] == ["Paris."] * 9
        assert not world.client.keys("*lease:*")


def test_an_answer_that_nobody_else_should_get_is_computed_by_each_and_all_at_once(world: World) -> None:
    call = AIMessage("", tool_calls=[{"name": "search", "args": {}, "id": "1"}])
    with world.open() as one, world.open() as two:
        caches = [one, two]
        model = Model([call], world.awaiting, together=6)
        outcomes = ask_at_once(caches, model, 3, waiting(caches, 3))
        assert model.calls == 6
        assert all(outcome.hit is None and outcome.written.reason == "tool_calls" for outcome in outcomes)


def test_without_redis_each_process_computes_once_and_each_caller_has_an_answer_of_its_own(world: World) -> None:
    with world.open() as one, world.open() as two:
        caches = [one, two]
        for cache in caches:
            cache.context.state.redis_pause.begin()
            cache.context.state.redis_pause._until_s = 1e12
        model = Model([["Paris."]], world.awaiting)
        outcomes = ask_at_once(caches, model, 5, lambda: all(cache.counts.get("joined", 0) >= 4 for cache in caches))
        assert model.calls == 2
        assert [outcome.answer for outcome in outcomes] == [["Paris."]] * 10
        assert len({id(outcome.answer) for outcome in outcomes}) >= 8  # only the two who computed share the model's


def test_an_answer_that_redis_does_not_take_is_computed_once_in_each_process(
    world: World, redis_server: ServerFactory
) -> None:
    url = redis_server().url
    with redis.Redis.from_url(url) as client, world.open(url=url) as one, world.open(url=url) as two:
        caches = [one, two]
        for cache in caches:
            cache.update("Who wrote Faust?", "Goethe.", SCOPE)
        client.config_set("maxmemory", 1)  # of no policy: what takes memory is refused
        client.client_pause(PATIENCE_S * 1_000, all=False)  # there is no lease until all have asked

        def all_have_asked() -> bool:
            ready = all(cache.counts.get("joined", 0) >= 4 for cache in caches)
            if ready:
                client.client_unpause()
            return ready

        model = Model([["Paris."]], world.awaiting)
        outcomes = ask_at_once(caches, model, 5, all_have_asked)
        assert model.calls == 2
        assert [outcome.answer for outcome in outcomes] == [["Paris."]] * 10
        assert len({id(outcome.answer) for outcome in outcomes}) >= 8
        assert not client.keys("*lease:*")


def test_an_answer_that_redis_does_not_take_is_not_for_who_asked_when_it_was_under_way(
    world: World, redis_server: ServerFactory
) -> None:
    url = redis_server().url
    with redis.Redis.from_url(url) as client, world.open(url=url) as cache, ThreadPoolExecutor(2) as threads:
        model = Model(["Bonn.", "Berlin."], world.awaiting)
        early = threads.submit(lambda: cache.get_or_compute("Capital?", SCOPE, model.compute))
        eventually(lambda: model.calls == 1, PATIENCE_S)
        cache.invalidate(everything=True)
        client.config_set("maxmemory", 1)
        late = threads.submit(lambda: cache.get_or_compute("Capital?", SCOPE, model.compute))
        eventually(lambda: cache.counts.get("joined") == 1, PATIENCE_S)
        model.go_on.set()
        assert (early.result(PATIENCE_S).answer, late.result(PATIENCE_S).answer) == ("Bonn.", "Berlin.")


def test_who_has_waited_long_enough_asks_too(world: World) -> None:
    with world.open() as one, world.open(wait_max_ms=1) as two:
        model = Model(["slow"], world.awaiting)
        with ThreadPoolExecutor(1) as threads:
            slow = threads.submit(lambda: one.get_or_compute(FRANCE, SCOPE, model.compute))
            eventually(lambda: model.calls == 1, PATIENCE_S)
            assert two.get_or_compute(FRANCE, SCOPE, lambda: "quick").answer == "quick"
            model.go_on.set()
            assert slow.result(PATIENCE_S).answer == "slow"


def test_a_lease_is_renewed_as_long_as_its_holder_computes(world: World) -> None:
    with world.open(lease_ms=300) as one, world.open(lease_ms=300) as two:
        model = Model(["Paris."], world.awaiting)
        lease = one.context.keys.books + "lease:" + one.explain(FRANCE, SCOPE).entry_id
        left_ms: list[int] = []

        def renewals() -> int:
            left_ms.append(world.client.pttl(lease))
            return sum(after > before for before, after in pairwise(left_ms))

        outcomes = ask_at_once([one, two], model, 1, lambda: renewals() > 4 and waiting([one, two], 1)())
        # A machine that stops for 300 ms lets the lease end; the other one may have tried then.
        assert model.calls in (1, 2)
        assert [outcome.answer for outcome in outcomes] == ["Paris."] * 2


def test_a_lease_that_ended_while_its_holder_was_stopped_is_taken_again_unless_another_has_it(
    world: World, ann: Caller
) -> None:
    lease = ann.context.keys.books + "lease:x"

    def renew(token: str) -> int:
        keys = ann.context.function_keys
        return int(world.client.fcall("rtmem_v1_cache_renew", 2, *keys, "x", token, 60_000))

    ann.stats()  # loads the functions
    assert renew("mine") == 1
    assert world.client.get(lease) == b"mine"
    assert renew("other") == 0
    assert world.client.get(lease) == b"mine"


# Cancelled -----------------------------------------------------------------------------------------------------------


def cancelling(redis_url: str) -> AsyncSemanticCache:
    return AsyncSemanticCache(redis_url, principal=str(uuid4()), guard=False, settings=settings())


@pytest.mark.anyio
async def test_a_cancelled_waiter_disturbs_nobody(redis_url: str) -> None:
    go_on = asyncio.Event()
    calls = 0

    async def compute() -> str:
        nonlocal calls
        calls += 1
        await go_on.wait()
        return "Paris."

    async with cancelling(redis_url) as cache, cancelling(redis_url) as other:
        twin = other.bind(cache.principal)
        asked = [asyncio.create_task(cache.get_or_compute(FRANCE, SCOPE, compute))]
        await becomes(lambda: calls == 1)  # else the twin might be the one who computes
        asked += [asyncio.create_task(each.get_or_compute(FRANCE, SCOPE, compute)) for each in (cache, twin)]
        await becomes(lambda: cache.counts.get("joined") == 1 and other.counts.get("miss") == 1)
        waiters = asked[1:]
        waiters[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiters[0]
        waiters[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiters[1]
        go_on.set()
        assert (await asked[0]).answer == "Paris."
        assert calls == 1


@pytest.mark.anyio
@pytest.mark.parametrize("same_process", [True, False])
async def test_when_the_holder_is_cancelled_one_other_tries_at_once(redis_url: str, same_process: bool) -> None:
    go_on = asyncio.Event()
    calls = 0

    async def compute() -> str:
        nonlocal calls
        calls += 1
        await go_on.wait()
        return "Paris."

    # A lease that would last for ever: whoever tries does so because it was given back.
    lasting = settings(lease_ms=3_600_000)
    options: dict[str, Any] = {"guard": False, "settings": lasting}
    principal = str(uuid4())
    async with (
        AsyncSemanticCache(redis_url, principal=principal, **options) as cache,
        AsyncSemanticCache(redis_url, principal=principal, **options) as other,
    ):
        holder = asyncio.create_task(cache.get_or_compute(FRANCE, SCOPE, compute))
        await becomes(lambda: calls == 1)
        second = cache if same_process else other
        waiters = [asyncio.create_task(second.get_or_compute(FRANCE, SCOPE, compute)) for _ in range(5)]
        await becomes(lambda: second.counts.get("joined", 0) >= (5 if same_process else 4))
        holder.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holder
        await becomes(lambda: calls == 2)
        go_on.set()
        outcomes = await asyncio.gather(*waiters)
        assert [outcome.answer for outcome in outcomes] == ["Paris."] * 5
        assert calls == 2


@pytest.mark.anyio
async def test_a_holder_in_a_scope_of_anyio_that_is_cancelled_gives_its_lease_back(
    redis_url: str, redis_client: redis.Redis
) -> None:
    calls = 0

    async def compute() -> None:
        nonlocal calls
        calls += 1
        await asyncio.Event().wait()

    lasting = settings(lease_ms=3_600_000)
    async with AsyncSemanticCache(redis_url, principal=str(uuid4()), guard=False, settings=lasting) as cache:
        async with anyio.create_task_group() as group:
            group.start_soon(cache.get_or_compute, FRANCE, SCOPE, compute)
            await becomes(lambda: calls == 1)
            lease = f"{cache.context.keys.books}lease:*"
            assert list(redis_client.scan_iter(lease))
            group.cancel_scope.cancel()  # again at each await
        await becomes(lambda: not list(redis_client.scan_iter(lease)))


def test_who_asks_the_same_while_computing_it_does_not_wait_for_itself(world: World, ann: Caller) -> None:
    with world.open(wait_max_ms=3_600_000) as other:  # as in another process

        def within(cache: Caller) -> Any:
            asks = cache.owner.get_or_compute(FRANCE, SCOPE, lambda: "Paris")
            return exclaimed(asks) if world.awaiting else f"{asks.answer}!"

        async def exclaimed(asks: Any) -> str:
            return f"{(await asks).answer}!"

        assert ann.get_or_compute(FRANCE, SCOPE, lambda: within(ann)).answer == "Paris!"
        ann.invalidate(everything=True)
        assert ann.get_or_compute(FRANCE, SCOPE, lambda: within(other)).answer == "Paris!"
        assert ann.lookup(FRANCE, SCOPE).answer == "Paris!"


# Processes -----------------------------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, json, os, sys
from rtmem.cache import AsyncSemanticCache, CacheScope
from rtmem.settings import Cache

url, principal, processes, count, lease_ms, hold = sys.argv[1:]
scope = CacheScope(model="m", parameters={})

def say(what):
    os.write(1, f"{os.getpid()} {what}\\n".encode())

async def main():
    settings = Cache(lease_ms=int(lease_ms), lookup_deadline_ms=60_000, update_deadline_ms=60_000)
    async with AsyncSemanticCache(url, principal=principal, guard=False, settings=settings) as cache:
        async def compute():
            say("computing")
            if hold:
                await asyncio.sleep(600)
            await asyncio.to_thread(os.read, 0, 1)
            return "Paris."

        async def ready():
            while sum(cache.counts.get(what, 0) for what in ("miss", "joined", "exact")) < int(count):
                await asyncio.sleep(0.005)
            say("ready")

        telling = asyncio.create_task(ready())
        outcomes = await asyncio.gather(*(cache.get_or_compute("Who?", scope, compute) for _ in range(int(count))))
        await telling
        say(json.dumps([outcome.answer for outcome in outcomes]))

# Importing takes longer than all the rest: it is done once.
children = []
for _ in range(int(processes)):
    child = os.fork()
    if not child:
        asyncio.run(main())
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
"""


class Asking:
    """Processes that ask the same, many times at once."""

    def __init__(
        self, url: str, principal: str, processes: int, count: int, lease_ms: int = 60_000, hold: str = ""
    ) -> None:
        self.said: list[tuple[int, str]] = []  # process, what
        arguments = [url, principal, str(processes), str(count), str(lease_ms), hold]
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            process, _, what = line.strip().partition(" ")
            self.said.append((int(process), what))

    def who(self, what: str) -> list[int]:
        """The processes that said it."""
        return [process for process, said in self.said if said == what]

    def go_on(self) -> None:
        """Let models answer, more of them than there should be."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n" * 300)
        self.process.stdin.flush()

    def answers(self) -> list[list[str]]:
        self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return [json.loads(said) for _, said in self.said if said.startswith("[")]

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


def test_two_hundred_identical_misses_in_four_processes_compute_once(redis_url: str) -> None:
    asking = Asking(redis_url, str(uuid4()), 4, 50)
    try:
        eventually(lambda: len(asking.who("ready")) == 4, PATIENCE_S)
        asking.go_on()
        assert asking.answers() == [["Paris."] * 50] * 4
        assert len(asking.who("computing")) == 1
    finally:
        asking.end()


def test_a_holder_that_is_killed_costs_exactly_one_retry(redis_url: str) -> None:
    principal = str(uuid4())
    # Its lease is long enough for any machine to renew it in time, and short enough to wait for.
    holder = Asking(redis_url, principal, 1, 1, 5_000, "hold")
    asking = None
    try:
        eventually(lambda: len(holder.who("computing")) == 1, PATIENCE_S)
        asking = Asking(redis_url, principal, 2, 50)
        eventually(lambda: len(asking.who("ready")) == 2, PATIENCE_S)
        assert asking.who("computing") == []
        os.kill(holder.who("computing")[0], signal.SIGKILL)
        eventually(lambda: asking.who("computing") != [], PATIENCE_S)
        asking.go_on()
        assert asking.answers() == [["Paris."] * 50] * 2
        assert len(asking.who("computing")) == 1
    finally:
        for each in (holder, asking):
            if each is not None:
                each.end()


def test_wrong_options_are_told_before_anything_is_computed(ann: Caller) -> None:
    calls: list[int] = []
    with pytest.raises(InvalidRequestError):
        ann.get_or_compute(FRANCE, SCOPE, lambda: calls.append(1), tags="geo")
    assert calls == []
