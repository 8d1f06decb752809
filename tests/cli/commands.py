"""Runs the `rtmem` command as its users do: as a process, with an environment of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from rtmem.server import embedded
from rtmem.settings import Server
from tests.drivers.processes import free_port

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60


def environment(home: Path, **variables: str) -> dict[str, str]:
    """A user without settings, whose home is `home`; the demo keeps what it is told in the thread, unless asked to."""
    variables = {"RTMEM_AGENT__MEMORY": "thread", **variables}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RTMEM_", "XDG_"))}
    return {**kept, "HOME": str(home), "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "100", **variables}


def rtmem(
    *arguments: str | Path, env: Mapping[str, str], given: str = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """One command to its end, with `given` on its standard input."""
    return subprocess.run(
        [sys.executable, "-m", "rtmem", *map(str, arguments)],
        env=dict(env),
        input=given,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


class Up:
    """`rtmem up` (or `serve`) as a process that a test may kill. As a context manager it is stopped in good order."""

    def __init__(
        self,
        *arguments: str | Path,
        env: Mapping[str, str],
        data_dir: Path,
        cwd: Path | None = None,
        answers: bool = True,
    ) -> None:
        self.data_dir = data_dir
        self._answers = answers  # has a gateway that can be asked whether it is there
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [*(arguments or ("up",)), "--data-dir", data_dir, "--port", self.port]
        self._env = dict(env)
        self._cwd = cwd
        self.process: subprocess.Popen[str] | None = None

    def start(self, **variables: str) -> None:
        """Start it, with these environment variables on top, and wait until it answers."""
        with (self.data_dir.parent / "up.log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rtmem", *map(str, self._command)],
                env={**self._env, **variables},
                cwd=self._cwd,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            if self._is_there():
                return
            time.sleep(0.05)

    def _is_there(self) -> bool:
        if not self._answers:
            return "Ctrl-C" in self.output()
        try:
            return httpx.get(f"{self.url}/ok").status_code == 200
        except httpx.TransportError:
            return False

    def kill_everything(self) -> None:
        """kill -9 of the gateway and of its Redis."""
        assert self.process is not None
        self.process.kill()
        os.kill(int((self.data_dir / "redis.pid").read_text()), signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """Ctrl-C; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(TIMEOUT_S)

    @property
    def token(self) -> str:
        return (self.data_dir / "token").read_text().strip()

    def output(self) -> str:
        """Everything it has printed."""
        return (self.data_dir.parent / "up.log").read_text()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()
        embedded.stop(Server(data_dir=str(self.data_dir)))
