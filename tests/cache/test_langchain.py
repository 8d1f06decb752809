"""LangChain's own door to the cache, with a real client of a real (local) server of models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.caches import BaseCache
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.globals import set_llm_cache
from langchain_core.load import dumps
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, Generation
from langchain_openai import ChatOpenAI, OpenAI
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel

from rtmem import settings as all_settings
from rtmem.cache import AsyncSemanticCache, SemanticCache
from rtmem.cache.langchain import LangChainCache
from rtmem.errors import ConfigError, InvalidRequestError, WrongColourError
from rtmem.operations.langchain_prompts import read_prompt, scope_of
from tests.cache import chat_server, chat_tools
from tests.cache.chat_server import ChatServer
from tests.cache.chat_tools import Answer, look, other_look
from tests.checkpoint.colours import Loop
from tests.embedders import Words

SETTINGS = all_settings.Cache(thresholds={"words": 0.3}, lookup_deadline_ms=60_000, update_deadline_ms=60_000)
PATIENT = all_settings.Redis(deadline_ms=60_000)


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
    """A cache in one colour, and models that use it."""

    def __init__(self, cache: LangChainCache, server: ChatServer, loop: Loop | None) -> None:
        self.cache, self.server, self.loop = cache, server, loop

    def model(self, **options: Any) -> ChatOpenAI:
        asked = {"model": "tiny", "temperature": 0, "base_url": self.server.url, "cache": self.cache, **options}
        return ChatOpenAI(api_key="none", max_retries=0, **asked)

    def wait(self, blocking: Callable[[], Any], awaiting: Callable[[], Any]) -> Any:
        return blocking() if self.loop is None else self.loop.wait(awaiting())

    def ask(self, prompt: Any, model: Any = None, **kwargs: Any) -> Any:
        asked = self.model() if model is None else model
        return self.wait(lambda: asked.invoke(prompt, **kwargs), lambda: asked.ainvoke(prompt, **kwargs))

    @property
    def calls(self) -> int:
        return len(self.server.requests)


@pytest.fixture(params=["blocking", "awaiting", "threads"])
def talk(request: pytest.FixtureRequest, redis_url: str, server: ChatServer, loop: Loop) -> Iterator[Talk]:
    """`threads`: an awaiting model with a blocking cache."""
    kind = AsyncSemanticCache if request.param == "awaiting" else SemanticCache
    cache: Any = kind(
        redis_url, embedder=Words(), guard=False, principal=str(uuid4()), settings=SETTINGS, redis=PATIENT
    )
    yield Talk(LangChainCache(cache), server, None if request.param == "blocking" else loop)
    if isinstance(cache, AsyncSemanticCache):
        loop.wait(cache.aclose())
    else:
        cache.close()


def test_the_same_question_and_one_that_means_the_same_are_answered_once(talk: Talk) -> None:
    first = talk.ask("What is the capital of France?")
    same = talk.ask("What is the capital of France?")
    near = talk.ask("What is the capital city of France?")
    assert talk.calls == 1
    assert first.content == same.content == near.content
    assert [answer.response_metadata["rtmem_cache"]["kind"] for answer in (same, near)] == ["exact", "semantic"]
    assert 0 < near.response_metadata["rtmem_cache"]["distance"] < 0.3
    assert talk.ask("Who wrote it?").content != first.content


def test_tokens_that_were_not_spent_are_not_counted_again(talk: Talk) -> None:
    counted = UsageMetadataCallbackHandler()
    config = {"callbacks": [counted]}
    first = talk.ask("How much?", config=config)
    spent = dict(counted.usage_metadata["tiny"])
    assert spent["total_tokens"] == first.usage_metadata["total_tokens"] == 18
    hit = talk.ask("How much?", config=config)
    assert {name: counted.usage_metadata["tiny"][name] for name in ("input_tokens", "output_tokens")} == {
        "input_tokens": 11,
        "output_tokens": 7,
    }
    assert hit.usage_metadata["total_tokens"] == 0
    assert hit.response_metadata["rtmem_cache"]["usage"]["total_tokens"] == 18
    assert hit.response_metadata["rtmem_cache"]["saved_ms"] >= 0
    assert "token_usage" not in hit.response_metadata
    assert hit.response_metadata["finish_reason"] == "stop"


def test_batches_tools_formats_and_several_answers(talk: Talk) -> None:
    questions = ["one?", "two?", "three?"]
    model = talk.model()
    batch = talk.wait(lambda: model.batch(questions), lambda: model.abatch(questions))
    again = talk.wait(lambda: model.batch(questions), lambda: model.abatch(questions))
    assert [each.content for each in batch] == [each.content for each in again]
    assert talk.calls == 3

    for method in ("json_schema", "function_calling"):
        before = talk.calls
        structured = talk.model().with_structured_output(Answer, method=method)
        found = talk.ask("Fill in the tool form", structured)
        assert isinstance(found, Answer)
        # A call of a tool is an act, not an answer: it is not stored unless asked.
        again = talk.ask("Fill in the tool form", talk.model().with_structured_output(Answer, method=method))
        assert (again == found, talk.calls - before) == ((True, 1) if method == "json_schema" else (False, 2))

    several = [[HumanMessage("Which three?")]]
    model = talk.model(n=3)
    first = talk.wait(lambda: model.generate(several), lambda: model.agenerate(several))
    before = talk.calls
    second = talk.wait(lambda: model.generate(several), lambda: model.agenerate(several))
    assert talk.calls == before
    assert [each.text for each in first.generations[0]] == [each.text for each in second.generations[0]]
    assert len(second.generations[0]) == 3


def test_no_answer_crosses_model_parameters_system_prompt_tools_format_or_context(talk: Talk) -> None:
    asked = "What is the capital of France?"
    variants: list[tuple[Any, Any]] = [
        (asked, talk.model()),
        (asked, talk.model(model="large")),
        (asked, talk.model(temperature=0.7)),
        (asked, talk.model(base_url=talk.server.url + "/")),
        (asked, talk.model(model_kwargs={"user": "ann"})),
        (asked, talk.model().bind(stop=["."])),
        (asked, talk.model().bind(seed=7)),
        (asked, talk.model().bind_tools([look])),
        (asked, talk.model().bind_tools([other_look])),
        (asked, talk.model().bind_tools([look], tool_choice="look")),
        (asked, talk.model().with_structured_output(Answer)),
        ([SystemMessage("Be brief."), HumanMessage(asked)], talk.model()),
        ([SystemMessage("Be long."), HumanMessage(asked)], talk.model()),
        ([HumanMessage("Hi"), AIMessage("Hello"), HumanMessage(asked)], talk.model()),
        ([HumanMessage("Hi"), AIMessage("Hallo"), HumanMessage(asked)], talk.model()),
        ([AIMessage(asked)], talk.model()),
    ]
    for number, (prompt, model) in enumerate(variants, 1):
        talk.ask(prompt, model)
        assert talk.calls == number, variants[number - 1]


def test_no_answer_crosses_principals(talk: Talk) -> None:
    bob = Talk(talk.cache.bind(str(uuid4())), talk.server, talk.loop)
    ann = talk.ask("Who am I?")
    assert bob.ask("Who am I?").content != ann.content
    assert bob.ask("Who am I?").response_metadata["rtmem_cache"]["kind"] == "exact"
    talk.wait(bob.cache.clear, bob.cache.aclear) if bob.loop is None else bob.loop.wait(bob.cache.aclear())
    assert talk.ask("Who am I?").content == ann.content
    assert talk.calls == 2


def test_ids_and_usage_in_the_conversation_change_nothing(talk: Talk) -> None:
    def conversation(mark: str) -> list[BaseMessage]:
        call = {"name": "look", "args": {"x": 1}, "id": f"call-{mark}", "type": "tool_call"}
        usage: Any = {"input_tokens": len(mark), "output_tokens": 1, "total_tokens": len(mark) + 1}
        told = AIMessage("", id=mark, tool_calls=[call], usage_metadata=usage, response_metadata={"id": mark})
        told.additional_kwargs = {"refusal": None} if mark == "b" else {}
        return [
            HumanMessage("Look", id=mark),
            told,
            ToolMessage("2", tool_call_id=f"call-{mark}", artifact=mark),
            HumanMessage("And?", id=mark),
        ]

    first = talk.ask(conversation("a"))
    assert talk.ask(conversation("b")).content == first.content
    changed = conversation("c")
    changed[2] = ToolMessage("3", tool_call_id="call-c")
    assert talk.ask(changed).content != first.content


def test_what_nobody_else_should_get_is_not_stored(talk: Talk) -> None:
    for text in ("refuse", "cut it"):
        assert talk.ask(text).content != ""
        before = talk.calls
        talk.ask(text)
        assert talk.calls == before + 1
    counts = talk.cache.cache.counts
    assert counts["unstored_refusal"] == counts["unstored_truncated"] == 2


def test_calls_of_tools_are_stored_where_that_was_asked_for(talk: Talk) -> None:
    model = talk.model(cache=LangChainCache(talk.cache.cache, allow=["tool_calls"])).bind_tools([look])
    first, second = talk.ask("the tool please", model), talk.ask("the tool please", model)
    assert first.tool_calls == second.tool_calls
    assert talk.calls == 1


def test_clear_drops_the_answers_of_this_principal_or_what_it_is_told(talk: Talk) -> None:
    tagged = talk.model(cache=LangChainCache(talk.cache.cache, tags=["geo"]))
    talk.ask("Where?", tagged)
    talk.ask("When?")

    def clear(**what: Any) -> None:
        talk.wait(lambda: talk.cache.clear(**what), lambda: talk.cache.aclear(**what))

    clear(tag="geo")
    talk.ask("When?")
    assert talk.calls == 2
    talk.ask("Where?", tagged)
    assert talk.calls == 3
    clear(model="another")
    talk.ask("When?")
    assert talk.calls == 3
    clear(model="tiny")
    talk.ask("When?")
    assert talk.calls == 4
    clear()
    talk.ask("When?")
    assert talk.calls == 5


def test_a_text_model_and_the_global_cache(talk: Talk) -> None:
    set_llm_cache(talk.cache)
    try:
        llm = OpenAI(base_url=talk.server.url, api_key="none", model="tiny", max_retries=0)
        first = talk.wait(lambda: llm.invoke("Once upon a time"), lambda: llm.ainvoke("Once upon a time"))
        again = talk.wait(lambda: llm.invoke("Once upon a time"), lambda: llm.ainvoke("Once upon a time"))
        assert first == again == "Text 1."
        answer = talk.wait(lambda: llm.generate(["Once upon a time"]), lambda: llm.agenerate(["Once upon a time"]))
        assert answer.generations[0][0].generation_info["rtmem_cache"]["kind"] == "exact"
        assert talk.calls == 1
        talk.ask("Once upon a time", talk.model(cache=None))
        talk.ask("Once upon a time", talk.model(cache=None))
        assert talk.calls == 2
    finally:
        set_llm_cache(None)


def test_a_hit_twice_in_a_thread_is_two_messages(talk: Talk) -> None:
    model = talk.model()

    def node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"][-1:])]}

    async def anode(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"][-1:])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", node if talk.loop is None else anode)
    builder.add_edge(START, "model")
    graph = builder.compile()
    state: dict[str, Any] = {"messages": []}

    def turn() -> dict[str, Any]:
        start: Any = {"messages": [*state["messages"], HumanMessage("Hi")]}
        found: dict[str, Any] = talk.wait(lambda: graph.invoke(start), lambda: graph.ainvoke(start))
        return found

    for _ in range(3):
        state = turn()
    messages = state["messages"]
    assert len(messages) == 6
    assert len({message.id for message in messages}) == 6
    assert talk.calls == 1


HOSTILE = ["'); DROP", "{}", '[{"lc"', '[{"lc": 1}]', "\x00", "*", "@scope:{*}", "\ud800", "---", "[" * 5_000, "", " "]


def test_hostile_text_is_a_question_like_any_other(talk: Talk) -> None:
    messages: list[Generation] = [ChatGeneration(message=AIMessage("yes"))]
    plain = [Generation(text="no", generation_info={"finish_reason": "stop"})]

    def call(verb: str, *args: Any) -> Any:
        cache = talk.cache
        return talk.wait(lambda: getattr(cache, verb)(*args), lambda: getattr(cache, f"a{verb}")(*args))

    for text in HOSTILE:
        llm = f"[('model_name', {text!r})]"
        for prompt, answer in ((dumps([HumanMessage(text), HumanMessage(text)]), messages), (text, plain)):
            assert call("lookup", prompt, llm) is None
            call("update", prompt, llm, answer)
            found = call("lookup", prompt, llm)
            assert [type(each) for each in found] == [type(each) for each in answer]
            assert [each.text for each in found] == [each.text for each in answer]
            assert call("lookup", prompt, llm + " ") is None


def test_an_awaiting_cache_says_how_to_use_it_in_blocking_code(redis_url: str, server: ChatServer) -> None:
    cache = LangChainCache(AsyncSemanticCache(redis_url, guard=False))
    model = ChatOpenAI(base_url=server.url, api_key="none", model="tiny", cache=cache)
    with pytest.raises(WrongColourError, match="ainvoke"):
        model.invoke("Hi")
    with pytest.raises(WrongColourError, match="SemanticCache"):
        cache.clear()
    with pytest.raises(WrongColourError):
        cache.update("a", "b", [])


def test_without_redis_the_model_answers(talk: Talk, server: ChatServer) -> None:
    away = "unix:///tmp/there-is-no-such-socket-of-redis.sock"
    settings = all_settings.Redis(retries_max=0)
    cache: Any = type(talk.cache.cache)(away, principal="ann", guard=False, redis=settings)
    lost = Talk(LangChainCache(cache), server, talk.loop)
    assert lost.ask("Hi").content == "Answer 1 to: Hi"
    assert lost.ask("Hi").content == "Answer 2 to: Hi"


def test_what_is_wrong_is_said_when_it_is_made(redis_url: str) -> None:
    wrong: Any = "redis://localhost"
    with pytest.raises(ConfigError, match="SemanticCache"):
        LangChainCache(wrong)
    with SemanticCache(redis_url, guard=False) as cache:
        assert isinstance(LangChainCache(cache), BaseCache)
        options: list[dict[str, Any]] = [{"conversation": "all"}, {"tags": "geo"}, {"ttl_ms": 1.5}, {"allow": ["x"]}]
        for option in options:
            with pytest.raises(InvalidRequestError):
                LangChainCache(cache, **option)


# Reading what LangChain writes --------------------------------------------------------------------------------------


def test_a_description_that_hides_what_an_object_is_gives_no_scope() -> None:
    told = [
        "[('model', 'm'), ('f', <function f at 0x7f0000000010>)]",
        "[('model', 'm'), ('response_format', <class 'app.Answer'>)]",
        "[('model', 'm'), ('response_format', <class 'tests.cache.test_langchain.f.<locals>.Answer'>)]",
        '{"lc": 1, "id": ["x", "M"], "kwargs": {"thinking": {"lc": 1, "type": "not_implemented", "id": ["y"]}}}---[]',
    ]
    assert [scope_of(each, "messages", "context") for each in told] == [None] * 4
    harmless = '{"lc": 1, "id": ["M"], "kwargs": {"cache": {"lc": 1, "type": "not_implemented", "id": ["y"]}}}---[]'
    assert scope_of(harmless, "messages", "context") is not None


def test_a_class_that_is_another_one_tomorrow_is_another_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "[('model', 'm'), ('response_format', <class 'tests.cache.chat_tools.Answer'>)]"

    class Changed(BaseModel):
        y: int

    scope = scope_of(told, "messages", "context")
    assert scope is not None
    Changed.__module__, Changed.__qualname__ = chat_tools.__name__, "Answer"
    monkeypatch.setattr(chat_tools, "Answer", Changed)
    assert repr(Changed) in told
    changed = scope_of(told, "messages", "context")
    assert changed is not None
    assert changed.digest != scope.digest


def test_the_model_is_found_in_whatever_form_it_is_told() -> None:
    def model(told: str) -> str:
        scope = scope_of(told, "messages", "context")
        assert scope is not None
        return scope.model

    assert model("[('_type', 'openai'), ('model_name', 'm1'), ('stop', None)]") == "m1"
    assert model('{"id": ["a", "Chat"], "kwargs": {"model_name": "m2"}}---[(\'stop\', None)]') == "m2"
    assert model('{"id": ["a", "Chat"], "kwargs": {"model_name": "m2"}}---[(\'model\', \'m3\')]') == "m3"
    assert model('{"id": ["a", "Chat"], "kwargs": {}}---[]') == "Chat"
    assert model("[('_type', 'fake')]") == "fake"
    assert model("whatever") == model("") == model("{") == model("[" * 10_000) == "unknown"


def test_texts_and_messages_never_share_an_answer() -> None:
    messages, text = scope_of("m", "messages", "context"), scope_of("m", "text", "context")
    assert messages is not None
    assert text is not None
    assert messages.digest != text.digest


def test_only_the_last_human_turn_of_messages_is_compared_by_meaning() -> None:
    form, prompt = read_prompt(dumps([SystemMessage("s"), HumanMessage("a"), AIMessage("b"), HumanMessage("c")]))
    assert form == "messages"
    assert [(message["role"], message["content"]) for message in prompt] == [  # type: ignore[index, call-overload]
        ("system", "s"),
        ("human", "a"),
        ("ai", "b"),
        ("human", "c"),
    ]
    for odd in ('[{"lc": 1}]', '[{"lc"', dumps([HumanMessage("a")]).replace('"lc": 1', '"lc": 2')):
        assert read_prompt(odd) == ("text", [("unread", odd)])
