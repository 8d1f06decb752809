"""The savers' single operations against the floor: put, put_writes, get_tuple."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver

from loadtest.checkpoint.floor import Encoded, Floor
from loadtest.checkpoint.savers import Saver, Subject
from loadtest.checkpoint.states import SIZES, Put, Threads, message, messages
from loadtest.servers import Server
from rtmem.loadtest import Contender, Experiment, Plan, measure
from rtmem.loadtest.console import Bar

BASELINE = "floor+serde"


@dataclass(slots=True)
class Bench:
    """What every experiment needs."""

    floor: Floor
    server: Server
    subjects: list[Subject]  # as an application opens them
    cold: list[Subject]  # the same, but rtmem's hold no heads: every read is a whole one
    bar: Bar
    seed: int
    scale: float = 1.0  # of the number of rounds
    stall_operations: int = 5
    notes: list[str] = field(default_factory=list)

    async def measure(self, plan: Plan, contenders: Sequence[Contender]) -> Experiment:
        """Measure, and show it."""
        self.bar.describe(f"{plan.name}, c={plan.concurrency}")
        self.bar.announce(plan.rounds * len(contenders))
        found = await measure(plan, contenders, on_turn=self.bar.step)
        for row in found.rows:
            if row.errors:
                where = f"{found.name}, c={found.concurrency}: {row.contender}"
                self.notes.append(f"{where} failed {row.errors} operations: {row.first_error}")
        return found

    def plan(self, name: str, rounds: int, operations: int, *, concurrency: int = 1, stalls: bool = False) -> Plan:
        return Plan(
            name,
            baseline=BASELINE,
            rounds=max(2, round(rounds * self.scale)),
            operations=operations,
            warmup=max(2, concurrency),
            concurrency=concurrency,
            seed=self.seed,
            stall_operations=self.stall_operations if stalls else 0,
        )


class Task(NamedTuple):
    """The arguments of one `aput_writes`."""

    config: RunnableConfig
    writes: list[tuple[str, Any]]
    task_id: str


# state -> (rounds, operations a turn)
TURNS = {"2 KB": (12, 40), "50 KB": (10, 15), "1 MB list": (7, 3), "1 MB string": (7, 3)}


def crowd_turns(concurrency: int) -> tuple[int, int]:
    """(rounds, operations a turn) for many tasks at once: at least one and a half operations for each."""
    return 3, max(192, concurrency * 3 // 2)


async def put_whole(bench: Bench, size: str, *, concurrency: int = 1) -> Experiment:
    """aput of a state in which every channel and every message is new."""
    rounds, operations = TURNS[size] if concurrency == 1 else crowd_turns(concurrency)
    plan = bench.plan(
        f"aput, whole state new, {size}",
        rounds,
        operations,
        concurrency=concurrency,
        stalls=size.startswith("1 MB") and concurrency == 1,
    )

    def prepare_for(threads: Threads, label: str) -> Callable[[int], Put]:
        source = random.Random(f"{bench.seed} {label} {size} {concurrency}")

        def prepare(number: int) -> Put:
            values = SIZES[size](source)
            return threads.next(f"put {size} {concurrency} {number % concurrency}", values, list(values))

        return prepare

    return await bench.measure(plan, _put_contenders(bench, prepare_for))


async def put_appended(bench: Bench) -> Experiment:
    """aput after one message was appended to the list of 2,500.

    Every message is a copy, down to its nested values, as after a graph has loaded its state: a saver cannot tell from
    an object's identity that nothing was edited in place.
    """
    rounds, operations = TURNS["1 MB list"]
    plan = bench.plan("aput, one message appended to 1 MB list", rounds, operations, stalls=True)

    def prepare_for(threads: Threads, label: str) -> Callable[[int], Put]:
        source = random.Random(f"{bench.seed} {label} appended")
        talk = messages(2_500, source)

        def prepare(number: int) -> Put:
            talk.append(message(number, source))
            return threads.next("appended", {"messages": copy.deepcopy(talk), "step": number}, ["messages", "step"])

        return prepare

    found = await bench.measure(plan, _put_contenders(bench, prepare_for))
    for subject in bench.subjects:
        await _check_edit(bench, subject)
    return found


def _put_contenders(bench: Bench, prepare_for: Callable[[Threads, str], Callable[[int], Put]]) -> list[Contender]:
    async def aput(saver: Saver, put: Put) -> None:
        await saver.aput(*put)

    make_put = prepare_for(Threads(InMemorySaver()), "floor")

    def encoded(number: int) -> Encoded:
        return bench.floor.encode(make_put(number))

    prepare = prepare_for(Threads(InMemorySaver()), "serde")
    contenders = [
        Contender("floor", bench.floor.put, encoded, bench.server.pid),
        Contender(BASELINE, bench.floor.put_with_serde, prepare, bench.server.pid),
    ]
    for subject in bench.subjects:
        prepare = prepare_for(Threads(subject.saver), subject.name)
        contenders.append(Contender(subject.name, partial(aput, subject.saver), prepare, _pid(subject)))
    return contenders


def _pid(subject: Subject) -> int | None:
    return None if subject.server is None else subject.server.pid


async def put_writes(bench: Bench, *, concurrency: int = 1) -> Experiment:
    """aput_writes of one task: 2 KB of messages and where to go next."""
    rounds, operations = (12, 40) if concurrency == 1 else crowd_turns(concurrency)
    plan = bench.plan("aput_writes, 2 KB", rounds, operations, concurrency=concurrency)
    # As many checkpoints as one turn has operations, so that their pending writes stay as few as in life.
    names = [f"writes {concurrency} {number}" for number in range(min(operations, 128))]
    source = random.Random(f"{bench.seed} writes")

    def make_writes() -> list[tuple[str, Any]]:
        return [("messages", messages(6, source)), ("branch:to:answer", None)]

    def prepare(configs: list[RunnableConfig], number: int) -> Task:
        return Task(configs[number % len(configs)], make_writes(), str(uuid4()))

    async def aput_writes(saver: Saver, task: Task) -> None:
        await saver.aput_writes(*task)

    floor_configs: list[RunnableConfig] = [
        {"configurable": {"thread_id": name, "checkpoint_ns": "", "checkpoint_id": str(uuid4())}} for name in names
    ]

    def encoded(number: int) -> Task:
        config, writes, task_id = prepare(floor_configs, number)
        return Task(config, bench.floor.encode_writes(writes), task_id)

    async def floor(task: Task) -> None:
        await bench.floor.put_writes(*task)

    async def floor_with_serde(task: Task) -> None:
        await bench.floor.put_writes_with_serde(*task)

    contenders = [
        Contender("floor", floor, encoded, bench.server.pid),
        Contender(BASELINE, floor_with_serde, partial(prepare, floor_configs), bench.server.pid),
    ]
    for subject in bench.subjects:
        threads = Threads(subject.saver)
        configs = []
        for name in names:
            values = SIZES["2 KB"](source)
            configs.append(await subject.saver.aput(*threads.next(name, values, list(values))))
        operation = partial(aput_writes, subject.saver)
        contenders.append(Contender(subject.name, operation, partial(prepare, configs), _pid(subject)))
    return await bench.measure(plan, contenders)


async def get_latest(bench: Bench, size: str, *, concurrency: int = 1, held: bool = False) -> Experiment:
    """aget_tuple of a thread's latest checkpoint.

    Args:
        held: through the saver that has just read the same; only rtmem's take part, nobody else can use it.
    """
    rounds, operations = TURNS[size] if concurrency == 1 else crowd_turns(concurrency)
    what = "aget_tuple, head already held" if held else "aget_tuple, latest"
    plan = bench.plan(
        f"{what}, {size}",
        rounds,
        operations,
        concurrency=concurrency,
        stalls=size.startswith("1 MB") and concurrency == 1,
    )
    names = [f"get {size} {concurrency} {held} {number}" for number in range(concurrency)]
    source = random.Random(f"{bench.seed} get")
    channels = list(SIZES[size](source))
    floor_threads = Threads(InMemorySaver())
    for name in names:
        await bench.floor.put_with_serde(floor_threads.next(name, SIZES[size](source), channels))

    def place(number: int) -> tuple[str, str, list[str]]:
        name = names[number % concurrency]
        return name, floor_threads.config(name)["configurable"]["checkpoint_id"], channels

    def latest(number: int) -> RunnableConfig:
        return {"configurable": {"thread_id": names[number % concurrency], "checkpoint_ns": ""}}

    async def floor(where: tuple[str, str, list[str]]) -> None:
        await bench.floor.get(*where)

    async def floor_with_serde(where: tuple[str, str, list[str]]) -> None:
        await bench.floor.get_with_serde(*where)

    contenders = [
        Contender("floor", floor, place, bench.server.pid),
        Contender(BASELINE, floor_with_serde, place, bench.server.pid),
    ]
    for subject in [subject for subject in bench.subjects if subject.ours] if held else bench.cold:
        threads = Threads(subject.saver)
        for name in names:
            values = SIZES[size](source)
            await subject.saver.aput(*threads.next(name, values, channels))
            await _check(bench, subject, name, values)
        contenders.append(Contender(subject.name, subject.saver.aget_tuple, latest, _pid(subject)))
    return await bench.measure(plan, contenders)


async def _check(bench: Bench, subject: Subject, thread_id: str, values: dict[str, Any]) -> None:
    """A saver that gives back something else is not measured as if it were right: ours stops the run."""
    reader = next(other for other in bench.cold if other.name == subject.name)
    found = await reader.saver.aget_tuple({"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}})
    if found is not None and found.checkpoint["channel_values"] == values:
        return
    note = f"{subject.name} gave back another state than was put"
    if subject.ours:
        raise AssertionError(f"{note}, thread {thread_id!r}, seed {bench.seed}")
    if note not in bench.notes:
        bench.notes.append(note)


async def _check_edit(bench: Bench, subject: Subject) -> None:
    """An old message that was edited in place, deep inside, must come back edited; else appending fast is no use."""
    source = random.Random(bench.seed)
    threads, talk = Threads(subject.saver), messages(300, source)
    talk[17].additional_kwargs["marks"] = {"seen": [1, 2]}
    await subject.saver.aput(*threads.next("edited", {"messages": talk}, ["messages"]))
    talk[17].additional_kwargs["marks"]["seen"].append(3)
    talk.append(message(300, source))
    await subject.saver.aput(*threads.next("edited", {"messages": talk}, ["messages"]))
    await _check(bench, subject, "edited", {"messages": talk})
