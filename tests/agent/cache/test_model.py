"""CachedChatModel around a real client of a real (local) server of models, in both colours, whole and in streams."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from langchain_core._api import LangChainBetaWarning
from langchain_core.callbacks import BaseCallbackHandler, UsageMetadataCallbackHandler
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from openai import APIError
from pydantic import Field

from rtmem import settings as all_settings
from rtmem.agent.cache import CachedChatModel
from rtmem.agent.demo.model import RulesModel
from rtmem.agent.served import SERVED, Served
from rtmem.cache import AsyncSemanticCache, SemanticCache
from rtmem.errors import ConfigError, InvalidRequestError, UnsupportedError, WrongColourError
from tests.cache import chat_server
from tests.cache.chat_server import ChatServer
from tests.cache.chat_tools import Answer, look, other_look
from tests.checkpoint.colours import Loop
from tests.drivers.processes import eventually
from tests.embedders import Words

# Nothing here may depend on how fast a machine is: no deadline, and no lease that ends by itself.
LONG_MS = 600_000
SETTINGS = all_settings.Cache(
    thresholds={"words": 0.3},
    lookup_deadline_ms=LONG_MS,
    update_deadline_ms=LONG_MS,
    lease_ms=LONG_MS,
    wait_max_ms=LONG_MS,
)
PATIENT = all_settings.Redis(deadline_ms=LONG_MS)
FRANCE = "What is the capital of France?"
LIKE_FRANCE = "What is the capital city of France?"


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server.running() as server:
        yield server


class Talk:
    """A cache in one colour, and models that are asked whole or in streams."""

    def __init__(self, cache: Any, server: ChatServer, loop: Loop | None, streaming: bool) -> None:
        self.cache, self.server, self.loop, self.streaming = cache, server, loop, streaming

    def bare(self, **options: Any) -> ChatOpenAI:
        asked = {"model": "tiny", "temperature": 0, "base_url": self.server.url, "stream_usage": True, **options}
        return ChatOpenAI(api_key="none", max_retries=0, **asked)

    def model(self, bare: BaseChatModel | None = None, **options: Any) -> CachedChatModel:
        return CachedChatModel(bare or self.bare(), self.cache, **options)

    def run(self, blocking: Callable[[], Any], awaiting: Callable[[], Any]) -> Any:
        return blocking() if self.loop is None else self.loop.wait(awaiting())

    def ask(self, prompt: Any, model: Any = None, **config: Any) -> Any:
        asked = self.model() if model is None else model
        if not self.streaming:
            return self.run(lambda: asked.invoke(prompt, config), lambda: asked.ainvoke(prompt, config))
        *_, last = accumulate(self.chunks(prompt, asked, **config))
        return last

    def chunks(self, prompt: Any, model: Any = None, **config: Any) -> list[Any]:
        asked = self.model() if model is None else model

        async def collect() -> list[Any]:
            return [chunk async for chunk in asked.astream(prompt, config)]

        return self.run(lambda: list(asked.stream(prompt, config)), collect)  # type: ignore[no-any-return]

    @property
    def calls(self) -> int:
        return len(self.server.requests)


def accumulate(chunks: list[Any]) -> Iterator[Any]:
    whole = None
    for chunk in chunks:
        whole = whole + chunk if isinstance(whole, BaseMessage) else chunk
        yield whole


@contextmanager
def talking(how: str, redis_url: str, server: ChatServer, loop: Loop) -> Iterator[Talk]:
    """`threads`: awaiting calls with a blocking cache."""
    kind = AsyncSemanticCache if "awaiting" in how else SemanticCache
    options: dict[str, Any] = {"guard": False, "principal": str(uuid4()), "settings": SETTINGS, "redis": PATIENT}
    cache: Any = kind(redis_url, embedder=Words(), **options)
    yield Talk(cache, server, None if "blocking" in how else loop, "whole" not in how)
    if isinstance(cache, AsyncSemanticCache):
        loop.wait(cache.aclose())
    else:
        cache.close()


@pytest.fixture(
    params=["blocking, whole", "blocking, streaming", "awaiting, whole", "awaiting, streaming", "threads, streaming"]
)
def talk(request: pytest.FixtureRequest, redis_url: str, server: ChatServer, loop: Loop) -> Iterator[Talk]:
    with talking(request.param, redis_url, server, loop) as talk:
        yield talk


@pytest.fixture(params=["blocking", "awaiting", "threads"])
def stream(request: pytest.FixtureRequest, redis_url: str, server: ChatServer, loop: Loop) -> Iterator[Talk]:
    with talking(request.param, redis_url, server, loop) as talk:
        yield talk


def mark(message: BaseMessage) -> dict[str, Any]:
    found: dict[str, Any] = message.response_metadata["rtmem_cache"]
    return found


# Hits --------------------------------------------------------------------------------------------------------------


def test_the_same_question_and_one_that_means_the_same_are_answered_once(talk: Talk) -> None:
    first = talk.ask(FRANCE)
    same, near = talk.ask(FRANCE), talk.ask(LIKE_FRANCE)
    assert talk.calls == 1
    assert first.content == same.content == near.content != ""
    assert "rtmem_cache" not in first.response_metadata
    assert (mark(same)["kind"], mark(near)["kind"]) == ("exact", "semantic")
    assert 0 < mark(near)["distance"] < 0.3
    assert talk.run(lambda: talk.cache.report(mark(near)["hit_id"], True), lambda: report(talk, near))


async def report(talk: Talk, hit: BaseMessage) -> bool:
    done = talk.cache.report(mark(hit)["hit_id"], True)
    return await done if not isinstance(done, bool) else done


def test_tokens_that_were_not_spent_are_not_counted_again(talk: Talk) -> None:
    counted = UsageMetadataCallbackHandler()
    for _ in range(3):
        answer = talk.ask(FRANCE, callbacks=[counted])
    assert talk.calls == 1
    assert counted.usage_metadata["tiny"]["total_tokens"] == 18
    assert answer.usage_metadata == {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    assert mark(answer)["usage"]["total_tokens"] == 18
    assert not {"token_usage", "usage"} & answer.response_metadata.keys()
    assert answer.response_metadata["finish_reason"] == "stop"


def test_a_hit_is_streamed_in_pieces_that_are_the_stored_message(stream: Talk) -> None:
    asked = "  Tell me, at length, of:\n\n  the\tseven   hills of Rome  "
    live, replayed = stream.chunks(asked), stream.chunks(asked)
    assert len(live) > 3
    assert len(replayed) > 3
    *_, said = accumulate(live)
    *_, again = accumulate(replayed)
    assert again.content == said.content
    assert again.tool_calls == []
    assert len({chunk.id for chunk in replayed}) == 1
    assert {chunk.id for chunk in replayed} != {chunk.id for chunk in live}
    assert replayed[-1].chunk_position == "last"
    # And whoever asks for it whole gets the same.
    whole = Talk(stream.cache, stream.server, stream.loop, False).ask(asked)
    assert whole.content == said.content
    assert stream.calls == 1


def test_tools_are_bound_and_their_calls_kept_only_where_that_was_asked_for(talk: Talk) -> None:
    for _ in range(2):
        answer = talk.ask("the tool please", talk.model().bind_tools([look]))
        assert [call["name"] for call in answer.tool_calls] == ["look"]
    assert talk.calls == 2
    keeping = talk.model(allow=["tool_calls"]).bind_tools([look])
    first, second = talk.ask("the tool please", keeping), talk.ask("the tool please", keeping)
    assert first.tool_calls == second.tool_calls != []
    assert talk.calls == 3
    assert "rtmem_cache" in second.response_metadata


@pytest.mark.parametrize("options", [{}, {"method": "function_calling"}, {"include_raw": True}])
def test_structured_output_is_what_the_model_makes_of_it(talk: Talk, options: dict[str, Any]) -> None:
    kept = not options.get("method")
    model = talk.model(talk.bare(), allow=[] if kept else ["tool_calls"])
    structured = model.with_structured_output(Answer, **options)
    whole = Talk(talk.cache, talk.server, talk.loop, False)
    first = whole.ask("Fill in the tool form", structured)
    again = whole.ask("Fill in the tool form", model.with_structured_output(Answer, **options))
    if options.get("include_raw"):
        assert again["parsed"] == first["parsed"] == Answer(x=1)
        assert mark(again["raw"])["kind"] == "exact"
    else:
        assert again == first == Answer(x=1)
    assert talk.calls == 1


def test_batches_and_several_answers(talk: Talk) -> None:
    questions = ["one?", "two?", "three?"]
    model = talk.model()
    first = talk.run(lambda: model.batch(questions), lambda: model.abatch(questions))
    second = talk.run(lambda: model.batch(questions), lambda: model.abatch(questions))
    assert [each.content for each in first] == [each.content for each in second]
    assert talk.calls == 3
    several = talk.model(talk.bare(n=3))
    messages: list[list[BaseMessage]] = [[HumanMessage("Which three?")]]
    for _ in range(2):
        result = talk.run(lambda: several.generate(messages), lambda: several.agenerate(messages))
        assert len(result.generations[0]) == 3
    assert talk.calls == 4


def test_callbacks_and_streaming_of_the_wrapped_model_are_those_of_this_one(talk: Talk) -> None:
    class Hears(BaseCallbackHandler):
        def __init__(self) -> None:
            self.tokens: list[str] = []
            self.ends = 0

        def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
            self.tokens.append(str(token))

        def on_llm_end(self, *args: Any, **kwargs: Any) -> None:
            self.ends += 1

    whole = Talk(talk.cache, talk.server, talk.loop, False)
    heard = [Hears(), Hears()]
    said = [whole.ask(FRANCE, talk.model(talk.bare(callbacks=[each], streaming=True))).content for each in heard]
    for each in heard:
        assert "".join(each.tokens) == said[0] == said[1]
        assert len([token for token in each.tokens if token]) > 1
        assert each.ends == 1
    assert talk.calls == 1


# Isolation ---------------------------------------------------------------------------------------------------------


def test_no_answer_crosses_model_parameters_system_prompt_tools_format_or_context(talk: Talk) -> None:
    variants: list[tuple[Any, Any]] = [
        (FRANCE, talk.model()),
        (FRANCE, talk.model(talk.bare(model="large"))),
        (FRANCE, talk.model(talk.bare(temperature=0.7))),
        (FRANCE, talk.model(talk.bare(base_url=talk.server.url + "/"))),
        (FRANCE, talk.model(talk.bare(model_kwargs={"user": "ann"}))),
        (FRANCE, talk.model().bind(stop=["."])),
        (FRANCE, talk.model().bind(seed=7)),
        (FRANCE, talk.model().bind_tools([look])),
        (FRANCE, talk.model().bind_tools([other_look])),
        (FRANCE, talk.model().bind_tools([look], tool_choice="look")),
        (FRANCE, talk.model().bind(response_format={"type": "json_object"})),
        ([SystemMessage("Be brief."), HumanMessage(FRANCE)], talk.model()),
        ([SystemMessage("Be long."), HumanMessage(FRANCE)], talk.model()),
        ([HumanMessage("Hi"), AIMessage("Hello"), HumanMessage(FRANCE)], talk.model()),
        ([HumanMessage("Hi"), AIMessage("Hallo"), HumanMessage(FRANCE)], talk.model()),
        ([AIMessage(FRANCE)], talk.model()),
    ]
    for number, (prompt, model) in enumerate(variants, 1):
        talk.ask(prompt, model)
        assert talk.calls == number, variants[number - 1]
    for prompt, model in variants:
        talk.ask(prompt, model)
    assert talk.calls == len(variants)


def test_the_context_may_be_left_out_where_the_owner_says_so(talk: Talk) -> None:
    model = talk.model(conversation="last_turn")
    talk.ask([HumanMessage("Hi"), AIMessage("Hello"), HumanMessage(FRANCE)], model)
    talk.ask([HumanMessage("Hey"), AIMessage("Ho"), HumanMessage(FRANCE)], model)
    assert talk.calls == 1


def test_behind_a_gateway_the_answers_are_those_of_who_was_authenticated(talk: Talk) -> None:
    def served(name: str) -> dict[str, Any]:
        return {"configurable": {SERVED: Served(name, recall=lambda: None)}}  # type: ignore[arg-type, return-value]

    ann, bob = str(uuid4()), str(uuid4())
    model = talk.model()

    def node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    async def anode(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("model", node if talk.loop is None else anode)
    compiled = graph.add_edge(START, "model").compile()
    start: Any = {"messages": [HumanMessage(FRANCE)]}
    for name, calls in ((ann, 1), (ann, 1), (bob, 2), (bob, 2), (ann, 2)):
        config: Any = served(name)
        talk.run(partial(compiled.invoke, start, config), partial(compiled.ainvoke, start, config))
        assert talk.calls == calls


HOSTILE = ["'); DROP", '[{"lc": 1}]', "\x00", "@scope:{*}", "[" * 5_000, "", " "]


def test_hostile_text_is_a_question_like_any_other(talk: Talk) -> None:
    for text in HOSTILE:
        # Of a principal each: by words alone, some of these are near to each other.
        exact = Talk(talk.cache.bind(str(uuid4())), talk.server, talk.loop, talk.streaming)
        before = talk.calls
        assert exact.ask(text).content == exact.ask(text).content
        assert talk.calls == before + 1
        exact.ask([SystemMessage(text), HumanMessage(text)])
        assert talk.calls == before + 2


# What is not kept ----------------------------------------------------------------------------------------------------


def test_what_nobody_else_should_get_is_not_kept(talk: Talk) -> None:
    for text in ("refuse", "cut it"):
        before = talk.calls
        assert talk.ask(text).content == talk.ask(text).content.replace(str(before + 2), str(before + 1))
        assert talk.calls == before + 2


def test_a_stream_that_breaks_is_an_error_and_is_not_kept(stream: Talk) -> None:
    for calls in (1, 2):
        with pytest.raises(APIError, match="it broke"):
            stream.chunks("break, please")
        assert stream.calls == calls
    assert "stored" not in stream.cache.counts


def test_a_stream_that_ends_without_saying_how_is_not_kept(stream: Talk) -> None:
    for calls in (1, 2):
        assert stream.ask("vanish, please").content == "Answer"
        assert stream.calls == calls
    assert stream.cache.counts["unstored_truncated"] == 2


def test_a_failure_of_the_model_passes_as_it_is_and_the_next_call_tries_again(talk: Talk) -> None:
    talk.server.fail_next = 1
    with pytest.raises(APIError):
        talk.ask(FRANCE)
    assert talk.ask(FRANCE).content == talk.ask(FRANCE).content
    assert talk.calls == 2


def test_a_stream_nobody_listens_to_any_more_is_not_kept(stream: Talk) -> None:
    model = stream.model()

    async def leave() -> None:
        chunks = model.astream("hold on")
        await anext(chunks)
        await chunks.aclose()  # type: ignore[attr-defined]

    def leave_blocking() -> None:
        chunks: Any = model.stream("hold on")
        next(chunks)
        chunks.close()

    stream.run(leave_blocking, leave)
    stream.server.gate.set()
    # The lease is given back: who asks next need not wait until it ends by itself, and hears the model.
    again = stream.ask("hold on")
    assert "rtmem_cache" not in again.response_metadata
    assert stream.calls == 2


@pytest.mark.anyio
async def test_a_cancelled_stream_is_not_kept_and_one_of_those_who_wait_goes_on(
    redis_url: str, server: ChatServer
) -> None:
    async with AsyncSemanticCache.from_conn_string(
        redis_url, guard=False, principal=str(uuid4()), settings=SETTINGS, redis=PATIENT
    ) as cache:
        talk = Talk(cache, server, None, True)
        heard: list[list[str]] = [[] for _ in range(3)]

        async def listen(to: int) -> None:
            async for chunk in talk.model().astream("hold on"):
                heard[to].append(str(chunk.content))

        first = asyncio.create_task(listen(0))
        await until(lambda: any(heard[0]))
        others = [asyncio.create_task(listen(to)) for to in (1, 2)]
        first.cancel()
        await asyncio.wait((first,))
        await until(lambda: len(server.requests) == 2)
        server.gate.set()
        await asyncio.gather(*others)
        assert "".join(heard[1]) == "".join(heard[2]) != ""
        assert len(server.requests) == 2


class Gated(BaseChatModel):
    """Says one word, and the others when it may. It never says how it ended."""

    gate: Any = Field(default_factory=threading.Event, exclude=True)

    @property
    def _llm_type(self) -> str:
        return "gated"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        yield ChatGenerationChunk(message=AIMessageChunk("one"))
        self.gate.wait(600)
        yield ChatGenerationChunk(message=AIMessageChunk(" two"))
        yield ChatGenerationChunk(message=AIMessageChunk(" three"))

    async def _astream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        yield ChatGenerationChunk(message=AIMessageChunk("one"))
        await asyncio.to_thread(self.gate.wait, 600)
        yield ChatGenerationChunk(message=AIMessageChunk(" two"))
        yield ChatGenerationChunk(message=AIMessageChunk(" three"))


def test_a_half_that_was_heard_is_never_somebody_elses_answer(stream: Talk) -> None:
    bare = Gated()
    model = stream.model(bare, model_name="gated")

    async def leave() -> None:
        chunks = model.astream("Go")
        await anext(chunks)
        await chunks.aclose()  # type: ignore[attr-defined]

    def leave_blocking() -> None:
        chunks: Any = model.stream("Go")
        next(chunks)
        chunks.close()

    stream.run(leave_blocking, leave)
    assert "stored" not in stream.cache.counts
    bare.gate.set()
    assert stream.ask("Go", model).content == "one two three"
    assert stream.ask("Go", model).content == "one two three"
    assert stream.cache.counts["stored"] == 1


# Those who ask at the same time ------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_the_first_hears_the_model_the_others_wait_and_the_model_is_asked_once(
    redis_url: str, server: ChatServer
) -> None:
    principal = str(uuid4())
    options: dict[str, Any] = {"guard": False, "principal": principal, "settings": SETTINGS, "redis": PATIENT}
    async with (
        AsyncSemanticCache.from_conn_string(redis_url, **options) as here,
        AsyncSemanticCache.from_conn_string(redis_url, **options) as elsewhere,  # as another process has it
    ):
        heard: list[list[AIMessageChunk]] = [[] for _ in range(12)]

        async def listen(to: int) -> None:
            model = Talk(elsewhere if to % 2 else here, server, None, True).model()
            async for chunk in model.astream("hold on, all of you"):
                heard[to].append(chunk)

        first = asyncio.create_task(listen(0))
        await until(lambda: any(chunk.content for chunk in heard[0]))  # while the model still speaks
        others = [asyncio.create_task(listen(to)) for to in range(1, 12)]
        await asyncio.sleep(0)
        assert not any(heard[1:])
        server.gate.set()
        await asyncio.gather(first, *others)
        texts = {"".join(str(chunk.content) for chunk in chunks) for chunks in heard}
        assert len(texts) == 1
        assert len(server.requests) == 1


def test_blocking_streams_wait_for_each_other_too(redis_url: str, server: ChatServer) -> None:
    with SemanticCache(redis_url, guard=False, principal=str(uuid4()), settings=SETTINGS, redis=PATIENT) as cache:
        model = Talk(cache, server, None, True).model()
        first = model.stream("hold on")
        begun = next(first)
        with ThreadPoolExecutor(4) as pool:
            others = [pool.submit(lambda: list(model.stream("hold on"))) for _ in range(4)]
            server.gate.set()
            said = "".join(str(chunk.content) for chunk in [begun, *first])
            assert {"".join(str(chunk.content) for chunk in other.result(60)) for other in others} == {said}
        assert len(server.requests) == 1


# In a graph ----------------------------------------------------------------------------------------------------------


def graph_of(model: Any) -> Any:
    async def node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"][-1:])]}

    return StateGraph(MessagesState).add_node("model", node).add_edge(START, "model").compile()


@pytest.mark.anyio
async def test_in_a_graph_a_hit_is_streamed_like_a_live_answer_and_told(redis_url: str, server: ChatServer) -> None:
    async with AsyncSemanticCache.from_conn_string(
        redis_url, guard=False, principal=str(uuid4()), settings=SETTINGS, redis=PATIENT
    ) as cache:
        graph = graph_of(Talk(cache, server, None, True).model())

        async def turn() -> tuple[list[str], list[Any]]:
            tokens, told = [], []
            start = {"messages": [HumanMessage(FRANCE)]}
            async for mode, part in graph.astream(start, stream_mode=["messages", "custom"]):
                if mode == "custom":
                    told.append(part)
                elif part[0].content:
                    tokens.append(part[0].content)
            return tokens, told

        live, quiet = await turn()
        hit, told = await turn()
        assert quiet == []
        assert "".join(live) == "".join(hit)
        assert len(hit) > 1
        (event,) = told
        assert event.pop("hit_id")
        assert event.pop("saved_ms") >= 0
        assert event == {"name": "rtmem.cache", "kind": "exact", "distance": 0.0}

        async def events() -> tuple[str, list[str]]:
            kinds, text = [], ""
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LangChainBetaWarning)
                run = await graph.astream_events({"messages": [HumanMessage(FRANCE)]}, version="v3")
            async for event in run:
                if event["method"] == "messages":
                    part = event["params"]["data"][0]
                    kinds.append(part["event"])
                    text += part.get("delta", {}).get("text", "") if part["event"] == "content-block-delta" else ""
            return text, kinds

        text, kinds = await events()
        assert text == "".join(live)
        assert kinds[0] == "message-start"
        assert kinds[-1] == "message-finish"
        assert len(server.requests) == 1


@pytest.mark.anyio
async def test_a_hit_twice_in_a_thread_is_two_messages(redis_url: str, server: ChatServer) -> None:
    async with AsyncSemanticCache.from_conn_string(
        redis_url, guard=False, principal=str(uuid4()), settings=SETTINGS, redis=PATIENT
    ) as cache:
        graph = graph_of(Talk(cache, server, None, True).model())
        messages: list[Any] = []
        for _ in range(3):
            messages = (await graph.ainvoke({"messages": [*messages, HumanMessage("Hi")]}))["messages"]
        assert len({message.id for message in messages}) == len(messages) == 6
        assert len(server.requests) == 1


# Trouble -------------------------------------------------------------------------------------------------------------


def test_without_redis_the_model_answers_as_without_a_cache(talk: Talk) -> None:
    nowhere = "unix:///tmp/no-such-socket.sock"
    away = type(talk.cache)(nowhere, principal="ann", guard=False, redis=all_settings.Redis(retries_max=0))
    lost = Talk(away, talk.server, talk.loop, talk.streaming)
    assert [lost.ask("Hi").content for _ in range(2)] == ["Answer 1 to: Hi", "Answer 2 to: Hi"]


def test_an_awaiting_cache_says_how_to_use_it_in_blocking_code(redis_url: str, server: ChatServer) -> None:
    model = Talk(AsyncSemanticCache(redis_url, guard=False), server, None, False).model()
    with pytest.raises(WrongColourError, match="ainvoke"):
        model.invoke("Hi")
    with pytest.raises(WrongColourError, match="astream"):
        list(model.stream("Hi"))


class Odd(BaseChatModel):
    """A model of somebody's own, which does not stream."""

    said: str = "odd"
    secret_of_answers: Any = None
    asked: Any = None

    @property
    def _llm_type(self) -> str:
        return "odd"

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(f"{self.said}: {time.monotonic_ns()}"))])


