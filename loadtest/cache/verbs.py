"""Each verb of the cache beside the raw commands and the peers, in turns: exact hit, hit by meaning, miss, update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from loadtest.cache.contenders import OURS, Subject
from loadtest.cache.questions import Question, Questions, answer
from loadtest.cache.raw import Raw
from loadtest.memory.verbs import Bench
from rtmem.cli.cache.comparing import EMBEDDED_AS
from rtmem.loadtest import Contender, Experiment
from rtmem.steps import Embedder

EXACT, MEANING, FREE, UPDATE = VERBS = ("exact hit", "by meaning", "vectors known", "update")
GET, BARE_SEARCH = "raw GET", "raw FT.SEARCH"
SEARCH, WRITE, ALONE = "embedding + raw FT.SEARCH", "embedding + raw HSET", "embedding alone"
MISS: Final = ", miss"


async def exact(bench: Bench, raw: Raw, subjects: Sequence[Subject], asked: Questions, where: str) -> Experiment:
    """A question in the very words that were stored."""
    texts = [question.text for question in asked.stored]
    await _check(bench, subjects, texts, hit=True)
    contenders = [Contender(GET, raw.get)]
    contenders += [Contender(each.name, each.look_up, _in_turn(texts)) for each in subjects]
    note = "peers embed the question for every look-up; rtmem does not for one it knows to be stored"
    return await bench.measure(f"{EXACT}, {where}", contenders, baseline=GET, note=note)


async def by_meaning(
    bench: Bench, raw: Raw, subjects: Sequence[Subject], asked: Questions, embedder: Embedder, where: str
) -> Experiment:
    """A question in other words, and one that nobody has asked; MiniLM at work in the measured time."""
    await _check(bench, subjects, asked.asked, hit=True)
    strange = await _missing(subjects, asked.strange)

    async def alone(text: str) -> object:
        return await embedder.aembed([text], EMBEDDED_AS)

    contenders = [Contender(SEARCH, raw.search, _in_turn(asked.asked)), Contender(ALONE, alone, _in_turn(asked.asked))]
    for each in subjects:
        contenders.append(Contender(each.name, each.look_up, _in_turn(asked.asked)))
        contenders.append(Contender(f"{each.name}{MISS}", each.look_up, _in_turn(strange)))
    # What misses may be longer and take longer to embed: a miss is judged beside the raw commands with its own texts.
    contenders.append(Contender(f"{SEARCH}{MISS}", raw.search, _in_turn(strange)))
    return await bench.measure(f"{MEANING}, {where}", contenders, baseline=SEARCH, rounds=10, operations=20)


async def vectors_known(
    bench: Bench, raw: Raw, subjects: Sequence[Subject], asked: Questions, where: str
) -> Experiment:
    """The same without the embedding: what the cache itself costs beside one FT.SEARCH."""
    await _check(bench, subjects, asked.asked, hit=True)
    contenders = [Contender(BARE_SEARCH, raw.search, _in_turn(asked.asked))]
    contenders += [Contender(each.name, each.look_up, _in_turn(asked.asked)) for each in subjects]
    return await bench.measure(f"{FREE}, {where}", contenders, baseline=BARE_SEARCH)


async def update(bench: Bench, raw: Raw, subjects: Sequence[Subject], where: str) -> Experiment:
    """A new question and its answer; MiniLM at work in the measured time."""

    def new(_number: int) -> Question:
        return Question(bench.texts.sentence(9), answer(bench))

    contenders = [Contender(WRITE, raw.write, new)]
    contenders += [Contender(each.name, each.store, new) for each in subjects]
    return await bench.measure(f"{UPDATE}, {where}", contenders, baseline=WRITE, rounds=10, operations=20)


def _in_turn(texts: Sequence[str]) -> Callable[[int], Any]:
    return lambda number: texts[number % len(texts)]


async def _check(bench: Bench, subjects: Sequence[Subject], texts: Sequence[str], *, hit: bool) -> None:
    """Who misses is not measured as if it had hit: ours stops the run."""
    for subject in subjects:
        found = [bool(await subject.look_up(text)) for text in texts]
        wrong = sum(each is not hit for each in found)
        if wrong and subject.name.startswith(OURS):
            raise AssertionError(f"{subject.name} misses {wrong} of {len(texts)} questions, seed {bench.seed}")
        if wrong:
            bench.notes.append(f"{subject.name} misses {wrong} of {len(texts)} questions")


async def _missing(subjects: Sequence[Subject], texts: Sequence[str]) -> list[str]:
    """Those that nobody finds anything for."""
    found = set()
    for subject in subjects:
        found |= {text for text in texts if await subject.look_up(text)}
    return [text for text in texts if text not in found]
