"""A model looks into a value: bounded answers, that say how to go on, within its principal's scope."""

from __future__ import annotations

import re
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool

from rtmem.agent import ToolPointers
from tests.agent.offload.worlds import World

LOG = "".join(f"2026-11-30 12:00:{second % 60:02} INFO request {second} served\n" for second in range(2_000))
ROWS = [{"id": number, "name": f"item {number}", "price": number / 4} for number in range(500)]
ABSENT = "mp_" + "a" * 26


class Looking:
    """A model that goes on until it is told that there is no more."""

    def __init__(self, world: World, edge: ToolPointers) -> None:
        self.world = world
        self.tools: dict[str, BaseTool] = {tool.name: tool for tool in edge.tools}

    def ask(self, name: str, **arguments: Any) -> ToolMessage:
        message = self.world.call(self.tools[name], arguments)
        assert isinstance(message, ToolMessage)
        return message

    def ask_all(self, name: str, **arguments: Any) -> list[str]:
        answers = [self.ask(name, **arguments).text]
        while more := re.search(r"\[more: the same call with continuation='(\w+)'\]$", answers[-1]):
            answers.append(self.ask(name, **arguments, continuation=more[1]).text)
            assert len(answers) < 200
        return answers


def bodies(answers: list[str]) -> str:
    return "".join(answer.split("\n", 1)[1].split("\n[more: ")[0] for answer in answers)


@pytest.mark.parametrize("characters_max", [500, 4_000])
def test_reading_on_gives_the_whole_text_in_bounded_answers(world: World, characters_max: int) -> None:
    with world.pointers() as pointers:
        looking = Looking(world, ToolPointers(pointers, characters_max=characters_max))
        text = LOG[:20_000]
        pointer = world.now(pointers.offload(text, thread_id="t1")).id
        answers = looking.ask_all("read_pointer", pointer=pointer)
        assert max(map(len, answers)) <= characters_max
        assert bodies(answers) == text
        assert answers[0].startswith("lines 0-")


def test_half_a_surrogate_pair_is_told_as_text_that_any_client_can_send_on(world: World) -> None:
    with world.pointers() as pointers:
        looking = Looking(world, ToolPointers(pointers))
        pointer = world.now(pointers.offload("before \ud800 after", thread_id="t1")).id
        (answer,) = looking.ask_all("read_pointer", pointer=pointer)
        assert answer.encode()
        assert answer.endswith("before ? after")


def test_one_line_of_json_is_read_by_items_and_by_characters(world: World) -> None:
    with world.pointers() as pointers:
        looking = Looking(world, ToolPointers(pointers))
        pointer = world.now(pointers.offload(ROWS, thread_id="t1")).id
        answers = looking.ask_all("read_pointer", pointer=pointer)
        assert max(map(len, answers)) <= 4_000
        assert answers[0].startswith("items 0-")
        assert sum(answer.count('"id":') for answer in answers) == 500
        assert looking.ask("read_pointer", pointer=pointer, start=499).text.endswith(
            '{"id":499,"name":"item 499","price":124.75}'
        )
        cut = looking.ask("read_pointer", pointer=pointer, unit="characters", start=0, count=9).text
        assert cut.startswith("characters 0-8 of ")
        assert cut.split("\n")[1] == '[{"id":0,'


def test_rows_of_a_table_are_read(world: World) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    with world.pointers() as pointers:
        looking = Looking(world, ToolPointers(pointers))
        pointer = world.now(pointers.offload(pyarrow.table({"a": list(range(2_000))}), thread_id="t1")).id
        answer = looking.ask("read_pointer", pointer=pointer, start=1_998).text
        assert answer == 'rows 1,998-1,999 of 2,000 (counted from 0)\n{"a":1998}\n{"a":1999}'


def test_an_item_that_is_too_long_is_begun_and_the_next_is_reached(world: World) -> None:
    with world.pointers() as pointers:
        looking = Looking(world, ToolPointers(pointers, characters_max=500))
        pointer = world.now(pointers.offload(["x" * 5_000, "second"], thread_id="t1")).id
        first, second = looking.ask_all("read_pointer", pointer=pointer)
        assert "too long for one answer" in first
        assert len(first) <= 500
        assert second.endswith('\n"second"')


def test_searching_on_finds_every_match(world: World) -> None:
    with world.pointers() as pointers:
        looking = Looking(world, ToolPointers(pointers))
        pointer = world.now(pointers.offload(LOG, thread_id="t1")).id
        answers = looking.ask_all("search_pointer", pointer=pointer, pattern=r"request \d*7 ", regex=True)
        assert len(answers) > 5
        assert max(map(len, answers)) <= 4_000
        assert len(re.findall(r"^line \d+, character \d+: ", "\n".join(answers), re.MULTILINE)) == 200
        none = looking.ask("search_pointer", pointer=pointer, pattern="ERROR").text
        assert none == f"no match, searched up to character {len(LOG):,} of {len(LOG):,}"


