"""LoCoMo as this benchmark needs it: turns to remember, questions, and the turns that answer them.

Maharana et al., "Evaluating Very Long-Term Conversational Memory of LLM Agents", ACL 2024; snap-research/LoCoMo on
GitHub, CC BY-NC 4.0: for research and evaluation, not part of this repository.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

CATEGORIES: Final = {1: "several turns", 2: "time", 3: "inference", 4: "one turn", 5: "unanswerable"}
ANSWERABLE: Final = (1, 2, 3, 4)
_SESSION: Final = re.compile(r"session_(\d+)")
_EVIDENCE: Final = re.compile(r"D:?(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class Turn:
    """What somebody said, with who, when and what picture was shown: what is remembered of it."""

    id: str
    text: str
    thread: str
    position: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the ids of the turns that answer it; of the unanswerable ones nothing does."""

    text: str
    category: int
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Two people over months, and what they are asked about."""

    name: str
    turns: list[Turn]
    questions: list[Question]

    @property
    def answerable(self) -> list[Question]:
        """Questions of categories 1 to 4 whose evidence is there."""
        return [question for question in self.questions if question.category in ANSWERABLE and question.evidence]

    @property
    def unanswerable(self) -> list[Question]:
        """Questions of category 5: of a thing that was spoken of, but of the other person."""
        return [question for question in self.questions if question.category not in ANSWERABLE]


def read(path: Path) -> list[Conversation]:
    """All conversations of a file, in its order."""
    return [_conversation(sample) for sample in json.loads(path.read_text("utf-8"))]


def evidence_of(given: list[str], known: Mapping[str, object]) -> frozenset[str]:
    """The turns that are named. Some entries name two (`D8:6; D9:17`) or none (`D`); what cannot be read is dropped."""
    named = (f"D{session}:{turn}" for text in given for session, turn in _EVIDENCE.findall(text))
    return frozenset(name for name in named if name in known)


def _conversation(sample: dict[str, Any]) -> Conversation:
    name, talk = sample["sample_id"], sample["conversation"]
    numbers = sorted(int(found[1]) for found in map(_SESSION.fullmatch, talk) if found)
    turns = [
        _turn(said, f"{name}/{number}", position, talk[f"session_{number}_date_time"])
        for number in numbers
        for position, said in enumerate(talk[f"session_{number}"])
    ]
    known = {turn.id: turn for turn in turns}
    questions = [
        Question(asked["question"], asked["category"], evidence_of(asked.get("evidence", []), known))
        for asked in sample["qa"]
    ]
    return Conversation(name, turns, questions)


def _turn(said: dict[str, Any], thread: str, position: int, date: str) -> Turn:
    picture = f" [image: {said['blip_caption']}]" if said.get("blip_caption") else ""
    when = datetime.strptime(date, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    text = f"{said['speaker']} ({date}): {said['text']}{picture}"
    return Turn(said["dia_id"], text, thread, position, int(when.timestamp() * 1000))
