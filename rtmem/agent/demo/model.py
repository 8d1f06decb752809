"""A chat model that follows rules: no key, no download, and the same answer to the same messages.

It is a BaseChatModel like any other: it gets the system prompt, the conversation and the bound tools, and streams an
AIMessage with text or tool calls. A graph that works with it works with a real model.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from rtmem.agent.demo import answers, prompt
from rtmem.agent.demo.phrases import (
    AskTime,
    Calculate,
    Greet,
    Language,
    Phrase,
    Recall,
    Send,
    Thank,
    language_of,
    understand,
)
from rtmem.agent.demo.tools import DECLINED, SENT


class RulesModel(BaseChatModel):
    """Answers by rules, a word at a time, `token_interval_ms` apart."""

    token_interval_ms: int = 0

    @property
    def _llm_type(self) -> str:
        return "rtmem-demo-rules"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """This model with `tools` it may call; `tool_choice` is ignored, the user's words choose."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=reply(messages, _names(kwargs.get("tools", ()))))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in _chunks(reply(messages, _names(kwargs.get("tools", ())))):
            if run_manager:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk
            if self.token_interval_ms:
                time.sleep(self.token_interval_ms / 1000)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in _chunks(reply(messages, _names(kwargs.get("tools", ())))):
            if run_manager:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk
            await asyncio.sleep(self.token_interval_ms / 1000)


def reply(messages: Sequence[BaseMessage], tools: frozenset[str]) -> AIMessage:
    """The answer to a conversation: tool calls if the last user message needs them and they have not been made."""
    asked_at = max((at for at, message in enumerate(messages) if isinstance(message, HumanMessage)), default=-1)
    text = str(messages[asked_at].text) if asked_at >= 0 else ""
    phrases = understand(text)
    results = [message for message in messages[asked_at + 1 :] if isinstance(message, ToolMessage)]
    if not results and (calls := [call for phrase in phrases if (call := _call(phrase)) and call[0] in tools]):
        # The position makes the id: unique in the thread and the same at every replay.
        tool_calls = [
            {"name": name, "args": arguments, "id": f"call-{asked_at}-{at}", "type": "tool_call"}
            for at, (name, arguments) in enumerate(calls)
        ]
        return AIMessage("", tool_calls=tool_calls)
    system = next((str(message.text) for message in messages if isinstance(message, SystemMessage)), "")
    facts, step = prompt.read(system)
    return AIMessage(_compose(phrases, facts, step, results, language_of(text)))


def _compose(
    phrases: Sequence[Phrase],
    facts: prompt.Facts,
    step: prompt.MemoryStep,
    results: Sequence[ToolMessage],
    language: Language,
) -> str:
    sentences = []
    if any(isinstance(phrase, Greet) for phrase in phrases):
        name = facts.get("name")
        sentences.append(
            answers.line("greeting", language, name[0]) if name else answers.line("greeting_stranger", language)
        )
        if len(phrases) == 1:
            sentences.append(answers.line("offer", language))
    sentences += answers.memory_report(step, language)
    waiting = list(results)
    for phrase in phrases:
        if isinstance(phrase, Recall):
            sentences.append(answers.known(facts, phrase.attribute, language))
        elif isinstance(phrase, Thank):
            sentences.append(answers.line("welcome", language))
        elif _call(phrase) and waiting:
            sentences.append(_tell(phrase, waiting.pop(0), language))
    return " ".join(sentences) or answers.line("fallback", language)


def _call(phrase: Phrase) -> tuple[str, dict[str, str]] | None:
    match phrase:
        case Calculate(expression):
            return "calculate", {"expression": expression}
        case AskTime(zone):
            return "current_time", {"time_zone": zone}
        case Send(recipient, text):
            return "send_message", {"recipient": recipient, "text": text}
        case _:
            return None


def _tell(phrase: Phrase, result: ToolMessage, language: Language) -> str:
    said = str(result.text)
    match phrase:
        case Calculate() if result.status == "error":
            return answers.line("no_result", language, said.removeprefix("refused: "))
        case Calculate(expression):
            return answers.line("result", language, expression, said)
        case AskTime() if result.status != "error":
            return answers.line("time", language, said)
        case Send(recipient) if said.startswith(SENT):
            return answers.line("sent", language, recipient)
        case Send() if said.startswith(DECLINED):
            return answers.line("declined", language)
    return f"{said[:1].upper()}{said[1:]}."


def _names(tools: Sequence[dict[str, Any]]) -> frozenset[str]:
    return frozenset(tool["function"]["name"] for tool in tools)


def _chunks(message: AIMessage) -> Iterator[ChatGenerationChunk]:
    """`message` as a stream: a word with the white space before it is a token; a tool call comes whole."""
    for at, call in enumerate(message.tool_calls):
        arguments = json.dumps(call["args"], ensure_ascii=False)
        piece = tool_call_chunk(name=call["name"], args=arguments, id=call["id"], index=at)
        yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[piece]))
    for word in re.findall(r"\s*\S+", str(message.text)):
        yield ChatGenerationChunk(message=AIMessageChunk(content=word))
    yield ChatGenerationChunk(message=AIMessageChunk(content="", chunk_position="last"))