class Held(Odd):
    """It answers when it is told to."""

    go_on: Any = Field(default_factory=threading.Event, exclude=True)

    def _generate(self, *args: Any, **options: Any) -> Any:
        assert self.go_on.wait(60)
        return super()._generate(*args, **options)


def test_without_redis_all_who_ask_at_once_get_the_one_answer_of_the_model(talk: Talk) -> None:
    kept = msgspec.structs.replace(SETTINGS, pause_ms=LONG_MS)
    away = type(talk.cache)("unix:///tmp/no-such-socket.sock", principal="ann", guard=False, settings=kept)
    lost, held = Talk(away, talk.server, talk.loop, talk.streaming), Held()
    model = lost.model(held, model_name="odd", parameters={})
    with ThreadPoolExecutor(5) as pool:
        asked = [pool.submit(lost.ask, "Hi", model) for _ in range(5)]
        eventually(lambda: away.counts.get("joined", 0) >= 4, 60)
        held.go_on.set()
        answers = [each.result(60) for each in asked]
    assert len({answer.content for answer in answers}) == 1  # it has the time in it
    others = [answer for answer in answers if "rtmem_cache" in answer.response_metadata]
    assert [other.usage_metadata["total_tokens"] for other in others] == [0] * 4


class Unreadable(Odd):
    """It calls a tool with arguments that are no JSON."""

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        call = {"name": "f", "args": "{", "id": str(time.monotonic_ns()), "error": None, "type": "invalid_tool_call"}
        return ChatResult(generations=[ChatGeneration(message=AIMessage("", invalid_tool_calls=[call]))])


