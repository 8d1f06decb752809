"""Waiting for something to become true, with a deadline that only a hang reaches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

PATIENCE_S: Final = 60.0


async def eventually(condition: Callable[[], object]) -> None:
    """Returns once `condition()` is true. Raises TimeoutError."""
    with anyio.fail_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for belongs to the SDK or to another process
            await anyio.sleep(0.005)
