from __future__ import annotations

import json
from pathlib import Path

import pytest

from rtmem.pointers import Pointers
from tests.cli.commands import environment, rtmem


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path)


def test_pointers_are_listed_shown_read_searched_and_deleted(env: dict[str, str], redis_url: str) -> None:
    text = "".join(f"line {number}\n" for number in range(3_000))
    with Pointers(redis_url, principal="local") as pointers:
        log = pointers.offload(text, thread_id="t", name="a log\x1b[2J").id
        rows = pointers.offload([{"id": 1}, {"id": 2}]).id
        raw = pointers.offload(b"\x00\xff").id
    common = ("--redis-url", redis_url)

    listed = rtmem("pointers", "list", "--thread", "t", *common, env=env)
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.startswith(f"{log}  20")
    assert "\x1b" not in listed.stdout
    assert "pointers, " in listed.stderr
    everything = rtmem("pointers", "list", "--json", "--limit", "1000", *common, env=env)
    assert {log, rows, raw} <= {json.loads(line)["id"] for line in everything.stdout.splitlines()}

    shown = rtmem("pointers", "show", rows, *common, env=env)
    assert "array of 2 objects {id: integer}" in shown.stdout
    assert json.loads(rtmem("pointers", "show", rows, "--json", *common, env=env).stdout)["items"] == 2

    assert rtmem("pointers", "cat", log, *common, env=env).stdout == text
    part = rtmem("pointers", "cat", log, "--unit", "lines", "--start", "2998", "--count", "5", *common, env=env)
    assert part.stdout == "line 2998\nline 2999\n"
    assert rtmem("pointers", "cat", rows, "--unit", "items", *common, env=env).stdout == '{"id":1}\n{"id":2}\n'

    found = rtmem("pointers", "grep", "-E", "^line 29+$", log, *common, env=env)
    assert [line.split(":")[0] for line in found.stdout.splitlines()] == ["30", "300", "3000"]
    assert rtmem("pointers", "grep", "nowhere", log, *common, env=env).returncode == 1
    swapped = rtmem("pointers", "grep", log, "line", *common, env=env)
    assert (swapped.returncode, "the order is `grep PATTERN ID`" in swapped.stderr) == (2, True)

    assert rtmem("pointers", "rm", log, rows, raw, *common, env=env).returncode == 0
    again = rtmem("pointers", "rm", log, *common, env=env)
    assert again.returncode == 1
    malformed = rtmem("pointers", "rm", "nonsense", *common, env=env)
    assert malformed.returncode == 1
    assert again.stderr.replace(log, "nonsense") == malformed.stderr
    assert "is not there for principal 'local'; --principal names another" in again.stderr
    with Pointers(redis_url, principal="one") as pointers:
        pointers.offload("a value", ttl_ms=60_000)
    one = rtmem("pointers", "list", "--principal", "one", *common, env=env)
    assert "(1 pointer, 1 value, " in one.stderr
    nobody = rtmem("pointers", "list", "--principal", "nobody", *common, env=env)
    assert "(0 pointers, 0 values, 0 of" in nobody.stderr
    assert "bytes of principal 'nobody'; --principal names another)" in nobody.stderr


def test_a_pointer_of_somebody_else_is_not_there(env: dict[str, str], redis_url: str) -> None:
    with Pointers(redis_url, principal="bob") as pointers:
        pointer = pointers.offload("bob's")
    done = rtmem("pointers", "cat", pointer.id, "--redis-url", redis_url, env=env)
    assert done.returncode == 1
    assert f"no pointer '{pointer.id}' of principal 'local'; --principal names another" in done.stderr
    done = rtmem("pointers", "cat", pointer.id, "--redis-url", redis_url, "--principal", "bob", env=env)
    assert done.stdout == "bob's"
    assert rtmem("pointers", "cat", pointer.id, "--unit", "pages", "--redis-url", redis_url, env=env).returncode == 2
    swept = rtmem("pointers", "sweep", "--redis-url", redis_url, "--principal", "bob", env=env)
    assert swept.stdout == "0 pointers expired, 0 threads gone, 0 uploads late\n"