@pytest.mark.parametrize("characters_max", [500, 4_000])
def test_matches_with_much_around_them_stay_within_the_bound(world: World, characters_max: int) -> None:
    with world.pointers() as pointers:
        looking = Looking(world, ToolPointers(pointers, characters_max=characters_max))
        pointer = world.now(pointers.offload(f"{'x' * 200}#" * 100, thread_id="t1")).id
        answers = looking.ask_all("search_pointer", pointer=pointer, pattern="#")
        assert max(map(len, answers)) <= characters_max
        assert "".join(answers).count("#") == 100


def test_a_place_that_was_found_can_be_read_there(world: World) -> None:
    with world.pointers() as pointers:
        looking = Looking(world, ToolPointers(pointers))
        pointer = world.now(pointers.offload(LOG, thread_id="t1")).id
        found = looking.ask("search_pointer", pointer=pointer, pattern="REQUEST 1234 ", ignore_case=True).text
        line, character = re.findall(r"line (\d+), character (\d+)", found)[0]
        read = looking.ask("read_pointer", pointer=pointer, unit="lines", start=int(line), count=1).text
        assert "request 1234 " in read
        read = looking.ask("read_pointer", pointer=pointer, unit="characters", start=int(character), count=12).text
        assert read.split("\n")[1] == "request 1234"


def test_a_selection_is_whole_or_goes_on(world: World) -> None:
    with world.pointers() as pointers:
        looking = Looking(world, ToolPointers(pointers))
        pointer = world.now(pointers.offload(ROWS, thread_id="t1")).id
        assert looking.ask("select_pointer", pointer=pointer, expression="[?id == `7`].name").text == '["item 7"]'
        answers = looking.ask_all("select_pointer", pointer=pointer, expression="[].name")
        assert len(answers) > 1
        assert max(map(len, answers)) <= 4_000
        assert bodies(answers) == "[" + ",".join(f'"item {number}"' for number in range(500)) + "]"


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("read_pointer", {"unit": "rows"}, "has no rows"),
        ("read_pointer", {"start": -1}, "whole number from 0"),
        ("read_pointer", {"continuation": "zzzz"}, "belongs to another question"),
        ("search_pointer", {"pattern": "(a", "regex": True}, "no regular expression"),
        ("search_pointer", {"pattern": ""}, "at least one character"),
        ("select_pointer", {"expression": "[?"}, ""),
    ],
)
def test_what_cannot_be_asked_is_an_error_that_the_model_reads(
    world: World, name: str, arguments: dict[str, Any], told: str
) -> None:
    with world.pointers() as pointers:
        pointer = world.now(pointers.offload(LOG, thread_id="t1")).id
        answer = Looking(world, ToolPointers(pointers)).ask(name, pointer=pointer, **arguments)
        assert answer.status == "error"
        assert told in answer.text
        assert len(answer.text) < 1_000


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_pointer", {}),
        ("read_pointer", {"unit": "lines"}),
        ("search_pointer", {"pattern": "INFO"}),
        ("select_pointer", {"expression": "[0]"}),
    ],
)
def test_strangers_read_the_same_words_as_for_an_id_that_never_was(
    world: World, name: str, arguments: dict[str, Any]
) -> None:
    with world.pointers("ann") as anns, world.pointers("bob") as bobs:
        foreign = world.now(bobs.offload(LOG, thread_id="t1")).id
        edge = ToolPointers(anns)
        looking = Looking(world, edge)
        told = looking.ask(name, pointer=foreign, **arguments)
        absent = looking.ask(name, pointer=ABSENT, **arguments)
        assert (told.status, told.text.replace(foreign, ABSENT)) == ("error", absent.text)
        assert (edge.counts.dangling, edge.counts.refetches) == (2, 0)


def test_an_expired_pointer_says_how_to_get_the_value_again(world: World) -> None:
    with world.pointers() as pointers:
        pointer = world.now(pointers.offload(LOG, thread_id="t1"))
        world.now(pointers.release_thread("t1"))
        answer = Looking(world, ToolPointers(pointers)).ask("read_pointer", pointer=pointer.id)
        assert answer.status == "error"
        assert "call the tool again" in answer.text


def test_bytes_are_not_read_but_passed_on(world: World) -> None:
    with world.pointers() as pointers:
        pointer = world.now(pointers.offload(b"\x89PNG\r\n\x1a\n" + bytes(50), thread_id="t1")).id
        answer = Looking(world, ToolPointers(pointers)).ask("read_pointer", pointer=pointer)
        assert "image/png" in answer.text
        assert "pass the pointer to a tool" in answer.text


def test_answers_are_counted(world: World) -> None:
    with world.pointers() as pointers:
        edge = ToolPointers(pointers)
        pointer = world.now(pointers.offload(LOG, thread_id="t1")).id
        answer = Looking(world, edge).ask("read_pointer", pointer=pointer)
        assert (edge.counts.refetches, edge.counts.refetched_characters) == (1, len(answer.text))
