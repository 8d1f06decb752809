from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from rtmem.cache import CacheScope, SemanticCache
from rtmem.cli.main import main
from rtmem.memory import Memory
from rtmem.store import RedisStore
from tests.cli.commands import environment
from tests.conftest import ServerFactory
from tests.embedding.embedding_server import serving

OTHER = {"RTMEM_EMBEDDING__MODEL": "remote:other"}


@dataclass(frozen=True, slots=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Shell:
    """Runs commands in this process, for a new one takes seconds to import what they need."""

    patch: pytest.MonkeyPatch
    capture: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str | Path, **variables: str) -> Done:
        return self.rtmem("memory", *arguments, **variables)

    def rtmem(self, *arguments: str | Path, **variables: str) -> Done:
        with self.patch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            code = 0
            try:
                main([*map(str, arguments)])
            except SystemExit as exc:
                code = int(exc.code or 0)
        out, err = self.capture.readouterr()
        return Done(code, out, err.replace("\n", " "))


@pytest.fixture
def memory(
    tmp_path: Path,
    redis_url: str,
    redis_client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Shell]:
    """A user whose memory is empty, and whose embedder is a small server."""
    assert redis_client.dbsize() == 0
    with serving() as server:
        variables = environment(
            tmp_path,
            RTMEM_REDIS__URL=redis_url,
            RTMEM_EMBEDDING__MODEL="remote:tiny",
            RTMEM_EMBEDDING__BASE_URL=server.url,
            RTMEM_EMBEDDING__DIMS="3",
        )
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield Shell(monkeypatch, capsys)


def test_a_fact_is_added_found_superseded_and_explained(memory: Shell, redis_url: str) -> None:
    about = ("--subject", "Ann", "--predicate", "lives in", "--object", "Rome")
    added = memory("add", "Ann lives in\x1b[2J Rome.", *about, "--tag", "home", "--json")
    assert added.returncode == 0, added.stderr
    rome = json.loads(added.stdout)
    assert (rome["object"], rome["tags"], rome["principal"]) == ("Rome", ["home"], "local")

    options = ("--object", "5", "--reason", "she moved\x1b[2J to house 5")
    updated = memory("update", rome["id"], *options)
    assert updated.returncode == 0, updated.stderr
    with Memory(redis_url, principal="local") as local:
        (five,) = local.query().facts
        assert five.object == 5
        bare = local.write("Ann eats no fish.", kind="preference", importance=0.9)
    assert updated.stdout.startswith(five.id)

    again = memory("update", rome["id"], "Ann lives in Paris.")
    assert again.returncode == 1
    assert f"rtmem memory show {five.id}" in again.stderr

    told = memory("history", rome["id"])
    assert told.stdout.index(rome["id"]) < told.stdout.index("she moved␛[2J to house 5") < told.stdout.rindex(five.id)
    shown = memory("show", rome["id"])
    assert "text        Ann lives in␛[2J Rome." in shown.stdout
    assert f"by {five.id}: she moved" in shown.stdout

    first = memory("list", "--limit", "1")
    assert first.stdout.startswith(bare.id)
    place = first.stderr.partition("--after ")[2].partition(")")[0]
    second = memory("list", "--ended", "--after", place, "--json")
    assert [json.loads(line)["id"] for line in second.stdout.splitlines()] == [five.id, rome["id"]]
    assert "\x1b" not in told.stdout + shown.stdout + first.stdout

    found = memory("search", "who eats fish?", "--explain")
    assert found.returncode == 0, found.stderr
    assert bare.id in found.stdout
    assert "words BM25" in found.stdout
    nothing = memory("search", "quantum chromodynamics", "--words-only", "--json")
    assert nothing.returncode == 1
    assert json.loads(nothing.stdout)["hits"] == []


def test_what_is_asked_for_wrongly_is_answered_with_the_next_step(memory: Shell) -> None:
    for code, said, arguments in (
        (1, "rtmem memory list --ended", ("show", "mf_nothing")),
        (2, "needs quotes of its own", ("add", "--key", "k", "--value", "{x")),
        (2, "a date or a time such as", ("list", "--as-of", "yesterday")),
        (2, "cannot contain periods", ("list", "--items", "a.b")),
        (2, "no export of memory", ("import", __file__)),
        (1, "user, team:NAME or application", ("add", "x", "--to", "teams/q", "--words-only")),
        (2, "one of semantic, episodic, procedural, preference", ("add", "x", "--kind", "foo", "--words-only")),
        (2, "one of semantic, episodic, procedural, preference", ("list", "--kind", "foo")),
        (2, "one of semantic, episodic, procedural, preference", ("search", "x", "--kind", "foo", "--words-only")),
        (1, "rtmem memory list --ended", ("forget", "mf_nothing", "--yes")),
    ):
        done = memory(*arguments)
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr


