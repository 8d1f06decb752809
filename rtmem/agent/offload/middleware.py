"""PointerMiddleware: pointers for all tools of an agent of LangChain. Needs the extra `agent`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ToolCallRequest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.types import Command

from rtmem.agent.offload.counts import PointerCounts
from rtmem.agent.offload.tools import AnyPointers, ToolPointers
from rtmem.operations.pointer_previews import MODEL_TOOLS

ToolResult = ToolMessage | Command[Any]


class PointerMiddleware(AgentMiddleware[Any, Any, Any]):
    """Large results of an agent's tools become pointers, which the model can pass on and look into.

        agent = create_agent(model, [search, plot], middleware=[PointerMiddleware(pointers)])

    Without `pointers`: those of the gateway that serves the agent. Whichever they are, behind a gateway they are those
    of whoever is authenticated there. Arguments marked with `ByPointer` are resolved. Brings the tools of
    `ToolPointers`, whose options it takes. What other middleware returns instead of calling a tool is left as it is.
    """

    def __init__(
        self,
        pointers: AnyPointers | None = None,
        *,
        characters_max: int | None = None,
        tools: Collection[str] = MODEL_TOOLS,
        ttl_ms: int | None = None,
    ) -> None:
        super().__init__()
        self._edge = ToolPointers(pointers, characters_max=characters_max, tools=tools, ttl_ms=ttl_ms)
        self._wrapped: dict[str, tuple[BaseTool, BaseTool]] = {}
        self.tools = self._edge.tools

    @property
    def counts(self) -> PointerCounts:
        """What was kept out, resolved and looked up so far."""
        return self._edge.counts

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolResult]) -> ToolResult:
        """Call a tool in its wrapped form."""
        return handler(self._seen_to(request))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolResult]]
    ) -> ToolResult:
        """Call a tool in its wrapped form."""
        return await handler(self._seen_to(request))

    def _seen_to(self, request: ToolCallRequest) -> ToolCallRequest:
        if request.tool is None:
            return request
        # By name, so that it stays as small as the agent, also where tools are made anew for each run.
        known = self._wrapped.get(request.tool.name)
        if known is None or known[0] is not request.tool:
            known = self._wrapped[request.tool.name] = (request.tool, self._edge.wrap(request.tool))
        return request.override(tool=known[1])
