"""The tasks of both arms: a question, the tools for it, and the script of the model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool

from loadtest.pointers import documents
from loadtest.pointers.agents import Call, Script, passed_on, pointer_in
from loadtest.pointers.documents import Document


@dataclass(frozen=True, slots=True)
class Task:
    """One question about one document."""

    name: str
    question: str
    document: Document
    tools: Sequence[BaseTool]
    by_pointer: str  # the argument of the last tool that may be given by pointer
    script: Script


def fetching(name: str, description: str, document: Document) -> BaseTool:
    """A tool that gives the document."""

    def fetch() -> Any:
        return document.value

    return StructuredTool.from_function(fetch, name=name, description=description)


def passing_on(fetch: BaseTool, tool: BaseTool, argument: str) -> Script:
    """Fetch, hand what came to `tool`, and answer what it says."""

    def script(results: list[ToolMessage]) -> Sequence[Call] | str:
        if not results:
            return [(fetch.name, {})]
        if len(results) == 1:
            return [(tool.name, {argument: passed_on(results[0])})]
        return results[1].text

    return script


def handed_on(
    name: str, question: str, document: Document, fetch: tuple[str, str], tool: tuple[str, str, Any], argument: str
) -> Task:
    """A task whose document goes from one tool to another, through the model's hands in one arm, past it in the other.

    Args:
        tool: name, description and the function that answers; its argument gets the name `argument`.
    """
    fetcher = fetching(*fetch, document)
    other = _reading(*tool, argument, type(document.value))
    return Task(name, question, document, (fetcher, other), argument, passing_on(fetcher, other, argument))


def _reading(name: str, description: str, function: Callable[[Any], str], argument: str, kind: type) -> BaseTool:
    def read(**given: Any) -> str:
        return function(given[argument])

    schema = {
        "type": "object",
        "properties": {argument: {"type": "array"} if kind is list else {"type": "string"}},
        "required": [argument],
    }
    return StructuredTool(name=name, description=description, args_schema=schema, func=read)


def grid_task(seed: int, shape: tuple[int, int, int]) -> Task:
    """A grid of a molecule, from the tool that makes it to the tool that looks for its peak."""
    return handed_on(
        "molecule grid",
        "Where is the electron density of ethanol highest?",
        documents.grid(seed, shape),
        ("ethanol_density", "Electron density of ethanol on a grid."),
        ("find_peak", "Highest density of a grid and its place.", documents.find_peak),
        "grid",
    )


def small_tasks(seed: int) -> list[Task]:
    """The four kinds of output that a tool has most often, each about 1,400 tokens long."""
    return [
        handed_on(
            "JSON search results",
            "Which umbrella rated 4.5 or better is the cheapest?",
            documents.search_results(seed, 18),
            ("search_shop", "Search products."),
            ("cheapest", "Cheapest umbrella rated 4.5 or better.", documents.cheapest),
            "results",
        ),
        handed_on(
            "log",
            "Which order failed, and on which host?",
            documents.log(seed, 55),
            ("read_log", "Log of the shop."),
            ("failed_order", "Order that failed in a log.", documents.failed_order),
            "log",
        ),
        handed_on(
            "HTML",
            "What is the CAS number of the substance that boils last?",
            documents.page(seed, 47),
            ("fetch_page", "Page of substances."),
            ("boils_last", "CAS number of what boils last.", documents.highest_boiling),
            "html",
        ),
        handed_on(
            "CSV",
            "What is the amount of all sales in the west?",
            documents.sales(seed, 75),
            ("export_sales", "Sales as CSV."),
            ("sum_west", "Amount of sales in the west.", documents.west),
            "csv",
        ),
    ]


# Looking inside ------------------------------------------------------------------------------------------------------


def looking_tasks(seed: int) -> list[Task]:
    """Larger documents of the same kinds, and no tool that would answer: the model reads them, or looks inside."""
    html = documents.page(seed, 400)
    name, cas = documents.substance(html.value, 321)
    return [
        _looked_into(
            "JSON search results, select",
            "Which umbrella rated 4.5 or better is the cheapest?",
            documents.search_results(seed, 300),
            ("search_shop", "Search products."),
            lambda text: documents.cheapest(json.loads(text)),
            _select_cheapest,
        ),
        _looked_into(
            "log, search",
            "Which order failed, and on which host?",
            documents.log(seed, 3_000),
            ("read_log", "Log of the shop."),
            documents.failed_order,
            _search_error,
        ),
        _looked_into(
            "HTML, search",
            f"What is the CAS number of {name}?",
            Document(html.value, cas),
            ("fetch_page", "Page of substances."),
            lambda text: documents.cas_number(text, name),
            _search_substance(name),
        ),
        _looked_into(
            "CSV, read to its end",
            "What is the amount of all sales in the west?",
            documents.sales(seed, 400),
            ("export_sales", "Sales as CSV."),
            documents.west,
            _read_all,
        ),
    ]


Look = Callable[[str, list[ToolMessage]], Sequence[Call] | str]
"""What the model does next with a pointer, after these answers of the tools that look inside."""


def _looked_into(
    name: str, question: str, document: Document, fetch: tuple[str, str], read: Callable[[str], str], look: Look
) -> Task:
    """A task in which the model reads the document if it stands in the conversation, and looks into it if not."""
    fetcher = fetching(*fetch, document)

    def script(results: list[ToolMessage]) -> Sequence[Call] | str:
        if not results:
            return [(fetcher.name, {})]
        pointer = pointer_in(results[0])
        return look(pointer, results[1:]) if pointer else read(results[0].text)

    return Task(name, question, document, (fetcher,), "", script)


def _select_cheapest(pointer: str, answers: list[ToolMessage]) -> Sequence[Call] | str:
    if not answers:
        expression = "min_by([?kind=='umbrella' && rating >= `4.5`], &price).[title, price]"
        return [("select_pointer", {"pointer": pointer, "expression": expression})]
    title, price = json.loads(answers[0].text)
    return f"{title} for {price}"


def _search_error(pointer: str, answers: list[ToolMessage]) -> Sequence[Call] | str:
    if not answers:
        return [("search_pointer", {"pointer": pointer, "pattern": " ERROR "})]
    place = next(line for line in answers[0].text.splitlines() if " ERROR " in line)
    return documents.failed_order(place.split(": ", 1)[1])


def _search_substance(name: str) -> Look:
    def look(pointer: str, answers: list[ToolMessage]) -> Sequence[Call] | str:
        if not answers:
            return [("search_pointer", {"pointer": pointer, "pattern": f">{name}<"})]
        return documents.cas_number(answers[0].text, name)

    return look


def _read_all(pointer: str, answers: list[ToolMessage]) -> Sequence[Call] | str:
    asked = {"pointer": pointer, "unit": "lines"}
    if not answers:
        return [("read_pointer", asked)]
    more = re.search(r"continuation='(\w+)'\]$", answers[-1].text)
    if more:
        return [("read_pointer", {**asked, "continuation": more[1]})]
    parts = [answer.text.split("\n", 1)[1].partition("\n[more: ")[0].rstrip("\n") for answer in answers]
    return documents.west("\n".join(parts))
