"""CachedChatModel: a chat model whose answers are kept, and streamed again."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from functools import partial
from typing import Any, Final

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langgraph.config import get_stream_writer
from pydantic import PrivateAttr

from rtmem.agent.cache.binding import with_model
from rtmem.agent.cache.chunks import chunks_of, kept_result, messages_of
from rtmem.agent.cache.model_scope import name_of, parameters_of, scope_of_call
from rtmem.agent.cache.streams import ashared, shared
from rtmem.cache import AsyncSemanticCache, CacheScope, Hit, Outcome, SemanticCache, Unwanted
from rtmem.errors import ConfigError, InvalidRequestError, WrongColourError
from rtmem.operations.cache_prompts import Conversation, read_question
from rtmem.operations.cache_writing import check_properties
from rtmem.operations.cached_messages import facts, replayed
from rtmem.served import check_shared, of_whoever_asks

EVENT: Final = "rtmem.cache"
# What LangChain reads off the model that is called, which is this one and not the wrapped.
_TAKEN_OVER: Final = (
    *("callbacks", "tags", "metadata", "verbose", "name"),
    *("disable_streaming", "output_version", "profile", "custom_get_token_ids"),
)
_logger: Final = logging.getLogger(__name__)


class CachedChatModel(BaseChatModel):
    """A chat model that answers from the cache what it was asked before, also in streams.

        model = CachedChatModel(ChatOpenAI(model="gpt-5-mini"), AsyncSemanticCache(url, principal="ann"))

    It is used as the model that it wraps: bind_tools, with_structured_output, batch and the rest. A miss is streamed
    while the model speaks, and kept when it has ended well; who asks the same meanwhile, in this process or another,
    waits for that answer. A stream that is cut off is not kept. A hit is streamed at once, a few words in a chunk; in a
    graph, a custom event `rtmem.cache` says so (kind, distance, saved_ms, hit_id).

    A hit has a usage of zero tokens: none were spent, and whoever adds them up must not count them twice. What the
    answer cost once stands in `response_metadata["rtmem_cache"]["usage"]`.

    Whose answers: those of the principal that `cache` is bound to; behind `rtmem serve`, of whoever is authenticated,
    unless `shared`. A call that belongs to no run there is not cached.

    Args:
        model: the model itself; bind tools to what this class makes of it.
        cache: a SemanticCache serves both colours, awaiting calls through threads as LangChain does it. An
            AsyncSemanticCache serves ainvoke and astream.
        model_name: for a model that does not say which one it is.
        parameters: what of the model changes its answers; by default all that it says of itself.
        conversation: "last_turn": what was said before may differ.
        tags, ttl_ms, allow: of all answers; see `SemanticCache.update`. allow=["tool_calls"] keeps calls of tools too.
        shared: behind `rtmem serve`, too, the answers are those of the principal of `cache`, "shared:...".

    Raises ConfigError: a model that cannot be told from another one. InvalidRequestError: tags and the like.
    """

    model: BaseChatModel
    answers: Any  # SemanticCache | AsyncSemanticCache; `cache` is LangChain's name for something else
    _name: str = PrivateAttr()
    _parameters: Mapping[str, Any] | None = PrivateAttr()
    _conversation: Conversation = PrivateAttr()
    _options: dict[str, Any] = PrivateAttr()
    _shared: bool = PrivateAttr()
    _warned: bool = PrivateAttr(default=False)

    def __init__(
        self,
        model: BaseChatModel,
        cache: SemanticCache | AsyncSemanticCache,
        *,
        model_name: str = "",
        parameters: Mapping[str, Any] | None = None,
        conversation: Conversation = "context",
        tags: Collection[str] = (),
        ttl_ms: int | None = None,
        allow: Collection[Unwanted] = (),
        shared: bool = False,
    ) -> None:
        if not isinstance(model, BaseChatModel):
            raise ConfigError(
                f"model is a {type(model).__name__}, no chat model: wrap the model first, and bind tools to the outcome"
            )
        if not isinstance(cache, SemanticCache | AsyncSemanticCache):
            raise ConfigError(f"cache is a {type(cache).__name__}: give a SemanticCache or an AsyncSemanticCache")
        if shared:
            check_shared(cache.principal)
        of_model = {name: getattr(model, name) for name in _TAKEN_OVER}
        # No cache of LangChain's own before this one.
        super().__init__(model=model, answers=cache, cache=False, **of_model)  # type: ignore[call-arg]
        self._name = model_name or name_of(model)
        self._parameters = parameters
        self._conversation = conversation
        self._shared = shared
        kept_tags, ttl_ms, allowed = check_properties(tags, ttl_ms, allow)
        self._options = {"tags": kept_tags, "ttl_ms": ttl_ms, "allow": allowed}
        try:
            self._scope(None, {})
        except InvalidRequestError as exc:
            raise ConfigError(
                f"{type(model).__name__} cannot be told from another model: {exc}; or give parameters={{...}} with "
                "what changes its answers"
            ) from exc

    # What the model is -----------------------------------------------------------------------------------------------

    @property
    def _llm_type(self) -> str:
        return self.model._llm_type

    @property
    def _identifying_params(self) -> Mapping[str, Any]:
        return self.model._identifying_params

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return self.model._get_ls_params(stop=stop, **kwargs)

    def _get_invocation_params(self, stop: list[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        return self.model._get_invocation_params(stop=stop, **kwargs)

    def _should_stream(self, *, async_api: bool, run_manager: Any = None, **kwargs: Any) -> bool:
        if getattr(self.model, "streaming", None) is True:
            kwargs = {"stream": True, **kwargs}
        return super()._should_stream(async_api=async_api, run_manager=run_manager, **kwargs)

    def _combine_llm_outputs(self, llm_outputs: list[dict[str, Any] | None], /) -> dict[str, Any]:
        return self.model._combine_llm_outputs(llm_outputs)

    def get_token_ids(self, text: str) -> list[int]:
        """As the model counts."""
        return self.model.get_token_ids(text)

    def get_num_tokens_from_messages(self, messages: list[BaseMessage], tools: Sequence[Any] | None = None) -> int:
        """As the model counts."""
        return self.model.get_num_tokens_from_messages(messages, tools)

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """This model with `tools`, as the wrapped one binds them."""
        return with_model(self.model.bind_tools(tools, **kwargs), self.model, self)

    def with_structured_output(self, schema: Any, **kwargs: Any) -> Runnable[LanguageModelInput, Any]:
        """This model with a format of answers, as the wrapped one makes it."""
        return with_model(self.model.with_structured_output(schema, **kwargs), self.model, self)

    # Whole answers ---------------------------------------------------------------------------------------------------

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        cache, scope = self._blocking(), self._scope_or_none(messages, stop, kwargs)
        if cache is None or scope is None:
            return self._ask(messages, stop, kwargs)
        results: list[ChatResult] = []

        def compute() -> list[BaseMessage] | None:
            results.append(self._ask(messages, stop, kwargs))
            return kept_result(results[0])

        outcome = cache.get_or_compute(messages, scope, compute, **self._options)
        return results[0] if results else _result(outcome) or self._ask(messages, stop, kwargs)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if self._in_threads:
            return await super()._agenerate(messages, stop, run_manager, **kwargs)
        cache, scope = self._awaiting(), self._scope_or_none(messages, stop, kwargs)
        if cache is None or scope is None:
            return await self._aask(messages, stop, kwargs)
        results: list[ChatResult] = []

        async def compute() -> list[BaseMessage] | None:
            results.append(await self._aask(messages, stop, kwargs))
            return kept_result(results[0])

        outcome = await cache.get_or_compute(messages, scope, compute, **self._options)
        return results[0] if results else _result(outcome) or await self._aask(messages, stop, kwargs)

    # Streams ---------------------------------------------------------------------------------------------------------

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        cache, scope = self._blocking(), self._scope_or_none(messages, stop, kwargs)
        live = partial(self._live, messages, stop, kwargs)
        if cache is None or scope is None:
            chunks = live()
        else:
            chunks = shared(partial(cache.get_or_compute, messages, scope, **self._options), live, _replay)
        with closing(chunks):
            for chunk in chunks:
                if run_manager:
                    run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        if self._in_threads:
            async for chunk in super()._astream(messages, stop, run_manager, **kwargs):
                yield chunk
            return
        cache, scope = self._awaiting(), self._scope_or_none(messages, stop, kwargs)
        live = partial(self._alive, messages, stop, kwargs)
        if cache is None or scope is None:
            chunks = live()
        else:
            chunks = ashared(partial(cache.get_or_compute, messages, scope, **self._options), live, _replay)
        async with aclosing(chunks):
            async for chunk in chunks:
                if run_manager:
                    await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    # The model itself ------------------------------------------------------------------------------------------------

    def _ask(self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> ChatResult:
        if self.model.rate_limiter:
            self.model.rate_limiter.acquire(blocking=True)
        return self.model._generate(messages, stop=stop, **kwargs)

    async def _aask(self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> ChatResult:
        if self.model.rate_limiter:
            await self.model.rate_limiter.aacquire(blocking=True)
        return await self.model._agenerate(messages, stop=stop, **kwargs)

    def _live(
        self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]
    ) -> Generator[ChatGenerationChunk, None, None]:
        if type(self.model)._stream is BaseChatModel._stream:
            yield from chunks_of(messages_of(self._ask(messages, stop, kwargs))[0])
            return
        if self.model.rate_limiter:
            self.model.rate_limiter.acquire(blocking=True)
        yield from self.model._stream(messages, stop=stop, **kwargs)

    async def _alive(
        self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]
    ) -> AsyncGenerator[ChatGenerationChunk, None]:
        kind = type(self.model)
        if kind._astream is BaseChatModel._astream and kind._stream is BaseChatModel._stream:
            for chunk in chunks_of(messages_of(await self._aask(messages, stop, kwargs))[0]):
                yield chunk
            return
        if self.model.rate_limiter:
            await self.model.rate_limiter.aacquire(blocking=True)
        async for chunk in self.model._astream(messages, stop=stop, **kwargs):
            yield chunk

    # Whose answers, and in what scope --------------------------------------------------------------------------------

    def _scope(self, stop: list[str] | None, kwargs: Mapping[str, Any]) -> CacheScope:
        parameters = parameters_of(self.model) if self._parameters is None else self._parameters
        return scope_of_call(self._name, parameters, stop, kwargs, self._conversation)

    def _scope_or_none(
        self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]
    ) -> CacheScope | None:
        """The scope of a call; None if it has what cannot be compared: then it is neither looked up nor kept."""
        try:
            scope = self._scope(stop, kwargs)
            read_question("", messages, scope, 0)
        except InvalidRequestError as exc:
            if not self._warned:
                self._warned = True
                _logger.warning("%s: a call is not cached: %s", self._name, exc)
            return None
        return scope

    def _blocking(self) -> SemanticCache | None:
        """Whose answers these are; None: nobody knows, and there are none."""
        cache = self.answers
        if not isinstance(cache, SemanticCache):
            raise WrongColourError(
                "a blocking call of a model (invoke, stream) with an AsyncSemanticCache: use ainvoke or astream, or "
                "build it with a SemanticCache, which serves both"
            )
        return cache if self._shared else of_whoever_asks(cache)

    def _awaiting(self) -> AsyncSemanticCache | None:
        """See `_blocking`."""
        cache: AsyncSemanticCache = self.answers
        return cache if self._shared else of_whoever_asks(cache)

    @property
    def _in_threads(self) -> bool:
        return isinstance(self.answers, SemanticCache)


def _result(outcome: Outcome) -> ChatResult | None:
    """What this caller gets of an answer that somebody else asked for; None if it holds nothing to be given."""
    messages = _messages(outcome)
    return ChatResult(generations=[ChatGeneration(message=each) for each in messages]) if messages else None


def _replay(outcome: Outcome) -> Iterator[ChatGenerationChunk] | None:
    """See `_result`."""
    messages = _messages(outcome)
    return chunks_of(messages[0]) if messages else None


def _messages(outcome: Outcome) -> list[BaseMessage]:
    if outcome.hit is not None:
        _tell(outcome.hit)
    return [replayed(message, outcome.hit) for message in outcome.answer or ()]


def _tell(hit: Hit) -> None:
    try:
        write = get_stream_writer()
    except (RuntimeError, KeyError):  # outside of a graph nobody listens
        return
    write({"name": EVENT, **facts(hit)})
