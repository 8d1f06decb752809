"""Redis or the embedder fail: a look-up finds nothing in time, a write says so, and nobody's answer is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis

from rtmem.cache import AsyncSemanticCache, SemanticCache
from rtmem.errors import EmbeddingUnavailableError, ServerUnavailableError
from rtmem.operations import cache_state
from rtmem.operations.functions import library_of
from tests.cache.colours import FRANCE, LIKE_FRANCE, SCOPE, World, settings
from tests.callers import Caller
from tests.conftest import ServerFactory
from tests.drivers.processes import Spawn, eventually, loading, spawning
from tests.embedders import Words
from tests.wire import Wire

QUICK = {"lookup_deadline_ms": 300, "update_deadline_ms": 300, "pause_ms": 3_600_000, "retries_max": 0}
"""Deadlines that end a test soon, and a pause that lasts until its end."""


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    with spawning() as spawn:
        yield spawn


def nothing_works_and_nobody_notices(cache: Any, why: str) -> None:
    """Every verb of the answer path answers, and `counts` say why there was nothing."""
    assert cache.lookup(FRANCE, SCOPE) is None
    assert cache.counts[why] >= 1
    written = cache.update(FRANCE, "Paris.", SCOPE)
    assert (written.stored, written.reason) == (False, "unavailable")
    assert written.detail
    outcome = cache.get_or_compute(FRANCE, SCOPE, lambda: "Paris, computed.")
    assert (outcome.answer, outcome.hit) == ("Paris, computed.", None)
    assert not outcome.written.stored
    with pytest.raises(ZeroDivisionError):
        cache.get_or_compute(FRANCE, SCOPE, lambda: 1 // 0)


def test_no_server(world: World) -> None:
    with world.open(url="redis://127.0.0.1:1", **QUICK) as cache:
        nothing_works_and_nobody_notices(cache, "unavailable")
        assert cache.counts["paused"] >= 1  # it was asked once, and left alone then
        assert cache.counts["unavailable"] == 1


def test_a_server_that_does_not_answer(world: World, redis_server: ServerFactory) -> None:
    server = redis_server()
    with world.open(url=server.url, **QUICK) as cache:
        os.kill(server.pid, signal.SIGSTOP)
        try:
            nothing_works_and_nobody_notices(cache, "deadline")
            assert cache.counts["deadline"] == 1
        finally:
            os.kill(server.pid, signal.SIGCONT)


def test_a_server_that_is_loading(world: World, spawn: Spawn) -> None:
    server = loading(spawn, key_ms=50)

    def is_loading() -> bool:
        try:
            with server.client() as client:
                client.get("x")
        except redis.exceptions.BusyLoadingError:
            return True
        except redis.ConnectionError:
            return False
        raise AssertionError("it has loaded already")

    eventually(is_loading)
    with world.open(url=server.url, **{**QUICK, "lookup_deadline_ms": 60_000}) as cache:
        nothing_works_and_nobody_notices(cache, "loading")
    with server.client() as client:
        client.config_set("key-load-delay", 0)


def test_a_server_without_the_query_engine_gives_exact_hits(world: World, spawn: Spawn) -> None:
    server = spawn().wait_until_answering()
    with world.open(url=server.url) as cache:
        assert cache.lookup(FRANCE, SCOPE) is None
        assert cache.update(FRANCE, "Paris.", SCOPE, tags=["t"]).stored
        assert cache.lookup(FRANCE, SCOPE).kind == "exact"
        assert cache.lookup(LIKE_FRANCE, SCOPE) is None
        assert cache.counts["no_engine"] >= 1
        assert "query engine" in cache.explain(LIKE_FRANCE, SCOPE).why_exact_only
        assert cache.stats().has_index is False
        assert cache.invalidate(tag="t") == 1


def test_a_user_who_may_not_search_gets_exact_hits(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.client.execute_command("ACL", "SETUSER", "eve", "on", ">pw", "~*", "&*", "+@all", "-FT.INFO", "-FT.CREATE")
    url = world.url.replace("unix://", "unix://eve:pw@")
    assert url != world.url
    with world.open(url=url) as cache:
        assert cache.update(FRANCE, "Paris.", SCOPE).stored
        assert cache.lookup(FRANCE, SCOPE).kind == "exact"
        assert cache.lookup(LIKE_FRANCE, SCOPE) is None
    assert [record.message.partition(":")[0] for record in caplog.records] == ["the cache gives exact hits only"]
    world.client.execute_command("ACL", "DELUSER", "eve")


def test_a_server_that_is_full_still_gives_answers_and_frees_them(world: World, redis_server: ServerFactory) -> None:
    server = redis_server()
    with redis.Redis.from_url(server.url) as client, world.open(url=server.url) as cache:
        cache.update(FRANCE, "Paris.", SCOPE, tags=["t"])
        cache.lookup(LIKE_FRANCE, SCOPE)
        client.config_set("maxmemory", 1)
        client.config_set("maxmemory-policy", "noeviction")
        assert cache.lookup(FRANCE, SCOPE).kind == "exact"
        assert cache.lookup(LIKE_FRANCE, SCOPE).kind == "semantic"
        written = cache.update("Who wrote Faust?", "Goethe.", SCOPE)
        assert (written.stored, written.reason) == (False, "unavailable")
        assert written.detail.startswith("full")
        outcome = cache.get_or_compute("Who wrote Faust?", SCOPE, lambda: "Goethe.")
        assert (outcome.answer, outcome.written.stored) == ("Goethe.", False)
        assert not client.keys("*lease*")
        assert cache.invalidate(tag="t") == 1
        assert cache.lookup(FRANCE, SCOPE) is None


def test_a_read_only_replica_still_gives_answers(world: World, redis_server: ServerFactory) -> None:
    server = redis_server()
    with redis.Redis.from_url(server.url) as client, world.open(url=server.url) as cache:
        cache.update(FRANCE, "Paris.", SCOPE)
        client.replicaof("127.0.0.1", "1")
        with world.open(url=server.url) as other:
            assert other.lookup(FRANCE, SCOPE).kind == "exact"
            assert other.lookup(LIKE_FRANCE, SCOPE).kind == "semantic"
            written = other.update("Who wrote Faust?", "Goethe.", SCOPE)
            assert (written.stored, written.reason) == (False, "unavailable")
            assert other.get_or_compute("Who wrote Faust?", SCOPE, lambda: "Goethe.").answer == "Goethe."


def test_redis_is_asked_again_when_the_pause_is_over(world: World) -> None:
    with world.open(retries_max=0, pause_ms=1_000) as cache:
        now = [0.0]
        cache.context.state.clock = lambda: now[0]
        for pause in (cache.context.state.redis_pause, cache.context.state.embedder_pause):
            pause._clock = lambda: now[0]
        cache.update(FRANCE, "Paris.", SCOPE)
        wire = Wire(cache.owner)
        wire.cut(0, after=False)
        assert cache.lookup(FRANCE, SCOPE) is None
        wire.take()
        assert cache.lookup(FRANCE, SCOPE) is None
        assert wire.take() == 0
        now[0] += 1.5
        assert cache.lookup(FRANCE, SCOPE).kind == "exact"


@pytest.mark.parametrize("after", [False, True])
def test_a_connection_that_breaks_anywhere_is_a_miss_and_no_error(world: World, after: bool) -> None:
    with world.open(retries_max=0, pause_ms=0) as cache:
        cache.lookup("The first one makes the index.", SCOPE)
        wire = Wire(cache.owner)
        for nth in range(4):
            question = f"question {nth} {after}"
            wire.cut(nth, after=after)
            outcome = cache.get_or_compute(question, SCOPE, lambda nth=nth: f"answer {nth}")
            assert outcome.answer == f"answer {nth}"
            wire.cut(-1, after=False)
            stored = cache.lookup(question, SCOPE)
            assert stored is None or stored.answer == f"answer {nth}"
            assert cache.get_or_compute(question, SCOPE, lambda nth=nth: f"answer {nth}").answer == f"answer {nth}"


def test_an_index_that_was_lost_is_made_again(world: World, ann: Caller) -> None:
    ann.update(FRANCE, "Paris.", SCOPE)
    assert ann.lookup(LIKE_FRANCE, SCOPE).kind == "semantic"
    world.client.flushall()
    assert ann.lookup(FRANCE, SCOPE) is None
    assert ann.lookup(LIKE_FRANCE, SCOPE) is None
    assert ann.update(FRANCE, "Paris.", SCOPE).stored
    assert ann.lookup(LIKE_FRANCE, SCOPE).kind == "semantic"
    assert ann.counts.keys() <= {"miss", "stored", "semantic", "exact"}


def test_a_server_without_our_functions_gets_them(world: World, ann: Caller) -> None:
    world.client.function_flush()
    assert ann.update(FRANCE, "Paris.", SCOPE).stored
    world.client.function_flush()
    assert ann.lookup(LIKE_FRANCE, SCOPE).kind == "semantic"
    world.client.function_flush()
    assert ann.get_or_compute("Who wrote Faust?", SCOPE, lambda: "Goethe.").written.stored


@pytest.mark.parametrize("field", ["created", "took", "tags"])
def test_an_answer_that_somebody_else_has_changed_is_no_hit(world: World, ann: Caller, field: str) -> None:
    ann.update(FRANCE, "Paris.", SCOPE)
    (key,) = world.client.scan_iter("rtmem:c:e:*")
    world.client.hset(key, field, b"\xff junk")
    assert ann.lookup(FRANCE, SCOPE) is None
    assert ann.lookup(LIKE_FRANCE, SCOPE) is None
    assert ann.get_or_compute(FRANCE, SCOPE, lambda: "Paris!").answer == "Paris!"


def test_an_answer_whose_payload_is_gone_is_no_hit(world: World, ann: Caller) -> None:
    # The index may name what is not there any more, or only in part.
    key = ann.context.keys.entry(ann.update(FRANCE, "Paris.", SCOPE).entry_id)
    world.client.hdel(key, "answer")
    assert ann.lookup(FRANCE, SCOPE) is None
    assert ann.lookup(LIKE_FRANCE, SCOPE) is None
    world.client.hset(key, "answer", b"?not an answer")
    assert ann.lookup(FRANCE, SCOPE) is None
    assert ann.lookup(LIKE_FRANCE, SCOPE) is None
    assert ann.get_or_compute(FRANCE, SCOPE, lambda: "Paris.").answer == "Paris."


def test_an_embedder_that_fails_leaves_exact_hits_and_is_left_alone(world: World) -> None:
    embedder = Words()
    with world.open(embedder=embedder, pause_ms=3_600_000) as cache:
        cache.update(FRANCE, "Paris.", SCOPE)
        embedder.broken = True
        assert cache.lookup(LIKE_FRANCE, SCOPE) is None
        asked = len(embedder.asked)
        assert cache.lookup(LIKE_FRANCE, SCOPE) is None
        assert len(embedder.asked) == asked
        assert cache.lookup(FRANCE, SCOPE).kind == "exact"
        assert cache.counts["embedding_failed"] == 1


def test_a_write_asks_the_embedder_that_look_ups_leave_alone(world: World) -> None:
    embedder = Words()
    with world.open(embedder=embedder, pause_ms=3_600_000) as cache:
        embedder.broken = True
        assert cache.lookup(FRANCE, SCOPE) is None
        embedder.broken = False
        written = cache.update(FRANCE, "Paris.", SCOPE)
        assert (written.stored, written.detail) == (True, "")
    with world.open() as other:
        assert other.lookup(LIKE_FRANCE, SCOPE).kind == "semantic"


def test_what_was_stored_without_a_vector_says_so_and_is_mended_by_a_later_update(world: World) -> None:
    embedder = Words()
    with world.open(embedder=embedder, pause_ms=0) as cache:
        bob = cache.bind("bob")
        embedder.broken = True
        for each in (cache, bob):
            written = each.update(FRANCE, "Paris.", SCOPE)
            assert written.stored
            assert "without a vector" in written.detail
        changed = cache.update("Who wrote Faust?", "Goethe.", SCOPE)
        assert "without a vector" in changed.detail
        world.client.hset(cache.context.keys.entry(changed.entry_id), "prompt", "of another process")
        embedder.broken = False
        assert cache.lookup(FRANCE, SCOPE).kind == "exact"
        assert cache.lookup(LIKE_FRANCE, SCOPE) is None
        assert cache.update("What is the speed of light?", "Fast.", SCOPE).detail == ""
        assert cache.lookup(LIKE_FRANCE, SCOPE).kind == "semantic"
        assert cache.lookup("Who was it that wrote Faust?", SCOPE) is None
        assert bob.lookup(LIKE_FRANCE, SCOPE) is None
        stats = cache.stats()
        assert (stats.unembedded, stats.mended, cache.counts["unembedded"]) == (2, 2, 3)
        bytes_before = stats.bytes
        cache.update("What is the speed of sound?", "Slow.", SCOPE)
        assert cache.counts["mended"] == 2  # nothing is left to mend
        assert cache.invalidate(everything=True) == 4
        assert (cache.stats().bytes, bytes_before > 0) == (0, True)


def test_a_failed_mending_is_tried_again(world: World) -> None:
    embedder = Words()
    with world.open(embedder=embedder, pause_ms=0) as cache:
        embedder.broken = True
        cache.update(FRANCE, "Paris.", SCOPE)
        embedder.broken = False
        embed = embedder.embed
        fails: Any = lambda texts, what="query": embed(texts, what) if FRANCE not in texts else 1 // 0  # noqa: E731
        embedder.embed = fails  # type: ignore[method-assign]
        written = cache.update("Who wrote Faust?", "Goethe.", SCOPE)
        assert (written.stored, written.detail, cache.counts["embedding_failed"]) == (True, "", 2)
        embedder.embed = embed  # type: ignore[method-assign]
        assert cache.lookup(LIKE_FRANCE, SCOPE) is None
        cache.update("Who wrote Faust?", "Goethe.", SCOPE)
        assert cache.lookup(LIKE_FRANCE, SCOPE).kind == "semantic"


def test_writes_leave_an_embedder_alone_that_failed_them(world: World) -> None:
    embedder = Words(broken=True)
    with world.open(embedder=embedder, pause_ms=3_600_000) as cache:
        assert all("without a vector" in cache.update(f"question {n}", "yes", SCOPE).detail for n in range(3))
        assert len(embedder.asked) == 1


class Stuck(Words):
    """Never answers."""

    async def aembed(self, *args: Any) -> Any:
        await asyncio.Event().wait()


@pytest.mark.anyio
async def test_an_embedder_that_hangs_leaves_time_to_store_the_answer(redis_url: str) -> None:
    options: dict[str, Any] = {"principal": str(uuid4()), "guard": False}
    short = settings(update_deadline_ms=2_000)
    async with AsyncSemanticCache(redis_url, embedder=Stuck(), settings=short, **options) as cache:
        written = await cache.update(FRANCE, "Paris.", SCOPE)
        # Unless this machine needs a second for a round trip: then it says so.
        assert written.stored or written.reason == "unavailable"
        if written.stored:
            hit = await cache.lookup(FRANCE, SCOPE)
            assert hit is not None
            assert hit.kind == "exact"


@pytest.mark.anyio
async def test_an_embedder_or_a_judge_that_hangs_is_given_up_at_the_deadline(redis_url: str) -> None:
    async def hang(*case: Any) -> bool:
        return bool(await asyncio.Event().wait())

    options: dict[str, Any] = {"principal": str(uuid4()), "guard": False}
    async with AsyncSemanticCache(redis_url, embedder=Words(), settings=settings(), **options) as cache:
        await cache.update(FRANCE, "Paris.", SCOPE)
    short = settings(lookup_deadline_ms=100, pause_ms=0)
    async with AsyncSemanticCache(redis_url, embedder=Stuck(), settings=short, **options) as cache:
        assert await cache.lookup(LIKE_FRANCE, SCOPE) is None
        assert cache.counts["embedding_failed"] == 1
    patient = settings(lookup_deadline_ms=1_000)
    async with AsyncSemanticCache(redis_url, embedder=Words(), judge=hang, settings=patient, **options) as cache:
        assert await cache.lookup(LIKE_FRANCE, SCOPE) is None
        assert cache.counts.keys() & {"judge_failed", "deadline"}


def test_a_blocking_embedder_or_judge_that_takes_too_long_is_a_miss(redis_url: str) -> None:
    now = [0.0]

    class Slow(Words):
        def embed(self, *args: Any) -> Any:
            now[0] += seconds[0]
            return super().embed(*args)

    def judge(*case: Any) -> bool:
        now[0] += seconds[1]
        return True

    seconds = [0.0, 0.0]
    options: dict[str, Any] = {"principal": str(uuid4()), "guard": False, "settings": settings()}
    with SemanticCache(redis_url, embedder=Slow(), judge=judge, **options) as cache:
        cache.context.state.clock = lambda: now[0]
        cache.update(FRANCE, "Paris.", SCOPE)
        assert cache.lookup(LIKE_FRANCE, SCOPE) is not None
        seconds[:] = [61.0, 0.0]
        assert cache.lookup(LIKE_FRANCE, SCOPE) is None
        seconds[:] = [0.0, 61.0]
        assert cache.lookup(LIKE_FRANCE, SCOPE) is None
        assert cache.counts["too_late"] == 2
        seconds[:] = [0.0, 0.0]
        assert cache.lookup(LIKE_FRANCE, SCOPE) is not None  # it was not Redis: nobody was left alone


def test_an_error_that_nobody_expects_is_logged_once(
    world: World, redis_server: ServerFactory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cache_state, "_warned", set())
    server = redis_server()
    with redis.Redis.from_url(server.url) as client, world.open(url=server.url) as cache:
        # A program that had this library's name, and another code.
        put = "local function put(keys, argv)\n"
        client.function_load(library_of("rtmem_v1_cache").replace(put, put + "nobody_knows()\n"), replace=True)
        for _ in range(3):
            assert cache.update(FRANCE, "Paris.", SCOPE).reason == "unavailable"
        assert cache.counts["failed"] == 3
    (record,) = [each for each in caplog.records if each.name == "rtmem.operations.cache_state"]
    assert record.levelname == "WARNING"
    for word in ("CommandError", "nobody_knows", "rtmem doctor"):
        assert word in record.getMessage()


def test_what_only_people_ask_raises(world: World) -> None:
    with world.open(url="redis://127.0.0.1:1", **QUICK) as cache:
        for call in (cache.stats, cache.entries, lambda: cache.invalidate(everything=True)):
            with pytest.raises(ServerUnavailableError, match=r"127\.0\.0\.1:1"):
                call()
    embedder = Words(broken=True)
    with world.open(embedder=embedder) as cache, pytest.raises(EmbeddingUnavailableError):
        cache.explain(FRANCE, SCOPE)


def test_threads_share_a_cache(world: World, ann: Caller) -> None:
    ann.update(FRANCE, "Paris.", SCOPE)
    found: list[Any] = []

    def ask() -> None:
        found.extend(ann.lookup(question, SCOPE) for question in (FRANCE, LIKE_FRANCE) * 20)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [hit.answer for hit in found] == ["Paris."] * 320
    assert ann.counts["exact"] == ann.counts["semantic"] == 160
    assert ann.stats().hits == 320
