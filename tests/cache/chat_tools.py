"""What models are given in tests: two tools of one name, and the form of an answer."""

from __future__ import annotations

from langchain_core.tools import tool
from pydantic import BaseModel


@tool
def look(x: int) -> int:
    """Look at x."""
    return x


@tool("look")
def other_look(x: str) -> int:
    """Look at x."""
    return 0


class Answer(BaseModel):
    x: int
