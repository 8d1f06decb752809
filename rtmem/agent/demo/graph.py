"""The demo graph: memory -> model <-> tools.

Memory is a step of its own in front of the model: policy decides what is written, with any model behind it, and the
model is told what was done. Facts live in the thread's state, and behind a gateway in long-term memory too, so that
every thread of the same person knows them. `remember` and `remember_across` are the places that read and write them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import anyio.to_thread
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, SystemMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt

from rtmem.agent.demo import prompt
from rtmem.agent.demo.model import RulesModel
from rtmem.agent.demo.phrases import MANY_VALUED, Forget, Remember, language_of, understand
from rtmem.agent.demo.tools import TOOLS, approves, explain_refusal
from rtmem.agent.served import SERVED, Served, expect_memory

FACT_VALUES_MAX: Final = 50  # per attribute; the oldest goes

_FORGET_QUESTION = {
    "en": "Forget every fact and this conversation so far?",
    "ru": "Забыть все факты и весь разговор до этого места?",
}


class DemoState(MessagesState, total=False):
    """The conversation, what is known about the user, and the messages the user approved."""

    facts: prompt.Facts
    memory_step: prompt.MemoryStep
    outbox: list[dict[str, str]]


def build(model: BaseChatModel | None = None, *, across_threads: bool = False) -> StateGraph[DemoState]:
    """The uncompiled graph around `model`, or around the rules model.

    Args:
        across_threads: behind a gateway, what is known is known in every thread of its principal.
    """
    if across_threads:
        expect_memory()
    talker = (model or RulesModel()).bind_tools(TOOLS)
    answer = RunnableLambda(_conversation) | talker | RunnableLambda(_as_update)
    builder = StateGraph(DemoState)
    builder.add_node("memory", RunnableLambda(remember, remember_across if across_threads else None))
    builder.add_node("model", answer)
    builder.add_node("tools", ToolNode(TOOLS, handle_tool_errors=explain_refusal))
    builder.add_edge(START, "memory")
    builder.add_edge("memory", "model")
    builder.add_conditional_edges("model", tools_condition, {"tools": "tools", END: END})
    builder.add_edge("tools", "model")
    return builder


def graph(
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    *,
    model: BaseChatModel | None = None,
    across_threads: bool = False,
) -> CompiledStateGraph[DemoState]:
    """The compiled demo graph."""
    return build(model, across_threads=across_threads).compile(checkpointer=checkpointer, name="demo")


def remember(state: DemoState) -> dict[str, Any]:
    """Write and erase facts as the user's last message asks. Asks for approval before erasing everything."""
    said = state["messages"][-1] if state.get("messages") else None
    text = str(said.text) if isinstance(said, HumanMessage) else ""
    phrases = understand(text)
    step = prompt.MemoryStep(remembered=[], forgotten=[], not_known=[], everything="")
    if Forget(None) in phrases:
        question = _FORGET_QUESTION[language_of(text)]
        if approves(interrupt({"action": "forget_everything", "question": question})):
            step["everything"] = "forgotten"
            messages = [RemoveMessage(REMOVE_ALL_MESSAGES), *state["messages"][-1:]]
            return {"facts": {}, "outbox": [], "memory_step": step, "messages": messages}
        step["everything"] = "kept"
    facts = {attribute: list(values) for attribute, values in state.get("facts", {}).items()}
    for phrase in phrases:
        if isinstance(phrase, Remember):
            _keep(facts, phrase)
            step["remembered"].append([phrase.attribute, phrase.value])
        elif isinstance(phrase, Forget) and phrase.attribute:
            known = facts.pop(phrase.attribute, None)
            step["forgotten" if known else "not_known"].append(phrase.attribute)
    return {"facts": facts, "memory_step": step}


async def remember_across(state: DemoState, config: RunnableConfig) -> dict[str, Any]:
    """The same, in long-term memory; where that cannot be used, in the thread's state, and the answer says so."""
    served = (config.get("configurable") or {}).get(SERVED)
    if not isinstance(served, Served):
        return remember(state)
    # What memory needs takes a second to import: in a thread, and only where it is used.
    shared = await anyio.to_thread.run_sync(import_module, "rtmem.agent.demo.shared")
    recall = served.recall()
    known, trouble = await shared.load(recall)
    if known is None:
        update = remember(state)
    else:
        own = state.get("facts", {}) if state.get("memory_step", {}).get("trouble") else {}  # not written last time
        update = remember({**state, "facts": {**known, **own}})
        trouble = await shared.save(recall, known, update["facts"])
    if trouble:
        update["memory_step"]["trouble"] = trouble
    return update


def _keep(facts: prompt.Facts, phrase: Remember) -> None:
    values = facts.get(phrase.attribute, []) if phrase.attribute in MANY_VALUED else []
    others = [value for value in values if value != phrase.value]
    facts[phrase.attribute] = [*others, phrase.value][-FACT_VALUES_MAX:]


def _conversation(state: DemoState) -> list[AnyMessage]:
    system = SystemMessage(prompt.render(state.get("facts", {}), state.get("memory_step", {})))
    return [system, *state["messages"]]


def _as_update(message: AIMessage) -> dict[str, list[AIMessage]]:
    return {"messages": [message]}
