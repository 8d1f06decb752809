"""Answers of a chat model between the forms that LangChain has for them: a result, a stream of chunks, what is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.outputs.chat_generation import merge_chat_generation_chunks

from rtmem.agent.cache.replaying import pieces
from rtmem.operations.cached_messages import kept

_ENDINGS: Final = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")


def kept_result(result: ChatResult) -> list[BaseMessage] | None:
    """What of a result is kept: all its messages; None if there is nothing to keep."""
    return _readable(messages_of(result))


def messages_of(result: ChatResult) -> list[BaseMessage]:
    """Its messages, with all that is known of each."""
    told = result.llm_output or {} if len(result.generations) == 1 else {}
    return [kept(each.message, {**told, **(each.generation_info or {})}) for each in result.generations]


def kept_stream(chunks: Sequence[ChatGenerationChunk]) -> list[BaseMessage] | None:
    """What of a whole stream is kept; None if there is nothing to keep."""
    merged = merge_chat_generation_chunks(list(chunks))
    if merged is None:
        return None
    message = kept(merged.message, merged.generation_info)
    metadata = message.response_metadata
    if metadata.get("model_provider") and not any(metadata.get(name) for name in _ENDINGS):
        # Providers say how a stream ended. This one was cut off, and its client did not notice.
        metadata["finish_reason"] = "incomplete"
    return _readable([message])


def _readable(messages: list[BaseMessage]) -> list[BaseMessage] | None:
    # A call of a tool that could not be read may become one that can, when its chunks are put together again.
    return None if any(getattr(message, "invalid_tool_calls", None) for message in messages) else messages


def copy_of(chunk: ChatGenerationChunk) -> ChatGenerationChunk:
    """A chunk of one's own: LangChain writes into those that it streams."""
    return ChatGenerationChunk(message=chunk.message.model_copy(), generation_info=chunk.generation_info)


def chunks_of(message: BaseMessage) -> Iterator[ChatGenerationChunk]:
    """A message as a model would stream it: a few words at a time, blocks and calls of tools whole, and then the rest.

    Together they are the message.
    """
    content, whole = message.content, message if isinstance(message, AIMessage) else AIMessage(message.content)
    if isinstance(content, str):
        for piece in pieces(content):
            yield _chunk(piece)
    else:
        for block in content:
            for part in _parts(block):
                yield _chunk([part])
    for at, call in enumerate(whole.tool_calls):
        told = tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=at)
        yield _chunk("" if isinstance(content, str) else [], tool_call_chunks=[told])
    yield _chunk(
        "" if isinstance(content, str) else [],
        additional_kwargs=whole.additional_kwargs,
        response_metadata=whole.response_metadata,
        usage_metadata=whole.usage_metadata,
        chunk_position="last",
    )


def _parts(block: Any) -> Iterator[Any]:
    """A block of text that has an index, by which chunks are put together again, in pieces; any other is whole."""
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    if not isinstance(text, str) or not text or not isinstance(block.get("index"), int):
        yield block
        return
    rest = {name: value for name, value in block.items() if name not in ("text", "type", "index")}
    for at, piece in enumerate(pieces(text)):
        yield {"type": "text", "text": piece, "index": block["index"], **({} if at else rest)}


def _chunk(content: Any, **more: Any) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=AIMessageChunk(content=content, **more))
