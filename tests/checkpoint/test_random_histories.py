"""Whatever is done in whatever order, by savers of both colours, with warm and cold memories: as on plain dicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.base.id import uuid6

from rtmem import settings as all_settings
from rtmem.errors import ServerUnavailableError
from rtmem.operations import pointer_inspection, pointer_lifetimes
from rtmem.operations.pointer_lifetimes import scope_of
from rtmem.operations.pointers import usage
from tests.checkpoint.colours import AnySaver, Fuse, Savers, inspect, run
from tests.checkpoint.talks import at, checkpoint_of, message, same
from tests.reference import Reference

FULL_THREADS, SHALLOW_THREADS, NAMESPACES = ("a", "A"), ("s",), ("", "sub|1")
TASKS = (("t1", "~b"), ("t2", "~a"), ("t3", "~a"))
CHANNELS = ("messages", "step", "blob", "notes", "__interrupt__", "__resume__")
_examples = count()
FUSES: dict[int, Fuse] = {}

# What to do, and three numbers that choose among what is there at that moment.
Step = tuple[str, int, int, int]
ACTIONS = (
    ["put"] * 8
    + ["writes"] * 4
    + ["fork", "again", "late", "early", "read", "list", "shallow"] * 2
    + ["prune", "delete", "copy", "run", "expire", "delta", "delta", "sweep"]
)
BREAKABLE = ("put", "writes", "prune", "copy", "run", "delete", "shallow", "again")
# An action of this name breaks at the n-th round trip, before the server has done it or after, and is asked for again.
ACTIONS += [f"broken {action}" for action in BREAKABLE]
steps = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, 7), st.integers(0, 11), st.integers(0, 11)), max_size=25
)

# A copy of a copy replaces the thread, with the same checkpoints and other numbers of their pieces, behind the back of
# a saver that remembers it.
COPIED_BACK: list[Step] = [("put", 1, 9, 7), ("broken copy", 7, 2, 11), ("copy", 6, 3, 7), ("put", 1, 6, 9)]


@dataclass
class World:
    """Some savers on one server, and what should be there."""

    full: list[AnySaver]
    shallow: list[AnySaver]
    client: Any
    tag: str
    reference: Reference = field(default_factory=Reference)
    spare_ids: dict[str, list[str]] = field(default_factory=dict)
    fuses: dict[int, Fuse] = field(default_factory=dict)  # by id() of the saver
    break_at: tuple[int, bool] | None = None

    def do(self, saver: AnySaver, change: Callable[[], Any]) -> None:
        """Change something; in a broken action, once until it breaks and then again."""
        if self.break_at is not None:
            fuse = self.fuses[id(saver)]
            fuse.set(self.break_at[0], after=self.break_at[1])
            with suppress(ServerUnavailableError):
                change()
            fuse.left = -1
        change()

    def saver(self, thread: str, which: int) -> AnySaver:
        savers = self.shallow if thread.startswith("s") else self.full
        return savers[which % len(savers)]

    def name(self, thread: str) -> str:
        return f"{self.tag}:{thread}"

    def spare(self, thread: str) -> str:
        """An id that is older than what comes next."""
        ids = self.spare_ids.setdefault(thread, [])
        ids.append(str(uuid6()))
        return ids.pop(0) if len(ids) > 1 else str(uuid6())

    def put(
        self, saver: AnySaver, thread: str, ns: str, edit: int, parent_id: str | None, own_id: str | None = None,
        delta: bool = False,
    ) -> None:  # fmt: skip
        """A super-step on top of `parent_id`, of the state as the saver itself hands it out."""
        name = self.name(thread)
        found = saver.get_tuple(at(name, ns, parent_id)) if parent_id else None
        values: dict[str, Any] = found.checkpoint["channel_values"] if found else {"messages": [message(0)], "step": 1}
        changed = change(values, edit)
        counters: dict[str, Any] = {**found.metadata.get("counters_since_delta_snapshot", {})} if found else {}
        if delta or counters:
            counters["delta"] = [0, 0]
            changed.add("delta")
            values.pop("delta", None)
            if edit % 4 == 0 or found is None:
                values["delta"] = {"snapshot": edit}
        absent = ("delta",) if counters and "delta" not in values else ()
        checkpoint, new = checkpoint_of(
            saver, values, found.checkpoint if found else None, changed=changed, checkpoint_id=own_id, absent=absent
        )
        metadata: Any = {"source": "loop", "step": edit, "run_id": f"{self.tag}-run-{edit % 3}"}
        if counters:
            metadata["counters_since_delta_snapshot"] = counters
        self.reference.put(name, ns, found and parent_id, checkpoint, metadata, shallow=saver.shallow)
        config = at(name, ns, parent_id) if found else at(name, ns)
        self.do(saver, lambda: saver.put(config, checkpoint, metadata, new))
        # What the caller does with its objects afterwards is its own business.
        values["step"] = "changed after the put"
        if isinstance(values.get("messages"), list) and values["messages"]:
            values["messages"][0].additional_kwargs["late"] = "change"

    def apply(self, step: Step) -> None:
        action, which, a, b = step
        if action.startswith("broken "):
            action, self.break_at = action.removeprefix("broken "), (b % 5, a % 2 == 0)
            self.apply((action, which, a, b))
            self.break_at = None
            return
        thread = (*FULL_THREADS, *SHALLOW_THREADS)[a % 3]
        if action in ("fork", "prune", "copy", "delta", "late"):
            thread = FULL_THREADS[a % 2]
        name, ns = self.name(thread), NAMESPACES[b % 3 == 2]
        saver = self.saver(thread, which)
        keys = sorted(key for key in self.reference.of(name))
        mine = [key for key in keys if key[1] == ns]
        key = mine[b % len(mine)] if mine else None
        latest = self.reference.latest(name, ns)
        if action in ("put", "delta"):
            self.put(saver, thread, ns, b, latest, delta=action == "delta")
        elif action == "fork":
            self.put(saver, thread, ns, b, key and key[0])
        elif action == "again" and key:
            self.put(saver, thread, ns, b, self.reference.of(name)[key].parent_id, own_id=key[0])
        elif action == "late":
            self.put(saver, thread, ns, b, None, own_id=self.spare(thread))
        elif action == "writes" and key:
            self.put_writes(saver, name, key, a, b)
        elif action == "early":
            own = str(uuid6())
            task_id, path = TASKS[a % 3]
            saver.put_writes(at(name, ns, own), [("step", a)], task_id, path)
            self.put(saver, thread, ns, b, latest, own_id=own)
            self.reference.put_writes(name, (own, ns), [("step", a)], task_id, path)
        elif action == "read":
            self.check_read(saver, name, ns, key)
        elif action == "list":
            assert_same_list(saver, self.reference, name)
        elif action == "shallow":
            self.put(self.shallow[which % len(self.shallow)], thread, ns, b, latest)
        elif action == "prune":
            self.do(saver, lambda: saver.prune([name]))
            self.reference.prune(name)
        elif action == "delete":
            self.do(saver, lambda: saver.delete_thread(name))
            self.reference.threads.pop(name, None)
            self.spare_ids.pop(thread, None)
        elif action == "copy":
            target = FULL_THREADS[(a + 1) % 2]
            self.do(saver, lambda: saver.copy_thread(name, self.name(target)))
            self.reference.copy(name, self.name(target))
        elif action == "run":
            self.do(saver, lambda: saver.delete_for_runs([f"{self.tag}-run-{b % 3}"]))
            self.reference.delete_run(f"{self.tag}-run-{b % 3}")
        elif action == "sweep":
            run(saver, pointer_lifetimes.sweep(scope_of(saver.scope)))
        elif action == "expire":
            keys_of = saver.scope.keys.thread("", name)
            self.client.unlink(keys_of.checkpoints, keys_of.index)
            self.reference.threads.pop(name, None)

    def put_writes(self, saver: AnySaver, name: str, key: tuple[str, str], a: int, b: int) -> None:
        task_id, path = TASKS[a % 3]
        writes: list[tuple[str, Any]] = [(CHANNELS[(a + k) % len(CHANNELS)], [a, b, k]) for k in range(1 + b % 3)]
        self.do(saver, lambda: saver.put_writes(at(name, key[1], key[0]), writes, task_id, path))
        self.reference.put_writes(name, key, writes, task_id, path)

    def check_read(self, saver: AnySaver, name: str, ns: str, key: tuple[str, str] | None) -> None:
        assert_same(saver, self.reference, name, ns)
        if key:
            assert_same(saver, self.reference, name, ns, key[0])

    def check_everything(self) -> None:
        for thread in (*FULL_THREADS, *SHALLOW_THREADS):
            name = self.name(thread)
            for saver in (*self.full, *self.shallow):
                for ns in NAMESPACES:
                    assert_same(saver, self.reference, name, ns)
                assert_same_list(saver, self.reference, name)
            report = inspect(self.full[0], name)
            assert report.problems == []
            assert sum(report.checkpoints.values()) == len(self.reference.of(name))
            if self.reference.of(name) and not thread.startswith("s"):
                config = at(name)
                ours = self.full[0].get_delta_channel_history(config=config, channels=["delta"])
                assert ours == BaseCheckpointSaver.get_delta_channel_history(
                    self.full[-1], config=config, channels=["delta"]
                )
        listed = {found.config["configurable"]["thread_id"] for found in self.full[0].list(None)}
        alive = {name for name, thread in self.reference.threads.items() if thread}
        assert {name for name in listed if name.startswith(self.tag)} == alive

    def check_pointers(self) -> None:
        """What lies at pointers fits together, nothing is left over after a sweep, and nothing after the threads."""
        saver, names = self.full[0], [self.name(thread) for thread in (*FULL_THREADS, *SHALLOW_THREADS)]
        pointers = scope_of(saver.scope)
        until(lambda: [inspect(saver, name).unneeded for name in names], [0, 0, 0], sweeping=(saver, pointers))
        assert run(saver, pointer_inspection.inspect(pointers)).sound
        assert all(inspect(saver, name).problems == [] for name in names)
        for name in names:
            saver.delete_thread(name)
        until(lambda: run(saver, usage(pointers)).pointers, 0, sweeping=(saver, pointers))
        assert run(saver, pointer_inspection.inspect(pointers)).sound


def until(look: Callable[[], Any], wanted: Any, sweeping: tuple[AnySaver, Any]) -> None:
    """Sweep until `look` finds what is wanted: what was pinned within the last millisecond is not looked at yet."""
    deadline = time.monotonic() + 60
    while True:
        run(sweeping[0], pointer_lifetimes.sweep(sweeping[1]))
        if (found := look()) == wanted:
            return
        assert time.monotonic() < deadline, found


def change(values: dict[str, Any], edit: int) -> set[str]:
    """Change a state in one of the ways that graphs do; answers the channels that changed."""
    messages = values["messages"] = list(values.get("messages", ()))
    values["step"] = (edit, float(edit), bool(edit % 2), None, "text", {"1": 1})[edit % 6]
    if edit == 0 and messages:
        messages.pop(0)
    elif edit == 1:
        messages.reverse()
    elif edit == 2 and messages:
        messages.append(deepcopy(messages[0]))
    elif edit == 3 and messages:
        messages[len(messages) // 2].additional_kwargs.setdefault("n", {})["in place"] = [edit, {"deep": 1}]
    elif edit == 4:
        messages.append(message(99, 70_000))  # a piece of 64 KB or more
    elif edit == 5:
        values["blob"] = "y" * 70_000
    elif edit == 6:
        values.pop("blob", None)
        values["notes"] = [{"k": 1}, {"k": True}, {"k": 1.0}, "text", 3]
    elif edit == 7 and "notes" in values:
        values["notes"] = [*values["notes"][1:], {"b": 1, "a": 2}]
    else:
        messages += [message(len(messages) + k) for k in range(edit - 6)]
    return {"messages", "step", *({"blob", "notes"} & values.keys() if edit in (5, 6, 7) else ())}


def assert_same(saver: AnySaver, reference: Reference, name: str, ns: str, checkpoint_id: str | None = None) -> None:
    found, wanted = saver.get_tuple(at(name, ns, checkpoint_id)), reference.get(name, ns, checkpoint_id)
    assert found == wanted
    assert same(found, wanted)


def assert_same_list(saver: AnySaver, reference: Reference, name: str) -> None:
    assert list(saver.list({"configurable": {"thread_id": name}})) == reference.list(name)


@pytest.fixture(params=["in threads", "at pointers"])
def worlds(
    savers: Savers, request: pytest.FixtureRequest
) -> Iterator[tuple[list[AnySaver], list[AnySaver], Savers, bool]]:
    cold = all_settings.Checkpoint(cache_bytes_max=0, page_size=3, piece_bytes_min=200)
    # Everything, large values, or nothing is moved out, by savers that work on the same threads.
    at_pointers = request.param == "at pointers"
    everything, large = (1, 1_000) if at_pointers else (0, 0)
    brief = all_settings.Pointers(grace_ms=1, chunk_bytes=16_384, batch_bytes=32_768)
    with ExitStack() as stack:

        def opened(offload_bytes_min: int = 0, **options: Any) -> AnySaver:
            return stack.enter_context(savers.open(offload_bytes_min=offload_bytes_min, pointers=brief, **options))

        full = [opened(everything), opened(awaiting=not savers.awaiting), opened(large, settings=cold)]
        shallow = [opened(large, shallow=True), opened(everything, shallow=True, settings=cold)]
        FUSES.clear()
        FUSES.update({id(saver): Fuse(saver) for saver in (*full, *shallow)})
        yield full, shallow, savers, at_pointers


@settings(max_examples=50, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(steps=COPIED_BACK)
@given(steps=steps)
def test_any_history_reads_as_on_plain_dicts_and_leaves_no_damage(
    worlds: tuple[list[AnySaver], list[AnySaver], Savers, bool], steps: list[Step]
) -> None:
    full, shallow, savers, at_pointers = worlds
    world = World(full, shallow, savers.client, f"history-{next(_examples)}", fuses=FUSES)
    for step in steps:
        world.apply(step)
    world.check_everything()
    if at_pointers:
        world.check_pointers()
