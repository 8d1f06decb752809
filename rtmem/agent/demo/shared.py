"""Facts about the user that every thread of the demo knows: a small profile in long-term memory, read by its keys.

No embedder and no search: there are five keys, and what they hold is exact.
"""

from __future__ import annotations

from typing import Final

from rtmem.agent.demo.phrases import ATTRIBUTES
from rtmem.agent.demo.prompt import Facts
from rtmem.agent.recall.recall import Recall
from rtmem.agent.recall.run import thread_of_run
from rtmem.agent.recall.verbs import Call, Verbs
from rtmem.errors import RtmemError
from rtmem.memory import Fact

WRITER: Final = "demo"


async def load(recall: Recall) -> tuple[Facts | None, str]:
    """What is known of the run's principal; or None, and why it could not be read."""
    try:
        return await recall.ado(_read()), ""
    except RtmemError as exc:
        return None, f"{type(exc).__name__}: {exc}"


async def save(recall: Recall, before: Facts, after: Facts) -> str:
    """Write what differs. Returns why it could not be written, or nothing."""
    try:
        await recall.ado(_write(before, after, thread_of_run()))
    except RtmemError as exc:
        return f"{type(exc).__name__}: {exc}"
    return ""


def _read() -> Verbs[Facts]:
    facts: Facts = {}
    for attribute in ATTRIBUTES:
        fact: Fact | None = yield Call("read", (_key(attribute),))
        if fact is not None and isinstance(fact.value, list):
            facts[attribute] = [str(value) for value in fact.value]
    return facts


def _write(before: Facts, after: Facts, thread_id: str) -> Verbs[None]:
    for attribute in ATTRIBUTES:
        values = after.get(attribute, [])
        if values == before.get(attribute, []):
            continue
        if values:
            source = {"kind": "preference", "tags": ["demo"], "thread_id": thread_id, "writer": WRITER}
            text = f"The user's {attribute}: {'; '.join(values)}"
            yield Call("write", (text,), {"key": _key(attribute), "value": values, **source})
            continue
        fact: Fact | None = yield Call("read", (_key(attribute),))
        if fact is not None:
            yield Call("forget", (fact,), {"history": True})


def _key(attribute: str) -> str:
    return f"demo.{attribute}"
