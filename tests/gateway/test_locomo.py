"""Real conversations through the gateway: what people say in LoCoMo, turn by turn.

The data set (Maharana et al., 2024) is CC BY-NC and not part of this repository. Give its JSON file with
`--locomo PATH` or RTMEM_LOCOMO; without it these tests are skipped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from langgraph_sdk import get_client

from rtmem.agent import demo
from rtmem.cli.states import text_of
from tests.gateway.conftest import ServeGateway

pytestmark = pytest.mark.anyio

SESSIONS_MAX = 3  # of each conversation
CONVERSATIONS_MAX = 3


def sessions_of(path: Path) -> dict[str, list[str]]:
    """Thread id -> what one speaker says in one session, in order."""
    sessions: dict[str, list[str]] = {}
    for sample in json.loads(path.read_text("utf-8"))[:CONVERSATIONS_MAX]:
        conversation = sample["conversation"]
        for number in range(1, SESSIONS_MAX + 1):
            turns = conversation.get(f"session_{number}", [])
            words = [turn["text"] for turn in turns if turn["speaker"] == conversation["speaker_a"]]
            sessions[f"{sample['sample_id']}/session {number}"] = words
    return sessions


@pytest.fixture
def sessions(request: pytest.FixtureRequest) -> dict[str, list[str]]:
    path = request.config.getoption("--locomo")
    if not path:
        pytest.skip("LoCoMo is not here: give its JSON file with --locomo PATH or RTMEM_LOCOMO")
    return sessions_of(Path(path))


async def hold(client: Any, thread_id: str, words: list[str]) -> None:
    """Say all of it, each turn on a connection of its own; every turn must be answered and stored."""
    for number, said in enumerate(words, start=1):
        async with client.threads.stream(thread_id, assistant_id="demo", transport="websocket") as thread:
            await thread.run.start(input={"messages": [{"role": "user", "content": said}]})
            messages = (await thread.output)["messages"]
        spoken = [message for message in messages if message["type"] == "human"]
        assert (len(spoken), spoken[-1]["content"]) == (number, said)
        assert messages[-1]["type"] == "ai"
        assert text_of(messages[-1])


async def test_every_turn_is_answered_checkpointed_and_resumable(
    serve_gateway: ServeGateway, sessions: dict[str, list[str]]
) -> None:
    assert sum(map(len, sessions.values())) >= 50
    async with serve_gateway(graphs={"demo": demo.graph()}) as served:
        async with get_client(url=served.url, api_key="token-of-alice") as client, anyio.create_task_group() as tasks:
            for thread_id, words in sessions.items():
                tasks.start_soon(hold, client, thread_id, words)

    # Another gateway process would know nothing but what is in Redis: so does this one.
    async with serve_gateway(graphs={"demo": demo.graph()}) as served:
        async with get_client(url=served.url, api_key="token-of-alice") as client:
            for thread_id, words in sessions.items():
                state: Any = await client.threads.get_state(thread_id)
                kept = [message["content"] for message in state["values"]["messages"] if message["type"] == "human"]
                assert kept == words
                assert not state["next"]
                await hold_once_more(client, thread_id, len(words))


async def hold_once_more(client: Any, thread_id: str, turns: int) -> None:
    async with client.threads.stream(thread_id, assistant_id="demo", transport="websocket") as thread:
        await thread.run.start(input={"messages": [{"role": "user", "content": "what is 6*7?"}]})
        messages = (await thread.output)["messages"]
    assert text_of(messages[-1]) == "6*7 = 42."
    assert len([message for message in messages if message["type"] == "human"]) == turns + 1
