"""How long work keeps the event loop from everybody else."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable

TICK_MS = 0.5


async def longest_stall_ms(work: Callable[[], Awaitable[object]], *, collect_garbage: bool = True) -> float:
    """The longest time beyond its appointment that a ticker had to wait while `work` ran.

    Args:
        collect_garbage: False keeps the garbage collector out, to tell its stalls from those of the work itself.
    """
    loop = asyncio.get_running_loop()
    longest_s = 0.0
    due_s = time.perf_counter()
    handle: asyncio.TimerHandle | None = None

    def tick() -> None:
        nonlocal longest_s, due_s, handle
        now_s = time.perf_counter()
        longest_s = max(longest_s, now_s - due_s)
        due_s = now_s + TICK_MS / 1000
        handle = loop.call_later(TICK_MS / 1000, tick)

    gc.collect()
    was_enabled = gc.isenabled()
    if not collect_garbage:
        gc.disable()
    try:
        # The clock starts with the first tick; until then nothing is late.
        due_s = time.perf_counter()
        tick()
        await work()
        # Work that never yielded has left the ticker no chance to notice.
        longest_s = max(longest_s, time.perf_counter() - due_s)
    finally:
        if handle is not None:
            handle.cancel()
        if was_enabled:
            gc.enable()
    return longest_s * 1000
