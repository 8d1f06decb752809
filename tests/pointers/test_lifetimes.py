"""How long a pointer lives, and that nothing dangles and nothing is left over, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from langgraph.graph import END, START, MessagesState, StateGraph

from rtmem import RedisSaver, ShallowRedisSaver
from rtmem import settings as all_settings
from rtmem.errors import (
    PointerExpiredError,
    PointerNotFoundError,
    ServerUnavailableError,
)
from rtmem.pointers import AsyncPointers, Pointers
from rtmem.settings import Checkpoint
from tests.pointers.colours import SMALL, Caller, World
from tests.wire import Wire

LARGE = "large" * 4_000  # several batches of the small chunks


@pytest.fixture
def saver(world: World) -> Iterator[RedisSaver]:
    with RedisSaver(world.url, principal="ann") as saver:
        yield saver


def talk(saver: RedisSaver, thread_id: str, text: str = "hello") -> None:
    """Put checkpoints of a real graph into a thread."""
    builder = StateGraph(MessagesState)
    builder.add_node("answer", lambda state: {"messages": [("ai", "yes")]})
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"messages": [("user", text)]}, {"configurable": {"thread_id": thread_id}})


def ended(pointers: Caller, *found: Any) -> bool:
    """Whether none of these can be resolved any more."""
    for pointer in found:
        with pytest.raises(PointerNotFoundError):
            pointers.resolve(pointer.id)
    return True


def patient(**changes: int) -> Any:
    """Settings under which a thread without checkpoint is gone at once."""
    values = {"chunk_bytes": SMALL.chunk_bytes, "batch_bytes": SMALL.batch_bytes, "grace_ms": 1, **changes}
    return all_settings.Pointers(**values)


def sweep_until(pointers: Caller, done: Callable[[], bool]) -> None:
    """Sweep until something is so: the clock of Redis decides when things are due."""
    while not done():
        pointers.sweep()


# Threads -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["small", LARGE], ids=["small", "large"])
def test_deleting_a_thread_ends_what_only_it_pins(ann: Caller, saver: RedisSaver, value: str) -> None:
    talk(saver, "one")
    mine = ann.offload(value, thread_id="one")
    shared = ann.offload(value, thread_id="one")
    ann.pin(shared, "two")
    kept = ann.offload("by hand", thread_id="one")
    ann.pin(kept)
    timed = ann.offload("its own time", thread_id="one", ttl_ms=3_600_000)
    saver.delete_thread("one")
    with pytest.raises(PointerExpiredError, match="threads that pinned it are gone"):
        ann.resolve(mine)
    assert [ann.resolve(pointer) for pointer in (shared, kept, timed)] == [value, "by hand", "its own time"]
    assert ann.sound().pointers == 3
    saver.delete_thread("two")
    ann.unpin(kept)
    assert ended(ann, shared, kept)
    assert ann.resolve(timed) == "its own time"
    ann.sound()


def test_pruning_a_thread_keeps_its_pointers_and_deleting_by_prune_ends_them(ann: Caller, saver: RedisSaver) -> None:
    talk(saver, "t")
    talk(saver, "t")
    pointer = ann.offload("value", thread_id="t")
    saver.prune(["t"])
    assert ann.resolve(pointer) == "value"
    saver.prune(["t"], strategy="delete")
    assert ended(ann, pointer)


def test_many_pointers_of_a_thread_end_together(ann: Caller, saver: RedisSaver) -> None:
    found = [ann.offload(f"value {number}", thread_id="t") for number in range(250)]
    talk(saver, "t")
    saver.delete_thread("t")
    assert ended(ann, *found)
    assert ann.usage().pointers == 0
    ann.sound()


def test_a_copy_pins_what_the_thread_pins_and_outlives_it(ann: Caller, saver: RedisSaver) -> None:
    talk(saver, "t")
    found = [ann.offload(f"value {number}", thread_id="t") for number in range(120)]
    saver.copy_thread("t", "copy")
    saver.delete_thread("t")
    assert [ann.resolve(pointer) for pointer in found] == [f"value {number}" for number in range(120)]
    assert len(ann.list("copy", limit=100).pointers) == 100
    ann.sound()
    saver.delete_thread("copy")
    assert ended(ann, *found)
    ann.sound()


def test_a_copy_of_a_thread_without_pointers_costs_no_round_trip_more(saver: RedisSaver) -> None:
    talk(saver, "t")
    saver.copy_thread("t", "copy")
    seen: list[Any] = []
    answer = saver._driver.answer
    saver._driver.answer = lambda request: seen.append(request) or answer(request)  # type: ignore[method-assign]
    saver.copy_thread("t", "other")
    assert not [command for batch in seen for command in batch.commands if "pointers" in str(command[1])]


def test_a_shallow_saver_keeps_the_pointers_of_its_thread(world: World, ann: Caller) -> None:
    with ShallowRedisSaver(world.url, principal="ann") as shallow:
        pointer = ann.offload("value", thread_id="t")
        talk(shallow, "t")
        talk(shallow, "t")
        assert ann.resolve(pointer) == "value"
        shallow.delete_thread("t")
    assert ended(ann, pointer)


def test_a_thread_that_expired_takes_its_pointers_along_at_the_next_sweep(world: World) -> None:
    with world.open(principal="ann", settings=patient()) as ann:
        with RedisSaver(world.url, principal="ann", settings=Checkpoint(ttl_ms=50)) as saver:
            pointer = ann.offload(LARGE, thread_id="t")
            talk(saver, "t")
            sweep_until(ann, lambda: ann.usage().pointers == 0)
        assert ended(ann, pointer)
        assert not world.client.keys(b"*:c:*")
        ann.sound()


def test_a_living_thread_keeps_its_pointers_through_every_sweep(world: World, saver: RedisSaver) -> None:
    with world.open(principal="ann", settings=patient()) as ann:
        talk(saver, "t")
        pointer = ann.offload("value", thread_id="t")
        (due,) = world.client.keys(b"*:p:*:d")
        before = world.client.zscore(due, "qt")
        sweep_until(ann, lambda: world.client.zscore(due, "qt") > before)
        assert ann.resolve(pointer) == "value"
        ann.sound()
        saver.delete_thread("t")
        assert ended(ann, pointer)


def test_a_pointer_lives_before_its_threads_first_checkpoint(ann: Caller, saver: RedisSaver) -> None:
    pointer = ann.offload("before", thread_id="t")  # an hour of grace
    assert ann.sweep().expired == 0
    talk(saver, "t")
    ann.sweep()
    assert ann.resolve(pointer) == "before"


def test_what_is_pinned_while_a_sweep_looks_stays(world: World) -> None:
    with world.open(principal="ann", settings=patient()) as ann, Pointers(world.url, principal="ann") as other:
        first = ann.offload("first", thread_id="t")
        wire = Wire(ann.owner)
        late: list[Any] = []

        def pin_meanwhile(batch: Any) -> None:
            if batch.commands[0][0] == "EXISTS" and not late:
                late.append(other.offload("late", thread_id="t"))

        wire.batches = Watching(pin_meanwhile)
        while not late:
            ann.sweep()
        # The thread has begun anew, so what it pinned before is not taken away under it either.
        assert ann.resolve(late[0]) == "late"
        assert ann.resolve(first) == "first"
        ann.sound()


class Watching(list[Any]):
    def __init__(self, see: Callable[[Any], None]) -> None:
        super().__init__()
        self.see = see

    def append(self, batch: Any) -> None:
        self.see(batch)


def test_erasing_one_tenants_thread_touches_no_other(ann: Caller, world: World) -> None:
    bob = ann.bind("bob")
    pointer = bob.offload("bob's", thread_id="t")
    with RedisSaver(world.url, principal="ann") as saver:
        talk(saver, "t")
        saver.delete_thread("t")
    assert bob.resolve(pointer) == "bob's"


# Reasons to live -----------------------------------------------------------------------------------------------------


def test_without_thread_or_ttl_the_setting_decides(ann: Caller) -> None:
    pointer = ann.offload("value")
    assert pointer.expires_at_ms == pointer.created_at_ms + SMALL.ttl_ms
    assert ann.offload("value", thread_id="t").expires_at_ms == 0


def test_a_pin_outlives_the_ttl(ann: Caller) -> None:
    pointer = ann.offload("value", ttl_ms=1)
    try:
        ann.pin(pointer)
    except PointerExpiredError:
        return  # a slow machine: it was too late
    wait_past(ann, pointer)
    assert ann.resolve(pointer) == "value"
    ann.sweep()
    assert ann.resolve(pointer) == "value"
    ann.unpin(pointer)
    assert ended(ann, pointer)
    ann.sound()


def wait_past(ann: Caller, pointer: Any) -> None:
    """Until the clock of Redis is past a pointer's own time."""
    while ann.offload("tick", ttl_ms=1).created_at_ms <= pointer.expires_at_ms:
        pass


