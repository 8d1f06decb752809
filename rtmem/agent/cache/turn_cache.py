"""What the cache does for one turn: it may answer it instead of the graph, or keep what the graph answers.

A hit is first stored in the thread, in the checkpoints that a run would have written (the input, its arrival, the
answer), and then told: who hears an answer finds it in the thread. If anything of that fails, the graph runs.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import anyio
from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig
from langgraph.channels.base import BaseChannel
from langgraph.constants import END, START
from langgraph.errors import EmptyChannelError
from langgraph.types import StateSnapshot, StateUpdate

from rtmem.agent.cache.replaying import events_of, message_of
from rtmem.agent.cache.turns import CachedTurns, Graph
from rtmem.agent.served import SERVED, Served
from rtmem.agent.translator import Translator
from rtmem.cache import AsyncSemanticCache, CacheScope, Hit
from rtmem.operations.cache_answers import UNWANTED
from rtmem.operations.cached_messages import facts
from rtmem.records import TurnEvent

_logger: Final = logging.getLogger(__name__)
_INPUT: Final = "__input__"  # LangGraph's name for whoever gives a graph its input
_NOT_OF_THE_ANSWER: Final = frozenset({"thread_id", "principal", "checkpoint_ns", "checkpoint_id", "checkpoint_map"})
_TAG_CHARACTERS_MAX: Final = 512
_NOT_KEPT: Final = {
    "tool_calls": "it called tools; cached_turns(..., allow=['tool_calls']) keeps those",
    "state": "it changed other channels than its messages; cached_turns(..., allow=['state']) keeps those",
    "memory": "it was told what is remembered, which may change; cached_turns(..., allow=['memory']) keeps those",
    "messages": "it did something else to its messages than add one answer",
}
_told: Final[set[tuple[str, str]]] = set()


@dataclass(frozen=True, slots=True)
class Given:
    """An answer that is in the thread by now."""

    events: Iterator[TurnEvent]  # of the turn, between its beginning and its end
    checkpoint_id: str


@dataclass(slots=True)
class _Asked:
    """What was asked, and in what thread."""

    prompt: list[BaseMessage]
    scope: CacheScope
    before: StateSnapshot
    since_s: float


class TurnCache:
    """For one turn of a graph. Make it with `of_turn`.

    Args:
        cache: of whoever is authenticated, or of the assistant, if its answers are for everybody.
        turn_input: what the graph is to be given. Its messages have ids: given twice, they are in the thread once.
    """

    def __init__(
        self,
        policy: CachedTurns,
        cache: AsyncSemanticCache,
        graph: Graph,
        turn_input: dict[str, Any],
        config: RunnableConfig,
        assistant_id: str,
    ) -> None:
        self.turn_input: dict[str, Any] | None = turn_input
        """What the graph is to be given, if it has to run."""
        self._input = turn_input
        self._policy = policy
        self._cache = cache if policy.write_policy is None else cache.with_policy(policy.write_policy)
        self._graph = graph
        self._config = config
        self._assistant_id = assistant_id
        self._question: list[BaseMessage] = turn_input[policy.channel]
        self._asked: _Asked | None = None

    async def answer(self) -> Given | None:
        """Answer the turn, or don't: None, also where anything fails, or the look-up needs more than its deadline."""
        try:
            hit = await self._look_up()
            if hit is not None and isinstance(hit.answer, AIMessage):
                return await self._give(message_of(hit.answer, hit), hit)
        except Exception as exc:  # noqa: BLE001 - of a saver, a reducer, a schema: without the cache, the graph answers
            _logger.warning("assistant %r: a turn goes on without the cache: %s", self._assistant_id, _described(exc))
        return None

    async def _look_up(self) -> Hit | None:
        # The thread is read within one deadline, and looked up within another, which is the cache's own.
        with anyio.move_on_after(self._cache.settings.lookup_deadline_ms / 1_000):
            before = await self._graph.aget_state(self._config)
            earlier = _messages_of(before, self._policy.channel)
            if before.next or before.interrupts or _ids(earlier) & _ids(self._question):
                return None  # an earlier turn is not over, or this one changes what was said
            prompt = [*earlier, *self._question]
            self._asked = _Asked(prompt, self._scope(before), before, time.monotonic())
        return None if self._asked is None else await self._cache.lookup(self._asked.prompt, self._asked.scope)

    def _scope(self, before: StateSnapshot) -> CacheScope:
        """The owner's scope, and what else may change an answer. Raises InvalidRequestError."""
        policy = self._policy
        state, given = self._others(before), self._other_input()
        configurable = self._config.get("configurable", {})
        parameters = {
            "scope": policy.scope.digest,
            "assistant": self._assistant_id,
            "state": {name: state[name] for name in state if policy.heeds(name)},
            "input": {name: given[name] for name in given if policy.heeds(name)},
            # In the context of the conversation they are anyway; without it, they still belong to the question.
            "beside": self._question[:-1],
            "configurable": {
                name: value
                for name, value in configurable.items()
                if name not in _NOT_OF_THE_ANSWER and not name.startswith("__")
            },
        }
        return CacheScope(model=policy.scope.model, parameters=parameters, conversation=policy.scope.conversation)

    # A hit ---------------------------------------------------------------------------------------------------------

    async def _give(self, message: AIMessage, hit: Hit) -> Given:
        """Put question and answer into the thread. Raises what a saver or the graph raises."""
        channel, node = self._policy.channel, self._policy.answer_node
        made = [await self._update(self._input, _INPUT)]
        self.turn_input = None  # the thread has it: should the rest fail, the graph goes on from there
        made.append(await self._update(self._input, START))
        made.append(await self._update({channel: [message]}, node))
        after = await self._graph.aget_state(self._config)
        if after.next:
            # Nodes that would have followed: the answer is told, so the turn is over.
            made.append(await self._update(None, END))
            after = await self._graph.aget_state(self._config)
        return Given(self._events(message, hit, made, after), made[-1])

    async def _update(self, values: Any, as_node: str) -> str:
        """Write one checkpoint. Its id."""
        config = await self._graph.abulk_update_state(self._config, [[StateUpdate(values, as_node)]])
        return str(config["configurable"]["checkpoint_id"])

    def _events(self, message: AIMessage, hit: Hit, made: list[str], after: StateSnapshot) -> Iterator[TurnEvent]:
        """In the order in which a run tells them."""
        assert self._asked is not None, "a hit follows a question"
        channel, node = self._policy.channel, self._policy.answer_node
        before = self._asked.before
        parent = str(before.config.get("configurable", {}).get("checkpoint_id") or "")
        step = int((before.metadata or {}).get("step", -2)) + 1
        checkpoints = []
        for number, checkpoint_id in enumerate(made):
            told = {"id": checkpoint_id, "step": step + number, "source": "update" if number else "input"}
            checkpoints.append(TurnEvent("checkpoints", {**told, "parent_id": parent} if parent else told))
            parent = checkpoint_id
        values = self._shown(after)
        yield TurnEvent("custom", {"name": "rtmem.cache", "payload": facts(hit)})
        yield checkpoints[0]
        if channel in values:
            said = [each for each in values[channel] if each.id != message.id]
            yield TurnEvent("values", {**values, channel: said})
        yield checkpoints[1]
        speaker = {"langgraph_node": node, "langgraph_step": step + 2, "run_id": message.id}
        translator = Translator()
        for part in events_of(message):
            event = {"method": "messages", "params": {"namespace": (), "data": (part, speaker)}}
            yield from translator.translate(event)
        yield TurnEvent("updates", {"node": node, "values": {channel: [message]}})
        yield TurnEvent("values", values)
        yield from checkpoints[2:]

    def _shown(self, state: StateSnapshot) -> dict[str, Any]:
        """What of a state the graph gives out."""
        output = self._graph.output_channels
        names = {output} if isinstance(output, str) else set(output)
        return {name: value for name, value in state.values.items() if name in names}

    # A miss --------------------------------------------------------------------------------------------------------

    async def keep(self, checkpoint_id: str) -> None:
        """Store the answer of the turn that ended well at this checkpoint, if it is one to keep. Raises nothing."""
        asked = self._asked
        if asked is None or not checkpoint_id:
            return
        took_ms = round((time.monotonic() - asked.since_s) * 1_000)
        try:
            # At this checkpoint: the next turn may have begun.
            configurable = {**self._config.get("configurable", {}), "checkpoint_id": checkpoint_id}
            after = await self._graph.aget_state({**self._config, "configurable": configurable})
            answer, reason = self._answer_in(asked.before, after)
            if answer is None:
                self._cache.context.state.counts.add(f"unstored_{reason}")
                _tell_once(self._assistant_id, reason)
                return
            written = await self._cache.update(
                asked.prompt,
                answer,
                asked.scope,
                tags=self._tags(),
                ttl_ms=self._policy.ttl_ms,
                took_ms=took_ms,
                allow=[reason for reason in UNWANTED if reason in self._policy.allow],  # type: ignore[misc]
            )
            if not written.stored:  # counted by the cache
                _logger.debug("assistant %r: a turn is not kept: %s", self._assistant_id, written.reason)
        except Exception as exc:  # noqa: BLE001 - as above; the turn is over
            _logger.warning("assistant %r: a turn is not kept: %s", self._assistant_id, _described(exc))

    def _answer_in(self, before: StateSnapshot, after: StateSnapshot) -> tuple[AIMessage | None, str]:
        """The answer of a turn; or None, and why it is none to keep."""
        channel, allow = self._policy.channel, self._policy.allow
        served = self._config.get("configurable", {}).get(SERVED)
        if "memory" not in allow and isinstance(served, Served) and "memory" in served.used:
            return None, "memory"
        earlier, messages = _messages_of(before, channel), _messages_of(after, channel)
        known = [message.id for message in (*earlier, *self._question)]
        if after.next or [message.id for message in messages[: len(known)]] != known:
            return None, "messages"
        *between, last = messages[len(known) - 1 :]  # from the question on
        if not isinstance(last, AIMessage):
            return None, "messages"
        del between[:1]
        if between and not ("tool_calls" in allow and all(_is_of_tools(message) for message in between)):
            return None, "tool_calls" if all(_is_of_tools(message) for message in between) else "messages"
        if "state" not in allow and self._others(after) != {**self._others(before), **self._other_input()}:
            return None, "state"
        return last, ""

    def _others(self, state: StateSnapshot) -> dict[str, Any]:
        """The channels beside the messages; of an empty thread, too, those that begin with a value."""
        found: dict[str, Any] = {}
        for name in self._graph.stream_channels_list:
            channel = self._graph.channels[name]
            with suppress(EmptyChannelError):
                found[name] = channel.get() if isinstance(channel, BaseChannel) else None
        return {name: value for name, value in {**found, **state.values}.items() if name != self._policy.channel}

    def _other_input(self) -> dict[str, Any]:
        return {name: value for name, value in self._input.items() if name != self._policy.channel}

    def _tags(self) -> Collection[str]:
        thread_id = self._config.get("configurable", {}).get("thread_id", "")
        own = [f"assistant:{self._assistant_id}", f"thread:{thread_id}"]
        return (*self._policy.tags, *(tag for tag in own if len(tag) <= _TAG_CHARACTERS_MAX))


