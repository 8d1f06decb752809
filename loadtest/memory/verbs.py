"""Each verb of the store beside the raw commands and the peers, in turns: put, get, search, list_namespaces."""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from loadtest.memory.notes import KnownVectors, Note, Question, Texts, Topics
from loadtest.memory.raw import Asked, Raw, Words
from loadtest.memory.stores import OURS, Subject
from rtmem.loadtest import Contender, Experiment, Plan, measure
from rtmem.loadtest.console import Bar
from rtmem.steps import Embedder

RAW, WITH_SERDE, EMBEDDING = "raw", "raw+serde", "embedding alone"
BATCH: Final = 32
_QUESTIONS: Final = 64
_TENANT: Final = 100  # notes
_LOT: Final = 256


@dataclass(slots=True)
class Bench:
    """What every experiment needs."""

    seed: int
    bar: Bar
    scale: float = 1.0  # of the number of rounds
    notes: list[str] = field(default_factory=list)
    known: KnownVectors = field(init=False)
    topics: Topics = field(init=False)
    texts: Texts = field(init=False)

    def __post_init__(self) -> None:
        self.known, self.topics, self.texts = KnownVectors(self.seed), Topics(self.seed), Texts(self.seed)

    async def measure(
        self,
        name: str,
        contenders: Sequence[Contender],
        *,
        rounds: int = 12,
        operations: int = 40,
        concurrency: int = 1,
        baseline: str = RAW,
        note: str = "",
    ) -> Experiment:
        """Measure, and show it."""
        rounds = max(2, round(rounds * self.scale))
        self.bar.describe(f"{name}, c={concurrency}")
        self.bar.announce(rounds * len(contenders))
        warmup = max(3, concurrency)
        plan = Plan(name, baseline, rounds, operations, warmup, concurrency, self.seed, note=note)
        found = await measure(plan, contenders, on_turn=self.bar.step)
        for row in found.rows:
            if row.errors:
                self.notes.append(f"{name}: {row.contender} failed {row.errors} times: {row.first_error}")
        return found

    def notes_of(self, tenants: int) -> list[Note]:
        """A hundred notes of each tenant, whose vectors are known."""
        made = []
        for tenant in map(tenant_name, range(tenants)):
            notes = [self.texts.note(tenant, f"note-{number}") for number in range(_TENANT)]
            self.known.learn([note.value["text"] for note in notes], self.topics.draw(tenant, _TENANT))
            made += notes
        return made

    def questions(self, tenants: int, wanted: dict[str, Any] | None = None) -> list[Question]:
        """Of many tenants."""
        source = random.Random(f"{self.seed} questions {wanted}")
        asked = [self.texts.question(tenant_name(source.randrange(tenants)), wanted) for _ in range(_QUESTIONS)]
        for part, question in enumerate(asked, 1):
            self.known.learn([question.text], self.topics.draw(question.tenant, 1, part))
        return asked


def tenant_name(number: int) -> str:
    return f"tenant-{number}"


class NewNotes:
    """Notes that nobody has yet, for one contender, made many at a time. No tenant gets more than one lot."""

    def __init__(self, bench: Bench, contender: str) -> None:
        self._bench = bench
        self._tenant = f"new {contender}"
        self._lots = itertools.count()
        self._ready: list[Note] = []

    def one(self, _number: int = 0) -> Note:
        if not self._ready:
            tenant = f"{self._tenant} {next(self._lots)}"
            made = [self._bench.texts.note(tenant, f"note-{number}") for number in range(_LOT)]
            self._bench.known.learn([note.value["text"] for note in made], self._bench.topics.draw(tenant, _LOT))
            self._ready = made
        return self._ready.pop()

    def batch(self, _number: int = 0) -> list[Note]:
        return [self.one() for _ in range(BATCH)]


# Puts ----------------------------------------------------------------------------------------------------------------


async def put_one(bench: Bench, raw: Raw, subjects: Sequence[Subject], *, concurrency: int = 1) -> Experiment:
    """A new item."""
    make = {name: NewNotes(bench, f"{name} {concurrency}") for name in (RAW, WITH_SERDE)}
    pid = subjects[0].server_pid

    def vector(note: Note) -> bytes:
        return bench.known.vector(note.value["text"]).tobytes()

    def words(_number: int) -> Words:
        note = make[RAW].one()
        return raw.put_words(note, vector(note), raw.encoded(note))

    async def with_serde(note: Note) -> None:
        await raw.send(raw.put_words(note, vector(note), raw.encoded(note)))

    contenders = [
        Contender(RAW, raw.send, words, pid),
        Contender(WITH_SERDE, with_serde, make[WITH_SERDE].one, pid),
    ]
    for subject in subjects:
        fresh = NewNotes(bench, f"{subject.name} {concurrency}")
        contenders.append(Contender(subject.name, subject.put, fresh.one, subject.server_pid))
    if concurrency == 1:
        return await bench.measure("put, one item", contenders)
    return await bench.measure("put, one item", contenders, rounds=6, operations=256, concurrency=concurrency)


