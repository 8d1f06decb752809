"""What the commands look like: plain words, one colour for what to type, errors in one place."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from rtmem.errors import RtmemError

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def error(exc: RtmemError) -> None:
    """One error: what happened, and the next step that its message carries."""
    err.print(Text.assemble(("error: ", "bold red"), str(exc)))


def note(text: str) -> None:
    """Something worth knowing that is no result: on stderr, so that it never ends up in a pipe."""
    err.print(Text(text, style="dim"))


def rows(pairs: list[tuple[str, str]]) -> None:
    """Names on the left, values on the right, a line each: a value is copied whole, however narrow the window."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        out.print(Text.assemble((f"{name:<{width}}  ", "dim"), value))
