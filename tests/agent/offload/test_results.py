"""What a model reads in place of a large result, and what stays as it was."""

from __future__ import annotations

import base64
import datetime
import json
from typing import Annotated, Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.types import Command

from rtmem.agent import ToolPointers
from rtmem.agent.offload.results import as_kept, longer_than
from tests.agent.offload.worlds import World, pointer_in

LOG = "".join(f"2026-11-30 12:00:{second % 60:02} INFO request {second} served\n" for second in range(500))
ROWS = [{"id": number, "name": f"item {number}", "price": number / 4} for number in range(500)]


def returning(value: Any, **options: Any) -> Any:
    @tool(**options)
    def fetch() -> Any:
        """Fetch it."""
        return value

    return fetch


def test_a_long_text_becomes_a_preview_and_the_pointer_resolves_to_it(world: World) -> None:
    with world.pointers() as pointers:
        message = world.call(ToolPointers(pointers).wrap(returning(LOG)), {})
        assert isinstance(message, ToolMessage)
        assert len(message.content) < 1_200
        assert "500 lines" in message.content
        assert world.now(pointers.resolve(pointer_in(message.content))) == LOG


@pytest.mark.parametrize("value", [ROWS, {"rows": ROWS}, [[1.5, None, True]] * 2_000, list(range(3_000))])
def test_large_json_is_kept_with_its_types(world: World, value: Any) -> None:
    with world.pointers() as pointers:
        message = world.call(ToolPointers(pointers).wrap(returning(value)), {})
        assert world.now(pointers.resolve(pointer_in(message.content))) == value


def test_rows_of_a_database_cursor_become_arrays_that_a_model_can_look_into(world: World) -> None:
    when = datetime.date(2026, 11, 30)
    with world.pointers() as pointers:
        edge = ToolPointers(pointers)
        pointer = pointer_in(world.call(edge.wrap(returning([(1, "a", when)] * 1_000)), {}).content)
        assert world.now(pointers.resolve(pointer)) == [[1, "a", "2026-11-30"]] * 1_000
        assert world.call(edge.tools[2], {"pointer": pointer, "expression": "[0][2]"}).content == '"2026-11-30"'


@pytest.mark.parametrize(
    "value", [{"id": 10**30, "text": "x" * 5_000}, ["\ud800" * 5_000]], ids=["integer", "surrogate"]
)
def test_json_that_cannot_be_kept_as_json_is_kept_as_the_text_that_a_model_would_have_read(
    world: World, value: Any
) -> None:
    with world.pointers() as pointers:
        pointer = pointer_in(world.call(ToolPointers(pointers).wrap(returning(value)), {}).content)
        assert json.loads(world.now(pointers.resolve(pointer))) == value


def test_numbers_that_are_none_reach_the_next_tool(world: World) -> None:
    with world.pointers() as pointers:
        message = world.call(ToolPointers(pointers).wrap(returning([float("nan"), 1.0] * 2_000)), {})
        first, second, *_ = world.now(pointers.resolve(pointer_in(message.content)))
        assert (first != first, second) == (True, 1.0)


def test_a_model_looks_into_rows_with_numbers_that_are_none(world: World) -> None:
    rows = [{"id": number, "price": float("nan") if number % 7 == 0 else number / 2} for number in range(1_000)]
    with world.pointers() as pointers:
        edge = ToolPointers(pointers)
        read, _, select = edge.tools
        shown = world.call(edge.wrap(returning(rows)), {}).content
        assert "array of 1,000 objects {id: integer, price: number}" in shown
        assert 'begins: [{"id":0,"price":null},{"id":1,"price":0.5}' in shown
        assert "More: read_pointer(unit='items'), select_pointer" in shown
        pointer = pointer_in(shown)
        part = world.call(read, {"pointer": pointer, "unit": "items", "start": 999})
        assert part.content == 'items 999-999 of 1,000 (counted from 0)\n{"id":999,"price":499.5}'
        assert world.call(select, {"pointer": pointer, "expression": "[?price > `499`].id"}).content == "[999]"


def test_an_array_of_objects_is_kept_as_its_text_where_that_is_long(world: World) -> None:
    numpy = pytest.importorskip("numpy")
    with world.pointers() as pointers:
        array = numpy.array(["long " * 2_000, {1}], dtype=object)
        shown = world.call(ToolPointers(pointers).wrap(returning(array)), {}).content
        assert len(shown) < 1_500
        assert world.now(pointers.resolve(pointer_in(shown))) == str(array)


