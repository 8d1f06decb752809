"""A gateway in a process of its own, to be killed. Prints its URL, then serves until a signal.

python -m tests.gateway.process '{"redis": {...}, "gateway": {...}}' pause_ms
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from rtmem import settings as settings_
from rtmem.checkpoint import AsyncRedisSaver
from rtmem.drivers import AsyncDriver
from rtmem.gateway import create_app, run
from rtmem.settings import Settings
from tests.gateway.graphs import all_graphs

ROOT = Path(__file__).parents[2]


def main(encoded: str) -> None:
    settings = msgspec.json.decode(encoded, type=settings_.Settings)

    @asynccontextmanager
    async def app() -> AsyncIterator[Any]:
        async with await AsyncDriver.connect(settings.redis.url, settings.redis) as driver:
            yield create_app(all_graphs(), driver, AsyncRedisSaver(driver=driver), settings)

    run(app, settings, on_started=lambda url: print(url, flush=True))


class GatewayProcess:
    """Starts, kills and restarts a gateway on one port."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.url = ""
        self._process: subprocess.Popen[str] | None = None

    @property
    def ws_url(self) -> str:
        return self.url.replace("http", "ws", 1)

    def start(self) -> None:
        encoded = msgspec.json.encode(self.settings).decode()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.gateway.process", encoded],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url, "the gateway did not start; its error is above"
        port = int(self.url.rsplit(":", 1)[1])
        self.settings = msgspec.structs.replace(
            self.settings, gateway=msgspec.structs.replace(self.settings.gateway, port=port)
        )

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        return self._end(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(number)
        code = self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None
        return code


if __name__ == "__main__":
    main(*sys.argv[1:])
