"""`rtmem up` as its users run it, in a process of its own: Redis, supervisor and gateway, on a disk of ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import httpx

from rtmem.server import address, directory
from rtmem.settings import Profile

PRINCIPAL: Final = "local"  # of the token that `rtmem up` makes
_TIMEOUT_S: Final = 60.0
_ROOT: Final = Path(__file__).parents[2]


class RtmemUp:
    """Running, and answering, once this is made. `kill` at the latest at the end."""

    def __init__(self, profile: Profile, data_dir: Path, folder: Path, environment: Mapping[str, str]) -> None:
        self.data_dir = data_dir
        self._log = folder / "up.log"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RTMEM_")}
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rtmem", "up", "--profile", profile, "--data-dir", str(data_dir), "--port", "0"],
                env={**kept, "PYTHONPATH": str(_ROOT), "NO_COLOR": "1", "RTMEM_AGENT__MEMORY": "thread", **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the lab
            )
        try:
            self.url = self._wait_until_it_answers()
        except BaseException:
            self.kill()
            raise
        self.redis_url = address.url(directory.locate(str(data_dir)))
        self.token = (data_dir / "token").read_text().strip()

    def _wait_until_it_answers(self) -> str:
        deadline_s = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline_s and self._process.poll() is None:
            for line in self.output().splitlines():
                if line.startswith("Gateway "):
                    url = line.split()[-1]
                    with suppress(httpx.TransportError):
                        httpx.get(f"{url}/ok")
                        return url
            time.sleep(0.02)
        raise TimeoutError(f"rtmem up has not started within {_TIMEOUT_S:.0f} s:\n{self.output()}")

    def output(self) -> str:
        """Everything it has printed."""
        return self._log.read_text()

    def kill(self) -> None:
        """kill -9 of the gateway with its supervisor, and then of Redis; returns when all are gone.

        Nothing of the data directory is read: the disk below it may be gone by then.
        """
        self._process.kill()
        self._process.wait()
        while servers := [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._is_ours(pid)]:
            for pid in servers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)

    def _is_ours(self, pid: int) -> bool:
        # A redis-server is called by its file first, and then names itself by its socket; both are in the directory.
        try:
            return os.fsencode(self.data_dir) in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False  # it has ended meanwhile, or is a stranger's