def test_a_fact_is_forgotten_by_who_says_yes(memory: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    rome = json.loads(memory("add", "Ann lives in Rome.", "--words-only", "--json").stdout)["id"]
    oslo = json.loads(memory("update", rome, "Ann lives in Oslo.", "--words-only", "--json").stdout)["id"]
    assert " UTC  Ann lives in Oslo." in memory("list").stdout
    for answer in ("n\n", ""):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        assert memory("forget", oslo).returncode == 1
    assert oslo in memory("list").stdout
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert memory("forget", oslo).stdout.endswith("1 fact forgotten\n")
    assert memory("forget", oslo, "--yes").returncode == 1
    assert memory("forget", rome, "--history", "--yes").returncode == 0
    assert memory("list", "--ended").stdout == ""


def test_a_reindex_without_its_extra_fails_before_it_begins(
    memory: Shell, monkeypatch: pytest.MonkeyPatch, redis_client: redis.Redis
) -> None:
    monkeypatch.setattr("rtmem.embedding.find_spec", lambda module: None)
    done = memory("reindex", "--embedder", "multilingual")
    assert (done.returncode, "rtmem[embedding-multilingual]" in done.stderr) == (2, True), done.stderr
    assert "looking" not in done.stderr
    assert redis_client.dbsize() == 0


def test_an_export_comes_back_in_an_empty_redis(
    memory: Shell, redis_url: str, redis_client: redis.Redis, tmp_path: Path
) -> None:
    with Memory(redis_url, principal="local") as local, RedisStore(redis_url, principal="local") as store:
        home = local.write("Анна живёт в Риме.", subject="Анна", predicate="живёт в", object="Риме")
        local.update(home, object="Осло", reason="переехала")
        store.put(("users", "ann"), "k", {"text": "Привет", "n": 1})
        before = local.history(home.id)
    file = tmp_path / "all.jsonl"
    done = memory("export", file)
    assert (done.returncode, "3 facts and items of principal 'local'" in done.stderr) == (0, True), done.stderr
    assert "Осло" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    redis_client.flushall()
    file.write_text(file.read_text() + '{"fact": {"id": "mf_no"}}\n')
    done = memory("import", file)
    assert done.returncode == 1
    assert done.stdout == "3 restored, 0 were there already\n2 embedded\n"
    assert "line 5:" in done.stderr
    with Memory(redis_url, principal="local") as local:
        assert [fact.embedded for fact in local.history(home.id)] == [True, True]
        assert [(fact.id, fact.text, fact.created_at_ms) for fact in local.history(home.id)] == [
            (fact.id, fact.text, fact.created_at_ms) for fact in before
        ]
    listed = memory("list", "--items", "users", "--json")
    assert json.loads(listed.stdout)["value"] == {"text": "Привет", "n": 1}


def test_another_embedder_is_refused_told_of_and_takes_over_with_a_reindex(memory: Shell) -> None:
    assert memory("add", "Ann lives in Rome.").returncode == 0
    refused = memory("search", "Rome", **OTHER)
    assert (refused.returncode, "`rtmem memory reindex`" in refused.stderr) == (2, True), refused.stderr
    told = memory("stats", **OTHER)
    assert "1 believed: 1 semantic" in told.stdout
    assert "programs that use it here are refused" in told.stderr
    for way_out in ("[embedding] model", "RTMEM_EMBEDDING__MODEL", '"remote:tiny" (', 'not of "remote:other" ('):
        assert way_out in refused.stderr
    assert "vectors of  remote:tiny (" in told.stdout
    assert 'set [embedding] model = "remote:tiny"' in told.stderr
    done = memory("reindex", "--algorithm", "hnsw", "--per-second", "1000", **OTHER)
    assert done.stdout == "1 document embedded by other at 127.0.0.1; the index is hnsw\n", done.stderr
    assert '[embedding] model = "remote:other", or RTMEM_EMBEDDING__MODEL=remote:other' in done.stderr
    assert "vectors of  remote:other (" in memory("stats", **OTHER).stdout
    refused = memory("search", "Rome")
    assert 'holds vectors of embedder "remote:other" (' in refused.stderr
    assert memory("search", "Rome", **OTHER).returncode == 0
    told = memory("stats", "--json", **OTHER)
    assert json.loads(told.stdout)["index"]["index"]["fields"][-1][2] == "hnsw"
    assert "memory index: rtmem:memory:2: hnsw, 1 document" in memory.rtmem("doctor", **OTHER).stdout
    done = memory("reindex", "--algorithm", "flat", **OTHER)
    assert done.stdout == "0 documents embedded by other at 127.0.0.1; the index is flat\n", done.stderr
    assert "programs need" not in done.stderr


def test_memory_and_cache_are_looked_for_in_a_redis_of_their_own(
    memory: Shell, redis_url: str, redis_server: ServerFactory
) -> None:
    elsewhere = redis_server().url
    own = {"RTMEM_STORE__REDIS_URL": elsewhere, "RTMEM_CACHE__REDIS_URL": elsewhere, "RTMEM_REDIS__URL": redis_url}
    assert memory("add", "Ann lives in Oslo.", **own).returncode == 0
    assert "Oslo" in memory("list", **own).stdout
    assert "Oslo" in memory("list", "--redis-url", elsewhere).stdout
    assert "Oslo" not in memory("list", "--redis-url", redis_url, **own).stdout
    with SemanticCache(elsewhere, principal="local", guard=False) as cache:
        cache.update("Who?", "Ann.", CacheScope(model="m", parameters={}))
    assert json.loads(memory.rtmem("cache", "stats", "--json", **own).stdout)["entries"] == 1
    checks = json.loads(memory.rtmem("doctor", "--json", **own).stdout)["checks"]
    names = [check["name"] for check in checks]
    assert names.index("Redis") < names.index("Redis of memory") < names.index("memory index")
    assert "Redis of the cache" not in names  # the same
