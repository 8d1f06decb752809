"""Turn durability: what is proved about a turn's checkpoints before its client hears that the turn has ended.

One wait for the whole turn, after its last checkpoint, whatever LangGraph's own `durability` says. What was kept is
told in the lifecycle event: `"durability": "fsync"`; if it could not be proved, `"durability": "memory"` and why, in
`"durability_error"`. The turn's result stands in either case: it is stored and readable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn, Protocol, get_args

from rtmem.errors import InvalidRequestError, RtmemError
from rtmem.settings import Ack

CONFIG_KEY: Final = "rtmem_ack"
"""In a run's config.configurable or metadata: asks for more than the gateway's setting."""

_ACKS: Final = get_args(Ack)  # weakest first


class Prover(Protocol):
    """A saver that can prove what was written, such as checkpoint.AsyncRedisSaver."""

    async def amark(self, ack: Ack) -> Any:
        """The beginning of a series of writes. Raises ConfigError if they cannot be proved."""
        ...

    async def awatch(self, ack: Ack) -> NoReturn:
        """Runs from there to the proof."""
        ...

    async def aprove(self, ack: Ack, since: Any) -> None:
        """Return once they are durable. Raises NotDurableError."""
        ...


def ack_of(setting: Ack, configurable: Mapping[str, Any], metadata: Mapping[str, Any]) -> Ack:
    """What a run waits for: the gateway's setting, or what the client asked for if that is more.

    Raises:
        InvalidRequestError: the client asked for something that does not exist.
    """
    asked = configurable.get(CONFIG_KEY, metadata.get(CONFIG_KEY, setting))
    if asked not in _ACKS:
        raise InvalidRequestError(f"{CONFIG_KEY} is {asked!r}: use one of {', '.join(_ACKS)}", asked=asked)
    return max(setting, asked, key=_ACKS.index)


class Promise:
    """What one turn promises."""

    def __init__(self, prover: Prover, ack: Ack, since: Any) -> None:
        self._prover = prover
        self.ack = ack
        self._since = since

    @classmethod
    async def give(cls, prover: Prover, ack: Ack) -> Promise:
        """Begin, before the turn writes anything. Raises ConfigError if this Redis cannot keep it, ServerError."""
        return cls(prover, ack, await prover.amark(ack) if ack != "memory" else None)

    async def watch(self) -> None:
        """Runs while the turn does; nothing to do for a turn that promises nothing."""
        if self.ack != "memory":
            await self._prover.awatch(self.ack)

    async def keep(self) -> dict[str, Any]:
        """What the event that ends the turn says about it. Never raises: what is not proved is told."""
        if self.ack == "memory":
            return {}
        try:
            await self._prover.aprove(self.ack, self._since)
        except RtmemError as exc:
            return {"durability": "memory", "durability_error": f"{type(exc).__name__}: {exc}"}
        return {"durability": self.ack}
