"""Frees pointers that are over, in the background of a gateway; of several on one Redis, one at a time."""

from __future__ import annotations

import logging
import secrets
from typing import Final

import anyio

from rtmem.drivers import AsyncDriver
from rtmem.errors import RtmemError
from rtmem.keys import Keys
from rtmem.operations.leases import take_lease
from rtmem.operations.pointer_sweeps import sweep_all
from rtmem.settings import Pointers

_logger: Final = logging.getLogger(__name__)


class Sweeper:
    """Sweeps once in every interval, if no other process has done it in this one."""

    def __init__(self, driver: AsyncDriver, settings: Pointers, interval_ms: int) -> None:
        self._driver = driver
        self._settings = settings
        self._interval_ms = interval_ms
        self._name = secrets.token_hex(8)
        self._cursor = b"0"

    async def run(self) -> None:
        """Until cancelled; not at all with an interval of 0."""
        while self._interval_ms:
            await anyio.sleep(self._interval_ms / 1_000)
            try:
                await self.sweep_once()
            except RtmemError as exc:
                # Nothing is lost: what is over cannot be read any more, and the next round frees it.
                _logger.warning("pointers could not be swept: %s", exc)

    async def sweep_once(self) -> bool:
        """A bounded piece of work, if it is this process's turn; answers whether it was. Raises ServerError."""
        lease = Keys(self._settings.prefix).pointer_sweeper
        if not await self._driver.run(take_lease(lease, self._name, self._interval_ms)):
            return False
        self._cursor, _ = await self._driver.run(sweep_all(self._settings, self._cursor))
        return True
