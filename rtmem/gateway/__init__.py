"""A websocket endpoint that speaks LangChain's agent streaming protocol for compiled graphs."""

from rtmem.gateway.app import create_app
from rtmem.gateway.server import run

__all__ = ["create_app", "run"]