def test_what_is_expired_can_be_neither_pinned_nor_seen_in_the_list(ann: Caller) -> None:
    pointer = ann.offload("value", ttl_ms=1)
    wait_past(ann, pointer)
    for verb in (ann.pin, ann.unpin, ann.resolve, ann.describe, ann.slice):
        with pytest.raises(PointerExpiredError):
            verb(pointer)
    assert pointer.id not in [other.id for other in ann.list().pointers]
    assert ann.delete(pointer) is False


def test_a_tombstone_ends_too(world: World) -> None:
    with world.open(settings=patient(tombstone_ttl_ms=1)) as pointers:
        pointer = pointers.offload(LARGE, ttl_ms=1)
        sweep_until(pointers, lambda: not world.client.exists("rtmem:p:{/}:d"))
        with pytest.raises(PointerNotFoundError) as refused:
            pointers.resolve(pointer)
        assert not isinstance(refused.value, PointerExpiredError)
        left = world.client.hgetall("rtmem:p:{/}:h")
        assert {name: value for name, value in left.items() if value != b"0"} == {b"v": b"1"}
        assert not world.client.keys(b"*:c:*")


def test_delete_ends_a_pointer_whatever_pins_it(ann: Caller) -> None:
    pointer = ann.offload("value", thread_id="t")
    ann.pin(pointer)
    assert ann.delete(pointer) is True
    assert ann.delete(pointer) is False
    with pytest.raises(PointerNotFoundError) as refused:
        ann.resolve(pointer)
    assert not isinstance(refused.value, PointerExpiredError)
    ann.sound()


