"""Run one turn of a graph and tell what happens, in the words of the agent streaming protocol.

The order of a turn is written here and nowhere else: say that the run is running; look the question up in the cache, if
the graph's owner wants that; without a hit let the graph work; say how it ended; then keep its answer. (What is
remembered is read and written by the graph itself.)

What the graph does meanwhile is told in `translator`'s words.
"""

from __future__ import annotations

import logging
import os
import sysconfig
import traceback
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import anyio.lowlevel
from langchain_core._api import LangChainBetaWarning
from langchain_core.runnables import RunnableConfig
from langgraph.pregel import Pregel
from langgraph.stream.run_stream import AsyncGraphRunStream
from langgraph.types import Command

from rtmem.agent.translator import AllChannels, Translator
from rtmem.errors import NotDurableError, RtmemError, ServerError
from rtmem.records import TurnEvent

_logger: Final = logging.getLogger(__name__)
_LIBRARIES: Final = tuple(f"{folder}{os.sep}" for folder in (sysconfig.get_path("stdlib"), Path(__file__).parents[1]))

Graph = Pregel[Any, Any, Any, Any]

Tell = Callable[[TurnEvent], Awaitable[None]]
"""Takes one event, and may make the turn wait: for room, or until the event is stored."""

BeforeEnd = Callable[[], Awaitable[Mapping[str, Any]]]
"""Does what has to be done before the end of a turn is told, and says what shall be told with it."""


class Given(Protocol):
    """A turn that was answered without its graph: question and answer are in the thread."""

    @property
    def events(self) -> Iterable[TurnEvent]:
        """What is told between the beginning of the turn and its end."""

    @property
    def checkpoint_id(self) -> str:
        """Where the thread is now."""


class Cached(Protocol):
    """The cache, for one turn. Neither method raises anything, and no turn waits for it longer than its deadline."""

    @property
    def turn_input(self) -> Mapping[str, Any] | None:
        """What the graph is to be given, once the cache has not answered."""

    async def answer(self) -> Given | None:
        """Answer this turn, or leave that to the graph."""

    async def keep(self, checkpoint_id: str) -> None:
        """The graph has answered: its thread is at this checkpoint."""


async def run(
    graph: Graph,
    turn_input: Mapping[str, Any] | Command[Any] | None,
    config: RunnableConfig,
    *,
    graph_name: str,
    tell: Tell,
    before_end: BeforeEnd | None = None,
    cached: Cached | None = None,
) -> None:
    """Run one turn; `tell` its events, from lifecycle `running` to `completed`, `interrupted` or `failed`.

    A failing graph ends in `failed`. What is raised comes from `tell` (in an exception group), or is cancellation; each
    node has been stopped by then. `completed` comes after LangGraph has waited for the last checkpoint to be stored:
    the v3 stream ends only when the loop has left its executor, which awaits every put, and a put that failed ends the
    run in `failed`.

    Args:
        turn_input: the graph's input; a Command resumes an interrupted run, None continues from the last checkpoint.
        config: with thread_id; the graph must carry the saver of the right principal.
        before_end: awaited when everything is stored, before `completed` or `interrupted` is told; what it returns is
            told with it.
        cached: for a turn that may be answered from the cache.
    """
    await tell(_lifecycle("running", graph_name))
    if cached is not None:
        if (given := await cached.answer()) is not None:
            for event in given.events:
                await tell(event)
            await _tell_end("completed", graph_name, given.checkpoint_id, tell, before_end)
            return
        turn_input = cached.turn_input
    translator = Translator()
    error: Exception | None = None
    try:
        stream = await _start(graph, turn_input, config)
    except Exception as exc:  # noqa: BLE001 - any error of the user's graph is the run's outcome, told to its clients
        await tell(_failed_of_itself(exc, graph_name, config))
        return
    async with anyio.create_task_group() as beside:
        beside.start_soon(_abort_when_cancelled, stream)
        events = aiter(stream)
        while True:
            try:
                # Shielded, because this wait is ended by `abort`: anyio cancels again and again, and a second
                # cancellation interrupts LangGraph's own clean-up, which leaves nodes at work that nobody waits for.
                with anyio.CancelScope(shield=True):
                    told = await anext(events)
            except StopAsyncIteration:
                break
            except Exception as exc:  # noqa: BLE001 - as above
                error = exc
                break
            for translated in translator.translate(told):
                await tell(translated)
        beside.cancel_scope.cancel()
    # An aborted stream ends like a finished one: if this turn was cancelled, it must not say that it is complete.
    await anyio.lowlevel.checkpoint()
    if error is not None:
        await tell(_failed_of_itself(error, graph_name, config))
        return
    outcome = "interrupted" if translator.waiting else "completed"
    await _tell_end(outcome, graph_name, translator.checkpoint_id, tell, before_end)
    if cached is not None and outcome == "completed":
        await cached.keep(translator.checkpoint_id)


