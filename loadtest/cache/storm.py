"""The storm: many ask the same at once, in several processes, and nobody has the answer yet.

The model is a program that counts its calls at Redis and takes 300 ms. Without a cache that lets one compute for all,
every one of them calls it. In the second storm the process that computes is killed while it does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
import redis.asyncio

from loadtest.cache_asking import Told, until
from rtmem.loadtest import Experiment, Measured
from rtmem.loadtest.console import Bar

NAME: Final = "storm"
PROCESSES, ASKING_EACH = 4, 50
CALM, KILLED = "one computes", "the one who computes is killed"
CALLS_MAX: Final = {CALM: 1, KILLED: 2}
_MODEL_S: Final = 0.3
_DEADLINE_S: Final = 120.0
_ROOT: Final = Path(__file__).parents[2]


async def storm(url: str, bar: Bar, processes: int = PROCESSES) -> Experiment:
    """Both storms."""
    asking = processes * ASKING_EACH
    bar.announce(2)
    rows = []
    for number, name in enumerate((CALM, KILLED)):
        bar.describe(f"{NAME}: {name}")
        rows.append(await _one(url, f"storm {number}", name, processes, kill=name == KILLED))
        bar.step()
    return Experiment(
        name=NAME,
        baseline="",
        concurrency=asking,
        rounds=1,
        operations=asking,
        rows=rows,
        note=f"{asking} tasks in {processes} processes ask the same at once; the model takes {_MODEL_S * 1000:.0f} ms; "
        "deadlines of the cache are long, because who gives up on Redis calls the model",
    )


async def _one(url: str, question: str, name: str, count: int, *, kill: bool) -> Measured:
    connection: Any = redis.asyncio.Redis.from_url(url)
    async with connection as client:
        command = [
            sys.executable,
            "-m",
            "loadtest.cache_asking",
            url,
            question,
            str(ASKING_EACH),
            str(_MODEL_S),
        ]
        options: dict[str, Any] = {"stdout": asyncio.subprocess.PIPE, "cwd": _ROOT}
        processes = [await asyncio.create_subprocess_exec(*command, **options) for _ in range(count)]
        try:
            await until(client, f"{question}:ready", count)
            await client.set(f"{question}:go", 1)
            if kill:
                await until(client, f"{question}:calls", 1)
                os.kill(int(await client.get(f"{question}:caller")), signal.SIGKILL)
            told = await asyncio.wait_for(asyncio.gather(*(_told(process) for process in processes)), _DEADLINE_S)
        finally:
            for process in processes:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        calls = int(await client.get(f"{question}:calls"))
    answers = [answer for each in told if each is not None for answer in each.answers]
    facts = {
        "model calls": float(calls),
        "answers": float(len(answers)),
        "different answers": float(len(set(answers))),
        "longest wait ms": max(each.longest_ms for each in told if each is not None),
    }
    return Measured(contender=f"rtmem: {name}", facts=facts)


async def _told(process: asyncio.subprocess.Process) -> Told | None:
    """None if it was killed."""
    said, _ = await process.communicate()
    return msgspec.json.decode(said, type=Told) if process.returncode == 0 else None
