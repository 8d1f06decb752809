"""Operations driven by hand: each request is compared with the script and sent what the script says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rtmem.steps import Batch, Compute, R, Request, Steps

Reply = list[Any] | Exception


def play(steps: Steps[R], script: Sequence[Reply]) -> tuple[R, list[Batch]]:
    """Run `steps`; the k-th batch is answered with `script[k]`, an exception is thrown in. All of it must be used.

    Returns:
        What the operation returned, and the batches it asked for.
    """
    asked: list[Batch] = []
    waiting = list(script)
    try:
        request: Request = next(steps)
        while True:
            if isinstance(request, Compute):
                for _ in request.slices:
                    pass
                request = steps.send([])
                continue
            asked.append(request)
            assert waiting, f"one request more than the script has: {request.commands[0][:2]}"
            reply = waiting.pop(0)
            request = steps.throw(reply) if isinstance(reply, Exception) else steps.send(reply)
    except StopIteration as stop:
        assert not waiting, f"the operation ended before {waiting}"
        result: R = stop.value
        return result, asked
