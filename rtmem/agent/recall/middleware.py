"""RecallMiddleware: long-term memory for an agent of LangChain. Needs the extra `agent`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage

from rtmem import settings as all_settings
from rtmem.agent.recall.messages import aepisode, awith_memory, episode, with_memory
from rtmem.agent.recall.recall import Recall
from rtmem.agent.recall.tools import MODEL_TOOLS, model_tools
from rtmem.agent.recall.verbs import AnyMemory


class RecallMiddleware(AgentMiddleware[Any, Any, Any]):
    """The model of an agent sees what is remembered about the user's last message, and may remember, search and forget.

        agent = create_agent(model, tools, middleware=[RecallMiddleware(memory)])

    Args:
        memory: whose; or a `Recall`. None: the memory of the gateway that serves the agent, for whoever is
            authenticated there (`rtmem serve`). A memory of one's own is bound to that principal too.
        settings: section [recall], with a memory.
        tools: which tools the model gets: "remember", "search_memory", "forget".
    """

    def __init__(
        self,
        memory: AnyMemory | Recall | None = None,
        *,
        settings: all_settings.Recall | None = None,
        tools: Collection[str] = MODEL_TOOLS,
    ) -> None:
        super().__init__()
        made = memory is None or isinstance(memory, Recall)
        self.recall: Recall | None = memory if made else Recall(memory, settings)  # type: ignore[assignment, arg-type]
        self.tools = model_tools(self.recall, settings, tools)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Call the model with memory; after its last word, write the turn if the policy says so."""
        tell = request.runtime.stream_writer
        response = handler(request.override(messages=with_memory(self.recall, request.messages, tell)))
        if _ends_turn(response):
            episode(self.recall, request.messages, tell)
        return response

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """See `wrap_model_call`."""
        tell = request.runtime.stream_writer
        response = await handler(request.override(messages=await awith_memory(self.recall, request.messages, tell)))
        if _ends_turn(response):
            await aepisode(self.recall, request.messages, tell)
        return response


def _ends_turn(response: ModelResponse[Any]) -> bool:
    return not any(isinstance(message, AIMessage) and message.tool_calls for message in response.result)
