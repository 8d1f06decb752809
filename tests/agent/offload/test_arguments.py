"""The model passes a pointer, the tool gets the value."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel

from rtmem.agent import ByPointer, ToolPointers
from rtmem.errors import ConfigError
from tests.agent.offload.worlds import World, pointer_in

ROWS = [{"id": number, "price": number / 4} for number in range(500)]
ABSENT = "mp_" + "a" * 26


class Row(BaseModel):
    id: int
    price: float


@tool
def total(rows: Annotated[list[dict[str, Any]], ByPointer], column: str = "price") -> float:
    """Add up a column."""
    return float(sum(row[column] for row in rows))


@tool
def kinds(values: Annotated[dict[str, Any], ByPointer]) -> str:
    """Tell what it got."""
    told = " ".join(f"{name}:{type(value).__name__}" for name, value in values.items())
    return told + (" a is e" if "e" in values and values["a"] is values["e"] else "")


def test_a_tool_gets_the_value_that_a_pointer_leads_to(world: World) -> None:
    with world.pointers() as pointers:
        edge = ToolPointers(pointers)
        pointer = world.now(pointers.offload(ROWS, thread_id="t1"))
        assert world.call(edge.wrap(total), {"rows": pointer.id}).content == str(total.func(ROWS))
        assert world.call(edge.wrap(total), {"rows": f" {pointer.id}\n", "column": "id"}).content == "124750.0"
        assert world.call(edge.wrap(total), {"rows": [{"price": 2}]}).content == "2.0"
        assert edge.counts.resolved == 2


def test_pointers_inside_of_a_value_are_resolved_each_once(world: World) -> None:
    with world.pointers() as pointers:
        edge = ToolPointers(pointers)
        rows = world.now(pointers.offload(ROWS, thread_id="t1")).id
        text = world.now(pointers.offload("x" * 5_000, thread_id="t1")).id
        answer = world.call(edge.wrap(kinds), {"values": {"a": rows, "b": [text], "c": text, "d": "mp_no", "e": rows}})
        assert answer.content == "a:list b:list c:str d:str e:list a is e"
        assert edge.counts.resolved == 2


class Question(BaseModel):
    rows: Annotated[list[dict[str, Any]], ByPointer]
    label: str = ""
    others: list[Question] = []


@tool
def ask(questions: list[Question], first: Question) -> str:
    """Tell what it got."""
    told = [f"{question.label[:3]}{len(question.rows)}" for question in (first, *first.others, *questions)]
    return " ".join(told)


def test_marked_fields_of_models_get_the_value_and_others_the_text(world: World) -> None:
    with world.pointers() as pointers:
        edge = ToolPointers(pointers)
        rows = world.now(pointers.offload(ROWS, thread_id="t1")).id
        text = world.now(pointers.offload("no rows", thread_id="t1")).id
        inner = {"rows": [{}, {}], "label": "c"}
        first = {"rows": rows, "label": rows, "others": [{"rows": rows, "label": "b"}, inner]}
        answer = world.call(edge.wrap(ask), {"questions": [{"rows": [{}]}, {"rows": rows}], "first": first})
        assert answer.content == "mp_500 b500 c2 1 500"
        assert edge.counts.resolved == 1
        wrong = world.call(edge.wrap(ask), {"questions": [], "first": {"rows": text}})
        assert wrong.status == "error"
        assert "'first.rows' leads to a value of another type" in wrong.content


def test_arguments_may_be_nested_as_deep_as_a_model_likes(world: World) -> None:
    def nested(value: Any) -> Any:
        for _ in range(800):
            value = [value]
        return value

    @tool
    def depth(value: Annotated[Any, ByPointer]) -> str:
        """Tell how deep it is."""
        count = 0
        while isinstance(value, list):
            value, count = value[0], count + 1
        return str(count)

    with world.pointers() as pointers:
        wrapped = ToolPointers(pointers).wrap(depth)
        assert world.call(wrapped, {"value": nested(1)}).content == "800"
        told = world.call(wrapped, {"value": nested(ABSENT)})
        assert told.status == "error"
        assert "nested too deep" in told.content or "no pointer" in told.content


def test_a_value_that_looks_like_a_pointer_is_not_followed(world: World) -> None:
    with world.pointers() as pointers:
        inner = world.now(pointers.offload("secret " * 1_000, thread_id="t1"))
        outer = world.now(pointers.offload({"a": inner.id}, thread_id="t1"))
        assert world.call(ToolPointers(pointers).wrap(kinds), {"values": outer.id}).content == "a:str"


def test_an_argument_that_is_not_marked_gets_the_text(world: World) -> None:
    @tool
    def echo(text: str) -> str:
        """Say it again."""
        return text

    with world.pointers() as pointers:
        pointer = world.now(pointers.offload("x" * 5_000, thread_id="t1"))
        assert world.call(ToolPointers(pointers).wrap(echo), {"text": pointer.id}).content == pointer.id


def test_foreign_absent_and_mistyped_ids_are_tool_errors_that_say_what_to_do(world: World) -> None:
    with world.pointers("ann") as anns, world.pointers("bob") as bobs:
        foreign = world.now(bobs.offload(ROWS, thread_id="t1")).id
        edge = ToolPointers(anns)
        wrapped = edge.wrap(total)
        absent = world.call(wrapped, {"rows": ABSENT})
        assert absent.status == "error"
        assert "call the tool again that makes the value" in absent.content
        told = world.call(wrapped, {"rows": foreign})
        # Not a word tells that somebody else has it.
        assert (told.status, told.content.replace(foreign, ABSENT)) == ("error", absent.content)
        assert edge.counts.dangling == 2


def test_the_principal_is_that_of_the_pointers_whatever_the_config_says(world: World) -> None:
    with world.pointers("ann") as anns, world.pointers("bob") as bobs:
        foreign = world.now(bobs.offload(ROWS)).id
        wrapped = ToolPointers(anns).wrap(total)
        config: Any = {"configurable": {"thread_id": "t1", "principal": "bob", "langgraph_auth_user": "bob"}}
        call = {"name": "total", "args": {"rows": foreign}, "id": "1", "type": "tool_call"}
        done = world.loop.wait(wrapped.ainvoke(call, config)) if world.awaiting else wrapped.invoke(call, config)
        assert done.status == "error"


def test_a_value_of_the_wrong_type_is_a_tool_error(world: World) -> None:
    with world.pointers() as pointers:
        pointer = world.now(pointers.offload("x" * 5_000, thread_id="t1"))
        answer = world.call(ToolPointers(pointers).wrap(total), {"rows": pointer.id})
        assert answer.status == "error"
        assert "another type" in answer.content
        assert len(answer.content) < 500


def test_values_are_coerced_as_if_the_model_had_written_them(world: World) -> None:
    @tool
    def first(rows: Annotated[list[Row], ByPointer]) -> str:
        """Tell the first."""
        return repr(rows[0])

    with world.pointers() as pointers:
        pointer = world.now(pointers.offload(ROWS, thread_id="t1"))
        assert world.call(ToolPointers(pointers).wrap(first), {"rows": pointer.id}).content == "Row(id=0, price=0.0)"


def test_integers_of_more_than_64_bits_reach_a_tool_as_they_were(world: World) -> None:
    @tool
    def last(numbers: Annotated[list[int], ByPointer]) -> str:
        """Tell the last."""
        return str(numbers[-1])

    @tool
    def powers() -> list[int]:
        """Powers of ten."""
        return [10**number for number in range(100)]

    with world.pointers() as pointers:
        edge = ToolPointers(pointers)
        pointer = pointer_in(world.call(edge.wrap(powers), {}).content)
        assert world.call(edge.wrap(last), {"numbers": pointer}).content == str(10**99)


@pytest.mark.parametrize("schema", ["model", "JSON"])
def test_json_that_came_as_text_is_what_it_says(world: World, schema: str) -> None:
    made: Any = total
    if schema == "JSON":
        told = {"type": "object", "properties": {"rows": {"type": "array"}}, "required": ["rows"]}
        made = StructuredTool(
            name="total", description="Add up.", args_schema=told, func=lambda rows: str(sum(r["price"] for r in rows))
        )
    with world.pointers() as pointers:
        wrapped = ToolPointers(pointers).wrap(made, by_pointer=["rows"])
        pointer = world.now(pointers.offload(json.dumps(ROWS), thread_id="t1"))
        assert world.call(wrapped, {"rows": pointer.id}).content == str(total.func(ROWS))
        prose = world.now(pointers.offload("[no JSON " * 1_000, thread_id="t1"))
        assert world.call(wrapped, {"rows": prose.id}).status == "error"


def test_a_table_goes_from_tool_to_tool_as_a_table(world: World) -> None:
    pandas = pytest.importorskip("pandas")

    @tool
    def molecules() -> Any:
        """Look them up."""
        return pandas.DataFrame({"name": ["water", "ethanol"], "mass": [18.015, 46.069]})

    def heaviest(table: Any) -> str:
        """Tell the heaviest."""
        return str(table.loc[table["mass"].idxmax(), "name"])

    heaviest.__annotations__["table"] = Annotated[pandas.DataFrame, ByPointer]
    with world.pointers() as pointers:
        edge = ToolPointers(pointers)
        preview = world.call(edge.wrap(molecules), {}).content
        pointer = preview[preview.index("mp_") :][:29]
        assert world.call(edge.wrap(heaviest), {"table": pointer}).content == "ethanol"
        text = world.now(pointers.offload("no table", thread_id="t1")).id
        assert world.call(edge.wrap(heaviest), {"table": text}).status == "error"


def schema_of(made: BaseTool, name: str) -> Any:
    return convert_to_openai_tool(made)["function"]["parameters"]["properties"][name]


def test_the_model_sees_that_a_pointer_is_welcome(redis_url: str) -> None:
    with_marker = schema_of(total, "rows")
    assert with_marker["anyOf"][0] == {"type": "string", "description": "pointer mp_..."}
    assert with_marker["anyOf"][1]["type"] == "array"


@pytest.mark.parametrize("kind", ["function", "schema of JSON", "model"])
def test_arguments_of_tools_that_others_wrote_can_be_named(world: World, kind: str) -> None:
    class Arguments(BaseModel):
        rows: list[dict[str, Any]]
        column: str = "price"

    told = {"type": "object", "properties": {"rows": {"type": "array"}, "column": {"type": "string"}}}

    def plain(rows: list[dict[str, Any]], column: str = "price") -> float:
        """Add up a column."""
        return float(sum(row[column] for row in rows))

    made: Any = plain
    if kind != "function":
        made = StructuredTool(
            name="plain", description="Add up.", args_schema=Arguments if kind == "model" else told, func=plain
        )
    with world.pointers() as pointers:
        wrapped = ToolPointers(pointers).wrap(made, by_pointer=["rows"])
        pointer = world.now(pointers.offload(ROWS, thread_id="t1"))
        assert schema_of(wrapped, "rows")["anyOf"][0]["description"] == "pointer mp_..."
        assert world.call(wrapped, {"rows": pointer.id}).content == str(plain(ROWS))


def test_an_argument_that_is_not_there_cannot_be_named(redis_url: str) -> None:
    from rtmem.pointers import Pointers

    with Pointers(redis_url) as pointers, pytest.raises(ConfigError, match="no argument 'tables'"):
        ToolPointers(pointers).wrap(total, by_pointer=["tables"])


def test_a_call_with_too_many_pointers_is_refused(world: World) -> None:
    with world.pointers() as pointers:
        edge = ToolPointers(pointers)
        ids = [world.now(pointers.offload(number, thread_id="t1")).id for number in range(101)]
        answer = world.call(edge.wrap(kinds), {"values": {"all": ids}})
        assert (answer.status, "100 pointers at most" in answer.content) == ("error", True)
