"""Runs of graphs on threads: started, answered, stopped, and their state told.

A run belongs to the gateway, not to the connection that asked for it: it goes on when that connection breaks.
One run at a time on a thread; a second one is refused with RunInProgressError, it does not wait in line.
"""

from __future__ import annotations

import logging
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Command, StateSnapshot

from rtmem.agent import turn
from rtmem.agent.served import SERVED, Served
from rtmem.agent.turn import Graph
from rtmem.errors import (
    DrainingError,
    GraphNotFoundError,
    InvalidRequestError,
    NoSuchInterruptError,
    RtmemError,
    ServerError,
    StaleWriterError,
    StateUnreadableError,
    UnsupportedError,
)
from rtmem.gateway.caches import Caches
from rtmem.gateway.durability import CONFIG_KEY, Promise, Prover, ack_of
from rtmem.gateway.memory import Memories
from rtmem.gateway.protocol import InputRespondParams, RunStartParams
from rtmem.gateway.threads import LiveThread, Run
from rtmem.pointers import AsyncPointers
from rtmem.records import TurnEvent
from rtmem.settings import Ack, Gateway

_logger: Final = logging.getLogger(__name__)
_RESERVED: Final = frozenset({"thread_id", "principal", "checkpoint_ns", "checkpoint_map", CONFIG_KEY})


class Saver(Prover, Protocol):
    """A saver of many people's threads, such as checkpoint.AsyncRedisSaver."""

    def bind(self, principal: str) -> BaseCheckpointSaver[Any]:
        """The saver of one principal's threads."""
        ...

    def with_allowlist(self, extra_allowlist: Any) -> Any:
        """The saver that may also restore these types."""
        ...


class _ClientConfig(msgspec.Struct, frozen=True):
    """What a client may say about how its run is executed; anything else in `config` is ignored."""

    configurable: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    tags: list[str] = []
    recursion_limit: int | None = None


