"""Does a saver get slower when the server holds many threads? Two servers, one nearly empty, one full.

The savers hold no heads here: that 1,000 threads fit into a client's memory and 1,000,000 do not is another question.
"""

from __future__ import annotations

import random
from contextlib import AsyncExitStack

import anyio
from langchain_core.runnables import RunnableConfig

from loadtest.checkpoint.operations import Bench
from loadtest.checkpoint.savers import Kind, Saver
from loadtest.checkpoint.states import SIZES, Put, Threads
from loadtest.servers import redis_server
from rtmem.loadtest import Contender, Experiment, Plan

FEW = 1_000
_TASKS = 128


async def many_threads(bench: Bench, kind: Kind, many: int) -> list[Experiment]:
    """put and get of `kind` among 1,000 threads and among `many`, on two servers that take turns."""
    source = random.Random(bench.seed)
    async with AsyncExitStack() as stack:
        places = []
        for count in (FEW, many):
            server = stack.enter_context(redis_server())
            saver = await stack.enter_async_context(kind.open(server.url))
            await _fill(bench, saver, count, source)
            places.append((f"{count:,} threads", count, server, saver))
        baseline = places[0][0]
        plan = Plan("", baseline=baseline, rounds=10, operations=100, seed=bench.seed)

        def read(saver: Saver, count: int) -> Contender:
            def place(_number: int) -> RunnableConfig:
                return {"configurable": {"thread_id": f"t{source.randrange(count)}", "checkpoint_ns": ""}}

            return Contender("", saver.aget_tuple, place)

        def write(saver: Saver, count: int) -> Contender:
            threads = Threads(saver)

            def place(_number: int) -> Put:
                values = SIZES["2 KB"](source)
                return threads.next(f"t{source.randrange(count)}", values, list(values))

            return Contender("", lambda put: saver.aput(*put), place)

        found = []
        for verb, make in (("aget_tuple", read), ("aput", write)):
            contenders = []
            for name, count, server, saver in places:
                made = make(saver, count)
                contenders.append(Contender(name, made.operation, made.prepare, server.pid))
            named = Plan(
                f"many threads, {kind.name}, {verb} 2 KB",
                baseline=baseline,
                rounds=plan.rounds,
                operations=plan.operations,
                seed=plan.seed,
            )
            found.append(await bench.measure(named, contenders))
        return found


async def _fill(bench: Bench, saver: Saver, count: int, source: random.Random) -> None:
    # One small state for all: what matters is how many keys and index entries there are.
    values = {"messages": SIZES["2 KB"](source)["messages"][:1], "step": 1}
    bench.bar.describe(f"filling a server with {count:,} threads")
    bench.bar.announce(_TASKS)

    async def work(first: int) -> None:
        threads = Threads(saver)
        for number in range(first, count, _TASKS):
            await saver.aput(*threads.next(f"t{number}", values, list(values)))
        bench.bar.step()

    async with anyio.create_task_group() as tasks:
        for first in range(_TASKS):
            tasks.start_soon(work, first)
