"""Contenders on one server must not disturb each other, or they would be measured doing work that nobody does."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack

import pytest
import redis

from loadtest.checkpoint.savers import rtmem_kinds
from loadtest.checkpoint.states import Threads, message, messages
from loadtest.tap import tapped

pytestmark = pytest.mark.anyio


async def test_savers_that_put_in_turns_on_one_thread_id_send_only_what_is_new(
    redis_url: str, redis_client: redis.Redis
) -> None:
    source = random.Random(1)
    async with AsyncExitStack() as stack:
        talks = []
        for kind in rtmem_kinds():
            tap = await stack.enter_async_context(tapped(redis_url))
            saver = await stack.enter_async_context(kind.open(tap.url))
            talks.append((tap, saver, Threads(saver), messages(300, source)))
        for turn in range(4):
            for tap, saver, threads, talk in talks:
                talk.append(message(0, source))
                tap.reset()
                await saver.aput(*threads.next("one", {"messages": talk}, ["messages"]))
                # The first put sends everything, a hundred times as much.
                assert turn == 0 or tap.sent_bytes < 3_000