class Runs:
    """The graphs that are served, and the runs at work."""

    def __init__(
        self,
        graphs: Mapping[str, Graph],
        saver: Saver,
        settings: Gateway,
        tasks: TaskGroup,
        memories: Memories,
        pointers: AsyncPointers,
        caches: Caches,
    ) -> None:
        self._graphs = graphs
        self._caches = caches
        self._memories = memories
        self._pointers = pointers
        self._savers = {name: _restricted(saver, graph) for name, graph in graphs.items()}
        self._settings = settings
        self._tasks = tasks
        self._bound: OrderedDict[tuple[str, str], Graph] = OrderedDict()
        self._at_work: set[Run] = set()
        self._draining = False
        self._patience = anyio.CancelScope()
        self._ended = anyio.Event()

    @property
    def assistant_ids(self) -> tuple[str, ...]:
        return tuple(self._graphs)

    async def start(self, thread: LiveThread, params: RunStartParams) -> Run:
        """Start a run. Returns once its beginning is in the log.

        Raises:
            GraphNotFoundError, InvalidRequestError: nothing happened.
            RunInProgressError, DrainingError: nothing happened; try again later.
            ServerError: Redis did not take the beginning of the run; nothing was executed.
        """
        if params.multitask_strategy not in (None, "reject") and thread.run is not None:
            raise UnsupportedError(
                f"multitask_strategy {params.multitask_strategy!r}: thread {thread.thread_id!r} is busy and this "
                "gateway only rejects; start the run when the other has ended"
            )
        await self._require_checkpoint(thread, params.config)
        await thread.contact()
        return await self._begin(thread, params.assistant_id, params.input, params.config, params.metadata)

    async def respond(self, thread: LiveThread, params: InputRespondParams) -> Run:
        """Answer what a run is waiting for, and let it go on. Raises like `start`, and NoSuchInterruptError."""
        answers = params.answers()
        await self._require_checkpoint(thread, params.config)
        await thread.contact()
        snapshot = await self.snapshot(thread)
        asked = {interrupt.id for interrupt in snapshot.interrupts} if snapshot is not None else set()
        if unasked := answers.keys() - asked:
            raise NoSuchInterruptError(
                f"thread {thread.thread_id!r} does not wait for {sorted(unasked)}: it waits for {sorted(asked)}",
                asked=sorted(asked),
            )
        assistant_id = self.assistant_of(snapshot)
        command: Command[Any] = Command(resume=answers, update=params.update, goto=params.goto or ())
        return await self._begin(thread, assistant_id, command, params.config, params.metadata)

    async def snapshot(self, thread: LiveThread, namespace: tuple[str, ...] = ()) -> StateSnapshot | None:
        """The thread's state, as `graph.get_state` gives it; None for a thread without checkpoints.

        Raises:
            InvalidRequestError: the thread has no subgraph `namespace`.
            StateUnreadableError: the graph itself cannot put its state together.
            ServerError: Redis does not answer.
        """
        saver = next(iter(self._savers.values())).bind(thread.principal)
        latest = await saver.aget_tuple({"configurable": {"thread_id": thread.thread_id, "checkpoint_ns": ""}})
        if latest is None:
            return None
        assistant_id = str(latest.metadata.get("assistant_id") or "")
        if assistant_id not in self._graphs:
            # Written by a script, or by a graph that is served no more: any graph reads plain channels.
            assistant_id = next(iter(self._graphs))
        config: RunnableConfig = {"configurable": {"thread_id": thread.thread_id, "checkpoint_ns": "|".join(namespace)}}
        if namespace and await saver.aget_tuple(config) is None:
            raise InvalidRequestError(
                f"thread {thread.thread_id!r} has no state in namespace {list(namespace)}: "
                "use one that its events carry, or [] for the graph itself",
                namespace=namespace,
            )
        try:
            return await self._graph(thread.principal, assistant_id).aget_state(config)
        except RtmemError:
            raise
        except Exception as exc:
            # LangGraph applies stored writes through the graph's own reducers, which refuse what they refused the run.
            raise StateUnreadableError(
                f"thread {thread.thread_id!r}: graph {assistant_id!r} cannot put its state together: "
                f"{type(exc).__name__}: {exc}: its last run was given or wrote what does not fit the graph; "
                "start a run with a correct input",
                thread_id=thread.thread_id,
            ) from exc

    async def _require_checkpoint(self, thread: LiveThread, client_config: Mapping[str, Any]) -> None:
        """LangGraph takes a checkpoint that is not there for an empty thread, and would go on without the past."""
        configurable = client_config.get("configurable")
        checkpoint_id = configurable.get("checkpoint_id") if isinstance(configurable, Mapping) else None
        if not checkpoint_id:
            return
        saver = next(iter(self._savers.values())).bind(thread.principal)
        chosen = {"thread_id": thread.thread_id, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}
        if await saver.aget_tuple({"configurable": chosen}) is None:
            raise InvalidRequestError(
                f"thread {thread.thread_id!r} has no checkpoint {checkpoint_id!r}: use an id that its checkpoints "
                "events carry, or leave it out to go on from the latest",
                checkpoint_id=checkpoint_id,
            )

    def assistant_of(self, snapshot: StateSnapshot | None) -> str:
        """Which graph wrote `snapshot`."""
        metadata = (snapshot.metadata if snapshot is not None else None) or {}
        return str(metadata.get("assistant_id") or next(iter(self._graphs)))

    @property
    def at_work(self) -> int:
        """How many runs have not ended."""
        return len(self._at_work)

    async def drain(self) -> None:
        """Refuse new runs, let those at work end within drain_timeout_ms, and stop what is left."""
        self._draining = True
        self._patience.deadline = anyio.current_time() + self._settings.drain_timeout_ms / 1_000
        with self._patience:
            await self._all_ended()
        for run in tuple(self._at_work):
            run.stop_reason = "the gateway is shutting down; start a run without input to go on from the last step"
            run.scope.cancel()
        with anyio.move_on_after(self._settings.drain_timeout_ms / 1_000):
            await self._all_ended()

    def hurry(self) -> None:
        """Let `drain` stop now what is at work."""
        self._patience.cancel()

    async def _all_ended(self) -> None:
        while self._at_work:
            await self._ended.wait()

    async def _begin(
        self,
        thread: LiveThread,
        assistant_id: str,
        turn_input: Any,
        client_config: Mapping[str, Any],
        metadata: Mapping[str, Any],
    ) -> Run:
        graph = self._graph(thread.principal, assistant_id)
        run = Run(str(uuid.uuid4()), assistant_id)
        principal = thread.principal
        served = Served(principal, partial(self._memories.recall, principal), self._pointers.bind(principal))
        config, ack = _run_config(thread, run, client_config, metadata, self._settings.turn_durability, served)
        promise = await Promise.give(self._savers[assistant_id], ack)
        if self._draining:
            raise DrainingError("this gateway is shutting down: reconnect and start the run again")
        thread.begin(run)
        self._at_work.add(run)
        self._tasks.start_soon(self._run, thread, run, graph, turn_input, config, promise, name=f"run {run.id}")
        await run.accepted.wait()
        if run.error is not None:
            raise run.error
        return run

    async def _run(
        self,
        thread: LiveThread,
        run: Run,
        graph: Graph,
        turn_input: Any,
        config: RunnableConfig,
        promise: Promise,
    ) -> None:
        """Drive one turn to its end. Whatever happens, the thread is told how it ended; nothing is raised."""
        end: TurnEvent | None = turn.failed(run.assistant_id, "cancelled", resumable=True)
        try:
            with run.scope:
                end = await self._drive(thread, run, graph, turn_input, config, promise)
            if run.scope.cancelled_caught:
                end = turn.failed(run.assistant_id, run.stop_reason, resumable=True)
        finally:
            # Reached by cancellation too (the whole gateway is being torn down): say so, but briefly.
            with anyio.CancelScope(shield=True):
                if end is not None:
                    await self._end(thread, run, end)
            run.accepted.set()
            self._at_work.discard(run)
            self._ended.set()
            self._ended = anyio.Event()

    async def _drive(
        self,
        thread: LiveThread,
        run: Run,
        graph: Graph,
        turn_input: Any,
        config: RunnableConfig,
        promise: Promise,
    ) -> TurnEvent | None:
        """Publish the events of a turn. Returns its end if it could not tell that itself."""
        end = None
        cached = self._caches.of_turn(thread.principal, graph, turn_input, config, run.assistant_id)
        try:
            async with anyio.create_task_group() as beside:

                async def tell(event: TurnEvent) -> None:
                    await thread.publish(event)
                    if not run.accepted.is_set():
                        await thread.flush()
                        run.accepted.set()
                        beside.start_soon(thread.flush_continuously)

                beside.start_soon(promise.watch)
                await turn.run(
                    graph,
                    turn_input,
                    config,
                    graph_name=run.assistant_id,
                    tell=tell,
                    before_end=promise.keep,
                    cached=cached,
                )
                await thread.flush()
                beside.cancel_scope.cancel()
        except* RtmemError as group:
            error = _first(group)
            if not run.accepted.is_set():
                run.error = error
            end = turn.failed(
                run.assistant_id, f"{type(error).__name__}: {error}", resumable=turn.can_be_resumed(error)
            )
        except* Exception as group:
            _logger.exception("run %s of thread %r: a fault in the gateway", run.id, thread.thread_id)
            told = f"{type(_first(group)).__name__}: a fault in the gateway, see its log"
            end = turn.failed(run.assistant_id, told, resumable=False)
        return end

    async def _end(self, thread: LiveThread, run: Run, event: TurnEvent) -> None:
        """Tell the end of a run that could not tell it itself, in the log if Redis takes it."""
        if thread.run is not run:
            return  # its end is already known
        try:
            thread.end(event)
            await thread.flush()
        except (ServerError, StaleWriterError) as exc:
            _logger.warning("run %s of thread %r: its end is not in the log yet: %s", run.id, thread.thread_id, exc)
            thread.deliver_unlogged(event)

    def _graph(self, principal: str, assistant_id: str) -> Graph:
        """The graph with this principal's saver, store and cache in it. Raises GraphNotFoundError."""
        name = (principal, assistant_id)
        if (bound := self._bound.get(name)) is not None:
            self._bound.move_to_end(name)
            return bound
        graph = self._graphs.get(assistant_id)
        if graph is None:
            raise GraphNotFoundError(
                f"no assistant {assistant_id!r} is served here: use one of {', '.join(sorted(self._graphs))}",
                assistant_id=assistant_id,
            )
        saver = self._savers[assistant_id].bind(principal)
        store = self._memories.store_for(graph, principal)
        nodes = self._caches.nodes_for(graph, principal)
        bound = graph.copy(update={"checkpointer": saver, "store": store, "cache": nodes})
        self._bound[name] = bound
        if len(self._bound) > self._settings.graphs_cached_max:
            self._bound.popitem(last=False)
        return bound


