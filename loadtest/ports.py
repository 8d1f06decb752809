"""Ports for servers that talk to each other, in benchmarks and in tests."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from typing import Final

_ports: Final = iter(random.sample(range(10_000, 20_000), 10_000))


def free_port() -> int:
    """A port that nobody listens on, for a server that is started later, or comes back under its address.

    Each is given out once, and below those that the kernel gives to clients: one of them could have taken it meanwhile,
    or a client that tries a port where nobody listens yet could meet itself. A cluster's bus port is 10,000 above.
    """
    for port in _ports:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError("all ports from 10,000 to 20,000 are taken")