def test_tables_and_bytes_are_always_pointers_and_stay_what_they_are(world: World) -> None:
    pandas = pytest.importorskip("pandas")
    pyarrow = pytest.importorskip("pyarrow")
    numpy = pytest.importorskip("numpy")
    frame = pandas.DataFrame({"molecule": ["water", "ethanol"], "mass": [18.015, 46.069]})
    table = pyarrow.table({"a": [1, 2, 3]})
    grid = numpy.linspace(0, 1, 27).reshape(3, 3, 3)
    with world.pointers() as pointers:
        edge = ToolPointers(pointers)
        kept = [
            world.now(pointers.resolve(pointer_in(world.call(edge.wrap(returning(value)), {}).content)))
            for value in (frame, table, grid, b"\x89PNG\r\n\x1a\n" + bytes(20))
        ]
        assert kept[0].equals(frame)
        assert kept[1].equals(table)
        assert (kept[2] == grid).all()
        assert kept[3].startswith(b"\x89PNG")
        # A number of numpy is a number, and no table.
        assert world.call(edge.wrap(returning(numpy.float64(2.5))), {}).content == "2.5"


@pytest.mark.parametrize("value", ["short", {"a": 1}, [1, 2], 7, None, True, "x" * 4_000, ["a", "b"]])
def test_what_fits_stays_as_it_is_without_a_word_to_redis(world: World, value: Any) -> None:
    with world.pointers() as pointers:
        edge = ToolPointers(pointers)
        assert world.call(edge.wrap(returning(value)), {}).content == world.call(returning(value), {}).content
        assert world.now(pointers.usage()).pointers == 0
        assert edge.counts.offloaded == 0


def test_one_character_more_than_the_limit_is_a_pointer(world: World) -> None:
    with world.pointers(inline_characters_max=600) as pointers:
        edge = ToolPointers(pointers)
        assert world.call(edge.wrap(returning("x" * 600)), {}).content == "x" * 600
        assert pointer_in(world.call(edge.wrap(returning("x" * 601)), {}).content)
        lower = ToolPointers(pointers, characters_max=500)
        assert pointer_in(world.call(lower.wrap(returning("x" * 501)), {}).content)


def test_an_object_becomes_the_text_that_the_model_would_have_read(world: World) -> None:
    class Report:
        def __str__(self) -> str:
            return LOG

    with world.pointers() as pointers:
        message = world.call(ToolPointers(pointers).wrap(returning(Report())), {})
        assert world.now(pointers.resolve(pointer_in(message.content))) == LOG


def test_content_and_artifact_are_treated_each_by_itself(world: World) -> None:
    options = {"response_format": "content_and_artifact"}
    with world.pointers() as pointers:
        edge = ToolPointers(pointers)
        small = world.call(edge.wrap(returning(("found 500", {"a": 1}), **options)), {})
        assert (small.content, small.artifact) == ("found 500", {"a": 1})
        large = world.call(edge.wrap(returning((LOG, ROWS), **options)), {})
        assert world.now(pointers.resolve(pointer_in(large.content))) == LOG
        assert large.artifact["type"] == "rtmem_pointer"
        assert large.artifact["shape"].startswith("array of 500 objects")
        assert world.now(pointers.resolve(large.artifact["id"])) == ROWS


def test_texts_among_content_blocks_are_kept_out_and_images_stay(world: World) -> None:
    image = {"type": "image", "base64": base64.b64encode(bytes(9_000)).decode(), "mime_type": "image/png"}
    with world.pointers() as pointers:
        edge = ToolPointers(pointers)
        only = world.call(edge.wrap(returning([image])), {})
        assert only.content == [image]
        one = world.call(edge.wrap(returning([{"type": "text", "text": LOG}, image])), {})
        assert one.content[1:] == [image]
        assert world.now(pointers.resolve(pointer_in(one.content[0]["text"]))) == LOG
        texts = [{"type": "text", "text": f"part {number} " * 20} for number in range(100)]
        many = world.call(edge.wrap(returning(texts)), {})
        assert len(many.content) == 1
        assert world.now(pointers.resolve(pointer_in(many.content[0]["text"]))) == texts


