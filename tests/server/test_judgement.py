from __future__ import annotations

import pytest

from rtmem.server.facts import ServerFacts
from rtmem.server.judgement import judge


def test_nothing_known_is_said_plainly() -> None:
    report = judge(ServerFacts())
    assert report.line == "a Redis that does not tell its version"
    assert report.findings == ()


@pytest.mark.parametrize(
    ("facts", "level", "what"),
    [
        (ServerFacts(mode="sentinel"), "error", "this is a Sentinel, not a data server"),
        (
            ServerFacts(product="redis", version=(6, 2, 14), redis_version=(6, 2, 14)),
            "error",
            "Redis 6.2.14 has no Functions",
        ),
        (ServerFacts(product="redis", version=(7, 0), redis_version=(7, 0)), "info", "Redis 7.0 has no WAITAOF"),
        (ServerFacts(aof_write_ok=False), "error", "the last write of the AOF failed"),
        (ServerFacts(aof_rewrite_ok=False), "warning", "the last rewrite of the AOF failed"),
        (ServerFacts(snapshot_ok=False), "warning", "the last snapshot failed"),
        (ServerFacts(modules={"search": 1}), "info", "no JSON module"),
        (ServerFacts(denied={"HELLO": "denied"}), "info", "HELLO is denied to this user"),
        (ServerFacts(denied={"FUNCTION": "unknown"}), "error", "FUNCTION is not offered by this server"),
    ],
)
def test_each_trouble_is_found_with_consequence_and_remedy(facts: ServerFacts, level: str, what: str) -> None:
    (finding,) = judge(facts).findings
    assert (finding.level, finding.what) == (level, what)
    assert finding.consequence
    assert finding.fix


def test_snapshots_are_mentioned_where_there_is_no_log() -> None:
    assert "loses what no snapshot holds" in judge(ServerFacts(aof=False, snapshots=True)).line


def test_an_old_valkey_is_named_as_valkey() -> None:
    assert judge(ServerFacts(product="valkey", version=(8, 1, 3), redis_version=(7, 2, 4))).line == "Valkey 8.1.3"
