"""Waiting for something to become true, with a deadline."""

from __future__ import annotations

from collections.abc import Callable

import anyio


async def eventually(condition: Callable[[], object], *, within_s: float = 5.0) -> None:
    """Returns once `condition()` is true. Raises TimeoutError."""
    with anyio.fail_after(within_s):
        while not condition():  # noqa: ASYNC110 - what is waited for belongs to the SDK or to another process
            await anyio.sleep(0.005)