def test_json_that_looks_like_content_blocks_is_kept_out_too(world: World) -> None:
    files = [{"type": "file", "path": f"/var/log/{number}"} for number in range(1_000)]
    with world.pointers() as pointers:
        message = world.call(ToolPointers(pointers).wrap(returning(files)), {})
        assert world.now(pointers.resolve(pointer_in(message.content))) == files


def test_a_tool_message_is_treated_and_an_error_is_left_alone(world: World) -> None:
    @tool
    def answer(status: str, call_id: Annotated[str, InjectedToolCallId]) -> ToolMessage:
        """Answer with a message of its own."""
        return ToolMessage(LOG, artifact=ROWS, tool_call_id=call_id, status=status, additional_kwargs={"k": 1})

    with world.pointers() as pointers:
        wrapped = ToolPointers(pointers).wrap(answer)
        good = world.call(wrapped, {"status": "success"})
        assert world.now(pointers.resolve(pointer_in(good.content))) == LOG
        assert world.now(pointers.resolve(good.artifact["id"])) == ROWS
        assert good.additional_kwargs == {"k": 1}
        assert good.tool_call_id == "call-1"
        bad = world.call(wrapped, {"status": "error"})
        assert (bad.content, bad.artifact) == (LOG, ROWS)


def test_the_tool_messages_of_a_command_are_treated_and_its_state_is_not(world: World) -> None:
    @tool
    def update(call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Change the state."""
        return Command(update={"log": LOG, "messages": [ToolMessage(LOG, tool_call_id=call_id)]}, goto="next")

    with world.pointers() as pointers:
        command = world.call(ToolPointers(pointers).wrap(update), {})
        assert (command.update["log"], command.goto) == (LOG, "next")
        assert world.now(pointers.resolve(pointer_in(command.update["messages"][0].content))) == LOG


@pytest.mark.parametrize(
    ("limits", "why"), [({"tenant_bytes_max": 1_000}, "no room is left"), ({"value_bytes_max": 1_000}, "too large")]
)
def test_a_result_that_cannot_be_kept_is_cut_and_the_model_is_told(
    world: World, limits: dict[str, int], why: str
) -> None:
    with world.pointers(**limits) as pointers:
        edge = ToolPointers(pointers)
        message = world.call(edge.wrap(returning(LOG)), {})
        assert message.content.startswith(LOG[:1_900])
        assert len(message.content) < 4_000
        assert why in message.content
        assert (edge.counts.refused, edge.counts.offloaded) == (1, 0)
        rows = world.call(edge.wrap(returning(ROWS)), {}).content
        assert rows.startswith('[{"id":0,"name":"item 0","price":0.0}')
        assert why in rows
        assert world.call(edge.wrap(returning(bytes(2_000))), {}).content.startswith("2,000 bytes\n[cut")
        large = edge.wrap(returning(("found", ROWS), response_format="content_and_artifact"))
        assert world.call(large, {}).artifact == ROWS


def test_the_same_value_gives_the_same_text_but_for_the_id(world: World) -> None:
    with world.pointers() as pointers:
        wrapped = ToolPointers(pointers).wrap(returning(ROWS))
        first, second = (world.call(wrapped, {}).content for _ in range(2))
        assert pointer_in(first) != pointer_in(second)
        assert first.replace(pointer_in(first), "") == second.replace(pointer_in(second), "")
        assert world.now(pointers.usage()).values == 1


def test_a_preview_names_the_tools_that_the_model_has_and_no_others(world: World) -> None:
    with world.pointers() as pointers:
        some = world.call(ToolPointers(pointers, tools=["search_pointer"]).wrap(returning(ROWS)), {}).content
        assert "search_pointer" in some
        assert "select_pointer" not in some
        none = world.call(ToolPointers(pointers, tools=()).wrap(returning(ROWS)), {}).content
        assert "_pointer" not in none


def test_measuring_stops_at_the_limit() -> None:
    class Watched(str):
        def __len__(self) -> int:
            raise AssertionError("looked further than needed")

    assert longer_than([Watched(), "x" * 600], 500)
    endless: list[Any] = []
    endless.append(endless)
    assert longer_than(endless, 10_000)
    assert not longer_than({"a": [1, 2.5, None], "b": "c"}, 100)


def test_what_json_holds_is_kept_as_it_is() -> None:
    assert as_kept(ROWS) is ROWS
    assert as_kept({1: (2, {3})}) == {"1": [2, [3]]}
    assert as_kept({"when": datetime.date(2026, 1, 2)}) == {"when": "2026-01-02"}
