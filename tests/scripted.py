"""Operations driven by hand: each request is compared with the script and sent what the script says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rtmem.steps import Batch, Begin, Begun, Compute, Embed, R, Request, Steps

Reply = list[Any] | Exception


def play(steps: Steps[R], script: Sequence[Reply]) -> tuple[R, list[Batch | Embed]]:
    """Run `steps`; the k-th request is answered with `script[k]`, an exception is thrown in. All of it must be used.

    What was begun counts where its answer is asked for.

    Returns:
        What the operation returned, and the batches and embeddings it asked for.
    """
    asked: list[Batch | Embed] = []
    waiting = list(script)
    try:
        request: Request = next(steps)
        while True:
            if isinstance(request, Compute):
                for _ in request.slices:
                    pass
                request = steps.send([])
                continue
            if isinstance(request, Begin):
                request = steps.send([Begun(request.request)])
                continue
            if isinstance(request, Begun):
                request = request.answer
            asked.append(request)
            assert waiting, f"one request more than the script has: {request}"
            reply = waiting.pop(0)
            request = steps.throw(reply) if isinstance(reply, Exception) else steps.send(reply)
    except StopIteration as stop:
        assert not waiting, f"the operation ended before {waiting}"
        result: R = stop.value
        return result, asked
