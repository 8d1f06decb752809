"""Where a number was measured, and what the processes of a run have used."""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rtmem.loadtest.records import Machine


def describe_machine() -> Machine:
    """This machine and this Python; call it inside the event loop that is measured."""
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        event_loop=type(asyncio.get_event_loop()).__module__,
        load_1min=round(os.getloadavg()[0], 2),
    )


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Installed versions; a package that is absent is left out."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def peak_rss_bytes() -> int:
    """The most memory this process ever held, everything in it included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def cpu_us_of(pid: int) -> float | None:
    """CPU time of a local process and its living children, all threads, in µs; None where there is no /proc.

    Children count because Postgres works in one process per connection.
    """
    try:
        return sum(_own_cpu_us(member) for member in (pid, *_children(pid)))
    except OSError:
        return None


def _own_cpu_us(pid: int) -> float:
    # schedstat counts nanoseconds; the better known stat counts ticks of 10 ms, longer than a whole turn.
    total_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total_ns += int((task / "schedstat").read_text("ascii").split()[0])
    return total_ns / 1000


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text("ascii").split():
            found += [int(child), *_children(int(child))]
    return found


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
