"""A long list of which nothing is stored is not compared with what is; guessing so costs storage at worst."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from rtmem.operations import serde, sharing
from rtmem.operations.fingerprints import prints_of
from rtmem.operations.serde import Serde
from rtmem.operations.sharing import Cut, Fresh, ListImage, split

COUNT = 1_000


SERDE = Serde(JsonPlusSerializer(), 0)


def stored(elements: list[str]) -> ListImage:
    """`elements` as they would be remembered: one piece for each."""
    return ListImage(prints_of(elements, SERDE.dumps), [1] * len(elements), list(range(len(elements))))


def pieces_of(cut: Cut, fresh: Fresh, old: list[str]) -> list[str]:
    """What a reader would put together from the pieces of `cut`."""
    found = old[: sum(cut.known.sizes[: cut.kept])]
    for piece in cut.tail:
        found += [old[piece.known]] if piece.known >= 0 else SERDE.loads(fresh.stored(piece.fresh))
    return found


def cut_of(elements: list[str], old: list[str]) -> tuple[Cut, Fresh]:
    cut, fresh = Cut(stored(old)), Fresh()
    for _ in split(elements, cut, SERDE, fresh, 1_024):
        pass
    return cut, fresh


def test_a_whole_new_list_is_fingerprinted_once_and_shares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    old = [f"old {number}" for number in range(COUNT)]
    new = [f"new {number}" for number in range(COUNT)]
    counts: list[int] = []

    def counting(elements: list[Any], encoder: Any) -> list[bytes]:
        counts.append(len(elements))
        return prints_of(elements, encoder)

    for module in (sharing, serde):
        monkeypatch.setattr(module, "prints_of", counting)

    cut, fresh = cut_of(new, old)

    # Once each, and a sample of them once more.
    assert sum(counts) < COUNT * 1.1

    assert cut.kept == 0
    assert all(piece.known < 0 for piece in cut.tail)
    assert pieces_of(cut, fresh, old) == new
    assert cut.prints == prints_of(new, SERDE.dumps)


def test_one_old_element_anywhere_in_a_new_list_is_read_back_right() -> None:
    old = [f"old {number}" for number in range(COUNT)]
    # Twenty neighbours hold every distance from the sampled ones.
    for place in (*range(20), *range(500, 520), *range(COUNT - 20, COUNT)):
        new = [f"new {number}" for number in range(COUNT)]
        new[place] = old[3]

        cut, fresh = cut_of(new, old)

        assert pieces_of(cut, fresh, old) == new
        assert cut.prints == prints_of(new, SERDE.dumps)


@pytest.mark.parametrize(
    ("change", "fresh_max"),
    [
        (lambda talk: [*talk, "appended"], 1),
        (lambda talk: talk[1:], 0),
        (lambda talk: talk[COUNT // 2 :], 0),
        (lambda talk: ["summary", *talk[-20:], *(f"more {number}" for number in range(300))], 100),
        (lambda talk: [*talk[:500], "edited", *talk[501:]], 1),
        (lambda talk: talk[::-1], 0),
    ],
    ids=["append", "drop first", "drop half", "summarise and go on", "edit", "reverse"],
)
def test_a_list_that_goes_on_from_the_old_one_still_shares(change: Any, fresh_max: int) -> None:
    old = [f"old {number}" for number in range(COUNT)]
    new = change(list(old))

    cut, fresh = cut_of(new, old)

    assert len(fresh.small) <= fresh_max
    assert pieces_of(cut, fresh, old) == new
