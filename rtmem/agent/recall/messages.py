"""Memory beside the messages of a turn: put before the user's last one for the model, and told to the stream.

Only the model's request has it. A state that kept it would carry what was remembered at each turn to the end of the
thread, and a prompt's cache ends where something changes: everything before the last message stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableLambda
from langgraph.config import get_stream_writer

from rtmem.agent.recall.reading import Recalled
from rtmem.agent.recall.recall import Recall
from rtmem.agent.recall.run import checked, recall_of_run, thread_of_run
from rtmem.agent.recall.writing import last_message
from rtmem.agent.served import expect_memory, memory_was_read

Tell = Callable[[Any], None]


def with_memory(recall: Recall | None, messages: Sequence[AnyMessage], tell: Tell | None = None) -> list[AnyMessage]:
    """The messages for the model, with what is remembered about the last one of the user. Blocking.

    Args:
        recall: None: that of the run.
        tell: takes the event; the run's own stream. Told once for each turn, however often the model is called.

    Raises:
        WrongColourError, ConfigError: nothing that a running system does.
    """
    asked = last_message(messages)
    if asked is None:
        return list(messages)
    told = recall_of_run(recall).read(str(asked[1].text), thread_id=thread_of_run(), turn=asked[1].id or "")
    return _beside(messages, asked[0], told, tell)


async def awith_memory(
    recall: Recall | None, messages: Sequence[AnyMessage], tell: Tell | None = None
) -> list[AnyMessage]:
    """See `with_memory`."""
    asked = last_message(messages)
    if asked is None:
        return list(messages)
    told = await recall_of_run(recall).aread(str(asked[1].text), thread_id=thread_of_run(), turn=asked[1].id or "")
    return _beside(messages, asked[0], told, tell)


def episode(recall: Recall | None, messages: Sequence[AnyMessage], tell: Tell | None = None) -> None:
    """Write the turn as the policy says; tell what became of it, if it writes. Blocking."""
    written = recall_of_run(recall).remember_turn(messages, thread_id=thread_of_run())
    if written.status != "off":
        (tell or _stream())(written.event)


async def aepisode(recall: Recall | None, messages: Sequence[AnyMessage], tell: Tell | None = None) -> None:
    """See `episode`."""
    written = await recall_of_run(recall).aremember_turn(messages, thread_id=thread_of_run())
    if written.status != "off":
        (tell or _stream())(written.event)


def recall_node(recall: Recall | None = None) -> Runnable[Any, Any]:
    """A node: state -> the messages for the model, with memory. Chain it before the model of a graph of your own.

    builder.add_node("model", recall_node(recall) | model | (lambda answer: {"messages": [answer]}))
    """
    if checked(recall) is None:
        expect_memory()
    return RunnableLambda(
        lambda state: with_memory(recall, messages_of(state)),
        _awaiting(lambda state: awith_memory(recall, messages_of(state))),
        name="recall",
    )


def episode_node(recall: Recall | None = None) -> Runnable[Any, Any]:
    """A node for the end of a turn, which writes it if the policy says so. Changes nothing in the state."""
    if checked(recall) is None:
        expect_memory()
    return RunnableLambda(
        lambda state: episode(recall, messages_of(state)),
        _awaiting(lambda state: aepisode(recall, messages_of(state))),
        name="episode",
    )


def messages_of(state: Any) -> Sequence[AnyMessage]:
    """The messages of a state: a mapping, an object, or the list itself."""
    if isinstance(state, Sequence):
        return state
    found: Sequence[AnyMessage] = state["messages"] if isinstance(state, Mapping) else state.messages
    return found


def _awaiting(start: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def run(state: Any) -> Any:  # RunnableLambda looks whether it is a coroutine function
        return await start(state)

    return run


def _beside(messages: Sequence[AnyMessage], at: int, told: Recalled, tell: Tell | None) -> list[AnyMessage]:
    if told.facts:
        memory_was_read()
    if told.source != "kept":
        (tell or _stream())(told.event)
    remembered: list[AnyMessage] = [HumanMessage(told.text)] if told.text else []
    return [*messages[:at], *remembered, *messages[at:]]


def _stream() -> Tell:
    try:
        return get_stream_writer()
    except RuntimeError:  # outside of a graph nobody listens
        return lambda event: None