def _restricted(saver: Saver, graph: Graph) -> Saver:
    """`saver`, allowed to restore the types that the graph's schemas name.

    LangGraph collects them when it compiles a graph in strict mode and puts them into the saver it compiles with; here
    the saver comes later.
    """
    allowed = getattr(graph, "_serde_allowlist", None)
    return saver if allowed is None else saver.with_allowlist(allowed)


_Error = TypeVar("_Error", bound=Exception)


def _first(group: ExceptionGroup[_Error]) -> _Error:
    """The error that started it; the others are consequences."""
    error: Any = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error  # type: ignore[no-any-return]


def _run_config(
    thread: LiveThread,
    run: Run,
    client_config: Mapping[str, Any],
    metadata: Mapping[str, Any],
    turn_durability: Ack,
    served: Served,
) -> tuple[RunnableConfig, Ack]:
    """The run's config: what the client may choose, then what it may not; and what its end waits for.

    Raises InvalidRequestError.
    """
    try:
        chosen = msgspec.convert(client_config, _ClientConfig)
    except msgspec.ValidationError as exc:
        raise InvalidRequestError(f"config: {exc}: correct it") from exc
    metadata = {**chosen.metadata, **metadata}
    ack = ack_of(turn_durability, chosen.configurable, metadata)
    configurable = {
        name: value
        for name, value in chosen.configurable.items()
        # Names with a double underscore are LangGraph's own wiring: never a client's to set.
        if name not in _RESERVED and not name.startswith("__")
    }
    config: RunnableConfig = {
        "configurable": {
            **configurable,
            "thread_id": thread.thread_id,
            "principal": thread.principal,
            SERVED: served,
        },
        "metadata": {**metadata, "assistant_id": run.assistant_id, "run_id": run.id},
        "tags": chosen.tags,
        "run_id": uuid.UUID(run.id),
    }
    if chosen.recursion_limit is not None:
        config["recursion_limit"] = chosen.recursion_limit
    return config, ack
