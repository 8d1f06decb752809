"""A tap on the wire between a client and its Redis: round trips and bytes, counted whatever the client library does.

A round trip is a change of direction: something is sent after something was received. A pipeline of a hundred commands
is one, a reply in many pieces is one. The server's own `commandstats` could not tell a pipeline from a conversation.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass(slots=True)
class Tap:
    """What has passed since the last `reset`."""

    url: str = ""
    round_trips: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0

    def reset(self) -> None:
        self.round_trips = self.sent_bytes = self.received_bytes = 0


@asynccontextmanager
async def tapped(url: str) -> AsyncIterator[Tap]:
    """A unix socket that leads to the one in `url`, and counts."""
    target = unquote(urlsplit(url).path)
    tap = Tap()
    conversations: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(target)
        task = asyncio.current_task()
        assert task is not None
        conversations[task] = (writer, far_writer)
        answered = True

        async def forth() -> None:
            nonlocal answered
            while data := await reader.read(1 << 18):
                tap.round_trips += answered
                answered = False
                tap.sent_bytes += len(data)
                far_writer.write(data)
                await far_writer.drain()
            far_writer.close()

        async def back() -> None:
            nonlocal answered
            while data := await far_reader.read(1 << 18):
                answered = True
                tap.received_bytes += len(data)
                writer.write(data)
                await writer.drain()
            writer.close()

        # Either end may hang up at any moment, and that ends both directions.
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(forth(), back())
        del conversations[task]

    with tempfile.TemporaryDirectory(prefix="rtmem-tap-") as folder:
        socket = Path(folder) / "tap.sock"
        server = await asyncio.start_unix_server(converse, str(socket))
        tap.url = f"unix://{socket}?db=0"
        try:
            yield tap
        finally:
            server.close()
            for writers in conversations.values():
                for writer in writers:
                    writer.close()
            await asyncio.gather(*conversations)
            await server.wait_closed()
