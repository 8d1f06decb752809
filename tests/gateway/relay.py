"""A TCP relay between client and gateway that a test can cut, as a lift or a tunnel does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import ByteStream, SocketAttribute, TaskGroup


class Relay:
    """Forwards bytes until it has forwarded what it shall be cut after; then forwards again."""

    def __init__(self, target_port: int) -> None:
        self.url = ""
        self.cuts = 0
        self._target_port = target_port
        self._cut_after: list[bytes] = []
        self._open: set[anyio.CancelScope] = set()

    def cut_after(self, *words: bytes) -> None:
        """Break every connection once the first of `words` has gone through, again at the second, and so on."""
        self._cut_after = list(words)

    def _cut(self) -> None:
        """Break every connection, without a goodbye."""
        self.cuts += 1
        for scope in tuple(self._open):
            scope.cancel()

    async def _serve(self, client: ByteStream) -> None:
        with anyio.CancelScope() as scope:
            self._open.add(scope)
            try:
                async with client, await anyio.connect_tcp("127.0.0.1", self._target_port) as server:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._pump, client, server, tasks)
                        tasks.start_soon(self._pump, server, client, tasks)
            except OSError:
                return  # the gateway is not there: the client sees a connection that closes
            finally:
                self._open.discard(scope)

    async def _pump(self, source: ByteStream, sink: ByteStream, tasks: TaskGroup) -> None:
        try:
            async for data in source:
                await sink.send(data)
                if self._cut_after and self._cut_after[0] in data:
                    del self._cut_after[0]
                    self._cut()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def relay_to(url: str) -> AsyncIterator[Relay]:
    relay = Relay(int(url.rsplit(":", 1)[1]))
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    relay.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, relay._serve)
        yield relay
        tasks.cancel_scope.cancel()
