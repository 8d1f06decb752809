"""The log that lets a client resume a stream."""

from rtmem.eventlog.aio import AsyncEventLog

__all__ = ["AsyncEventLog"]
