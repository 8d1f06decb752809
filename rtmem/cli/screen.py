"""What the commands look like: plain words, one colour for what to type, errors in one place."""

from __future__ import annotations

import io
import re
import sys
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from rtmem.errors import RtmemError

# What this terminal's encoding lacks is shown as "?": an answer that came must not end as a traceback.
for _stream in (sys.stdout, sys.stderr):
    if isinstance(_stream, io.TextIOWrapper):
        _stream.reconfigure(errors="replace")

# On a terminal lines break between words; in a pipe they do not break at all.
out = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
err = Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


_CONTROL: Final = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {
    0x7F: 0x2421,
    # C1, and what reverses the order of the text around it, so that it reads as something else than it is.
    **dict.fromkeys((*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD),
}


def harmless(text: str) -> str:
    """`text` of somebody else for a terminal: what could move the cursor or set the clipboard becomes a picture."""
    return text.translate(_CONTROL)


def error(exc: RtmemError) -> None:
    """One error: what happened, and the next step that its message carries."""
    err.print(Text.assemble(("error: ", "bold red"), harmless(str(exc))))


def note(text: str) -> None:
    """Something worth knowing that is no result: on stderr, so that it never ends up in a pipe."""
    err.print(Text(text, style="dim"))


def counted(number: int, one: str, many: str = "") -> str:
    """`1 value`, `2 values`; `many` where it is not `one` and an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


class Stream:
    """Text that arrives in pieces: wrapped between words on a terminal, untouched in a pipe."""

    def __init__(self) -> None:
        self._column = 0

    def write(self, piece: str) -> None:
        """Show one more piece at once."""
        if out.is_terminal:
            piece = "".join(self._wrapped(word) for word in re.findall(r"\n|[^\S\n]*[^\s]*", harmless(piece)))
        else:
            self._column = 0 if piece.endswith("\n") else 1
        out.file.write(piece)
        out.file.flush()

    def end_line(self) -> None:
        """Make sure that what comes next begins a line."""
        if self._column:
            self.write("\n")

    def _wrapped(self, word: str) -> str:
        if word == "\n":
            self._column = 0
            return word
        # Only where a piece begins with a space: a real model's pieces may be parts of words.
        if word[:1].isspace() and self._column + cell_len(word) > out.width:
            self._column = 0
            word = "\n" + word.lstrip()
        self._column += cell_len(word)
        return word


def rows(pairs: list[tuple[str, str]]) -> None:
    """Names on the left, values on the right, a line each: a value is copied whole, however narrow the window."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        out.print(Text.assemble((f"{name:<{width}}  ", "dim"), value), soft_wrap=True)
