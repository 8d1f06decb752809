"""What facts have to be like, as clauses of a query: hashes and numbers only, and never without a scope."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from rtmem.errors import InvalidRequestError
from rtmem.operations.fact_drafts import KINDS
from rtmem.operations.fact_items import FOREVER, Moment, canonical, index_tag, moment_ms, scalar_text, tag_of
from rtmem.operations.fact_scope import FactScope
from rtmem.records import FactKind, Scalar

# The time of a query is filled in by the function, which knows what is now.
_BEGUN: Final = "@valid_from:[-inf $now]"
_NOT_OVER: Final = "@valid_to:[($now +inf]"


@dataclass(frozen=True, slots=True)
class Filters:
    """What facts have to be like. Hashes and numbers only."""

    clauses: str

    @classmethod
    def of(
        cls,
        scope: FactScope,
        *,
        scopes: Iterable[str] | None = None,
        kinds: Iterable[FactKind] | None = None,
        tags: Iterable[str] | None = None,
        subject: str | None = None,
        predicate: str | None = None,
        object: Scalar | None = None,
        thread_id: str | None = None,
        document: str | None = None,
        writer: str | None = None,
        importance_min: float | None = None,
        importance_max: float | None = None,
        created_from: Moment | None = None,
        created_to: Moment | None = None,
    ) -> Filters:
        """Every condition must hold; of `kinds` one, of `tags` all. Raises InvalidRequestError, ScopeNotFoundError."""
        parts = [f"@scope:{{{'|'.join(scope.tags(scopes))}}}"]
        if kinds is not None:
            parts.append(f"@eq:{{{'|'.join(index_tag('kind', kind) for kind in _kinds(kinds)) or 'none'}}}")
        for tag in _strings(tags or (), "tags"):
            parts.append(f"@tags:{{{tag_of(tag)}}}")
        names = {"subject": subject, "predicate": predicate}
        ids = {"thread_id": thread_id, "document": document, "writer": writer}
        for name, value in {**names, **ids}.items():
            if value is not None:
                (text,) = _strings((value,), name)
                parts.append(f"@eq:{{{index_tag(name, canonical(text) if name in names else text)}}}")
        if object is not None:
            parts.append(f"@eq:{{{index_tag('object', scalar_text(object))}}}")
        parts += _range("importance", _number(importance_min), _number(importance_max))
        first, last = moment_ms(created_from, "created_from"), moment_ms(created_to, "created_to")
        # Created in microseconds, as all of memory.
        parts += _range("created", _micro(first), None if last is None else f"({_micro(last)}")
        return cls(" ".join(parts))

    def at(self, time_ms: int | None) -> str:
        """The clauses for what was true at a time, or is now."""
        # Nearly all that is not over by now has begun, so the function looks at that. To ask the index would cost
        # 1.6 ms in a memory of 60,000 facts, for it goes through all of them, whosesoever they are.
        return f"{self.clauses} {_NOT_OVER}" + ("" if time_ms is None else f" {_BEGUN}")


def _kinds(kinds: Iterable[FactKind]) -> list[str]:
    found = _strings(kinds, "kinds")
    for kind in found:
        if kind not in KINDS:
            raise InvalidRequestError(f"kinds has {kind!r:.100}: each is one of {', '.join(KINDS)}")
    return found


def _strings(values: Iterable[str], what: str) -> list[str]:
    are_several = isinstance(values, Iterable) and not isinstance(values, str)
    found: list[Any] = list(values) if are_several else []
    if not are_several or not all(isinstance(value, str) for value in found):
        raise InvalidRequestError(f"{what} is {values!r:.100}: strings, in a list where there may be several")
    return found


def _number(value: float | None) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -FOREVER <= value <= FOREVER:
        raise InvalidRequestError(f"importance_min and importance_max are numbers, not {value!r:.100}")
    return repr(float(value))


def _micro(time_ms: int | None) -> str | None:
    return None if time_ms is None else str(time_ms * 1_000)


def _range(field: str, low: str | None, high: str | None) -> list[str]:
    return [] if low is None and high is None else [f"@{field}:[{low or '-inf'} {high or '+inf'}]"]
