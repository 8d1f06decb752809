from __future__ import annotations

from pathlib import Path

import pytest

from rtmem.server import diagnosis


# Lines as Redis writes them. The causes that can be had on any machine are died of for real in test_embedded.py.
@pytest.mark.parametrize(
    ("log", "kind"),
    [
        (
            "# Warning: Could not create server TCP listening socket *:6379: bind: Address already in use",
            "port",
        ),
        ("# The RDB file contains AUX module data I can't load: no matching module 'search'", "modules"),
        ("# Module /x/redisearch.so failed to load: libssl.so.1.1: cannot open shared object file", "modules"),
        ("# Unexpected end of file reading the append only file a.1.incr.aof", "aof"),
        ("# Error moving temp append only file: No space left on device", "directory"),
        ("=== REDIS BUG REPORT START ===", "crash"),
        ("*** FATAL CONFIG FILE ERROR (Redis 8.2.3) ***", "config"),
        ("", "unknown"),
    ],
)
def test_a_cause_of_death_is_recognised(log: str, kind: str) -> None:
    found = diagnosis.diagnose(f"* Server initialized\n{log}\n")
    assert found.kind == kind
    assert found.meaning
    assert found.fix


def test_a_server_that_outlived_a_full_disk_did_not_die_of_its_files(tmp_path: Path) -> None:
    log = tmp_path / "redis.log"
    log.write_text("* Ready to accept connections unix\n# Error writing to the AOF file: No space left on device\n")
    assert diagnosis.cause_of_death(log).kind == "unknown"


def test_only_what_was_logged_since_the_start_counts(tmp_path: Path) -> None:
    log = tmp_path / "redis.log"
    log.write_text("old: Address already in use\n")
    offset = log.stat().st_size
    with log.open("a") as more:
        more.write("new\n")
    assert diagnosis.log_since(log, offset) == "new\n"


def test_a_log_that_was_put_aside_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "redis.log"
    log.write_text("new\n")
    assert diagnosis.log_since(log, 1_000_000) == "new\n"
    assert diagnosis.log_since(tmp_path / "none", 0) == ""


def test_a_long_log_is_cut_to_its_end(tmp_path: Path) -> None:
    log = tmp_path / "redis.log"
    log.write_text("".join(f"line {number}\n" for number in range(100_000)))
    shown = diagnosis.last_lines(diagnosis.log_since(log, 0))
    assert shown.splitlines()[-1] == "  line 99999"
    assert len(shown.splitlines()) == diagnosis.LOG_LINES_MAX
