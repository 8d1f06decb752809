"""Values that only LangGraph's serialiser stores, and whether they come back as what they were.

That one is lenient: an array of objects comes back as None, a pandas Timestamp as its text, half a surrogate pair as a
question mark, a class that it may not restore as a dict. A checkpoint must go on with what there is; whoever offloads a
value is told at once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final

import ormsgpack
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from rtmem.errors import InvalidRequestError
from rtmem.operations.pointer_cuts import Chunk
from rtmem.operations.serde import Serde

_NOTHING: Final = object()
_PER_SLICE: Final = 256
_serde: Final = Serde(JsonPlusSerializer(), 0)


def dumps(value: Any) -> bytes:
    """A value as bytes. Raises InvalidRequestError for what the serialiser refuses."""
    try:
        return _serde.dumps(value)
    except (TypeError, ValueError, ormsgpack.MsgpackEncodeError) as exc:
        raise _not_stored(value, exc) from exc


def loads(raw: bytes) -> Any:
    """The value again, as far as the serialiser gives it back."""
    return _serde.loads(raw)


def check(value: Any, chunks: Sequence[Chunk]) -> Iterator[None]:
    """Raise InvalidRequestError where the serialiser gives something else back."""
    problem = yield from _difference(value, _serde.loads(b"".join(chunks)))
    if problem:
        raise _not_stored(value, problem)


def _not_stored(value: Any, problem: object) -> InvalidRequestError:
    return InvalidRequestError(
        f"a value of type {type(value).__name__} cannot be stored ({problem}): pass text, bytes, JSON, a table or what "
        "LangGraph can keep in a checkpoint"
    )


def _difference(value: Any, back: Any) -> Generator[None, None, str]:
    """What of `value` did not come back, in words; "" if all of it did.

    Tuples may be lists, and subclasses what they are subclasses of: so it is with every checkpoint. Of objects only the
    type is compared. Compares in slices.
    """
    waiting, looked = [(value, back)], 0
    while waiting:
        value, back = waiting.pop()
        looked += 1
        if looked % _PER_SLICE == 0:
            yield
        if isinstance(value, dict) and isinstance(back, dict):
            waiting += [(item, back.get(name, _NOTHING)) for name, item in value.items()]
            same = len(value) == len(back)
        elif isinstance(value, (list, tuple)) and isinstance(back, (list, tuple)):
            waiting += zip(value, back, strict=False)
            same = len(value) == len(back)
        elif isinstance(value, (str, bytes, int, set, frozenset)):
            same = bool(value == back)
        else:
            same = isinstance(value, type(back)) and getattr(value, "dtype", 0) == getattr(back, "dtype", 0)
        if not same:
            kind = "nothing" if back is _NOTHING or back is None else f"another {type(back).__name__}"
            return f"a {type(value).__name__} would come back as {kind}"
    return ""
