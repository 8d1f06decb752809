"""`python -m loadtest crash` as a process: ends in verdicts and files, and leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from loadtest.crash.outcome import Report

ROOT = Path(__file__).parents[3]


@pytest.fixture
def scratch() -> Iterator[Path]:
    # Not pytest's tmp_path: its long names would push the sockets out of their directories.
    made = Path(tempfile.mkdtemp(prefix="rtmem-lab-"))
    yield made
    shutil.rmtree(made)


def started(scratch: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "loadtest", "crash", "--out", str(scratch / "results"), *arguments]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    # A shell makes what it starts in the background deaf to SIGINT, tests and all they start.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, preexec_fn=heard)


def left_behind(scratch: Path) -> list[str]:
    """Mounts, loop devices, servers and folders of a run that is over."""
    found = [line for line in Path("/proc/mounts").read_text().splitlines() if str(scratch) in line]
    found += [str(path) for path in scratch.glob("rtmem-crash-*")]
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        found += [line for line in backing.read_text().splitlines() if str(scratch) in line]
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:  # it has just ended
            continue
        found += [words] if str(scratch) in words else []
    return found


@pytest.mark.timeout(600)
def test_a_run_ends_in_verdicts_and_in_a_file_that_reads_back(scratch: Path) -> None:
    run = started(scratch, "--only", "relaxed", "--cuts", "1", "--seed", "5")
    printed, _ = run.communicate()
    report = msgspec.json.decode((scratch / "results" / "crash.json").read_bytes(), type=Report)
    assert run.returncode == 0, printed
    assert all(one.kept for one in report.verdicts)
    assert {one.volume for one in report.outcomes} >= ({"shim"} if shutil.which("cc") else set())
    assert all(one.lost and one.seed.startswith("5/relaxed") for one in report.outcomes)
    assert len(report.outcomes) + len(report.not_covered) == 3
    assert "repeat with --seed 5" in printed
    assert left_behind(scratch) == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_broken_off_leaves_nothing_behind(how: signal.Signals, scratch: Path) -> None:
    run = started(scratch, "--only", "durable", "--cuts", "1000")
    deadline = time.monotonic() + 300
    while not list(scratch.rglob("redis.sock")):
        assert run.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.3)  # anywhere: before, in, or after the cut
    run.send_signal(how)
    run.communicate()
    assert run.returncode == 130
    assert left_behind(scratch) == []
