"""What a pointer costs in time, beside what anybody would write without it: SET and GET of the same bytes by redis-py.

Values are random, so that nothing compresses, and each is new, so that none is stored already. Both colours, each
beside redis-py of its colour. A bystander in a process of its own says what others feel meanwhile: once as the kernel
shares the processors between them, and once with the server and the bystander at a fixed priority, where only the
server's time counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, Final

import anyio
import redis
import redis.asyncio

from rtmem.loadtest import Contender, Experiment, Latency, Measured, Plan, Verdict, measure
from rtmem.pointers import AsyncPointers, Pointers
from rtmem.records import Pointer

SIZES: Final = {"10 KB": 10 * 1024, "1 MB": 1024 * 1024, "20 MB": 20 * 1024 * 1024}
_TARGETS: Final = {"10 KB": 1.5, "1 MB": 1.5, "20 MB": 2.0}
_ROUNDS: Final = {"10 KB": (20, 50), "1 MB": (15, 8), "20 MB": (8, 2)}  # rounds, operations of a turn
_SLICE_BYTES: Final = 4_096
_SLICE_RATIO_MAX: Final = 2.0
_BYSTANDER_S: Final = 1.0  # in each of so many rounds
_BYSTANDER_ROUNDS: Final = 5
_BYSTANDER_RATIO_MAX: Final = 1.5
_IDLE, _RAW, _OURS = "nobody else", "SET of 20 MB by others", "offload of 20 MB by others"
# What a third process costs by itself, where two cores are all there is, and what the same bytes cost at the least.
_BUSY, _STEPS = "others compute, without Redis", "SETs of 128 KB by others"
_DELETED: Final = "offload and deletion of 20 MB by others"
_STEP_BYTES: Final = 128 * 1024
_FIXED_PRIORITY: Final = 10


def latency(url: str, seed: int) -> list[Experiment]:
    """Offload, resolve and slice of both colours, and the bystander."""
    experiments = [*anyio.run(_beside_redis_py, url, seed), _bystander(url, seed, "bystander: p99 of small GETs", "")]
    with redis.Redis.from_url(url) as raw:
        server = int(raw.info("server")["process_id"])
    try:
        with _fixed_priority(server):
            name = "bystander, it and the server at a fixed priority: p99 of small GETs"
            experiments.append(_bystander(url, seed, name, "fixed"))
    except (PermissionError, AttributeError):
        pass  # only root may, and only on Linux
    return experiments


@contextmanager
def _fixed_priority(process: int) -> Iterator[None]:
    os.sched_setscheduler(process, os.SCHED_FIFO, os.sched_param(_FIXED_PRIORITY))
    try:
        yield
    finally:
        os.sched_setscheduler(process, os.SCHED_OTHER, os.sched_param(0))


def verdicts(experiments: Sequence[Experiment]) -> list[Verdict]:
    """The targets of each experiment that took part."""
    found = []
    for experiment in experiments:
        for row in experiment.rows:
            target = _target(experiment.name)
            if target is not None and row.contender in ("rtmem", _OURS):
                what = f"{experiment.name}, as a ratio to {experiment.baseline}"
                found.append(Verdict.of(what, target=target, measured=row.ratio, unit="x"))
    return found


def _target(name: str) -> float | None:
    if name.startswith("bystander"):
        return _BYSTANDER_RATIO_MAX
    if name.startswith(("slice", "aslice")):
        return _SLICE_RATIO_MAX
    return next((target for size, target in _TARGETS.items() if size in name), None)


# Beside redis-py -----------------------------------------------------------------------------------------------------


async def _beside_redis_py(url: str, seed: int) -> list[Experiment]:
    experiments: list[Experiment] = []
    raw, araw = redis.Redis.from_url(url), redis.asyncio.Redis.from_url(url)
    with raw, Pointers(url, principal="latency") as pointers:
        async with araw, AsyncPointers(url, principal="latency") as apointers:
            # Calls of both colours look the same to the engine.
            for prefix, ours, theirs in (
                ("a", Verbs.of_async(apointers), Verbs.of_async(araw)),
                ("", Verbs.of_sync(pointers), Verbs.of_sync(raw)),
            ):
                for size, count in SIZES.items():
                    experiments += await _of_size(prefix, size, count, ours, theirs, pointers, raw, seed)
    return experiments


class Verbs:
    """Verbs of pointers or of redis-py, all of them awaitable."""

    def __init__(self, verb: Callable[[str], Callable[..., Awaitable[Any]]]) -> None:
        self.verb = verb

    @classmethod
    def of_async(cls, thing: Any) -> Verbs:
        return cls(lambda name: getattr(thing, name))

    @classmethod
    def of_sync(cls, thing: Any) -> Verbs:
        def verb(name: str) -> Callable[..., Awaitable[Any]]:
            call = getattr(thing, name)

            async def done(*args: Any) -> Any:
                return call(*args)

            return done

        return cls(verb)


async def _of_size(
    prefix: str, size: str, count: int, ours: Verbs, theirs: Verbs, keeper: Pointers, raw: redis.Redis, seed: int
) -> list[Experiment]:
    random = Random(seed)
    rounds, operations = _ROUNDS[size]
    made: list[str] = []
    offload, resolve, part = (ours.verb(name) for name in ("offload", "resolve", "slice"))
    put, get = theirs.verb("set"), theirs.verb("get")

    async def offloaded(value: bytes) -> None:
        made.append((await offload(value)).id)

    def fresh(number: int) -> bytes:
        return number.to_bytes(8, "little") + random.randbytes(count - 8)

    def forget() -> None:
        # Between turns, not timed: memory must not grow with the run, and both write to memory that is new to Redis.
        if keys := list(raw.scan_iter(match="latency:*", count=1_000)):
            raw.unlink(*keys)
        while made:
            keeper.delete(made.pop())

    plan = {"rounds": rounds, "operations": operations, "warmup": 3, "seed": seed}
    stored = await measure(
        Plan(name=f"{prefix}offload {size}", baseline="redis-py SET", between_turns=forget, **plan),  # type: ignore[arg-type]
        [
            Contender("redis-py SET", lambda pair: put(*pair), lambda number: (f"latency:{number}", fresh(number))),
            Contender("rtmem", offloaded, fresh),
        ],
    )
    forget()
    value = fresh(2**40)
    pointer = (await offload(value)).id
    await put("latency:read", value)
    read = await measure(
        Plan(name=f"{prefix}resolve {size}", baseline="redis-py GET", **plan),  # type: ignore[arg-type]
        [
            Contender("redis-py GET", lambda _: get("latency:read")),
            Contender("rtmem", lambda _: resolve(pointer)),
        ],
    )
    experiments = [stored, read]
    if size == "20 MB":
        experiments.append(await _slices(prefix, count, part, pointer, put, get, random, seed))
    keeper.delete(pointer)
    forget()
    return experiments


async def _slices(
    prefix: str, count: int, part: Any, pointer: str, put: Any, get: Any, random: Random, seed: int
) -> Experiment:
    await put("latency:4k", random.randbytes(_SLICE_BYTES))
    return await measure(
        Plan(name=f"{prefix}slice 4 KB of 20 MB", baseline="redis-py GET 4 KB", rounds=20, operations=50, seed=seed),
        [
            Contender("redis-py GET 4 KB", lambda _: get("latency:4k")),
            Contender(
                "rtmem",
                lambda at: part(pointer, "bytes", at, _SLICE_BYTES),
                lambda _: random.randrange(count - _SLICE_BYTES),
            ),
        ],
    )


# The bystander -------------------------------------------------------------------------------------------------------


def _bystander(url: str, seed: int, name: str, priority: str) -> Experiment:
    """GETs of another process while others are at work with 20 MB, with nothing, or not at all, in turns."""
    random = Random(seed)
    values = [random.randbytes(SIZES["20 MB"]) for _ in range(4)]
    took: dict[str, list[float]] = {_IDLE: [], _BUSY: [], _RAW: [], _STEPS: [], _OURS: [], _DELETED: []}
    ratios: dict[str, list[float]] = {name: [] for name in took}
    made: list[Pointer] = []
    with redis.Redis.from_url(url) as raw, Pointers(url, principal="latency") as pointers:
        work: dict[str, Callable[[bytes], object]] = {
            _IDLE: lambda _: time.sleep(0.05),
            _BUSY: lambda _: _compute(0.05),
            _RAW: lambda value: raw.set("latency:big", value),
            _STEPS: lambda value: _set_in_steps(raw, value),
            _OURS: lambda value: made.append(pointers.offload(value)),
            _DELETED: lambda value: pointers.delete(pointers.offload(value)),
        }
        for _ in range(_BYSTANDER_ROUNDS):
            p99: dict[str, float] = {}
            for what in random.sample(list(work), len(work)):
                found = _watched(url, priority, lambda what=what: [work[what](value) for value in values])  # type: ignore[misc]
                took[what] += found
                p99[what] = Latency.of(found).p99_us
                while made:
                    pointers.delete(made.pop())
            for what, measured in p99.items():
                ratios[what].append(measured / p99[_IDLE])
        raw.unlink("latency:big", *raw.scan_iter(match="latency:step:*", count=1_000))
    rows = [
        Measured(contender=what, latency=Latency.of(found), ratio=sorted(ratios[what])[_BYSTANDER_ROUNDS // 2])
        for what, found in took.items()
    ]
    return Experiment(
        name=name,
        baseline=_IDLE,
        concurrency=1,
        rounds=_BYSTANDER_ROUNDS,
        operations=len(took[_IDLE]) // _BYSTANDER_ROUNDS,
        rows=rows,
        note=f"the ratio is that of p99, median of the rounds; three busy processes share {os.cpu_count()} processors",
    )


def _set_in_steps(raw: redis.Redis, value: bytes) -> None:
    for at in range(0, len(value), _STEP_BYTES):
        raw.set(f"latency:step:{at}", value[at : at + _STEP_BYTES])


def _compute(for_s: float) -> None:
    end = time.perf_counter() + for_s
    while time.perf_counter() < end:
        pass


def _watched(url: str, priority: str, work: Callable[[], object]) -> list[float]:
    """How long GETs of another process take, in us, while `work` is done again and again."""
    command = [sys.executable, "-c", _WATCH, url, str(_BYSTANDER_S), priority]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout is not None
        watcher.stdout.readline()  # it is at work
        while watcher.poll() is None:
            work()
        times: list[float] = json.loads(watcher.stdout.read())
    return times


_WATCH: Final = """
import json, os, sys, time, redis
if sys.argv[3] == "fixed":
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
client = redis.Redis.from_url(sys.argv[1])
client.set("latency:small", b"x" * 100)
print("ready", flush=True)
times, end = [], time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    begin = time.perf_counter_ns()
    client.get("latency:small")
    times.append((time.perf_counter_ns() - begin) / 1000)
    time.sleep(0.001)
print(json.dumps(times))
"""
