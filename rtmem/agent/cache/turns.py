"""The owner of a graph says that its turns may be answered from the cache, and what else the answers depend on.

The policy travels in the graph's own config, under a name that no client can set: there it survives what a gateway and
LangGraph do with a graph (`copy`, `with_config`, other savers), and no checkpoint keeps it. Outside of a gateway it
does nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from langchain_core.runnables.config import merge_configs
from langgraph.constants import START
from langgraph.graph import StateGraph
from langgraph.pregel import Pregel

from rtmem.agent.served import CACHED_TURNS
from rtmem.errors import ConfigError
from rtmem.operations.cache_answers import UNWANTED, Unwanted
from rtmem.operations.cache_prompts import CacheScope, Conversation
from rtmem.operations.cache_records import CachePolicy

Graph: TypeAlias = Pregel[Any, Any, Any, Any]

Kept: TypeAlias = Literal["state", "memory"] | Unwanted
"""What may be kept although it usually is not. `state`: a turn that did more to its thread than add an answer.
`memory`: one whose answer may be of what is remembered, and stays as it was when that changes."""

_KEPT: Final = ("state", "memory", *UNWANTED)


@dataclass(frozen=True, slots=True)
class CachedTurns:
    """How the turns of a graph are cached. See `cached_turns`."""

    scope: CacheScope
    answer_node: str
    channel: str
    depends_on: tuple[str, ...] | None
    tags: tuple[str, ...]
    ttl_ms: int | None
    allow: frozenset[str]
    shared: bool = False
    write_policy: CachePolicy | None = None

    def heeds(self, channel: str) -> bool:
        """Whether what is in a channel beside the messages changes an answer."""
        return self.depends_on is None or channel in self.depends_on


def cached_turns(
    graph: Graph,
    *,
    model: str,
    parameters: Mapping[str, Any],
    system: str | None = None,
    tools: Sequence[Any] = (),
    response_format: Any = None,
    conversation: Conversation = "context",
    answer_node: str | None = None,
    channel: str = "messages",
    depends_on: Collection[str] | None = None,
    tags: Collection[str] = (),
    ttl_ms: int | None = None,
    allow: Collection[Kept] = (),
    shared: bool = False,
    policy: CachePolicy | None = None,
) -> Graph:
    """`graph`, whose turns a gateway may answer from the cache of whoever asks.

    What is asked is the last message of a run's input, if a human wrote it; a run that resumes, continues or begins at
    an older checkpoint is never looked up. A hit is of the same principal, assistant, scope, of the same input and
    state beside the messages, and of the same values in `config.configurable`. What a graph does besides answering (it
    calls tools, writes custom events, remembers an episode) is not done when its answer comes from the cache.

    Kept are turns that ended well, without interrupts, and did to their thread nothing but add the question and one
    answer. `allow=["tool_calls"]` keeps those that called tools, too: a hit then adds their answer alone. A turn that
    was told what is remembered (`RecallMiddleware`, `recall_node`, their tools, the store that the gateway brings) is
    kept with `allow=["memory"]` only.

    `shared=True`: answers are given to everybody who asks this assistant. Only for graphs that answer all alike: what a
    node learns of who asks by other means (a tool, a store or database of its own, the principal in its config) cannot
    be seen from outside, and others would get it. Whoever hears a hit learns that somebody has asked before.

    Args:
        model, parameters, system, tools, response_format: what the answers depend on; see `rtmem.cache.CacheScope`. It
            cannot be read off a graph: what is not named here must not change an answer.
        conversation: "context": all earlier messages of the thread must be the same. "last_turn": only the question
            counts; for graphs that answer each question by itself.
        answer_node: the node that writes the answer; default: `model`, or the only one there is.
        channel: where the messages are.
        depends_on: the other channels that change an answer; None: all there are.
        tags: what `rtmem cache invalidate --tag` finds entries by; `assistant:<id>` and `thread:<id>` are added.
        ttl_ms: how long an answer lives; None: as [cache] ttl_ms says.
        allow: what is kept although it usually is not: state, memory, tool_calls, refusal, truncated, error, empty.
        shared: entries are the assistant's, of principal `shared:<assistant id>`, instead of whoever asks.
        policy: looks at each entry (a `CacheDraft`) before it is stored, and may change or refuse it.

    Raises:
        ConfigError: no compiled graph, it has no such node or channel, or what is personal would be shared.
        InvalidRequestError: no scope.
    """
    _require_compiled(graph)
    if isinstance(allow, str) or not set(allow) <= set(_KEPT):
        raise ConfigError(f"allow is {allow!r:.100}: some of {', '.join(_KEPT)}")
    if shared and ("memory" in allow or conversation != "context"):
        raise ConfigError(
            "shared=True with allow=['memory'] or conversation='last_turn': what one user said or is known for would "
            "be told to others; leave that out, or keep the answers of each user for himself"
        )
    turns = CachedTurns(
        scope=CacheScope(
            model=model,
            parameters=parameters,
            system=system,
            tools=tools,
            response_format=response_format,
            conversation=conversation,
        ),
        answer_node=_node_of(graph, answer_node),
        channel=_channels_of(graph, (channel,))[0],
        depends_on=None if depends_on is None else _channels_of(graph, depends_on),
        tags=tuple(tags),
        ttl_ms=ttl_ms,
        allow=frozenset(allow),
        shared=shared,
        write_policy=policy,
    )
    # Not `with_config`: it makes a new graph, and forgets which types the old one's checkpoints may hold.
    clone = copy.copy(graph)
    clone.config = merge_configs(graph.config, {"configurable": {CACHED_TURNS: turns}})
    return clone


def _require_compiled(graph: object) -> None:
    if not isinstance(graph, Pregel):
        hint = ": call .compile() first" if isinstance(graph, StateGraph) else ""
        raise ConfigError(f"cached_turns needs a compiled graph, not a {type(graph).__name__}{hint}")


def _node_of(graph: Graph, name: str | None) -> str:
    nodes = [node for node in graph.nodes if node != START]
    if name is None:
        name = nodes[0] if len(nodes) == 1 else "model"
    if name not in nodes:
        raise ConfigError(
            f"answer_node is {name!r}, which this graph does not have: name the node that writes the answer, one of "
            f"{', '.join(nodes)}"
        )
    return name


def _channels_of(graph: Graph, names: Collection[str]) -> tuple[str, ...]:
    shown = graph.stream_channels_asis
    known = [shown] if isinstance(shown, str) else list(shown)
    for name in names:
        if name not in known:
            raise ConfigError(f"this graph has no channel {name!r}: use one of {', '.join(known)}")
    return tuple(names)
