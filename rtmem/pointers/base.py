"""What both colours share: whose pointers they are, and within which limits."""

from __future__ import annotations

import copy
from typing import Self

import msgspec

from rtmem import settings as all_settings
from rtmem.keys import Keys, check_id
from rtmem.operations.pointers import PointerScope


class Scoped:
    """Pointers of one principal."""

    def __init__(self, settings: all_settings.Pointers | None, principal: str) -> None:
        self.settings = settings or all_settings.Pointers()
        self.scope = PointerScope(check_id(principal, "principal"), self.settings, Keys(self.settings.prefix))

    @property
    def principal(self) -> str:
        """Whose pointers these are."""
        return self.scope.principal

    def bind(self, principal: str) -> Self:
        """The same connections for another principal's pointers. Raises IdTooLongError."""
        clone = copy.copy(self)
        clone.scope = PointerScope(check_id(principal, "principal"), self.settings, self.scope.all_keys)
        return clone

    def limited(self, **changes: int) -> Self:
        """The same connections under other limits: `pointers.limited(tenant_bytes_max=1_000_000)`."""
        clone = copy.copy(self)
        clone.settings = msgspec.structs.replace(self.settings, **changes)
        clone.scope = PointerScope(self.principal, clone.settings, self.scope.all_keys)
        return clone
