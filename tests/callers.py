"""One test body for both colours: what awaits is driven from outside its loop."""

from __future__ import annotations

import inspect
from typing import Any

from tests.checkpoint.colours import Loop


class Caller:
    """An object of either colour whose verbs are called the same way."""

    def __init__(self, owner: Any, loop: Loop) -> None:
        self.owner = owner
        self.loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.owner, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            result = found(*args, **options)
            if isinstance(result, type(self.owner)):
                return type(self)(result, self.loop)
            return self.loop.wait(result) if inspect.isawaitable(result) else result  # type: ignore[arg-type]

        return call
