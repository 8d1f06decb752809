"""The cache of answers behind LangChain's own door: `set_llm_cache(...)`, and `ChatOpenAI(cache=...)`.

LangChain asks this cache before a model is called, and only where it does not stream: for streams there is
`rtmem.agent.cache.CachedChatModel`.
"""

from __future__ import annotations

import copy
import logging
import time
from collections import OrderedDict
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final, Self

from langchain_core.caches import RETURN_VAL_TYPE, BaseCache
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, Generation

from rtmem.cache.aio import AsyncSemanticCache
from rtmem.cache.sync import SemanticCache
from rtmem.errors import ConfigError, InvalidRequestError, WrongColourError
from rtmem.operations.cache_answers import Unwanted
from rtmem.operations.cache_prompts import CacheScope, Conversation, Prompt
from rtmem.operations.cache_records import Hit
from rtmem.operations.cache_writing import check_properties
from rtmem.operations.cached_messages import CACHED, facts, kept, replayed
from rtmem.operations.langchain_prompts import Form, read_prompt, scope_of
from rtmem.served import check_shared, of_whoever_asks

_ASKED_MAX: Final = 4_096
_logger: Final = logging.getLogger(__name__)


class LangChainCache(BaseCache):
    """LangChain's cache of answers, by meaning.

        set_llm_cache(LangChainCache(SemanticCache(url, embedder=embedder, principal="ann")))

    Model, parameters, tools and format of the answer are the scope, as LangChain writes them. Of a conversation the
    last message is compared by meaning, all before it must be the same. A model whose description hides what its
    objects are (`<function f at 0x...>`, a class within a function) is not cached, and a warning says so.

    A message out of the cache has a usage of zero tokens, and `response_metadata["rtmem_cache"]`: kind, distance,
    saved_ms, hit_id (for `report`), and the usage of when it was computed.

    Args:
        cache: a SemanticCache serves both colours, the awaiting one through threads as LangChain does it. An
            AsyncSemanticCache serves `ainvoke` only. Its principal is whose answers these are: all callers share them.
            Behind `rtmem serve`, they are those of whoever is authenticated; a call that belongs to no run there is not
            cached.
        conversation: "last_turn": what was said before may differ.
        tags, ttl_ms, allow: of all answers; see `SemanticCache.update`.
        shared: behind `rtmem serve`, too, the answers are those of the principal of `cache`, "shared:...".
    """

    def __init__(
        self,
        cache: SemanticCache | AsyncSemanticCache,
        *,
        conversation: Conversation = "context",
        tags: Collection[str] = (),
        ttl_ms: int | None = None,
        allow: Collection[Unwanted] = (),
        shared: bool = False,
    ) -> None:
        if not isinstance(cache, SemanticCache | AsyncSemanticCache):
            raise ConfigError(f"cache is a {type(cache).__name__}: give a SemanticCache or an AsyncSemanticCache")
        if shared:
            check_shared(cache.principal)
        CacheScope(model="any", parameters={}, conversation=conversation)  # what is wrong is said here, and never later
        kept_tags, ttl_ms, allowed = check_properties(tags, ttl_ms, allow)
        self.cache = cache
        self._conversation: Conversation = conversation
        self._shared = shared
        self._options: dict[str, Any] = {"tags": kept_tags, "ttl_ms": ttl_ms, "allow": allowed}
        self._asked = _Asked()

    def bind(self, principal: str) -> Self:
        """This cache for another principal: same connections, other answers. Raises IdTooLongError."""
        if self._shared:
            check_shared(principal)
        clone = copy.copy(self)
        clone.cache = self.cache.bind(principal)
        clone._asked = _Asked()
        return clone

    def lookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """The generations of an answer, or None."""
        cache = self._blocking()
        question = self._question(prompt, llm_string)
        if cache is None or question is None:
            return None
        hit = None
        with suppress(InvalidRequestError):  # messages that are nested too deeply
            hit = cache.lookup(*question[1:])
        return self._found(question, prompt, llm_string, hit)

    async def alookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """See `lookup`."""
        if not isinstance(self.cache, AsyncSemanticCache):
            return await super().alookup(prompt, llm_string)
        cache = self.cache if self._shared else of_whoever_asks(self.cache)
        question = self._question(prompt, llm_string)
        if cache is None or question is None:
            return None
        hit = None
        with suppress(InvalidRequestError):
            hit = await cache.lookup(*question[1:])
        return self._found(question, prompt, llm_string, hit)

    def update(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        """Store generations, unless they are what nobody else should get: errors, refusals, calls of tools."""
        cache = self._blocking()
        question = self._question(prompt, llm_string)
        if cache is not None and question is not None:
            took_ms = self._asked.took_ms(prompt, llm_string)
            form, asked, scope = question
            with suppress(InvalidRequestError):
                cache.update(asked, _kept(form, return_val), scope, took_ms=took_ms, **self._options)

    async def aupdate(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        """See `update`."""
        if not isinstance(self.cache, AsyncSemanticCache):
            await super().aupdate(prompt, llm_string, return_val)
            return
        cache = self.cache if self._shared else of_whoever_asks(self.cache)
        question = self._question(prompt, llm_string)
        if cache is not None and question is not None:
            took_ms = self._asked.took_ms(prompt, llm_string)
            form, asked, scope = question
            with suppress(InvalidRequestError):
                await cache.update(asked, _kept(form, return_val), scope, took_ms=took_ms, **self._options)

    def clear(self, **kwargs: Any) -> None:
        """Drop all answers of this principal; with keywords, those that `SemanticCache.invalidate` would. Raises errors
        of Redis."""
        cache = self._blocking() or self.cache
        cache.invalidate(**(kwargs or {"everything": True}))

    async def aclear(self, **kwargs: Any) -> None:
        """See `clear`."""
        if isinstance(self.cache, AsyncSemanticCache):
            cache = self.cache if self._shared else of_whoever_asks(self.cache) or self.cache
            await cache.invalidate(**(kwargs or {"everything": True}))
        else:
            await super().aclear(**kwargs)

    def _blocking(self) -> SemanticCache | None:
        """Whose answers these are; None: nobody knows, and there are none."""
        if not isinstance(self.cache, SemanticCache):
            raise WrongColourError(
                "a blocking call of a model (invoke, batch) with an AsyncSemanticCache: use ainvoke or abatch, or "
                "build the cache with a SemanticCache, which serves both"
            )
        return self.cache if self._shared else of_whoever_asks(self.cache)

    def _question(self, prompt: str, llm_string: str) -> tuple[Form, Prompt, CacheScope] | None:
        form, asked = read_prompt(prompt)
        scope = scope_of(llm_string, form, self._conversation)
        if scope is None:
            _warn_once(llm_string)
            return None
        return form, asked, scope

    def _found(self, question: Any, prompt: str, llm_string: str, hit: Hit | None) -> RETURN_VAL_TYPE | None:
        generations = None if hit is None else _generations(question[0], hit)
        if generations is None:
            self._asked.note(prompt, llm_string)
        return generations


class _Asked:
    """When questions were asked that had no answer: LangChain does not say how long a model took."""

    def __init__(self) -> None:
        self._since_s: OrderedDict[tuple[int, int], float] = OrderedDict()

    def note(self, prompt: str, llm_string: str) -> None:
        """It goes to the model now."""
        self._since_s[hash(prompt), hash(llm_string)] = time.monotonic()
        if len(self._since_s) > _ASKED_MAX:
            with suppress(KeyError):  # another thread took the last one
                self._since_s.popitem(last=False)

    def took_ms(self, prompt: str, llm_string: str) -> int:
        """How long ago that was; 0 if nobody knows."""
        since_s = self._since_s.pop((hash(prompt), hash(llm_string)), None)
        return 0 if since_s is None else round((time.monotonic() - since_s) * 1_000)


_warned: set[int] = set()


def _warn_once(llm_string: str) -> None:
    if hash(llm_string) not in _warned and len(_warned) < _ASKED_MAX:
        _warned.add(hash(llm_string))
        _logger.warning(
            "not cached, for LangChain's description of the model hides what some of its objects are, and two could "
            "look alike: %.300s",
            llm_string,
        )


# Generations are kept as messages: LangGraph's serialiser writes those whole, and of a ChatGeneration's the half.


def _kept(form: Form, generations: Sequence[Generation]) -> dict[str, Any]:
    return {"form": form, "messages": [_message_of(generation) for generation in generations]}


def _message_of(generation: Generation) -> BaseMessage:
    if isinstance(generation, ChatGeneration):
        return kept(generation.message, generation.generation_info)
    return AIMessage(generation.text, response_metadata=generation.generation_info or {})


def _generations(form: Form, hit: Hit) -> list[Generation] | None:
    stored = hit.answer
    if not isinstance(stored, dict) or stored.get("form") != form:
        return None  # somebody stored it by other means
    messages: list[BaseMessage] = stored["messages"]
    if form == "messages":
        return [ChatGeneration(message=replayed(message, hit)) for message in messages]
    return [
        Generation(text=str(message.content), generation_info={**message.response_metadata, CACHED: facts(hit)})
        for message in messages
    ]
