"""What a model can do to memory with its tools, and what it cannot."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import ToolMessage

from rtmem.agent.recall import model_tools
from rtmem.errors import WriteRefusedError
from rtmem.memory import Fact, Principal
from tests.agent.recall.worlds import World


class Tools:
    """The tools of a Recall, called as an agent's tool node calls them."""

    def __init__(self, world: World, recall: Any) -> None:
        self._world = world
        self.by_name = {tool.name: tool for tool in model_tools(recall)}

    def __call__(self, name: str, **args: Any) -> ToolMessage:
        call = {"name": name, "args": args, "id": "call-1", "type": "tool_call"}
        config: Any = {"configurable": {"thread_id": "t1"}}
        tool = self.by_name[name]
        result = (
            self._world.loop.wait(tool.ainvoke(call, config)) if self._world.awaiting else tool.invoke(call, config)
        )
        assert isinstance(result, ToolMessage)
        return result


def id_in(result: ToolMessage) -> str:
    text = str(result.content)
    return text[text.index("mf_") :][:29]


def test_a_correction_ends_the_old_fact_and_keeps_why(world: World) -> None:
    with world.memory() as memory:
        tools = Tools(world, world.recall(memory))
        rome = id_in(tools("remember", text="Ann lives in Rome.", kind="semantic", tags=["home"]))
        oslo = id_in(tools("remember", text="Ann lives in Oslo.", replaces=rome, reason="she has moved"))
        old, new = world.now(memory.history(oslo))
        assert (old.id, old.invalidated_reason, old.superseded_by) == (rome, "she has moved", oslo)
        assert (new.text, new.tags, new.thread_id, new.writer) == ("Ann lives in Oslo.", ("home",), "t1", "model")
        late = tools("remember", text="Ann lives in Bonn.", replaces=rome)
        assert late.status == "error"
        assert oslo in str(late.content)  # what is believed instead


def test_a_search_is_framed_bounded_and_names_ids(world: World) -> None:
    with world.memory() as memory:
        for number in range(30):
            world.now(memory.write(f"Ann saw a fox, number {number}.", tags=["fox"] if number < 2 else ["other"]))
        tools = Tools(world, world.recall(memory, tool_tokens_max=200))
        answer = str(tools("search_memory", query="fox").content)
        assert answer.startswith("<retrieved_memory>")
        assert len(answer) <= 800
        assert 1 <= answer.count('"id":"mf_') <= 10
        tagged = str(tools("search_memory", query="fox", tags=["fox"]).content)
        assert tagged.count('"id":"mf_') == 2


def test_forget_erases_one_fact_by_the_id_that_search_gave(world: World) -> None:
    with world.memory() as memory:
        kept, gone = (world.now(memory.write(text)) for text in ("Ann likes tea.", "Ann lives in Rome."))
        tools = Tools(world, world.recall(memory))
        assert gone.id in str(tools("forget", id=gone.id).content)
        assert [fact.id for fact in world.now(memory.query()).facts] == [kept.id]
        again = tools("forget", id=gone.id)
        assert again.status == "error"
        assert "search_memory" in str(again.content)


def test_what_is_not_the_users_own_or_only_for_people_stays(world: World) -> None:
    with world.memory(Principal(user="ann", teams=("garden",))) as memory, world.memory("bob") as bobs:
        shared = world.now(memory.write("The gate code is 77.", to="team:garden"))
        method = world.now(memory.write("Deploy on Mondays.", kind="procedural"))
        foreign = world.now(bobs.write("Bob lives in Rome."))
        tools = Tools(world, world.recall(memory))
        for fact in (shared, method, foreign):
            for result in (tools("forget", id=fact.id), tools("remember", text="x y z", replaces=fact.id)):
                assert result.status == "error"
        assert tools("forget", id=foreign.id).content == str(tools("forget", id="mf_" + "a" * 26).content).replace(
            "mf_" + "a" * 26, foreign.id
        )
        assert len(world.now(memory.query()).facts) == 2
        assert len(world.now(bobs.query()).facts) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"text": ""},
        {"text": "x" * 10_000},
        {"text": "Ann", "kind": "procedural"},
        {"text": "Ann", "tags": ["t"] * 50},
        {"text": "Ann", "replaces": "mf_nothing", "reason": "why"},
        {"text": "Ann", "replaces": "*"},
    ],
)
def test_wrong_arguments_become_an_answer_that_says_what_to_do(world: World, arguments: dict[str, Any]) -> None:
    with world.memory() as memory:
        result = Tools(world, world.recall(memory))("remember", **arguments)
        assert result.status == "error"
        assert len(str(result.content)) < 600
        assert world.now(memory.query()).facts == ()


def test_what_the_write_policy_refuses_is_told(world: World) -> None:
    def refuse(fact: Fact, principal: Principal) -> Fact:
        raise WriteRefusedError("a password is not kept: leave it out")

    with world.memory(policy=refuse) as memory:
        result = Tools(world, world.recall(memory))("remember", text="the password is hunter2")
        assert (result.status, result.content) == ("error", "a password is not kept: leave it out")


def test_a_policy_that_lets_a_model_write_nothing_gives_it_the_search_only(world: World) -> None:
    with world.memory() as memory:
        never = {f"{kind}_write": "never" for kind in ("semantic", "episodic", "preference")}
        assert list(Tools(world, world.recall(memory, **never)).by_name) == ["search_memory"]


def test_no_argument_names_whose_memory_it_is(world: World) -> None:
    with world.memory() as memory:
        names = {name for tool in Tools(world, world.recall(memory)).by_name.values() for name in tool.args}
        assert names == {"text", "kind", "tags", "replaces", "reason", "query", "id"}
