"""`rtmem cache show --ask`: what a question would hit, and what keeps the others from being taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import typer

from rtmem.cli import screen
from rtmem.cli.cache.opening import Place, opened, owner
from rtmem.cli.cache.reading import newest
from rtmem.cli.memory.opening import one_line
from rtmem.operations.cache_prompts import question_in
from rtmem.operations.semantic_cache import explain_question

if TYPE_CHECKING:
    from rtmem.cache import CacheEntry, Candidate, Explanation, SemanticCache

_SCOPES_MAX: Final = 200
_HIT: Final = "hit, only for the same parameters, system prompt, tools and earlier messages, if any"
"""As much as can be said: an entry has a hash of its scope, which does not tell what is in it."""


def explain(place: Place, text: str, tag: str | None, model: str | None, limit: int, *, as_json: bool) -> bool:
    """Say what is near a question in every scope there is, the nearest first. Whether anything would be hit."""
    with opened(place, guard=True) as cache:
        # A scope is a hash: which of them a caller would be in, only the caller knows.
        entries = newest(cache, tag, model)
        scopes = list(dict.fromkeys(entry.scope for entry in entries))
        known = {entry.entry_id: entry for entry in entries}
        asked = [_explained(cache, scope, text) for scope in scopes[:_SCOPES_MAX]]
        found = sorted(_candidates(asked), key=lambda candidate: (not candidate.taken, candidate.distance))[:limit]
        hit = any(candidate.taken for candidate in found)
        if as_json:
            for candidate in found:
                of_model = known[candidate.entry_id].model if candidate.entry_id in known else ""
                body = {**msgspec.to_builtins(candidate), "model": of_model}
                body["verdict"] = _HIT if candidate.taken else _why_not(candidate)
                typer.echo(msgspec.json.encode(body).decode())
        else:
            for candidate in found:
                typer.echo(_line(candidate, known.get(candidate.entry_id)))
            _say_all(cache, asked, scopes, hit=hit)
        return hit


def _explained(cache: SemanticCache, scope: str, text: str) -> Explanation:
    question = question_in(scope, text, cache.settings.text_characters_max)
    return cache.run(explain_question(cache.context, question))


def _candidates(asked: list[Explanation]) -> list[Candidate]:
    """What is near; the very same question is a hit whatever it is compared by."""
    found: dict[str, Candidate] = {}
    for explanation in asked:
        for candidate in explanation.candidates:
            found[candidate.entry_id] = candidate
        if explanation.exact:
            found[explanation.entry_id] = _exact(explanation)
    return list(found.values())


def _exact(explanation: Explanation) -> Candidate:
    from rtmem.cache import Candidate

    return Candidate(
        entry_id=explanation.entry_id, prompt="", distance=0.0, threshold=explanation.threshold or 0.0, taken=True
    )


def _line(candidate: Candidate, entry: CacheEntry | None) -> str:
    prompt = candidate.prompt or (entry.prompt if entry is not None else "")
    model = one_line(entry.model, 24) if entry is not None else ""
    verdict = _HIT if candidate.taken else _why_not(candidate)
    return f"{candidate.distance:.4f}  {candidate.entry_id}  {model:<12}  {one_line(prompt, 60)}\n        -> {verdict}"


def _why_not(candidate: Candidate) -> str:
    """What keeps an entry from being taken, in words."""
    reasons = []
    if candidate.distance > candidate.threshold:
        reasons.append(f"farther than {candidate.threshold:g}")
    if (refusal := candidate.refusal) is not None:
        asked, cached = (_quoted(str(getattr(refusal, name, ""))) for name in ("asked", "cached"))
        reasons.append(f"the guard sees another {refusal.reason}: asked {asked}, cached {cached}")
    if candidate.judged is False:
        reasons.append("the judge says no")
    return "a miss: " + ("; ".join(reasons) or "the guard failed")


def _quoted(text: str) -> str:
    return repr(one_line(text, 40)) if text else "nothing"


def _say_all(cache: SemanticCache, asked: list[Explanation], scopes: list[str], *, hit: bool) -> None:
    verdict = "a hit for who asks in that scope" if hit else "a miss"
    left = len(scopes) - len(asked)
    more = f", and {left:,} more that --tag or --model would lead to" if left > 0 else ""
    scopes_told = screen.counted(len(asked), "scope")
    exact_only: Any = next((each.why_exact_only for each in asked if each.why_exact_only), "")
    compared = f"; compared exactly only, because {exact_only}" if exact_only else ""
    screen.note(f"({verdict}; asked in {scopes_told}{more} of {owner(cache)}{compared})")