def test_where_nothing_is_kept_of_an_answer_the_model_is_asked_again(talk: Talk) -> None:
    model = talk.model(Unreadable(), model_name="odd", parameters={}, allow=["empty", "tool_calls"])
    talk.run(lambda: model.invoke("Hi"), lambda: model.ainvoke("Hi"))
    assert "rtmem_cache" not in talk.ask("Hi", model).response_metadata


def test_a_model_that_does_not_stream_is_streamed_out_of_the_cache_too(talk: Talk) -> None:
    first, second = (talk.ask("Hi", talk.model(Odd(), model_name="odd")) for _ in range(2))
    assert first.content == second.content
    assert talk.ask("Hi", talk.model(Odd(said="even"), model_name="odd")).content != first.content


def test_a_model_that_cannot_be_told_from_another_one_is_refused(redis_url: str) -> None:
    with SemanticCache(redis_url, guard=False) as cache:
        with pytest.raises(ConfigError, match="model_name="):
            CachedChatModel(RulesModel(), cache)
        assert CachedChatModel(RulesModel(), cache, model_name="rules")._llm_type == "rtmem-demo-rules"
        with pytest.raises(ConfigError, match="parameters="):
            CachedChatModel(Odd(secret_of_answers=threading.Lock()), cache, model_name="odd")
        CachedChatModel(Odd(secret_of_answers=threading.Lock()), cache, model_name="odd", parameters={"odd": 1})
        wrong: Any = FakeListChatModel(responses=["a"]).bind(stop=["b"])
        with pytest.raises(ConfigError, match="bind tools"):
            CachedChatModel(wrong, cache, model_name="fake")
        with pytest.raises(ConfigError, match="SemanticCache"):
            CachedChatModel(RulesModel(), wrong, model_name="rules")
        with pytest.raises(InvalidRequestError, match="tags"):
            CachedChatModel(RulesModel(), cache, model_name="rules", tags="geo")


def test_what_a_call_has_that_cannot_be_compared_is_answered_and_not_kept(talk: Talk) -> None:
    model = talk.model(Odd(), model_name="odd").bind(anything=threading.Lock())
    assert talk.ask("Hi", model).content != talk.ask("Hi", model).content
    assert "stored" not in talk.cache.counts


def test_a_model_that_cannot_be_replaced_in_what_it_makes_of_itself_says_so(redis_url: str) -> None:
    class Own(Odd):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return Odd()

    with SemanticCache(redis_url, guard=False) as cache, pytest.raises(UnsupportedError, match=r"\.bind"):
        CachedChatModel(Own(), cache, model_name="own").bind_tools([look])


async def until(true: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not become true"
        await asyncio.sleep(0.01)
