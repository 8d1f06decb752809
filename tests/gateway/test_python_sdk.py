"""The unmodified Python SDK against a real socket: what issue 2 promises of the gateway."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from langgraph_sdk import get_client

from tests.gateway.conftest import ServeGateway

pytestmark = pytest.mark.anyio


def said(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


async def tokens_of(thread: Any) -> list[list[str]]:
    """The tokens of each message of the run at work.

    A task for each message: iterating `message.text` inside `async for message in thread.messages` starves the SDK's
    own pump, and both wait for ever.
    """
    messages: list[list[str]] = []

    async def collect(message: Any, into: list[str]) -> None:
        async for token in message.text:
            into.append(token)

    async with anyio.create_task_group() as tasks:
        async for message in thread.messages:
            messages.append([])
            tasks.start_soon(collect, message, messages[-1])
    return messages


async def test_a_run_streams_its_message_token_by_token(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served:
        async with get_client(url=served.url, api_key="token-of-alice") as client:
            async with client.threads.stream("t", assistant_id="slow", transport="websocket") as thread:
                await thread.run.start(input=said("hello 8"))
                (tokens,) = await tokens_of(thread)
                output = await thread.output
        assert tokens == ["You said hello 8:", *(f" word{n}" for n in range(8))]
        assert output["messages"][-1]["content"][0]["text"] == "".join(tokens)
