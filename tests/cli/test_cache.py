"""`rtmem cache stats | show | invalidate`, as somebody types them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import redis
from langchain_core.messages import AIMessage

from rtmem.cache import CacheScope, Prompt, SemanticCache
from rtmem.embedding import from_settings
from rtmem.settings import Cache, Embedding
from tests.cli.commands import environment
from tests.cli.test_memory import Done, Shell
from tests.embedders import Words
from tests.embedding.embedding_server import serving

PATIENT = Cache(thresholds={"remote:tiny": 0.01, "words": 0.1}, lookup_deadline_ms=60_000, update_deadline_ms=60_000)
SCOPE = CacheScope(model="gpt-test", parameters={})
OTHER = CacheScope(model="other", parameters={}, system="Be brief.")


class Cached:
    """`rtmem cache`, and the cache that it is about."""

    def __init__(self, shell: Shell, cache: SemanticCache) -> None:
        self._shell = shell
        self.cache = cache

    def __call__(self, *arguments: str) -> Done:
        return self._shell.rtmem("cache", *arguments)


@pytest.fixture
def cached(
    tmp_path: Path,
    redis_url: str,
    redis_client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Cached]:
    """A user whose cache is empty, and whose embedder is a small server: texts of the same letters are near."""
    assert redis_client.dbsize() == 0
    with serving() as server:
        variables = environment(
            tmp_path,
            RTMEM_REDIS__URL=redis_url,
            RTMEM_EMBEDDING__MODEL="remote:tiny",
            RTMEM_EMBEDDING__BASE_URL=server.url,
            RTMEM_EMBEDDING__DIMS="3",
            RTMEM_CACHE__THRESHOLDS='{"remote:tiny": 0.01}',
            RTMEM_CACHE__UPDATE_DEADLINE_MS="60000",
        )
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        embedder = from_settings(Embedding(model="remote:tiny", base_url=server.url, dims=3))
        with SemanticCache(redis_url, principal="local", embedder=embedder, guard=False, settings=PATIENT) as cache:
            yield Cached(Shell(monkeypatch, capsys), cache)
        embedder.close()


def store(cached: Cached, prompt: Prompt, answer: object, scope: CacheScope = SCOPE, **options: object) -> str:
    written = cached.cache.update(prompt, answer, scope, **options)  # type: ignore[arg-type]
    assert written.stored, written
    return written.entry_id


def test_what_there_is_is_counted_listed_and_shown(cached: Cached) -> None:
    first = store(cached, "is 1 a\x1b[2J number?", "Yes.", tags=["math", "b"], took_ms=3_000)
    second = store(cached, "and 2?", AIMessage("Yes,\ntoo."), OTHER, tags=["math"], ttl_ms=0)
    assert cached.cache.lookup("and 2?", OTHER) is not None
    assert cached.cache.lookup("aaa", OTHER) is None
    store(cached, "last", "x", OTHER)

    counted = cached("stats", "--json")
    assert counted.returncode == 0, counted.stderr
    body = json.loads(counted.stdout)
    assert (body["entries"], body["exact"], body["misses"]) == (3, 1, 1)
    assert body["models"]["other"]["entries"] == 2
    assert body["threshold"] == {"embedder": "remote:tiny", "at": 0.01}
    told = cached("stats").stdout
    assert "1 exact, 0 semantic" in told
    assert "up to distance 0.01, by remote:tiny" in told
    assert "gpt-test: 1 entry," in told

    listed = cached("show", "--tag", "math")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [second, first]
    assert "is 1 a␛[2J number?" in listed.stdout
    assert cached("show", "--tag", "math", "--model", "gpt-test").stdout.count("\n") == 1
    few = cached("show", "--limit", "1")
    assert "2 more: --limit 3" in few.stderr
    everything = [json.loads(line) for line in cached("show", "--limit", "9", "--json").stdout.splitlines()]
    assert [entry["entry_id"] for entry in everything][1:] == [second, first]

    shown = cached("show", second)
    assert "Yes,\ntoo." in shown.stdout
    assert "never" in shown.stdout
    assert json.loads(cached("show", second, "--json").stdout)["answer"]["content"] == "Yes,\ntoo."
    assert "principal 'bob'" in cached("show", "--principal", "bob").stderr
    assert "\x1b" not in listed.stdout + shown.stdout


def test_a_question_is_explained_by_what_is_near(cached: Cached) -> None:
    near = store(cached, "a bb 5", "five")
    far = store(cached, "aaaaaaaa", "all a")
    store(cached, "b" * 9, "all b", OTHER)

    exact = cached("show", "--ask", "a bb 5", "--model", "gpt-test")
    assert exact.returncode == 0, exact.stderr
    first, verdict, *_ = exact.stdout.splitlines()
    assert first.split()[:2] == ["0.0000", near]
    assert verdict.strip() == "-> hit, only for the same parameters, system prompt, tools and earlier messages, if any"
    assert "a hit for who asks in that scope; asked in 1 scope of" in exact.stderr

    refused = cached("show", "--ask", "a bb 6")
    assert refused.returncode == 1
    lines = refused.stdout.splitlines()
    assert near in lines[0]
    assert lines[1].strip() == "-> a miss: the guard sees another number: asked '6', cached '5'"
    (too_far,) = [after for line, after in pairwise(lines) if far in line]
    assert "farther than 0.01" in too_far
    assert "(a miss; asked in 2 scopes of" in refused.stderr

    found = json.loads(cached("show", "--ask", "a bb 6", "--json", "--limit", "1").stdout)
    assert (found["entry_id"], found["model"], found["taken"]) == (near, "gpt-test", False)
    assert cached.cache.stats().misses == 0  # to explain is not to ask

    alike = cached("show", "--ask", "a  bb 5")
    assert alike.returncode == 0, alike.stdout + alike.stderr


def test_a_hit_that_takes_the_same_earlier_messages_does_not_claim_more(cached: Cached) -> None:
    store(cached, [("human", "Weather in Oslo?"), ("ai", "Rain."), ("human", "And in Paris?")], "Sun.")
    assert cached.cache.lookup("And in Paris?", SCOPE) is None
    done = cached("show", "--ask", "And in Paris?")
    assert done.returncode == 0, done.stderr
    assert "-> hit, only for the same parameters, system prompt, tools and earlier messages" in done.stdout
    assert "only" in json.loads(cached("show", "--ask", "And in Paris?", "--json").stdout)["verdict"]


def test_an_embedder_without_a_threshold_says_so(cached: Cached, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTMEM_CACHE__THRESHOLDS", "{}")
    store(cached, "a bb 5", "five")
    assert "`rtmem cache calibrate` finds one" in cached("stats").stdout
    done = cached("show", "--ask", "a bb 6")
    assert done.returncode == 1
    assert "compared exactly only, because [cache] thresholds has none" in done.stderr


def test_answers_are_invalidated_by_what_they_have(cached: Cached, monkeypatch: pytest.MonkeyPatch) -> None:
    first = store(cached, "one", "1")
    for number in range(2):
        store(cached, f"tagged {number}", "x", tags=["t"])
        store(cached, f"other {number}", "x", OTHER)
    assert cached("invalidate", "--entry", first).stdout == "1 answer invalidated\n"
    assert cached("invalidate", "--tag", "t", "--older-than", "2d").stdout == "0 answers invalidated\n"
    assert json.loads(cached("invalidate", "--tag", "t", "--json").stdout) == {"invalidated": 2}
    assert cached("invalidate", "--everything", "--yes", "--principal", "bob").stdout == "0 answers invalidated\n"
    assert cached("invalidate", "--model", "gpt-test").stdout == "0 answers invalidated\n"
    for answer in ("n\n", ""):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        assert cached("invalidate", "--everything").returncode == 1
    assert cached.cache.stats().entries == 2
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    done = cached("invalidate", "--everything")
    assert "Drop 2 answers of principal 'local'?" in done.stderr
    assert cached.cache.stats().entries == 0


def test_what_is_asked_for_wrongly_is_answered_with_the_next_step(cached: Cached) -> None:
    for code, said, arguments in (
        (1, "`rtmem cache show` lists those there are", ("show", "0" * 32)),
        (2, "32 hexadecimal digits", ("show", "nothing")),
        (2, "give one of them", ("show", "0" * 32, "--ask", "x")),
        (2, "what is to be invalidated?", ("invalidate",)),
        (2, "what is to be invalidated?", ("invalidate", "--tag", "a", "--model", "b")),
        (2, "such as 90s, 15m, 2h, 2d or 1w", ("invalidate", "--older-than", "yesterday")),
        (2, "32 hexadecimal digits", ("invalidate", "--entry", "mf_1")),
    ):
        done = cached(*arguments)
        assert (done.returncode, said in done.stderr) == (code, True), (arguments, done.stderr)


def test_stale_indexes_of_other_embedders_are_named(cached: Cached, redis_url: str) -> None:
    with SemanticCache(redis_url, principal="local", embedder=Words(), guard=False, settings=PATIENT) as other:
        other.update("x", "y", SCOPE)
    done = cached("stats")
    assert "rtmem:cache:words64 is another embedder's" in done.stderr
    assert "FT.DROPINDEX rtmem:cache:words64" in done.stderr


def test_a_hit_is_reported_by_its_id(cached: Cached) -> None:
    store(cached, "abc", "x")
    wrong = cached.cache.lookup("abd", SCOPE)
    assert wrong is not None
    assert cached("report", wrong.hit_id, "--wrong").stdout == "noted: wrong\n"
    assert cached.cache.lookup("abd", SCOPE) is None
    exact = cached.cache.lookup("abc", SCOPE)
    assert exact is not None
    assert json.loads(cached("report", exact.hit_id, "--right", "--json").stdout) == {"noted": True}
    assert cached("report", exact.hit_id, "--wrong").returncode == 0
    gone = cached("report", exact.hit_id, "--right")
    assert (gone.returncode, gone.stdout) == (1, "")
    assert "not there any more" in gone.stderr
    unclear = cached("report", exact.hit_id)
    assert unclear.returncode == 2
    assert "--wrong" in unclear.stderr
    assert cached("report", "nonsense", "--wrong").returncode == 2
