"""Whose facts an operation may see and write, and how they are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from rtmem import settings as all_settings
from rtmem.errors import InvalidRequestError, ScopeNotFoundError
from rtmem.keys import Keys, check_id, fact_scope_tag
from rtmem.operations.serde import Serde
from rtmem.operations.vector_index import Index
from rtmem.records import Fact, Principal
from rtmem.steps import Argument, Embedder

WritePolicy: TypeAlias = Callable[[Fact, Principal], Fact]
"""Looks at a fact before it is embedded or stored: returns it, or a changed one, or raises WriteRefusedError."""

_TEAMS_MAX: Final = 64  # each is a part of every query
_NOBODYS: Final = (
    "this memory is nobody's, as its principal has neither a user nor a team nor an application: say whose it is with "
    'memory.bind("ann"), or make it with principal="ann"'
)


def accept_all(fact: Fact, principal: Principal) -> Fact:
    """The policy that lets everything into memory."""
    return fact


@dataclass(frozen=True, slots=True)
class FactScope:
    """Facts with the eyes of one principal."""

    principal: Principal
    keys: Keys
    serde: Serde
    index: Index
    settings: all_settings.Memory = field(default_factory=all_settings.Memory)
    retrieval: all_settings.Retrieval = field(default_factory=all_settings.Retrieval)
    policy: WritePolicy = accept_all
    owners: dict[str, tuple[str, str]] = field(init=False)  # user, application or team:NAME -> what it is, its name
    labels: dict[str, str] = field(init=False)  # what stands in the index -> the same word

    def __post_init__(self) -> None:
        owners = _owners(self.principal)
        object.__setattr__(self, "owners", owners)
        object.__setattr__(self, "labels", {fact_scope_tag(*owner): label for label, owner in owners.items()})

    @property
    def embedder(self) -> Embedder | None:
        """Who turns texts into vectors."""
        return self.index.embedder

    @property
    def function_keys(self) -> tuple[str, str]:
        """KEYS of every function."""
        return (self.keys.memory_index, self.keys.memories)

    def bound(self, principal: str | Principal) -> FactScope:
        """The same memory with the eyes of another principal. Raises InvalidRequestError, IdTooLongError."""
        return replace(self, principal=as_principal(principal))

    def owner(self, label: str) -> tuple[str, str]:
        """What a scope is, and its name. Raises ScopeNotFoundError."""
        found = self.owners.get(label) if isinstance(label, str) else None
        if found is None:
            why = (
                f"it does not exist, or the principal is no member; there are {', '.join(self.owners)}, and a scope is "
                "written user, team:NAME or application"
                if self.owners
                else _NOBODYS
            )
            raise ScopeNotFoundError(
                f"no scope {str(label)[:80]!r} for this principal: {why}",
                scope=str(label)[:80],
            )
        return found

    def tag(self, label: str) -> str:
        """What stands in the index for a scope. Raises ScopeNotFoundError."""
        return fact_scope_tag(*self.owner(label))

    def tags(self, labels: Iterable[str] | None = None) -> Sequence[str]:
        """The same for several scopes; for all without `labels`. Never empty.

        Raises:
            ScopeNotFoundError: one is not this principal's. InvalidRequestError: there is none.
        """
        if isinstance(labels, str):
            labels = (labels,)
        if labels is not None and not isinstance(labels, Iterable):
            raise InvalidRequestError(f"scopes is {labels!r:.100}: a list of user, application or team:NAME")
        tags = list(self.labels) if labels is None else [self.tag(label) for label in labels]
        if not tags:
            why = f"`scopes` is empty; there are {', '.join(self.owners)}" if self.owners else _NOBODYS
            raise InvalidRequestError(f"no scope: {why}")
        return tags

    def scope_args(self) -> tuple[Argument, ...]:
        """All scopes as functions take them. Raises InvalidRequestError if there is none."""
        tags = self.tags()
        return (len(tags), *tags)


def as_principal(principal: str | Principal) -> Principal:
    """A user's name as a principal with nothing else. Raises InvalidRequestError, IdTooLongError."""
    found: Any = Principal(user=principal) if isinstance(principal, str) else principal
    if not isinstance(found, Principal):
        raise InvalidRequestError(f"principal is a {type(principal).__name__}: a user's name or a Principal")
    _owners(found)
    return found


def _owners(principal: Principal) -> dict[str, tuple[str, str]]:
    owners: dict[str, tuple[str, str]] = {}
    if check_id(principal.user, "principal.user"):
        owners["user"] = ("user", principal.user)
    teams: Any = principal.teams
    if not isinstance(teams, tuple | list) or len(teams) > _TEAMS_MAX:
        raise InvalidRequestError(f"principal.teams is {teams!r:.100}: at most {_TEAMS_MAX} names in a tuple")
    for team in teams:
        if not check_id(team, "a team"):
            raise InvalidRequestError("a team of the principal has no name")
        owners[f"team:{team}"] = ("team", team)
    if check_id(principal.application, "principal.application"):
        owners["application"] = ("application", principal.application)
    return owners
