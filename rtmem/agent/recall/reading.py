"""One recall: the facts that the policy wants for a message, within its bounds, framed as untrusted data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from rtmem.agent.recall import policy
from rtmem.agent.recall.policy import Plan
from rtmem.agent.recall.verbs import Call, Verbs
from rtmem.memory import Fact, FactPage, RetrievedFacts
from rtmem.operations import retrieval
from rtmem.operations.pointer_previews import estimate_tokens
from rtmem.settings import Recall as Policy

Status = Literal["ok", "nothing", "late", "failed", "off"]
Source = Literal["read", "prefetch", "kept"]

EVENT: Final = "rtmem.recall"

_NO_BOUND: Final = 2**31
_WARMED_BY: Final = "ready"

_UNREAD: Final = (
    "<retrieved_memory>\nMemory could not be read for this message. There may be notes from earlier: if they matter, "
    "say that you cannot look now, and not that nothing is known.\n</retrieved_memory>"
)


@dataclass(frozen=True, slots=True)
class Recalled:
    """What memory says to a message, or why it says nothing. Never an error: the turn goes on with any of these.

    status: "ok"; "nothing" is known; "late" (the deadline); "failed" with its reason; "off" (the policy reads nothing).
    """

    status: Status
    facts: tuple[Fact, ...] = ()
    text: str = ""  # for the prompt, framed as data that nobody has to obey; also says that memory could not be read
    tokens: int = 0  # about what `text` costs
    reason: str = ""
    source: Source = "read"  # read for this message, prefetched, or kept from an earlier call in the same turn
    by_meaning: bool | None = None  # False: only words were compared; None: nothing was searched
    index_ready: bool | None = None  # False: still being read back, there may be more; None: unread
    took_ms: float = 0.0  # that the turn waited

    @property
    def event(self) -> dict[str, Any]:
        """What a stream tells of it: everything but what the facts say."""
        return {
            "name": EVENT,
            "status": self.status,
            "facts": [fact.id for fact in self.facts],
            "tokens": self.tokens,
            "reason": self.reason,
            "source": self.source,
            "by_meaning": self.by_meaning,
            "index_ready": self.index_ready,
            "took_ms": round(self.took_ms, 3),
        }


def unread(status: Literal["late", "failed"], reason: str) -> Recalled:
    """A recall that gave nothing, in words for the model too."""
    return Recalled(status, text=_UNREAD, tokens=tokens(_UNREAD), reason=reason)


def recalled(settings: Policy, plan: Plan) -> Verbs[Recalled]:
    """The facts of a plan. One `query` for each standing kind, one `retrieve` for all that are searched."""
    facts: list[Fact] = []
    by_meaning: bool | None = None
    index_ready = True
    for kind in plan.standing:
        items_max, tokens_max = policy.bounds(settings, kind)
        page: FactPage = yield Call("query", (), {"kinds": (kind,), "limit": items_max})
        index_ready &= page.index_ready
        facts += fitting(page.facts, items_max, tokens_max)
    if plan.searched:
        # Without bounds: those of the kinds are kept here, or one kind could take the places of all others.
        options = {"kinds": plan.searched, "k": _NO_BOUND, "tokens_max": _NO_BOUND}
        found: RetrievedFacts = yield Call("retrieve", (plan.query,), options)
        index_ready &= found.index_ready
        by_meaning = found.by_meaning
        facts += _within_bounds(settings, plan, [hit.fact for hit in found.hits])
    text = retrieval.framed([_note(fact) for fact in facts]) if facts else ""
    return Recalled(
        status="ok" if facts else "nothing",
        facts=tuple(facts),
        text=text,
        tokens=tokens(text),
        by_meaning=by_meaning,
        index_ready=index_ready,
        reason="" if index_ready else "the index is still being read back after a restart: there may be more",
    )


def warmed_up() -> Verbs[None]:
    """Open connections, look at the index, load the embedder's model: what the first recall would wait for."""
    yield Call("retrieve", (_WARMED_BY,), {"k": 0})


def fitting(facts: Iterable[Fact], items_max: int, tokens_max: int, *, with_ids: bool = False) -> list[Fact]:
    """The first facts whose block stays within both bounds; one that is too long makes room for the next."""
    kept: list[Fact] = []
    size = retrieval.FRAME_BYTES
    for fact in facts:
        longer = size + len(_note(fact, with_ids).encode()) + 1
        if len(kept) < items_max and estimate_tokens("text", longer) <= tokens_max:
            kept.append(fact)
            size = longer
    return kept


def framed(facts: Iterable[Fact]) -> str:
    """Facts with their ids, as untrusted data."""
    return retrieval.framed([_note(fact, with_id=True) for fact in facts])


def tokens(text: str) -> int:
    """About what a text costs."""
    return estimate_tokens("text", len(text.encode()))


def _within_bounds(settings: Policy, plan: Plan, facts: list[Fact]) -> list[Fact]:
    """Of each kind as many as it may have, in the order of their scores."""
    kept = {
        fact.id
        for kind in plan.searched
        for fact in fitting([fact for fact in facts if fact.kind == kind], *policy.bounds(settings, kind))
    }
    return [fact for fact in facts if fact.id in kept]


def _note(fact: Fact, with_id: bool = False) -> str:
    return retrieval.note(fact.text, fact.valid_from_ms, fact.id if with_id else "")
