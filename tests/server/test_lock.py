from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rtmem.errors import DataDirectoryError, DeadlineExceededError
from rtmem.server import lock
from tests.server.processes import eventually


def test_an_exclusive_lock_shuts_out_everybody_until_it_is_left(tmp_path: Path) -> None:
    path = tmp_path / "l"
    with lock.exclusive(path, timeout_ms=1_000):
        assert not lock.is_free(path)
        with pytest.raises(DeadlineExceededError, match="20 ms"), lock.exclusive(path, timeout_ms=20):
            pass
    assert lock.is_free(path)


def test_an_error_inside_leaves_the_lock(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), lock.exclusive(tmp_path / "l", timeout_ms=1_000):
        _ = 1 / 0
    assert lock.is_free(tmp_path / "l")


def test_shares_exclude_only_the_exclusive(tmp_path: Path) -> None:
    one, other = lock.open_lock(tmp_path / "l"), lock.open_lock(tmp_path / "l")
    assert lock.try_lock(one, shared=True)
    assert lock.try_lock(other, shared=True)
    assert lock.is_free(tmp_path / "l"), "a share is not somebody who holds it alone"
    assert not lock.try_lock(one)
    os.close(other)
    assert lock.try_lock(one), "the last share becomes exclusive"
    os.close(one)


def test_a_lock_ends_with_its_killed_holder(tmp_path: Path) -> None:
    program = """
import pathlib, sys, time
from rtmem.server import lock
print(lock.try_lock(lock.open_lock(pathlib.Path(sys.argv[1]))), flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "l")], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"True\n"
        assert not lock.is_free(tmp_path / "l")
        holder.kill()
    eventually(lambda: lock.is_free(tmp_path / "l"))


def test_an_inherited_lock_lives_as_long_as_the_heir(tmp_path: Path) -> None:
    descriptor = lock.open_lock(tmp_path / "l")
    assert lock.try_lock(descriptor)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[descriptor]) as heir:
        os.close(descriptor)
        assert not lock.is_free(tmp_path / "l")
        heir.communicate(b"\n")
    assert lock.is_free(tmp_path / "l")


def test_a_lock_file_that_cannot_be_opened_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(DataDirectoryError, match="cannot open"):
        lock.open_lock(tmp_path / "missing" / "l")