def test_a_sweep_has_a_bound_and_goes_on(ann: Caller) -> None:
    for number in range(150):
        ann.offload(f"value {number}", ttl_ms=1)
    wait_past(ann, ann.offload("last", ttl_ms=1))
    first = ann.sweep(steps_max=1)
    assert first.expired == 100
    assert first.more
    rest = ann.sweep()
    assert rest.expired >= 51
    assert not rest.more
    ann.sound()


# Crashes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_upload_that_breaks_anywhere_shows_nothing_and_is_swept(world: World, after: bool) -> None:
    with world.open(principal="ann", settings=patient(upload_ttl_ms=1)) as ann:
        with world.open(principal="ann", settings=patient()) as breaking:
            wire = Wire(breaking.owner)
            breaking.offload(LARGE + "counted")
            steps = wire.take()
            assert steps >= 5
            for nth in range(steps):
                wire.cut(nth, after=after)
                value = f"{LARGE} {nth}"
                with pytest.raises(ServerUnavailableError):
                    breaking.offload(value)
                committed = after and nth == steps - 1
                assert (value in values_of(ann)) is committed
                assert breaking.resolve(breaking.offload(value)) == value  # asked again, it is stored
        assert ann.inspect().orphans == ()
        make_due(world, b"k")
        ann.sweep()
        assert {key.split(b":")[-2] for key in world.client.keys(b"*:c:*")} == hosts(ann)
        assert ann.sound().uploads == 0


def values_of(pointers: Caller) -> list[Any]:
    return [pointers.resolve(pointer) for pointer in pointers.list(limit=100).pointers]


def hosts(ann: Caller) -> set[bytes]:
    """The pointers under which living values lie."""
    return {ann.run(opened(ann, pointer)).manifest.host.encode() for pointer in ann.list(limit=100).pointers}


def opened(ann: Caller, pointer: Any) -> Any:
    from rtmem.operations.pointers import open_pointer

    return open_pointer(ann.scope, pointer)


def make_due(world: World, kind: bytes) -> None:
    """What the clock would do by itself: uploads (k) are late, threads (q) have to be looked at."""
    for due in world.client.keys(b"*:p:*:d"):
        for member in world.client.zrange(due, 0, -1):
            if member.startswith(kind):
                world.client.zadd(due, {member: 1})


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_sweep_that_breaks_anywhere_is_finished_by_the_next(world: World, after: bool) -> None:
    for nth in range(5):
        world.client.flushall()
        with world.open(principal="ann", settings=patient()) as ann:
            for number in range(3):
                ann.offload(f"{LARGE} {number}", thread_id=f"gone {number}")
                ann.offload(f"timed {number}", ttl_ms=1)
            wait_past(ann, ann.offload("last", ttl_ms=1))
            wire = Wire(ann.owner)
            wire.cut(nth, after=after)
            try:
                ann.sweep()
            except ServerUnavailableError:
                assert not ann.inspect().dangling
            wire.left = -1
            sweep_until(ann, lambda ann=ann: ann.usage().pointers == 0)
            ann.sound()
            assert not world.client.keys(b"*:c:*")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("nth", range(4))
def test_a_deletion_that_breaks_never_leaves_a_living_thread_without_its_pointers(
    world: World, saver: RedisSaver, nth: int, after: bool
) -> None:
    with world.open(principal="ann", settings=patient()) as ann:
        talk(saver, "t")
        found = [ann.offload(f"value {number}", thread_id="t") for number in range(110)]
        break_saver(saver, nth, after=after)
        try:
            saver.delete_thread("t")
        except ServerUnavailableError:
            if world.client.exists("rtmem:t:{ann/t}:c"):
                assert [ann.resolve(pointer) for pointer in found]
        if world.client.exists("rtmem:t:{ann/t}:c"):
            mend(saver)
            saver.delete_thread("t")
        sweep_until(ann, lambda: ann.usage().pointers == 0)
        ann.sound()