async def put_batch(bench: Bench, raw: Raw, subjects: Sequence[Subject]) -> Experiment:
    """32 new items at once."""
    make = {name: NewNotes(bench, f"{name} batch") for name in (RAW, WITH_SERDE)}
    pid = subjects[0].server_pid

    def words(notes: Sequence[Note]) -> list[Words]:
        return [
            raw.put_words(note, bench.known.vector(note.value["text"]).tobytes(), raw.encoded(note)) for note in notes
        ]

    async def with_serde(notes: Sequence[Note]) -> None:
        await raw.send_all(words(notes))

    contenders = [
        Contender(RAW, raw.send_all, lambda _: words(make[RAW].batch()), pid),
        Contender(WITH_SERDE, with_serde, make[WITH_SERDE].batch, pid),
    ]
    for subject in subjects:
        fresh = NewNotes(bench, f"{subject.name} batch")
        contenders.append(Contender(subject.name, subject.put_all, fresh.batch, subject.server_pid))
    return await bench.measure(f"put, batch of {BATCH}", contenders, rounds=10, operations=6)


# Reads ---------------------------------------------------------------------------------------------------------------


async def get(bench: Bench, raw: Raw, subjects: Sequence[Subject], notes: Sequence[Note]) -> Experiment:
    """An item by its key."""
    source = random.Random(bench.seed)
    pid = subjects[0].server_pid

    def any_note(_number: int) -> Note:
        return source.choice(notes)

    def words(number: int) -> Words:
        return raw.get_words(any_note(number))

    contenders = [Contender(RAW, raw.send, words, pid), Contender(WITH_SERDE, raw.get_with_serde, words, pid)]
    contenders += [Contender(each.name, each.get, any_note, each.server_pid) for each in subjects]
    return await bench.measure("get, by key", contenders)


async def search(
    bench: Bench,
    raw: Raw,
    subjects: Sequence[Subject],
    questions: Sequence[Question],
    name: str,
    *,
    hybrid: bool = False,
    concurrency: int = 1,
) -> Experiment:
    """The ten items that are nearest to a question, of one tenant."""
    asked = [await raw.prepare(each, bench.known.vector(each.text).tobytes(), hybrid=hybrid) for each in questions]
    pid = subjects[0].server_pid
    await _check(bench, subjects, questions[0], len(asked[0].ids))

    def prepared(number: int) -> Asked:
        return asked[number % len(asked)]

    def question(number: int) -> Question:
        return questions[number % len(questions)]

    contenders = [
        Contender(RAW, raw.search, prepared, pid),
        Contender(WITH_SERDE, raw.search_with_serde, prepared, pid),
    ]
    contenders += [Contender(each.name, each.search, question, each.server_pid) for each in subjects]
    if concurrency == 1:
        return await bench.measure(name, contenders)
    return await bench.measure(name, contenders, rounds=6, operations=256, concurrency=concurrency)


async def _check(bench: Bench, subjects: Sequence[Subject], question: Question, expected: int) -> None:
    """Who finds fewer than there are is not measured as if it had found them: ours stops the run."""
    for subject in subjects:
        found = len(await subject.search(question))
        if found == expected:
            continue
        note = f"{subject.name} found {found} of {expected} items for {question}"
        if subject.name == OURS:
            raise AssertionError(f"{note}, seed {bench.seed}")
        bench.notes.append(note)


async def list_namespaces(bench: Bench, raw: Raw, subjects: Sequence[Subject], tenants: int) -> Experiment:
    """Which namespaces a tenant has: a hundred items in one."""
    pid = subjects[0].server_pid

    def tenant(number: int) -> str:
        return tenant_name(number % tenants)

    contenders = [Contender(RAW, raw.send, lambda number: raw.list_words(tenant(number)), pid)]
    contenders += [
        Contender(each.name, each.list_namespaces, tenant, each.server_pid) for each in subjects if each.list_namespaces
    ]
    return await bench.measure("list_namespaces of a tenant", contenders)


# With the embedding --------------------------------------------------------------------------------------------------


async def with_embedding(bench: Bench, raw: Raw, ours: Subject, embedder: Embedder, tenant: str) -> list[Experiment]:
    """put and search as an application sees them: the text is embedded first, by MiniLM in this process."""

    async def vector_of(text: str) -> bytes:
        vector: bytes = (await embedder.aembed([text]))[0].tobytes()
        return vector

    async def put(note: Note) -> None:
        await raw.send(raw.put_words(note, await vector_of(note.value["text"]), raw.encoded(note)))

    async def find(given: tuple[Question, Asked]) -> None:
        question, asked = given
        queries = raw.queries(question, await vector_of(question.text))
        await raw.search(Asked(queries, asked.ids))

    asked = await raw.prepare(bench.texts.question(tenant), (await embedder.aembed(["any"]))[0].tobytes())
    alone: Callable[[str], Awaitable[object]] = vector_of
    found = []
    for name, by_hand, theirs, make, text in (
        (
            "put, embedding included",
            put,
            ours.put,
            lambda _: bench.texts.note(f"{tenant} new", bench.texts.sentence(2)),
            14,
        ),
        (
            "search, embedding included",
            lambda question: find((question, asked)),
            ours.search,
            lambda _: bench.texts.question(tenant),
            7,
        ),
    ):
        contenders = [
            Contender(RAW, by_hand, make, ours.server_pid),
            Contender(OURS, theirs, make, ours.server_pid),
            Contender(EMBEDDING, alone, lambda _, words=text: bench.texts.sentence(words)),  # type: ignore[misc]
        ]
        found.append(await bench.measure(name, contenders, rounds=10, operations=10))
    return found
