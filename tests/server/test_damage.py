from __future__ import annotations

import pytest

from rtmem.server import damage
from rtmem.server.damage import Damage


@pytest.mark.parametrize(
    ("one", "sentence"),
    [
        (Damage(kind="manifest", file="f", found="it is gone"), "f: it is gone"),
        (
            Damage(kind="torn", file="f", found="torn", offset=7, bytes_lost=3, until_s=1_795_992_058),
            "f at byte 7: torn (3 bytes, about 2026-11-29 22:40:58 UTC)",
        ),
        (
            Damage(
                kind="open",
                file="f",
                found="open",
                offset=0,
                commands_lost=2,
                since_s=1_795_992_058,
                until_s=1_795_992_060,
            ),
            "f at byte 0: open (2 readable commands, about 2026-11-29 22:40:58 to 22:41:00 UTC)",
        ),
    ],
)
def test_a_damage_is_one_sentence(one: Damage, sentence: str) -> None:
    assert damage.words(one) == sentence
