"""What the searches find for every question, how sure they are, and how long it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loadtest.recall.locomo import Conversation
from loadtest.recall.memory import Talk
from loadtest.recall.scoring import DEPTH_MAX
from loadtest.recall.ways import Asked
from rtmem.drivers import SyncDriver
from rtmem.loadtest.console import Bar
from rtmem.steps import Embedder

CHOSEN_ON = 4
"""Settings were chosen on the first so many conversations; on the others nothing was."""


@dataclass(slots=True)
class Found:
    """Everything that the tables are made of."""

    names: list[str]
    asked: list[Asked] = field(default_factory=list)  # questions with an answer
    sure: dict[str, list[tuple[str, float]]] = field(default_factory=dict)  # kind -> conversation, confidence
    took_us: list[float] = field(default_factory=list)  # a retrieval whose vector is there

    @property
    def chosen_on(self) -> list[str]:
        """The conversations that settings were chosen on."""
        return self.names[:CHOSEN_ON]

    @property
    def held_out(self) -> list[str]:
        """The others."""
        return self.names[CHOSEN_ON:]

    def of(self, names: Sequence[str]) -> list[Asked]:
        """The questions about these conversations."""
        return [asked for asked in self.asked if asked.conversation in names]

    def doubts(self, kind: str, names: Sequence[str]) -> list[float]:
        """How sure we are of questions of a kind that were asked about these conversations."""
        return [sure for name, sure in self.sure[kind] if name in names]


KNOWN, OTHER_PERSON, OTHER_TALK = "answerable", "of the other person", "of another conversation"
"""Kinds of questions: with an answer; of category 5, about one person what the other said; asked of a wrong memory."""


def find(conversations: Sequence[Conversation], driver: SyncDriver, embedder: Embedder, bar: Bar) -> Found:
    """Remember all conversations and ask all questions."""
    found = Found([each.name for each in conversations], sure={KNOWN: [], OTHER_PERSON: [], OTHER_TALK: []})
    talks = [Talk(each, driver, embedder) for each in conversations]
    bar.announce(2 * len(conversations))
    for conversation, talk in zip(conversations, talks, strict=True):
        bar.describe(f"{conversation.name}: remember {len(conversation.turns)} turns")
        talk.remember()
        bar.step()
    # A question for another memory: the next conversation's.
    others = [*conversations[1:], conversations[0]]
    for conversation, talk, other in zip(conversations, talks, others, strict=True):
        bar.describe(f"{conversation.name}: ask {len(conversation.questions)} questions")
        for question in conversation.answerable:
            ranked, sure = talk.retrieve(question.text, DEPTH_MAX)
            text, vector = talk.lists(question.text)
            found.sure[KNOWN].append((conversation.name, sure))
            found.asked.append(
                Asked(
                    conversation=conversation.name,
                    category=question.category,
                    evidence=question.evidence,
                    ranked=ranked,
                    stored=talk.search(question.text, DEPTH_MAX),
                    text=text,
                    vector=vector,
                    now_ms=talk.end_ms,
                )
            )
            found.took_us.append(talk.took_us(question.text))
        for kind, questions in ((OTHER_PERSON, conversation.unanswerable), (OTHER_TALK, other.answerable)):
            found.sure[kind] += [(conversation.name, talk.retrieve(each.text, 1)[1]) for each in questions]
        bar.step()
    return found
