"""Whom a run is for, as a gateway says it: in the run's config, under a name that no client can set.

No checkpoint keeps that name. What keeps answers asks here whose they are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, Self, TypeVar

from rtmem.errors import ConfigError

SERVED: Final = "__rtmem_served"
"""In `configurable` of a run. Names that begin so are never a client's to set, and no checkpoint keeps them."""

SHARED: Final = "shared:"
"""What the principal of answers for everybody begins with, and no principal of a gateway's."""

_logger: Final = logging.getLogger(__name__)


class _Bindable(Protocol):
    def bind(self, principal: str) -> Self: ...


C = TypeVar("C", bound=_Bindable)


class _Gateways:
    """Of this process."""

    at_work = 0
    warned = False


@contextmanager
def gateway_at_work() -> Iterator[None]:
    """Meanwhile, who asks is somebody in particular: what keeps answers keeps none if it cannot tell whose."""
    _Gateways.at_work += 1
    try:
        yield
    finally:
        _Gateways.at_work -= 1


def served_in_run() -> Any:
    """What the gateway says to the run at work; None if it is none of a gateway's."""
    from langchain_core.runnables.config import ensure_config

    return (ensure_config().get("configurable") or {}).get(SERVED)


def principal_of_run() -> str | None:
    """Who was authenticated, for the run at work; None if it is none of a gateway's."""
    principal = getattr(served_in_run(), "principal", None)
    return principal if isinstance(principal, str) else None


def check_shared(principal: str) -> None:
    """Whether answers of `principal` may be for everybody: no user is called so. Raises ConfigError."""
    if not principal.startswith(SHARED):
        raise ConfigError(
            f"shared=True, and the cache is of principal {principal!r}: what is for everybody must not be among "
            f"what is a user's; bind it to a name that begins with {SHARED!r}, such as cache.bind('{SHARED}faq')"
        )


def of_whoever_asks(cache: C) -> C | None:
    """`cache`, bound to whoever is served by the run at work; as it is in a program without a gateway.

    None: a gateway is at work here, but this call does not belong to any of its runs (a thread that was started without
    the run's context): whose answer it would be is unknown, so there is none. A warning says so once.
    """
    principal = principal_of_run()
    if principal is not None:
        return cache.bind(principal)
    if not _Gateways.at_work:
        return cache
    if not _Gateways.warned:
        _Gateways.warned = True
        _logger.warning(
            "a model is called outside of the runs of this gateway, or in a thread without their context "
            "(contextvars.copy_context().run): whose answer that is cannot be told, so it is not cached; "
            "shared=True keeps answers for everybody (told once)"
        )
    return None