async def _tell_end(
    outcome: str, graph_name: str, checkpoint_id: str, tell: Tell, before_end: BeforeEnd | None
) -> None:
    end = _lifecycle(outcome, graph_name, checkpoint_id=checkpoint_id)
    if before_end is not None:
        end.data.update(await before_end())
    await tell(end)


async def _start(graph: Graph, turn_input: Any, config: RunnableConfig) -> AsyncGraphRunStream:
    with warnings.catch_warnings():
        # v3 is declared beta. We pin langgraph's major version and test every event shape we read.
        warnings.simplefilter("ignore", LangChainBetaWarning)
        return await graph.astream_events(turn_input, config, version="v3", transformers=[AllChannels])


async def _abort_when_cancelled(stream: AsyncGraphRunStream) -> None:
    """Stop the nodes at work when the turn is cancelled; does nothing after a stream that has ended."""
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await stream.abort()


def _failed_of_itself(error: Exception, graph_name: str, config: RunnableConfig) -> TurnEvent:
    """The end of a run whose graph raised: its developer gets the traceback, its clients type and message."""
    described = f"{type(error).__name__}: {error}"
    # Ours says by itself what is wrong and what to do; that a traceback leads through a saver helps nobody.
    ours = isinstance(error, RtmemError)
    _logger.error(
        "run %s of thread %r: graph %r failed%s: %s",
        config.get("run_id"),
        (config.get("configurable") or {}).get("thread_id"),
        graph_name,
        "" if ours else f" at {_place(error)}",
        described,
        exc_info=None if ours else error,
    )
    return failed(graph_name, described, resumable=can_be_resumed(error))


def _place(error: Exception) -> str:
    """File and line of the innermost frame in code that is nobody's library; of the innermost one if there is none."""
    frames = list(traceback.walk_tb(error.__traceback__))
    own = [(frame, line) for frame, line in frames if not _is_library(frame.f_code.co_filename)]
    frame, line = (own or frames)[-1]
    return f"{frame.f_code.co_filename}:{line}"


def _is_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


def failed(graph_name: str, error: str, *, resumable: bool) -> TurnEvent:
    """The end of a run that failed.

    Args:
        resumable: it did not fail of itself (its process died, Redis is away or full, the gateway shuts down): a run
            without input goes on after its last stored step.
    """
    told = _lifecycle("failed", graph_name)
    told.data.update(error=error, resumable=resumable)
    return told


def can_be_resumed(error: Exception) -> bool:
    """Whether this error is none of the run itself: Redis could not do something, or the time was wrong for it."""
    return isinstance(error, ServerError | NotDurableError) or (isinstance(error, RtmemError) and error.retryable)


def _lifecycle(event: str, graph_name: str, *, checkpoint_id: str = "") -> TurnEvent:
    data: dict[str, Any] = {"event": event}
    if graph_name:
        data["graph_name"] = graph_name
    if checkpoint_id:
        data["checkpoint"] = {"id": checkpoint_id}
    return TurnEvent("lifecycle", data)
