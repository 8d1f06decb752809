"""Ports for servers that talk to each other, in benchmarks and in tests."""

from __future__ import annotations

import os
import random
import socket
from contextlib import suppress
from typing import Final


def _own_range() -> range:
    """Test processes that run side by side (pytest-xdist) draw from a part each: a port is free until it is used."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    size = 10_000 // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return range(10_000 + worker * size, 10_000 + (worker + 1) * size)


_ports: Final = iter(sorted(_own_range(), key=lambda _: random.random()))


def free_port() -> int:
    """A port that nobody listens on, for a server that is started later, or comes back under its address.

    Each is given out once, and below those that the kernel gives to clients: one of them could have taken it meanwhile,
    or a client that tries a port where nobody listens yet could meet itself. A cluster's bus port is 10,000 above.
    """
    for port in _ports:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError("all ports from 10,000 to 20,000 are taken")
