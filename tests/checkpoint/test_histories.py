"""list, delete, prune, copy: exact, across threads, in short steps that can be broken off and asked for again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.base import CheckpointTuple

from rtmem import settings as all_settings
from rtmem.errors import CorruptRecordError, InvalidRequestError, RunInProgressError, ServerUnavailableError
from rtmem.operations import histories
from rtmem.operations.checkpoints import sweep
from rtmem.operations.functions import call
from rtmem.operations.places import thread_place
from rtmem.steps import Batch
from tests.checkpoint.colours import AnySaver, Fuse, Meter, Savers, inspect, run, watch
from tests.checkpoint.talks import at, grow, message, put, same

BIG = "x" * 70_000


def ids(found: Any) -> list[str]:
    return [tuple_.checkpoint["id"] for tuple_ in found]


# list ----------------------------------------------------------------------------------------------------------------


def talk(saver: AnySaver, thread_id: str, metadata: list[dict[str, Any]], ns: str = "") -> list[CheckpointTuple]:
    """A chain of checkpoints with these metadata, newest first."""
    config, before = at(thread_id, ns), None
    made: list[CheckpointTuple] = []
    for number, more in enumerate(metadata):
        done = put(saver, config, {"messages": [message(k) for k in range(number)], "n": number}, before, more)
        made.insert(0, done)
        config, before = done.config, done.checkpoint
    return made


def test_list_is_newest_first_with_state_writes_parents_and_metadata(savers: Savers) -> None:
    with savers.open(settings=all_settings.Checkpoint(page_size=2)) as saver:
        made = talk(saver, "t", [{"k": k} for k in range(7)])
        saver.put_writes(made[3].config, [("a", 1)], "task")
        made[3] = made[3]._replace(pending_writes=[("task", "a", 1)])
        found = [*saver.list(at("t"))]
        assert len(found) == 7
        assert all(same(one, wanted) for one, wanted in zip(found, made, strict=True))


def test_list_before_and_limit_count_from_the_newest_and_work_together(savers: Savers) -> None:
    with savers.open(settings=all_settings.Checkpoint(page_size=2)) as saver:
        made = talk(saver, "t", [{"k": k} for k in range(7)])
        for place in range(7):
            before = made[place].config
            assert [*saver.list(at("t"), before=before)] == made[place + 1 :]
            assert [*saver.list(at("t"), before=before, limit=2)] == made[place + 1 : place + 3]
        assert [*saver.list(at("t"), limit=3)] == made[:3]
        assert [*saver.list(at("t"), limit=0)] == []
        assert [*saver.list(at("t"), before=at("t", "", "0"))] == []
        assert [*saver.list(made[2].config)] == [made[2]]
        assert [*saver.list(made[2].config, before=made[2].config)] == []
        assert [*saver.list(made[2].config, before=made[1].config)] == [made[2]]


def test_list_filters_on_any_metadata_key_and_type(savers: Savers) -> None:
    values: list[Any] = ["text", "Text", "", 1, 1.5, True, None, [1, "a"], {"deep": {"er": 1}}, "ü☃", "7", 7]
    with savers.open(settings=all_settings.Checkpoint(page_size=3)) as saver:
        made = talk(saver, "t", [{"a key: {*}": value, "step": k} for k, value in enumerate(values)])
        for value in values:
            wanted = [one for one in made if one.metadata["a key: {*}"] == value]  # type: ignore[typeddict-item]
            assert [*saver.list(at("t"), filter={"a key: {*}": value})] == wanted
            assert [*saver.list(at("t"), filter={"a key: {*}": value}, limit=1)] == wanted[:1]
        assert ids(saver.list(at("t"), filter={"a key: {*}": "text", "step": 0})) == ids(made[-1:])
        assert [*saver.list(at("t"), filter={"a key: {*}": "text", "step": 1})] == []
        assert [*saver.list(at("t"), filter={"no such key": "text"})] == []
        assert [*saver.list(at("t"), filter={"no such key": None})] == made  # as InMemorySaver answers


def test_list_namespaces_are_exact_and_none_named_means_all(savers: Savers) -> None:
    with savers.open() as saver:
        made = {ns: talk(saver, "t", [{"k": 1}, {"k": 2}], ns) for ns in ("", "a", "a|b", "b", "A", "a\0b", "\0a")}
        for ns, tuples in made.items():
            assert [*saver.list(at("t", ns))] == tuples
            assert same(saver.get_tuple(at("t", ns)), tuples[0])
        everything = [*saver.list({"configurable": {"thread_id": "t"}})]
        assert len(everything) == 2 * len(made)
        assert sorted(ids(everything), reverse=True) == ids(everything)


def test_list_without_config_goes_through_all_threads_also_more_than_a_page_of_them(savers: Savers) -> None:
    with savers.open() as saver, savers.open(shallow=True) as shallow:
        made = [put((saver, shallow)[k % 2], at(f"t{k:03}"), {"n": k}, metadata={"k": k % 2}) for k in range(230)]
        assert [*saver.list(None)] == made
        assert [*shallow.list(None, filter={"k": 1}, limit=30)] == made[1:61:2]
        assert [*saver.list({"configurable": {}}, limit=3)] == made[:3]


def test_a_thread_that_expired_leaves_the_list_and_returns_with_its_next_put(savers: Savers) -> None:
    with savers.open() as saver, savers.open() as other:
        put(saver, at("t"), {"n": 1}, metadata={"run_id": "r"})
        keys = saver.scope.keys.thread("", "t")
        savers.client.unlink(keys.checkpoints, keys.index)
        assert [*other.list(None)] == []
        assert savers.client.zcard("rtmem:threads:") == 0
        # The first saver believes that the thread is in the indexes already.
        again = put(saver, at("t"), {"n": 2}, metadata={"run_id": "r"})
        assert [*other.list(None)] == [again]
        other.delete_thread("t")
        third = put(saver, at("t"), {"n": 3}, metadata={"run_id": "r"})
        assert [*other.list(None)] == [third]
        other.delete_for_runs(["r"])
        assert saver.get_tuple(at("t")) is None


def test_a_lost_index_of_threads_is_built_anew_from_the_threads(savers: Savers) -> None:
    names = ["plain", "{*}", "a/b", "\0", "ü", "tenant/x"]
    with savers.open() as saver:
        for name in names:
            put(saver, at(name), {"n": 1})
        with savers.open(principal="someone") as foreign:
            put(foreign, at("foreign"), {"n": 1})
        savers.client.delete("rtmem:threads:")
        assert [*saver.list(None)] == []
        assert saver.rebuild_index() == len(names)
        assert {found.config["configurable"]["thread_id"] for found in saver.list(None)} == set(names)


def test_a_lost_index_of_runs_is_built_anew_from_the_threads(savers: Savers) -> None:
    with savers.open() as saver:
        for name in ("one", "two"):
            put(saver, at(name), {"n": 1}, metadata={"run_id": f"run {name}"})
        savers.client.delete(*(saver.scope.keys.run("", f"run {name}") for name in ("one", "two")))
        saver.delete_for_runs(["run one"])
        assert saver.get_tuple(at("one")) is not None  # nobody knew where that run had written
        saver.rebuild_index()
        saver.delete_for_runs(["run one"])
        assert saver.get_tuple(at("one")) is None
        assert saver.get_tuple(at("two")) is not None


def test_a_checkpoint_whose_large_value_is_gone_is_an_error_and_not_skipped(savers: Savers) -> None:
    with savers.open() as saver, savers.open() as cold:
        done = put(saver, at("t"), {"big": BIG})
        key = saver.scope.keys.thread("", "t").checkpoints
        numbers = [name for name in savers.client.hkeys(key) if name.isdigit()]
        savers.client.hdel(key, *numbers)
        reads: list[Callable[[], Any]] = [
            lambda: cold.get_tuple(at("t")),
            lambda: cold.get_tuple(done.config),
            lambda: [*cold.list(at("t"))],
            lambda: cold.copy_thread("t", "u"),
        ]
        for read in reads:
            with pytest.raises(CorruptRecordError, match="rtmem doctor threads"):
                read()


# delete, prune, copy -------------------------------------------------------------------------------------------------


def test_delete_thread_leaves_only_its_tombstone_however_many_keys_and_other_threads(savers: Savers) -> None:
    with savers.open() as saver:
        grow(saver, "t", 30)
        kept = put(saver, at("t2"), {"n": 1})
        saver.delete_thread("t")
        assert sorted(savers.client.keys("*")) == [
            b"rtmem:t:{/t2}:c", b"rtmem:t:{/t2}:i", b"rtmem:t:{/t}:d", b"rtmem:threads:",
        ]  # fmt: skip
        assert [*saver.list(None)] == [kept]


def test_delete_for_runs_takes_only_their_checkpoints_in_every_thread(savers: Savers) -> None:
    with savers.open() as saver:
        a = talk(saver, "a", [{"run_id": "r1"}, {"run_id": "r2"}, {"run_id": "r1"}])
        b = talk(saver, "b", [{"run_id": "r2"}, {"run_id": "R1"}])
        saver.delete_for_runs(["r1", "unknown"])
        assert [*saver.list(at("a"))] == [a[1]]
        assert same(saver.get_tuple(at("a")), a[1])
        assert [*saver.list(at("b"))] == b
        saver.delete_for_runs(["r2", "R1"])
        assert [*saver.list(None)] == []
        assert savers.client.keys("*t:*") == []


def test_prune_keeps_the_latest_of_each_namespace_with_its_writes(savers: Savers) -> None:
    with savers.open() as saver:
        config, sub = grow(saver, "t", 10), grow(saver, "t", 5, "sub")
        before = [saver.get_tuple(config), saver.get_tuple(sub)]
        saver.prune(["t", "unknown"])
        assert [*saver.list({"configurable": {"thread_id": "t"}})] == before[::-1]
        report = inspect(saver, "t")
        assert report.problems == []
        assert report.garbage == 0
        # 10 and 5 messages; what they share between steps was kept, everything else has gone.
        assert report.pieces == report.references
        saver.prune(["t"], strategy="delete")
        assert saver.get_tuple(at("t")) is None
        with pytest.raises(InvalidRequestError, match="keep_latest"):
            saver.prune(["t"], strategy="keep_some")
        with pytest.raises(TypeError, match="thread_ids"):
            saver.prune("t")


def test_a_copy_equals_its_source_shares_as_much_and_lives_on_its_own(savers: Savers) -> None:
    with savers.open() as saver:
        grow(saver, "t", 12)
        config = grow(saver, "t", 3, "sub")
        last = put(saver, config, {"messages": [message(1, 70_000)], "big": BIG}, saver.get(config))
        saver.copy_thread("t", "u")

        def moved(thread_id: str) -> list[str]:
            everything: Any = {"configurable": {"thread_id": thread_id}}
            return [repr(one).replace(f"'thread_id': '{thread_id}'", "") for one in saver.list(everything)]

        assert moved("t") == moved("u")
        source, target = inspect(saver, "t"), inspect(saver, "u")
        assert source.problems == target.problems == []
        assert target.garbage == 0
        assert (target.pieces, target.references) == (source.pieces, source.references)
        wanted = moved("u")
        saver.delete_thread("t")
        assert moved("u") == wanted
        found = saver.get_tuple(at("u", "sub"))
        assert found is not None
        assert found.checkpoint == last.checkpoint
        put(saver, found.config, {"messages": [message(2)]}, found.checkpoint)
        assert inspect(saver, "u").problems == []


def test_a_copy_onto_a_shallow_thread_is_tidied_by_its_next_put(savers: Savers) -> None:
    with savers.open() as full, savers.open(shallow=True) as shallow:
        grow(full, "t", 4)
        put(shallow, at("s"), {"n": 1})
        full.copy_thread("t", "s")
        found = full.get_tuple(at("s"))
        assert found is not None
        last = put(shallow, found.config, {"n": 2}, found.checkpoint)
        assert [*shallow.list(at("s"))] == [last]
        report = inspect(shallow, "s")
        assert report.problems == []
        assert report.pieces == report.garbage == 0


def copying(saver: AnySaver) -> None:
    saver.copy_thread("t", "u")


def pruning(saver: AnySaver) -> None:
    saver.prune(["t"])


def deleting(saver: AnySaver) -> None:
    saver.delete_for_runs(["r1"])


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("job", [copying, pruning, deleting])
def test_a_job_broken_off_at_any_step_and_asked_for_again_ends_as_if_it_never_was(
    savers: Savers, job: Callable[[AnySaver], None], after: bool
) -> None:
    def prepare(saver: AnySaver) -> None:
        savers.client.flushall()
        for key, dump in stored.items():
            savers.client.restore(key, 0, dump)
        saver.scope.heads.forget_thread(saver.scope.keys.thread("", "t").checkpoints)
        saver.scope.indexed.clear()

    def talk(saver: AnySaver) -> None:
        config, before = at("t"), None
        messages: list[Any] = []
        for step in range(45):
            messages = [*messages, message(step, 70_000 if step == 30 else 40)]
            metadata = {"run_id": "r1" if step % 3 else "r2"}
            done = put(saver, config, {"messages": messages}, before, metadata)
            saver.put_writes(done.config, [("a", step)], "task")
            config, before = done.config, done.checkpoint

    def outcome(saver: AnySaver) -> list[Any]:
        everything: list[Any] = []
        for thread_id in ("t", "u"):
            report = inspect(saver, thread_id)
            assert report.problems == []
            assert report.garbage == 0
            everything.append((report.checkpoints, report.pieces, report.references, report.writes_bytes))
            everything.append(savers.client.zrange(saver.scope.keys.thread("", thread_id).index, 0, -1))
            found = saver.get_tuple(at(thread_id))
            everything.append(found and (found.checkpoint, found.parent_config, found.pending_writes))
        return everything

    with savers.open() as saver, savers.open() as witness:
        fuse = Fuse(saver)
        talk(saver)
        stored = {key: savers.client.dump(key) for key in savers.client.keys("*")}
        job(saver)
        wanted = outcome(witness)
        for nth in range(60):
            prepare(saver)
            fuse.set(nth, after=after)
            try:
                job(saver)
            except ServerUnavailableError:
                # In between, everything that is there is whole; what waits to be freed is known as garbage.
                for thread_id in ("t", "u"):
                    assert inspect(witness, thread_id).problems == []
                job(saver)
            assert outcome(witness) == wanted
            if not fuse.blown:
                break
        else:
            raise AssertionError("the job takes more than 60 round trips")


@pytest.mark.parametrize("savers", ["blocking-resp3-modules"], indirect=True)
def test_long_threads_are_worked_off_in_short_steps(savers: Savers) -> None:
    """2,000 checkpoints: no call reads more than 100 records or deletes more than 50, whatever the verb."""
    with savers.open() as saver:
        config, before = at("t"), None
        messages: list[Any] = []
        for step in range(2_000):
            messages = [*messages[-20:], {"n": step}]
            metadata = {"run_id": "odd" if step % 2 else "even"}
            done = put(saver, config, {"messages": messages}, before, metadata)
            config, before = done.config, done.checkpoint
        savers.client.config_set("slowlog-log-slower-than", 3_000)
        savers.client.slowlog_reset()
        work = Work(savers)
        meter = Meter(saver)
        saver.copy_thread("t", "u")
        work.check("copy_thread", meter, records_max=20)
        saver.delete_for_runs(["odd"])
        work.check("delete_for_runs", meter, records_max=100)
        assert len([*saver.list(at("t"), limit=5)]) == 5
        meter.take()
        saver.prune(["u"])
        work.check("prune", meter, records_max=100)
        slow = [(entry["command"][:40], entry["duration"]) for entry in savers.client.slowlog_get(20)]
        print(f"calls of more than 3 ms of server time: {slow}")
        for thread_id, count in (("t", 1_000), ("u", 1)):
            report = inspect(saver, thread_id)
            assert report.problems == []
            assert report.checkpoints == {"": count}


class Work:
    """What single calls did at the server, by its own count of commands."""

    def __init__(self, savers: Savers) -> None:
        self._client = savers.client

    def check(self, verb: str, meter: Meter, *, records_max: int) -> None:
        """Every FCALL since the last check was small: by its arguments, and on average by the commands it ran."""
        calls = [command for batch in meter.batches for command in batch.commands if command[0] == "FCALL"]
        meter.take()
        members_max = max(sum(isinstance(part, bytes) and b"\0" in part for part in call[6:]) for call in calls)
        assert members_max <= 50 + 3 * 20, f"{verb}: one call names {members_max} checkpoints"
        stats = self._client.info("commandstats")
        hgets = stats.get("cmdstat_hget", {}).get("calls", 0)
        assert hgets <= len(calls) * (records_max * 3 + 20), f"{verb}: {hgets} reads in {len(calls)} calls"
        self._client.config_resetstat()


def blocking(savers: Savers) -> Any:
    """A saver that works also inside the event loop of an awaiting one, where its requests are watched."""
    return savers.open(awaiting=False, allow_in_loop=True)


@pytest.mark.parametrize("with_sweeps", [False, True])
@pytest.mark.parametrize("job", [copying, pruning, deleting])
def test_writes_and_sweeps_between_any_two_steps_of_a_job_lose_nothing(
    savers: Savers, job: Callable[[AnySaver], None], with_sweeps: bool
) -> None:
    """Another saver goes on with both threads all the while, on top of pieces that the job may be about to free."""
    with savers.open() as saver, blocking(savers) as other, savers.open() as witness:
        for thread_id in ("t", "u"):
            config, before = at(thread_id), None
            messages: list[Any] = []
            for step in range(230):
                messages = [*messages[-8:], message(step, 70_000 if step == 225 else 40)]
                done = put(other, config, {"messages": messages}, before, {"run_id": f"r{step % 2}"})
                config, before = done.config, done.checkpoint
        latest: dict[str, CheckpointTuple] = {}
        rounds = 0

        def interfere(request: Any) -> None:
            nonlocal rounds
            if not isinstance(request, Batch) or rounds > 24:
                return
            rounds += 1
            for thread_id in ("t", "u"):
                found = other.get_tuple(at(thread_id))
                assert found is not None
                values = found.checkpoint["channel_values"]
                values["messages"] = [*values["messages"][rounds % 3 :], message(1_000 + rounds)]
                latest[thread_id] = put(other, found.config, values, found.checkpoint, {"run_id": "going on"})
            if with_sweeps and rounds % 4 == 0:
                run(other, histories.prune(other.scope, "u", "keep_latest"))

        watch(saver, interfere)
        job(saver)
        assert rounds > 3
        for thread_id, wanted in latest.items():
            if job is not copying or thread_id == "t":
                assert same(witness.get_tuple(at(thread_id)), wanted)
            assert same(witness.get_tuple(wanted.config), wanted)
            assert inspect(witness, thread_id).problems == []
            witness.prune([thread_id])
            report = inspect(witness, thread_id)
            assert report.problems == []
            assert report.garbage == 0


def test_a_copy_to_a_thread_that_is_swept_again_and_again_gives_up_and_leaves_nothing(savers: Savers) -> None:
    with savers.open() as saver, blocking(savers) as other:
        grow(saver, "t", 45)
        kept = put(other, at("u"), {"n": 1})

        def interfere(request: Any) -> None:
            if isinstance(request, Batch) and any(
                "rtmem_v2_checkpoint_import" in command for command in request.commands
            ):
                run(other, histories.prune(other.scope, "u", "keep_latest"))

        watch(saver, interfere)
        with pytest.raises(RunInProgressError, match="again and again"):
            saver.copy_thread("t", "u")
        other.prune(["u"])
        assert [*other.list(at("u"))] == [kept]
        report = inspect(other, "u")
        assert report.problems == []
        assert report.pieces == 0


def test_a_put_with_an_older_id_keeps_its_pieces_though_a_sweep_has_passed_its_place(savers: Savers) -> None:
    with savers.open() as saver:
        shared = "s" * 500
        names = [f"{number:04}" for number in range(150)]
        done: dict[str, CheckpointTuple] = {}
        config, before = at("t"), None
        for name in names:
            values = {"shared": shared} if int(name) >= 120 else {"n": int(name)}
            done[name] = put(saver, config, values, before, checkpoint_id=name)
            config, before = done[name].config, done[name].checkpoint
        # One that refers to the shared piece goes: the piece is trash unless another one refers to it.
        place = thread_place(saver.scope, "t")
        forgotten = [name.encode() + b"\0" for name in names[120:]]
        run(saver, call("rtmem_v2_checkpoint_forget", place.function_keys, ("", *forgotten[:1])))
        more, _ = run(saver, call("rtmem_v2_checkpoint_sweep", place.function_keys, ()))
        assert more == 1  # the first hundred are read
        # Now a late one with an old id takes the piece over from the newest, and all that the sweep has yet to read go.
        late = put(saver, done["0149"].config, {"shared": shared}, done["0149"].checkpoint, checkpoint_id="0050a")
        run(saver, call("rtmem_v2_checkpoint_forget", place.function_keys, ("", *forgotten[1:])))
        run(saver, sweep(saver.scope, place))
        assert inspect(saver, "t").problems == []
        with savers.open() as cold:
            assert same(cold.get_tuple(late.config), late)
