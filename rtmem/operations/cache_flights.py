"""Computing an answer once for all who ask the same at the same time, in this process and in others.

Who asks joins the flight of this process, or begins it. Who begins it looks the question up and takes a lease at Redis:
one process computes, and renews its lease while it does; the others wait until they are told how it ended.

    it ended      who waits
    stored        looks the answer up
    failed        one of them, the first to take the lease, tries; the others wait for that one
    alone         the answer is one that nobody else should get: each computes its own, at the same time
    lost          Redis did not take the answer: one of each process computes, for all who ask in it, at the same time
    in silence    the lease ends with its holder: as failed

Where Redis is lost, every process computes, for all who ask in it: a cache must not be what keeps an answer away, nor
may all who wait fall upon the model at once. Such an answer is for those who asked before it was begun: of an
invalidation since then nobody knows.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextvars import ContextVar
from math import inf
from typing import Any, Final

from rtmem.errors import RtmemError
from rtmem.operations.cache_answers import portable
from rtmem.operations.cache_notes import UNKNOWN_US, Ending, Handed
from rtmem.operations.cache_prompts import CacheScope, Prompt, Question, read_question
from rtmem.operations.cache_records import Hit, Outcome, Written
from rtmem.operations.cache_state import CacheContext
from rtmem.operations.cache_writing import check_properties, store
from rtmem.operations.functions import call
from rtmem.operations.semantic_cache import exact_hit, look, read_answer
from rtmem.steps import Batch, Call, Steps

STORED: Final = "stored"
FAILED: Final = "failed"
ALONE: Final = "alone"
LOST: Final = "lost"
_computing: Final[ContextVar[frozenset[str]]] = ContextVar("rtmem_computing", default=frozenset())
"""Whose computing this code is part of: it must not wait for its own end."""


def get_or_compute(
    cache: CacheContext,
    prompt: Prompt,
    scope: CacheScope,
    compute: Callable[[], Any],
    *,
    tags: Collection[str] = (),
    ttl_ms: int | None = None,
    allow: Collection[str] = (),
) -> Steps[Outcome]:
    """The answer to a question: out of the cache, or computed once for all who ask at the same time, and stored.

    Args:
        compute: the answer; in the async colour it may be awaited. What it raises passes to its caller as it is, and
            one of those who wait tries in its turn.
        tags, ttl_ms, allow: see `update`.

    Raises InvalidRequestError, and what `compute` raises. Nothing of Redis or the embedder.

    Redis: that of `lookup` and `update`, and 1 in between to take the lease; 1 every third of `lease_ms` during the
        computing. Who waits for another process: 1 that blocks until it is over, and 1; for this one: 1.
    """
    question = read_question(cache.keys.tenant, prompt, scope, cache.settings.text_characters_max)
    flight = Flight(cache, question, scope, compute, *check_properties(tags, ttl_ms, allow))
    outcome: Outcome = yield from flight.outcome()
    return outcome


class Flight:
    """One caller's way to an answer."""

    def __init__(
        self,
        cache: CacheContext,
        question: Question,
        scope: CacheScope,
        compute: Callable[[], Any],
        tags: tuple[str, ...],
        ttl_ms: int | None,
        allow: frozenset[str],
    ) -> None:
        self.cache = cache
        self.state = cache.state
        self.question = question
        self.scope = scope
        self.compute = compute
        self.properties = (tags, ttl_ms, allow)
        self.waited_s = 0.0
        self.asked_s = self.state.clock()
        self.began_us: int | None = None

    def outcome(self) -> Steps[Outcome]:
        """Lead a flight of this process or wait for one, until there is an answer."""
        state, entry_id = self.state, self.question.entry_id
        hit = (yield from self._look()) if entry_id in state.known else None
        is_nested = entry_id in _computing.get()
        while hit is None and not is_nested and self._patience_s > 0:
            mine: Future[Ending] = Future()
            other = state.flights.setdefault(entry_id, mine)
            if other is mine:
                return (yield from self._lead(mine))
            state.counts.add("joined")
            ending = yield from self._wait_for(other)
            if isinstance(ending, Handed):
                if self.asked_s < ending.began_s:
                    answer = read_answer(self.cache, ending.answer)
                    return Outcome(answer=answer, waited_ms=round(self.waited_s * 1_000))
            elif ending in (ALONE, ""):
                break
            elif ending == STORED:
                hit = yield from self._look()
        return self._found(hit) if hit is not None else (yield from self._compute())

    def _look(self) -> Steps[Hit | None]:
        hit = yield from look(self.cache, self.question)
        if hit is None:
            self.began_us = self.state.open.began_us(self.question.entry_id)  # from now on this knows when it was
        return hit

    @property
    def _patience_s(self) -> float:
        return self.cache.settings.wait_max_ms / 1_000 - self.waited_s

    def _found(self, hit: Hit) -> Outcome:
        return Outcome(answer=hit.answer, hit=hit, waited_ms=round(self.waited_s * 1_000))

    def _wait_for(self, flight: Future[Ending]) -> Steps[Ending]:
        """How somebody else's flight in this process ends; empty if it takes too long."""
        since_s = self.state.clock()
        (done,) = yield Call(self.cache.wait, (flight, self._patience_s))
        self.waited_s += self.state.clock() - since_s
        return flight.result() if done else ""

    def _lead(self, flight: Future[Ending]) -> Steps[Outcome]:
        """Look up, or compute, for this process. However it ends, those who wait for it are told."""
        ending: Ending = FAILED
        try:
            hit = yield from self._look()
            if hit is not None:
                outcome, ending = self._found(hit), STORED
                return outcome
            found = yield from self._with_lease()
            if found == ALONE:
                self._end(flight, ALONE)  # now, for the others compute at the same time
                return (yield from self._compute())
            outcome, ending = (yield from self._for_this_process()) if isinstance(found, str) else found
            return outcome
        finally:
            self._end(flight, ending)

    def _end(self, flight: Future[Ending], ending: Ending) -> None:
        if not flight.done():
            self.state.flights.pop(self.question.entry_id, None)
            flight.set_result(ending)

    def _for_this_process(self) -> Steps[tuple[Outcome, Ending]]:
        """An answer without a lease. While Redis is left alone, it is for whoever asks meanwhile."""
        began_s = inf if self.state.redis_pause.is_on else self.state.clock()
        outcome = yield from self._compute()
        return outcome, self._ending(outcome, began_s)

    def _ending(self, outcome: Outcome, began_s: float) -> Ending:
        """How those who wait in this process take an answer that was computed."""
        written = outcome.written
        if written is None or written.reason != "unavailable":
            return STORED if written is not None and written.stored else ALONE
        try:
            return Handed(self.cache.serde.dumps(portable(outcome.answer)), began_s)
        except Exception:  # noqa: BLE001 - what the policy made of it could be written, the answer itself cannot
            return ALONE

    def _with_lease(self) -> Steps[tuple[Outcome, Ending] | str]:
        """An answer, by this process or another, and how others shall take it; ALONE or LOST if there is no lease."""
        token = secrets.token_hex(8)
        while self._patience_s > 0 and not self.state.redis_pause.is_on:
            try:
                reply = yield from self._ask("acquire", token, self.cache.settings.lease_ms)
                if reply[0] == b"wait":
                    verdict = yield from self._wait_for_lease(reply[1], reply[2])
                    if verdict in (ALONE, LOST):
                        return verdict
                    continue
                if reply[0] == b"hit":
                    outcome = self._found(exact_hit(self.cache, self.question, reply[1:]))
                    self.state.counts.add("exact")
                    return outcome, STORED
            except RtmemError as exc:
                self.state.note(exc)
                return LOST
            return (yield from self._hold(token, int(reply[1])))
        return LOST if self.state.redis_pause.is_on else ALONE

    def _ask(self, function: str, *args: str | int) -> Steps[Any]:
        timeout_ms = self.cache.settings.lookup_deadline_ms  # somebody waits for each
        name = f"rtmem_v1_cache_{function}"
        return (yield from call(name, self.cache.function_keys, [self.question.entry_id, *args], timeout_ms=timeout_ms))

    def _wait_for_lease(self, lasts_ms: int, last_id: bytes) -> Steps[str]:
        """Until the holder says how it ended, or its lease may be over."""
        since_s = self.state.clock()
        block_ms = max(1, min(lasts_ms + 1, round(self._patience_s * 1_000)))
        wake = f"{self.cache.keys.books}wake:{self.question.entry_id}"
        timeout_ms = block_ms + self.cache.settings.update_deadline_ms
        try:
            (reply,) = yield Batch(
                (("XREAD", "BLOCK", block_ms, "STREAMS", wake, last_id),), lane="blocking", timeout_ms=timeout_ms
            )
        finally:
            self.waited_s += self.state.clock() - since_s
        return _verdict(reply)

    def _hold(self, token: str, began_us: int) -> Steps[tuple[Outcome, Ending]]:
        """Compute with the lease in hand, and give it back whatever happens."""
        lease_ms = self.cache.settings.lease_ms
        since_s = self.state.clock()
        try:
            answer = yield from self._called(
                Call(self.compute, beside=lambda: self._renew(token, lease_ms), every_ms=max(1, lease_ms // 3))
            )
        except GeneratorExit:
            raise  # the steps are dropped, nothing can be asked any more: the lease ends by itself
        except BaseException:
            yield from self._release(token, FAILED)
            raise
        written = yield from self._store(answer, since_s, began_us, token)
        outcome = self._computed(answer, written)
        ending = FAILED if written.reason == "invalidated" else self._ending(outcome, since_s)
        if ending not in (STORED, FAILED):  # it was not sent, or that failed; else it took the lease along
            yield from self._release(token, ALONE if ending == ALONE else LOST)
        return outcome, ending

    def _called(self, call: Call) -> Steps[Any]:
        """What `compute` answers."""
        others = _computing.get()
        _computing.set(others | {self.question.entry_id})
        try:
            (answer,) = yield call
        finally:
            _computing.set(others)
        return answer

    def _renew(self, token: str, lease_ms: int) -> Steps[None]:
        try:
            yield from self._ask("renew", token, lease_ms)
        except RtmemError as exc:
            self.state.note(exc)

    def _release(self, token: str, verdict: str) -> Steps[None]:
        if self.state.redis_pause.is_on:
            return
        try:
            yield from self._ask("release", token, verdict)
        except RtmemError as exc:
            self.state.note(exc)

    def _compute(self) -> Steps[Outcome]:
        """For this caller alone."""
        since_s = self.state.clock()
        answer = yield from self._called(Call(self.compute))
        written = yield from self._store(answer, since_s, UNKNOWN_US if self.began_us is None else self.began_us)
        return self._computed(answer, written)

    def _store(self, answer: Any, since_s: float, began_us: int, token: str = "") -> Steps[Written]:
        took_ms = round((self.state.clock() - since_s) * 1_000)
        return (
            yield from store(self.cache, self.question, answer, self.scope, *self.properties, took_ms, began_us, token)
        )

    def _computed(self, answer: Any, written: Written) -> Outcome:
        self.state.counts.add("computed")
        return Outcome(answer=answer, written=written, waited_ms=round(self.waited_s * 1_000))


def _verdict(reply: Any) -> str:
    """What a stream's one new entry says; empty if the wait was over before. RESP2 has lists where RESP3 has a map."""
    if not reply:
        return ""
    ((_, entries),) = reply.items() if isinstance(reply, dict) else reply
    _, fields = entries[-1]
    found: bytes = fields[1] if isinstance(fields, list) else fields[b"verdict"]
    return found.decode()
