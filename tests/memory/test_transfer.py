"""What is exported comes back as it was: every field of every document, and nothing of anybody else."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import redis
import zstandard

from rtmem.errors import InvalidRequestError
from rtmem.memory import Memory, Principal
from rtmem.operations import transfer
from rtmem.operations.memory_state import count
from rtmem.operations.transfer import Restored
from rtmem.store import RedisStore
from tests.embedders import Words

ANN = Principal(user="ann", teams=("a/b",), application="app")


@pytest.fixture
def client(redis_client: redis.Redis) -> redis.Redis:
    return redis_client


@pytest.fixture
def memory(redis_url: str, client: redis.Redis) -> Iterator[Memory]:
    with Memory(redis_url, principal=ANN, embedder=Words()) as memory:
        yield memory


def fill(memory: Memory) -> None:
    """Everything that there can be: history, keys, tombstones, teams, items of several vectors, hostile names."""
    home = memory.write(
        "Ann lives in Rome.", subject="Ann", predicate="lives in", object="Rome", tags=["Home", "x\x1fy"]
    )
    memory.update(home, object="Oslo", reason="she has moved")
    memory.invalidate(memory.write("Ann likes fish.", kind="preference"), "she does not")
    memory.write("Ann likes fish.", kind="preference")
    memory.write(key="units", value={"length": "km", "n": [1, 2.5, None, True]})
    memory.write(key="units", value={"length": "mi"}, importance=0.25)
    memory.write("exact", value={"when": datetime(2026, 1, 1, tzinfo=UTC), "raw": b"\x00\xff"}, to="team:a/b")
    memory.write("said by all", to="application", kind="episodic", thread_id="t", position=3)
    memory.forget(memory.write("a secret"))
    index: Any = {"embed": memory.embedder, "fields": ["texts[*]"]}
    store = RedisStore(driver=memory.driver, principal="ann", index=index)
    store.put(("users", "ann"), "several", {"texts": ["one", "two words", "three"], "n": 1}, ttl=600)
    store.put(("users", "ann"), "bare", {"texts": ["one"], "f": 1.0}, index=False)
    store.put(("a/b", "\ud800{*}"), "k\ud800\x00", {"raw": b"\xff", "set": {1, 2}, "tuple": (1, "a")})
    bob = memory.bind("bob")
    bob.write("Bob's own.")
    store.bind("bob").put(("users", "ann"), "several", {"bob": 1})


def documents(client: redis.Redis) -> dict[bytes, tuple[dict[bytes, bytes], int]]:
    return {key: (client.hgetall(key), client.pexpiretime(key)) for key in client.scan_iter("rtmem:m:*")}


def exported(memory: Memory, **options: Any) -> list[bytes]:
    lines: list[bytes] = []
    cursor = "0"
    while True:
        part = memory.run(transfer.export(memory.scope, cursor, count=5, **options))
        assert part.unreadable == []
        lines, cursor = lines + part.lines, part.cursor
        if cursor == "0":
            return list(dict.fromkeys(lines))


def restored(memory: Memory, lines: list[bytes], fingerprint: str = "") -> list[Restored]:
    memory.setup()
    header = transfer.header(memory.scope, 1, fingerprint, memory.scope.index.dims if fingerprint else 0)
    return memory.run(transfer.restore(memory.scope, lines, transfer.read_header(header, memory.scope)))


@pytest.mark.parametrize("with_vectors", [True, False])
def test_what_is_exported_comes_back_with_every_field(memory: Memory, client: redis.Redis, with_vectors: bool) -> None:
    fill(memory)
    before = documents(client)
    lines = exported(memory, vectors=with_vectors)
    assert len(lines) == 12
    assert not any(b"Bob" in line or b"bob" in line for line in lines)
    client.flushall()
    done = restored(memory, lines, memory.scope.index.fingerprint if with_vectors else "")
    assert [each.outcome for each in done] == ["restored"] * len(lines)
    if not with_vectors:
        store = RedisStore(driver=memory.driver, principal="ann", index=memory.embedder)
        assert memory.reembed() + store.reembed() == 9
    mine = {key: told for key, told in before.items() if key in documents(client)}
    assert documents(client) == mine
    assert len(before) - len(mine) == 2  # Bob's
    # Everything is found again, by words, by meaning and by key.
    assert memory.read("units").value == {"length": "mi"}  # type: ignore[union-attr]
    assert memory.retrieve("where does Ann live?").hits[0].fact.object == "Oslo"
    again = restored(memory, lines, memory.scope.index.fingerprint if with_vectors else "")
    assert [each.outcome for each in again] == ["there"] * len(lines)
    assert documents(client) == mine


def test_what_changed_since_stays_as_it_is(memory: Memory, client: redis.Redis) -> None:
    home = memory.write("Ann lives in Rome.")
    lines = exported(memory)
    memory.update(home, "Ann lives in Oslo.")
    before = documents(client)
    (done,) = restored(memory, lines)
    assert done.outcome == "other"
    assert documents(client) == before


BOMB = b"z" + zstandard.compress(b"b" + bytes(32 * 1024 * 1024))
REVIVED = b"j" + json.dumps({"lc": 2, "type": "constructor", "id": ["os", "getcwd"], "kwargs": {}}).encode()


def changed(line: bytes, **changes: Any) -> bytes:
    body = json.loads(line)
    fact = {name: value for name, value in changes.items() if name in ("text", "id", "scope", "superseded_by", "kind")}
    body["fact"] |= fact
    return json.dumps(body | {name: value for name, value in changes.items() if name not in fact}).encode()


def test_a_line_that_is_not_what_was_exported_is_refused_and_hinders_no_other(
    memory: Memory, client: redis.Redis
) -> None:
    memory.write("Ann lives in Rome.")
    (line,) = exported(memory, vectors=True)
    client.flushall()
    bad = [
        b"\n",
        b"[1]\n",
        b"\xff\xfe\n",
        b"{" * 100_000,
        b'{"unknown": 1}',
        b'{"namespace": ["a"], "key": "k"}',
        b'{"namespace": [""], "key": "k", "value": {}}',
        b'{"namespace": ["a"], "key": "k", "value": {}, "ttl_ms": -1}',
        b'{"namespace": ["a"], "key": "k", "stored": "cGlja2xl"}',
        b'{"namespace": ["a"], "key": "k", "stored": "eg=="}',
        b'{"namespace": ["a"], "key": "k", "stored": "%s"}' % base64.b64encode(BOMB),
        b'{"namespace": ["a"], "key": "k", "stored": "%s"}' % base64.b64encode(b"z" + zstandard.compress(REVIVED)),
        b'{"namespace": ["a"], "key": "k", "stored": "%s"}' % base64.b64encode(REVIVED),
        changed(line, text="Ann lives in Oslo."),
        changed(line, id="mf_x} *"),
        changed(line, scope="team:other"),
        changed(line, kind="nonsense"),
        changed(line, superseded_by="rtmem:t:{x}"),
        changed(line, marks=["side"]),
        changed(line, stored="!"),
        changed(line, created_us=2**60),
        changed(line, vectors=["AAAA"]),
    ]
    done = restored(memory, [*bad, line], memory.scope.index.fingerprint)
    assert [each.outcome for each in done] == ["refused"] * len(bad) + ["restored"]
    assert all(each.why for each in done[:-1])
    assert len(client.keys("rtmem:m:*")) == 1


def test_an_export_of_somebody_else_is_refused(memory: Memory) -> None:
    header = transfer.header(memory.bind("bob").scope, 1)
    with pytest.raises(InvalidRequestError, match="--principal 'bob'"):
        transfer.read_header(header, memory.scope)


def test_what_is_over_by_now_is_left_out(memory: Memory, client: redis.Redis) -> None:
    memory.write("an episode", kind="episodic")
    (line,) = exported(memory)
    client.flushall()
    (done,) = restored(memory, [json.dumps(json.loads(line) | {"ends_at_ms": 1_000}).encode()])
    assert done.outcome == "over"


def test_the_items_of_a_store_without_a_principal_can_be_moved_too(redis_url: str, client: redis.Redis) -> None:
    with Memory(redis_url) as nobody, RedisStore(redis_url) as store:
        store.put(("a",), "k", {"text": "x" * 200_000})
        lines = exported(nobody)
        before = documents(client)
        client.flushall()
        assert [each.outcome for each in restored(nobody, lines)] == ["restored"]
        assert documents(client) == before
        assert nobody.run(count(nobody.scope)).items == 1


def test_a_record_that_cannot_be_read_is_told_of_and_the_others_are_exported(
    memory: Memory, client: redis.Redis
) -> None:
    broken = memory.write("Ann lives in Rome.")
    memory.write("Ann eats no fish.")
    client.hset(memory.scope.keys.fact(broken.id), "v", b"?")
    part = memory.run(transfer.export(memory.scope, "0"))
    assert len(part.lines) == 1
    (why,) = part.unreadable
    assert broken.id in why
