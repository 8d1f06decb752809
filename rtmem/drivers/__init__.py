"""The two drivers: they answer what operations ask for, blocking or awaiting."""

from rtmem.drivers.aio import AsyncDriver
from rtmem.drivers.sync import SyncDriver

__all__ = ["AsyncDriver", "SyncDriver"]
