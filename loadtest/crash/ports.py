"""Ports for servers that talk to each other."""

from __future__ import annotations

import random
import socket
from typing import Final

_RANGE: Final = (10_000, 32_000)  # below those that Linux gives to outgoing connections, which come at any moment


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    while True:
        port = random.randrange(*_RANGE)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
