"""Which process does what only one at a time should do, in the background of several."""

from __future__ import annotations

from rtmem.steps import Batch, Steps


def take_lease(key: str, holder: str, ttl_ms: int) -> Steps[bool]:
    """Whether it is this process's turn for the next `ttl_ms`; a lease is never given back. Redis: 1 round trip."""
    (taken,) = yield Batch((("SET", key, holder, "NX", "PX", ttl_ms),))
    return taken is not None
