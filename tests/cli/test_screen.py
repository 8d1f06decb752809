"""What somebody else's text may do to a terminal: nothing."""

from __future__ import annotations

import pytest

from rtmem.cli.screen import harmless


@pytest.mark.parametrize("code", [0x00, 0x07, 0x0D, 0x1B, 0x7F, 0x9B, 0x202E, 0x2066, 0x2069])
def test_what_moves_the_cursor_or_reverses_text_is_shown_and_not_done(code: int) -> None:
    shown = harmless(f"a{chr(code)}b")
    assert len(shown) == 3
    assert chr(code) not in shown


def test_text_of_people_is_left_alone() -> None:
    text = "tab\tline\nпри́вет 👩‍👩‍👧 עברית ܐ"
    assert harmless(text) == text
