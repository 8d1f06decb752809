"""Savers under real graphs: turns end to end, growth of one thread, delta channels."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, cast
from uuid import uuid4

import redis.asyncio
from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

from loadtest.checkpoint.floor import FloorSaver
from loadtest.checkpoint.operations import Bench
from loadtest.checkpoint.savers import Kind, Saver, Subject
from loadtest.checkpoint.states import ENVELOPE_BYTES, SIZES, Threads, message
from loadtest.servers import Server
from loadtest.tap import Tap, tapped
from rtmem.loadtest import Contender, Experiment, Measured, Plan

TURNS = 20
GROWTH_STEPS = 200
GROWTH_MESSAGES = 50
GROWTH_TEXT_BYTES = 400  # of each message; with its envelope about 600, so the list ends at 30 KB


class Talk(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def three_nodes(saver: Saver) -> Any:
    """agent -> tool -> answer; each adds one message of 320 B."""
    source = random.Random(3)

    async def speak(_state: Talk) -> dict[str, Any]:
        return {"messages": [message(1, source)]}

    builder: Any = StateGraph(Talk)
    for name in ("agent", "tool", "answer"):
        builder.add_node(name, speak)
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "tool")
    builder.add_edge("tool", "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


async def end_to_end(bench: Bench, connection: redis.asyncio.Redis, *, concurrency: int) -> Experiment:
    """One turn of a conversation of 20 through a graph of three nodes; `concurrency` conversations at once."""
    operations = TURNS * concurrency
    plan = Plan(
        "3-node graph, one turn of 20",
        baseline="floor saver",
        rounds=max(1, round((4 if concurrency == 1 else 2) * bench.scale)),
        operations=operations,
        warmup=concurrency,
        concurrency=concurrency,
        seed=bench.seed,
        note="floor saver: InMemorySaver that also makes the floor's round trips",
    )
    source = random.Random(bench.seed)
    run = uuid4().hex

    def turn(number: int) -> tuple[RunnableConfig, dict[str, Any]]:
        # Worker w of a turn gets the inputs w, w + c, w + 2c ...: one conversation, its turns in order.
        talk = f"{run} {(number - plan.warmup) // operations} {number % concurrency}"
        return {"configurable": {"thread_id": talk}}, {"messages": [message(0, source)]}

    async def invoke(graph: Any, given: tuple[RunnableConfig, dict[str, Any]]) -> None:
        config, question = given
        await graph.ainvoke(question, config)

    graphs: list[tuple[str, Any, int | None]] = [("floor saver", three_nodes(FloorSaver(connection)), bench.server.pid)]
    for subject in bench.subjects:
        graphs.append((subject.name, three_nodes(subject.saver), subject.server.pid if subject.server else None))
    contenders = [Contender(name, partial(invoke, graph), turn, pid) for name, graph, pid in graphs]
    return await bench.measure(plan, contenders)


class Counting(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    count: int


def growing_graph(saver: Saver) -> Any:
    """One node in a loop of 200 super-steps; every fourth adds a message with 400 B of text, the others
    only count.

    Each super-step has two writes: the node's update of one channel, and its branch back to itself.
    """
    source = random.Random(4)
    step = 0

    async def work(_state: Counting) -> dict[str, Any]:
        nonlocal step
        step += 1
        if step % (GROWTH_STEPS // GROWTH_MESSAGES) == 0:
            return {"messages": [message(step, source, ENVELOPE_BYTES + GROWTH_TEXT_BYTES)]}
        return {"count": step}

    builder: Any = StateGraph(Counting)
    builder.add_node("work", work)
    builder.add_edge(START, "work")
    builder.add_conditional_edges("work", lambda _state: END if step >= GROWTH_STEPS else "work", ["work", END])
    return builder.compile(checkpointer=saver)


async def growth(bench: Bench, connection: redis.asyncio.Redis) -> Experiment:
    """What one thread of 200 super-steps has put into Redis, in one `ainvoke`."""
    bench.bar.describe("growth of one thread")
    rows = []
    taking_part = [subject for subject in bench.subjects if subject.server is not None]
    bench.bar.announce(len(taking_part))
    for subject in taking_part:
        config: RunnableConfig = {"configurable": {"thread_id": f"growth {uuid4().hex}"}, "recursion_limit": 1_000}
        if subject.name == "postgres":
            before_bytes = await _postgres_bytes(subject)
            await growing_graph(subject.saver).ainvoke({"messages": [], "count": 0}, config)
            facts = {"bytes": float(await _postgres_bytes(subject) - before_bytes)}
        else:
            before = {key async for key in connection.scan_iter(count=10_000)}
            await growing_graph(subject.saver).ainvoke({"messages": [], "count": 0}, config)
            made = [key async for key in connection.scan_iter(count=10_000) if key not in before]
            sizes = [await connection.memory_usage(key, samples=0) for key in made]
            facts = {"bytes": float(sum(size or 0 for size in sizes)), "keys": float(len(made))}
        rows.append(Measured(contender=subject.name, facts=facts))
        bench.bar.step()
    return Experiment(
        name="growth, 200 super-steps",
        fact="bytes",
        baseline="",
        concurrency=1,
        rounds=1,
        operations=1,
        rows=rows,
        note="Redis: sum of MEMORY USAGE key SAMPLES 0 over the keys that the run created (search indexes of lg-redis "
        "not included); postgres: growth of pg_total_relation_size of its tables after VACUUM",
    )


async def _postgres_bytes(subject: Subject) -> int:
    connection = cast("Any", subject.saver).conn
    total = 0
    async with connection.cursor() as cursor:
        for name in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
            await cursor.execute(f"VACUUM {name}")
            await cursor.execute("SELECT pg_total_relation_size(%s) AS bytes", (name,))
            total += (await cursor.fetchone())["bytes"]
    return total


def _extended(left: list[AnyMessage] | None, right: Sequence[list[AnyMessage]]) -> list[AnyMessage]:
    return [*(left or []), *(item for part in right for item in part)]


class Deltas(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_extended, snapshot_frequency=1_000)]


def delta_graph(saver: Saver) -> Any:
    """One node that answers; no snapshot comes within 60 messages, so the state is all history."""
    source = random.Random(5)

    async def answer(_state: Deltas) -> dict[str, Any]:
        return {"messages": [message(1, source)]}

    builder: Any = StateGraph(Deltas)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


async def on_the_wire(bench: Bench, server: Server, kinds: Sequence[Kind]) -> Experiment:
    """Round trips and bytes of one call each, counted between the client and the server."""
    bench.bar.announce(len(kinds))
    rows = []
    for kind in kinds:
        bench.bar.describe(f"on the wire: {kind.name}")
        async with tapped(server.url) as tap, kind.open(tap.url) as saver:
            facts = await _single_calls(tap, saver)
            if kind.history:
                facts |= await _delta_reads(tap, saver)
        rows.append(Measured(contender=kind.name, facts=facts))
        bench.bar.step()
    return Experiment(
        name="on the wire (RT: round trips)",
        baseline="",
        concurrency=1,
        rounds=1,
        operations=1,
        rows=rows,
        note="2 KB state; held: a second read by the same saver; delta: aget_state of a thread of 60 messages in a "
        "delta channel without snapshot",
    )


async def _single_calls(tap: Tap, saver: Saver) -> dict[str, float]:
    source, threads = random.Random(6), Threads(saver)
    thread_id = f"wire {uuid4().hex}"
    config: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}

    def put() -> Any:
        values = SIZES["2 KB"](source)
        return saver.aput(*threads.next(thread_id, values, list(values)))

    # Connections, handshakes and function libraries are paid once, not per call.
    stored = await put()
    await saver.aput_writes(stored, [("messages", "x")], str(uuid4()))
    await saver.aget_tuple(config)
    tap.reset()
    stored = await put()
    facts = {"put RT": float(tap.round_trips), "put B": float(tap.sent_bytes + tap.received_bytes)}
    tap.reset()
    await saver.aput_writes(stored, [("messages", "x"), ("branch:to:a", None)], str(uuid4()))
    facts["put_writes RT"] = float(tap.round_trips)
    tap.reset()
    await saver.aget_tuple(config)
    facts["get RT"] = float(tap.round_trips)
    tap.reset()
    await saver.aget_tuple(config)
    facts["held get RT"] = float(tap.round_trips)
    facts["held get B"] = float(tap.sent_bytes + tap.received_bytes)
    return facts


async def _delta_reads(tap: Tap, saver: Saver) -> dict[str, float]:
    source = random.Random(7)
    graph = delta_graph(saver)
    config: RunnableConfig = {"configurable": {"thread_id": f"delta {uuid4().hex}"}}
    for turn in range(30):
        await graph.ainvoke({"messages": [message(turn, source)]}, config)
    tap.reset()
    state = await graph.aget_state(config)
    # A saver that loses delta channels is quick for a bad reason.
    whole = len(state.values.get("messages", [])) == 60
    return {"delta RT": float(tap.round_trips)} if whole else {}
