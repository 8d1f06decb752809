"""Recall: memory for the turns of an agent, by policy and within a deadline."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, Self, TypeVar

from langchain_core.messages import AnyMessage

from rtmem import settings as all_settings
from rtmem.agent.recall import policy, reading
from rtmem.agent.recall.kept import Kept, Shelf, Work
from rtmem.agent.recall.policy import Plan
from rtmem.agent.recall.reading import Recalled, Source, unread
from rtmem.agent.recall.verbs import AnyMemory, Verbs, arun, run
from rtmem.agent.recall.writing import Episode, episode_of
from rtmem.counts import Counter
from rtmem.errors import ConfigError, DeadlineExceededError, RtmemError, WrongColourError
from rtmem.memory import AsyncMemory, Memory, Principal, VerbCounts

T = TypeVar("T")

_THREADS_MAX: Final = 8  # of blocking memories, whose calls cannot be given up


class Recall:
    """Reads memory for a turn as the policy says, and never stops the turn: it answers in time, with whatever it has.

    One object serves any number of agents, threads and runs of the principal that is bound in `memory`; `bind` gives
    the same for another. `Memory` serves blocking and awaiting runs (these through threads), `AsyncMemory` only
    awaiting ones, of one event loop.

    Args:
        memory: whose, and where.
        settings: section [recall].

    Raises:
        ConfigError: `memory` is none.
    """

    def __init__(self, memory: AnyMemory, settings: all_settings.Recall | None = None) -> None:
        if not isinstance(memory, Memory | AsyncMemory):
            raise ConfigError(
                f"memory is a {type(memory).__name__}: give a Memory or AsyncMemory of its user, such as "
                'Memory(url, principal="ann"); behind `rtmem serve` RecallMiddleware() needs none'
            )
        self.memory = memory
        self.settings = settings or all_settings.Recall()
        self._shelf = Shelf(self.settings)
        self._counter = Counter()
        self._threads = (
            ThreadPoolExecutor(_THREADS_MAX, "rtmem-recall") if isinstance(memory, Memory) else None
        )  # it starts none before they are needed
        self._tasks: set[asyncio.Task[Any]] = set()  # at work; a loop alone does not keep them alive

    @property
    def principal(self) -> Principal:
        """Whose memory it is."""
        return self.memory.principal

    @property
    def counts(self) -> dict[str, VerbCounts]:
        """What each verb did: `recall` and `prefetch`, and what these and the tools asked of the memory."""
        return {**self.memory.counts, **self._counter.counts}

    def bind(self, principal: str | Principal) -> Self:
        """The same memory with the eyes of another principal. Raises InvalidRequestError, IdTooLongError."""
        clone = copy.copy(self)
        clone.memory = self.memory.bind(principal)
        return clone

    # Reading -----------------------------------------------------------------------------------------------------

    def read(self, message: str, *, thread_id: str = "", turn: str = "") -> Recalled:
        """What memory says to a message of the user, within `deadline_ms`. Blocking.

        Args:
            thread_id: the conversation; what was prefetched for it is used.
            turn: the id of the message; asked again for the same one, the answer is the same and costs nothing. Without
                one, memory is read each time.

        Raises:
            WrongColourError: an AsyncMemory awaits. Nothing else: what went wrong is told in `status` and `reason`.
        """
        self.check_blocking()
        asked = _Asked(self, message, thread_id, turn)
        if asked.told is None:
            with asked.judged():
                asked.answer = self._in_time(asked.work, asked.left_s, "deadline_ms")
        assert asked.told is not None, "judged"
        return asked.told

    async def aread(self, message: str, *, thread_id: str = "", turn: str = "") -> Recalled:
        """See `read`. Cancelled, it leaves nothing at work."""
        asked = _Asked(self, message, thread_id, turn)
        if asked.told is None:
            with asked.judged():
                asked.answer = await self._ain_time(asked.work, asked.left_s, "deadline_ms")
        assert asked.told is not None, "judged"
        return asked.told

    def prefetch(self, message: str = "", *, thread_id: str = "") -> bool:
        """Begin to recall before the message is complete: when a client connects, and at each partial transcript.

        Returns at once. `read` takes the result if what was said in the end is close enough (`likeness_min`). The next
        prefetch of the thread cancels this one. Without words it only wakes what the first recall would wait for:
        connections, the index, the embedder's model. With an AsyncMemory: inside its event loop.

        Returns:
            Whether something is recalled for these words: now, or already.
        """
        plan = policy.plan(self.settings, message)
        place = (self.principal, thread_id)
        if plan.is_empty:
            return False
        if self._shelf.prefetching(place, plan):
            return True
        words = self._words(plan)
        if not words:
            self._shelf.wake(lambda: self.begin(self._counted("prefetch", reading.warmed_up())))
            return False
        work = self.begin(self._counted("prefetch", reading.recalled(self.settings, plan)))
        self._shelf.put(place, Kept(plan, words, time.monotonic(), work))
        return True

    def cancel_prefetch(self, *, thread_id: str = "") -> None:
        """The message will not come: end what was prefetched for it, unless a turn has taken that."""
        self._shelf.cancel_prefetched((self.principal, thread_id))

    # Writing -----------------------------------------------------------------------------------------------------

    def remember_turn(self, messages: Sequence[AnyMessage], *, thread_id: str = "") -> Episode:
        """Write the user's last message as an episode, if `episodic_write` is "turn". Blocking; never raises.

        Saying the same again writes nothing new.
        """
        self.check_blocking()
        written = episode_of(self.settings, messages, thread_id, self.memory.scope.settings.text_characters_max)
        if isinstance(written, Episode):
            return written
        try:
            return self.do(written)
        except RtmemError as exc:
            return Episode("failed", reason=str(exc))

    async def aremember_turn(self, messages: Sequence[AnyMessage], *, thread_id: str = "") -> Episode:
        """See `remember_turn`."""
        written = episode_of(self.settings, messages, thread_id, self.memory.scope.settings.text_characters_max)
        if isinstance(written, Episode):
            return written
        try:
            return await self.ado(written)
        except RtmemError as exc:
            return Episode("failed", reason=str(exc))

    # Verbs -------------------------------------------------------------------------------------------------------

    def do(self, verbs: Verbs[T]) -> T:
        """Do something with this memory within `tool_deadline_ms`, blocking. Raises DeadlineExceededError, and its own.

        Recalls that are kept for this principal are dropped: it may have changed what they would say.
        """
        self.check_blocking()
        limit_s = self.settings.tool_deadline_ms / 1_000
        try:
            result: T = self._in_time(self.begin(verbs), limit_s, "tool_deadline_ms")
            return result
        finally:
            self._shelf.forget(self.principal)

    async def ado(self, verbs: Verbs[T]) -> T:
        """See `do`."""
        limit_s = self.settings.tool_deadline_ms / 1_000
        try:
            result: T = await self._ain_time(self.begin(verbs), limit_s, "tool_deadline_ms")
            return result
        finally:
            self._shelf.forget(self.principal)

    def begin(self, verbs: Verbs[Any]) -> Work:
        """Begin to do something. What it gives is its result, or the RtmemError that ended it."""
        steps = _attempted(verbs)
        if isinstance(self.memory, AsyncMemory):
            task = asyncio.get_running_loop().create_task(arun(self.memory, steps))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return task
        assert self._threads is not None, "blocking memories have threads"
        return self._threads.submit(run, self.memory, steps)

    def check_blocking(self) -> None:
        """Raises WrongColourError with an AsyncMemory."""
        if isinstance(self.memory, AsyncMemory):
            raise WrongColourError(
                "a blocking run (invoke, stream) with an AsyncMemory: use ainvoke or astream, or build it with a "
                "Memory, which serves both"
            )

    def close(self) -> None:
        """End what is under way, also of what is bound to other principals. Before the memory is closed. Blocking.

        What a thread has asked Redis is waited for, at most as long as Redis's own deadline.
        """
        self._shelf.clear()
        for task in self._tasks:
            task.cancel()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    async def aclose(self) -> None:
        """See `close`."""
        tasks = list(self._tasks)
        if self._threads is None:
            self.close()
        else:
            await asyncio.get_running_loop().run_in_executor(None, self.close)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _words(self, plan: Plan) -> frozenset[str]:
        return policy.words_of(plan.query, self.memory.scope.retrieval.words_max)

    def _counted(self, verb: str, verbs: Verbs[Any]) -> Verbs[Any]:
        with self._counter.call(verb):
            return (yield from verbs)

    def _in_time(self, work: Work, left_s: float, limit: str) -> Any:
        assert isinstance(work, Future), work
        try:
            return _result(work.result(max(0.0, left_s)))
        except RtmemError:  # a DeadlineExceededError of Redis is a TimeoutError too
            raise
        except (TimeoutError, CancelledError) as exc:
            if work.done() and not work.cancelled():  # while this process stood still
                return _result(work.result())
            work.cancel()
            raise _too_late(limit, getattr(self.settings, limit)) from exc

    async def _ain_time(self, work: Work, left_s: float, limit: str) -> Any:
        waited = asyncio.wrap_future(work) if isinstance(work, Future) else work
        try:
            done, _ = await asyncio.wait({waited}, timeout=max(0.0, left_s))
        except BaseException:
            waited.cancel()
            raise
        if not done or waited.cancelled():
            waited.cancel()
            raise _too_late(limit, getattr(self.settings, limit))
        return _result(waited.result())


class _Asked:
    """One `read`: what it waits for, and what becomes of it."""

    def __init__(self, recall: Recall, message: str, thread_id: str, turn: str) -> None:
        self._recall = recall
        self._began_s = time.monotonic()
        plan = policy.plan(recall.settings, message)
        place = (recall.principal, thread_id)
        self.told = Recalled("off") if plan.is_empty else recall._shelf.told(place, plan, turn)
        if self.told is not None:
            return
        words = recall._words(plan)
        found = recall._shelf.take_prefetched(place, plan, words, turn)
        self._source: Source = "prefetch" if found is not None else "read"
        if found is None:
            work = recall.begin(reading.recalled(recall.settings, plan))
            found = Kept(plan, words, self._began_s, work, turn)
            recall._shelf.put(place, found)
        self._kept = found
        self.work = found.work
        self.answer: Recalled | None = None

    @property
    def left_s(self) -> float:
        """Until the deadline."""
        return self._began_s + self._recall.settings.deadline_ms / 1_000 - time.monotonic()

    @contextmanager
    def judged(self) -> Iterator[None]:
        """Takes `answer`, or what was raised instead of it, for what the turn is told; counts it."""
        try:
            with self._recall._counter.call("recall") as tally:
                yield
                assert self.answer is not None, "the body sets it, or raises"
                tally.abstained, tally.tokens = int(self.answer.status == "nothing"), self.answer.tokens
        except DeadlineExceededError as exc:
            self.answer = unread("late", _of_a_read(str(exc)))
        except RtmemError as exc:
            self.answer = unread("failed", _of_a_read(f"{type(exc).__name__}: {exc}"))
        took_ms = (time.monotonic() - self._began_s) * 1_000
        self.told = dataclasses.replace(self.answer, source=self._source, took_ms=took_ms)
        self._kept.outcome = dataclasses.replace(self.told, source="kept", took_ms=0.0)


def _attempted(verbs: Verbs[T]) -> Verbs[T | RtmemError]:
    """The result, or the error: work that nobody waits for any more must not complain that nobody took its error."""
    try:
        return (yield from verbs)
    except RtmemError as exc:
        return exc


def _result(result: Any) -> Any:
    if isinstance(result, RtmemError):
        raise result
    return result


def _too_late(settings_name: str, left_ms: int) -> DeadlineExceededError:
    # Tools write, too.
    outcome = "; a write may have happened, and may be repeated" if settings_name == "tool_deadline_ms" else ""
    return DeadlineExceededError(
        f"memory did not answer within {left_ms} ms ([recall] {settings_name}){outcome}", deadline_ms=left_ms
    )


def _of_a_read(reason: str) -> str:
    """Why a read gave nothing. Drivers, which do not know what was asked of them, speak of writes, too."""
    return reason.replace("; a write may have happened", "")