def break_saver(saver: RedisSaver, nth: int, *, after: bool) -> None:
    answer = saver._driver.answer
    left = [nth]

    def broken(request: Any) -> Any:
        left[0] -= 1
        if left[0] == -1 and not after:
            raise ServerUnavailableError("the wire was cut: this is a test")
        replies = answer(request)
        if left[0] == -1 and after:
            raise ServerUnavailableError("the wire was cut: this is a test")
        return replies

    saver._driver.answer = broken  # type: ignore[method-assign]


def mend(saver: RedisSaver) -> None:
    saver._driver.answer = type(saver._driver).answer.__get__(saver._driver)  # type: ignore[method-assign]


@pytest.mark.parametrize("nth", range(0, 9, 2))
def test_a_copy_that_breaks_anywhere_leads_to_no_pointer_that_ends(world: World, saver: RedisSaver, nth: int) -> None:
    with world.open(principal="ann", settings=patient()) as ann:
        talk(saver, "t")
        found = [ann.offload(f"value {number}", thread_id="t") for number in range(120)]
        break_saver(saver, nth, after=True)
        with suppress(ServerUnavailableError):
            saver.copy_thread("t", "copy")
        mend(saver)
        saver.delete_thread("t")
        if world.client.zcard("rtmem:t:{ann/copy}:i"):
            ann.sweep()
            assert [ann.resolve(pointer) for pointer in found]
            saver.delete_thread("copy")
        make_due(world, b"q")  # the hour of grace is over
        sweep_until(ann, lambda: ann.usage().pointers == 0)
        ann.sound()


@pytest.mark.anyio
@pytest.mark.parametrize("value", ["small", LARGE], ids=["small", "large"])
async def test_equal_values_offloaded_by_32_tasks_at_once_are_stored_once(redis_url: str, value: str) -> None:
    async with AsyncPointers(redis_url, principal="crowd", settings=SMALL) as pointers:
        found = await asyncio.gather(*(pointers.offload(value, thread_id=f"t{number % 4}") for number in range(32)))
        assert len({pointer.id for pointer in found}) == 32
        assert (await pointers.usage()).values == 1
        assert await asyncio.gather(*(pointers.resolve(pointer) for pointer in found)) == [value] * 32
        # Deleting and storing the same value at once: what is there is whole, and what is gone left nothing.
        work = [pointers.delete(pointer) for pointer in found] + [pointers.offload(value) for _ in range(32)]
        made = [pointer for pointer in await asyncio.gather(*work) if not isinstance(pointer, bool)]
        assert await asyncio.gather(*(pointers.resolve(pointer) for pointer in made)) == [value] * 32
        assert (await pointers.inspect()).sound
        await asyncio.gather(*(pointers.delete(pointer) for pointer in made))
        report = await pointers.inspect()
        assert report.sound, report
        assert (report.values, report.bytes, report.uploads) == (0, 0, 0)


def test_a_committed_transaction_that_is_sent_again_changes_nothing(ann: Caller) -> None:
    """A lost connection: the driver sends the whole transaction again, chunks and all."""
    wire = Wire(ann.owner)
    pointer = ann.offload("value" * 100)
    first = wire.batches[0]
    shared = ann.offload("value" * 100)
    second = wire.batches[-1]
    before = ann.usage()
    ann.run(again(first))
    ann.run(again(second))
    assert ann.usage() == before
    assert ann.resolve(pointer) == ann.resolve(shared) == "value" * 100
    ann.sound()


def test_any_part_of_an_upload_that_comes_once_more_after_its_end_changes_nothing(ann: Caller) -> None:
    wire = Wire(ann.owner)
    pointer = ann.offload(LARGE)
    parts = list(wire.batches)
    before = ann.usage()
    for part in parts:
        ann.run(again(part))
        assert ann.usage() == before
        assert ann.resolve(pointer) == LARGE
        ann.sound()  # no chunk has a time to live again


def again(batch: Any) -> Any:
    return (yield batch)


def test_an_upload_whose_claim_was_swept_meanwhile_is_sent_again(world: World) -> None:
    with world.open(principal="ann", settings=patient()) as ann, Pointers(world.url, principal="ann") as sweeper:
        wire = Wire(ann.owner)
        swept: list[bool] = []

        def sweep_once(batch: Any) -> None:
            if batch.lane == "large" and not swept:
                swept.append(True)
                make_due(world, b"k")
                sweeper.sweep()

        wire.batches = Watching(sweep_once)
        pointer = ann.offload(LARGE)
        assert swept
        assert ann.resolve(pointer) == LARGE
        ann.sound()