def of_turn(
    policy: CachedTurns,
    cache: AsyncSemanticCache,
    graph: Graph,
    turn_input: Any,
    config: RunnableConfig,
    assistant_id: str,
) -> TurnCache | None:
    """The cache for a turn; None for one that does not begin with a question of a human."""
    if not isinstance(turn_input, Mapping) or config.get("configurable", {}).get("checkpoint_id"):
        return None
    given: Any = turn_input.get(policy.channel)
    try:
        messages = convert_to_messages(given if isinstance(given, list) else [given])
    except Exception:  # noqa: BLE001 - of any kind: the graph shall say what is wrong with it
        return None
    if not messages or messages[-1].type != "human" or any(isinstance(each, RemoveMessage) for each in messages):
        return None
    named = [each if each.id else each.model_copy(update={"id": str(uuid.uuid4())}) for each in messages]
    return TurnCache(policy, cache, graph, {**turn_input, policy.channel: named}, config, assistant_id)


def _tell_once(assistant_id: str, reason: str) -> None:
    """Tell the owner of a graph what keeps turns of his from being kept: he may never see a hit and wonder why."""
    if (assistant_id, reason) not in _told:
        _told.add((assistant_id, reason))
        _logger.warning(
            "assistant %r: a turn is not kept in the cache, nor are others like it: %s (told once)",
            assistant_id,
            _NOT_KEPT[reason],
        )


def _messages_of(state: StateSnapshot, channel: str) -> list[BaseMessage]:
    found = state.values.get(channel) if isinstance(state.values, Mapping) else None
    return convert_to_messages(found or [])


def _described(exc: Exception) -> str:
    return f"{type(exc).__name__}: {exc}"


def _ids(messages: Sequence[BaseMessage]) -> set[str | None]:
    return {message.id for message in messages}


def _is_of_tools(message: BaseMessage) -> bool:
    return message.type == "tool" or bool(getattr(message, "tool_calls", None))
