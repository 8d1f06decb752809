"""Small words that may be missing, but none may stand for its opposite: my and your, must and may, did and will.

Read off the text itself, for as words they count nothing: what a word says alone piece by piece, since pieces are
remembered, and what several say together from the whole text.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

Said: TypeAlias = tuple[str, str]

_LISTS: Final = {
    "mine": "my mine our ours мой моя мое мои мою моего моей моему моих моим наш наша наше наши нашу нашего нашей",
    "yours": "your yours твой твоя твое твои твою твоего твоей твоему твоих твоим ваш ваша ваше ваши вашу вашего вашей",
    "theirs": "their theirs",
    "he": "он",
    "she": "она",
    "all": "all every все всех всем всеми",
    "some": "some некоторые некоторых некоторым некоторыми",
    "past": "did was were",
    "present": "is are am do does",
    "perfect": "has have",
    "future": "will shall",
    "было": "был была было были",
    "будет": "будет будут буду будем будешь будете",
}
_FRAME_OF: Final = {word: name for name, words in _LISTS.items() for word in words.split()}
_PHRASES: Final = re.compile(
    r"\b(?:(?P<mine>у (?:меня|нас))|(?P<yours>у (?:тебя|вас))"
    r"|(?P<must>must (?:i|we|he|she|they|one)|(?:do|does) (?:i|we|he|she|they) (?:have|need) to|нужно|надо)"
    r"|(?P<may>(?:may|can|could) (?:i|we|he|she|they|one)|можно|могу|можем))\b"
)
_OF_PHRASES: Final = frozenset(
    ("у", "must", "have", "need", "нужно", "надо", "may", "can", "could", "можно", "могу", "можем")
)
FRAMES: Final = frozenset((*_LISTS, "-л", "must", "may", "bits", "bytes"))
PHRASE: Final = "phrase"
_WORDS: Final = re.compile(r"\w+")
_DATA: Final = re.compile(r"\b\d*[KMGT]([bB])(?:ps|it/s|/s)?\b")  # Mb/s and MB/s; elsewhere case tells nothing
_OPPOSED: Final = (
    ("bits", "bytes"),
    ("mine", "yours"),
    ("mine", "theirs"),
    ("yours", "theirs"),
    ("he", "she"),
    ("all", "some"),
    ("past", "future"),
    ("было", "будет"),
)
_OPPOSED_IN_PLACE: Final = (("past", "present"), ("perfect", "future"))
_PASSED: Final = frozenset(("было", "-л"))
# A Russian verb of the past, or one of the nouns that end alike: so this only ever excuses.
_VERBS_OF_PAST: Final = ("л", "ла", "ло", "ли", "лся", "лась", "лось", "лись")
_NO_VERBS: Final = frozenset(("ли", "или", "если"))
_ASKS_OF_NOW: Final = frozenset(("", "who", "what"))  # "когда был основан" asks what "когда основан" does


def word_frames(piece: str) -> set[str]:
    """Which of these what stands between two spaces has, and `PHRASE` if it may be part of a phrase that is one."""
    folded = piece.casefold()
    found = set()
    for word in (folded,) if folded.isalpha() else _WORDS.findall(folded):
        if word in _FRAME_OF:
            found.add(_FRAME_OF[word])
        elif word.endswith(_VERBS_OF_PAST) and word not in _NO_VERBS:
            found.add("-л")
        if word in _OF_PHRASES:
            found.add(PHRASE)
    if "B" in piece or "b/" in piece or "bps" in piece:
        found |= {"bits" if match[1] == "b" else "bytes" for match in _DATA.finditer(piece)}
    return found


def phrase_frames(text: str) -> set[str]:
    """Which of these the phrases of a text name. `text`: as `plain` writes it."""
    folded = text.casefold()
    found = {str(match.lastgroup) for match in _PHRASES.finditer(folded)}
    # "I need to cancel it" asks what "can I cancel it?" does.
    return found if folded.rstrip().endswith("?") else found - {"must", "may"}


def opposed(asked: frozenset[str], cached: frozenset[str], questions: set[str], *, is_in_place: bool) -> Said | None:
    """What one text has in the place of its opposite.

    questions: the question words of both. is_in_place: the texts have the same words else. Then tense counts as well:
    "was it open" and "is it open"; a new sentence may tell of what has happened in either.
    """
    lost, gained = asked - cached, cached - asked
    if lost and gained:
        pairs = list(_OPPOSED)
        if questions == {""}:
            pairs.append(("must", "may"))
        if is_in_place:
            pairs += _OPPOSED_IN_PLACE
        for pair in pairs:
            for one, other in (pair, pair[::-1]):
                if one in lost and other in gained:
                    return one, other
    if is_in_place and questions <= _ASKS_OF_NOW:
        if "было" in asked and cached.isdisjoint(_PASSED):
            return "было", "есть"
        if "было" in cached and asked.isdisjoint(_PASSED):
            return "есть", "было"
    return None
