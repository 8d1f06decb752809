"""The tests of LangGraph's packages: they are in the source distributions, not in the wheels."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rtmem-langgraph-suite"


class SuiteError(Exception):
    """The suite could not be run; says what to do."""


def unpacked_tests(cache: Path, package: str) -> Path:
    """Folder that holds `tests/` of the installed `package`; downloaded on first use, by one process at a time."""
    folder = cache / f"{package}-{version(package)}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "tests").is_dir():
            _download(cache, folder, package)
    return folder


def _download(cache: Path, folder: Path, package: str) -> None:
    wanted = version(package)
    command = [sys.executable, "-m", "pip", "download", f"{package}=={wanted}", "--no-deps", "--no-binary", ":all:"]
    done = subprocess.run([*command, "--quiet", "--dest", str(cache)], capture_output=True, text=True, check=False)
    # Newer build backends write the name with underscores.
    stem = next(
        (name for name in (package, package.replace("-", "_")) if (cache / f"{name}-{wanted}.tar.gz").is_file()), ""
    )
    if done.returncode or not stem:
        raise SuiteError(f"{' '.join(command)} failed: {done.stderr[-800:]}\nCheck that pip reaches its index.")
    with tempfile.TemporaryDirectory(dir=cache) as staging, tarfile.open(cache / f"{stem}-{wanted}.tar.gz") as tar:
        # Only the tests: the package itself must be the installed one, not the copy beside the tests.
        members = [m for m in tar.getmembers() if m.name.startswith(f"{stem}-{wanted}/tests/")]
        tar.extractall(staging, members=members, filter="data")
        # A configuration of their own, so that pytest does not climb up to another project's.
        (Path(staging) / f"{stem}-{wanted}" / "pytest.ini").write_text("[pytest]\n", "utf-8")
        (Path(staging) / f"{stem}-{wanted}").rename(folder)
