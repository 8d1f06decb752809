"""The proof of a write, driven by hand: what is asked, and which answers are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rtmem.errors import (
    CommandError,
    ConfigError,
    DeadlineExceededError,
    NotDurableError,
    PermissionDeniedError,
    PersistenceError,
    RtmemError,
    ServerFullError,
    ServerTooOldError,
)
from rtmem.operations.durability import durably
from rtmem.operations.durability_proof import Promise, look, prepare
from rtmem.settings import Ack
from rtmem.steps import Batch, Command, Shared, Steps


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def promise(ack: Ack = "fsync", **options: Any) -> Promise:
    return Promise(ack, options.pop("replicas", 1), options.pop("timeout_ms", 1_000), "b", **options)


def info(
    run: str = "r1",
    replid: str = "p1",
    *,
    status: str = "ok",
    pending: int = 0,
    aof: int = 1,
    rewrites: int = 0,
    rewriting: int = 0,
    rewritten: str = "ok",
    connected: int = 0,
) -> bytes:
    lines = [
        "# Server",
        f"run_id:{run}",
        f"master_replid:{replid}",
        f"aof_enabled:{aof}",
        f"aof_last_write_status:{status}",
        f"aof_pending_bio_fsync:{pending}",
        f"aof_rewrites:{rewrites}",
        f"aof_rewrite_in_progress:{rewriting}",
        "aof_rewrite_scheduled:0",
        f"aof_last_bgrewrite_status:{rewritten}",
        f"connected_slaves:{connected}",
    ]
    return "\r\n".join(lines).encode()


def write() -> Steps[list[Any]]:
    return (yield Batch((("SET", "k", 1), ("GET", "k")), atomic=True))


class Exchange:
    """Answers what an operation asks for, from a script: replies, or an error, for each batch in turn."""

    def __init__(
        self, clock: Clock, *script: list[Any] | RtmemError | Callable[[], list[Any]], step_s: float = 0.01
    ) -> None:
        self.asked: list[Batch] = []
        self._clock = clock
        self._script = list(script)
        self._step_s = step_s

    def run(self, steps: Steps[Any]) -> Any:
        try:
            request = next(steps)
            while True:
                try:
                    replies = self._answer(request)
                except RtmemError as exc:
                    request = steps.throw(exc)
                else:
                    request = steps.send(replies)
        except StopIteration as stop:
            return stop.value

    def _answer(self, request: Any) -> list[Any]:
        if isinstance(request, Shared):
            return [self.run(request.steps())]
        self.asked.append(request)
        self._clock.now_s += self._step_s
        replies = self._script.pop(0)
        if isinstance(replies, RtmemError):
            raise replies
        if callable(replies):  # something else happens before this answer comes
            replies = replies()
        if len(replies) == len(request.commands) - 1:  # what INFO said before the barrier, unless the script tells it
            replies = [replies[0], replies[-1], *replies[1:]]
        assert len(replies) == len(request.commands), request.commands
        return replies

    def commands(self) -> list[Command]:
        return [command for batch in self.asked for command in batch.commands]


ABLE: list[list[Any]] = [[[0, 0], info()], [[b"appendfsync", b"everysec"]]]
WRITTEN: list[Any] = [b"OK", b"1", info()]


def prove(*script: list[Any] | RtmemError, ack: Ack = "fsync", step_s: float = 0.01, **options: Any) -> Exchange:
    """Run a durable write up to the end; it was written, and `script` answers the proof."""
    clock = Clock()
    exchange = Exchange(clock, *ABLE, WRITTEN, *script, step_s=step_s)
    assert exchange.run(durably(write(), promise(ack, clock=clock, **options))) == [b"OK", b"1"]
    return exchange


def test_memory_asks_for_nothing_more() -> None:
    exchange = Exchange(Clock(), [b"OK", b"1"])
    assert exchange.run(durably(write(), promise("memory"))) == [b"OK", b"1"]
    assert exchange.commands() == [("SET", "k", 1), ("GET", "k")]


def test_a_proof_writes_first_and_waits_on_a_lane_of_its_own() -> None:
    exchange = prove([7, b"OK", [0, 0], info()], [7, [1, 0], info()])
    *_, first, second = exchange.asked
    assert [command[0] for command in first.commands] == ["CLIENT", "INFO", "SET", "WAITAOF", "INFO"]
    assert [command[0] for command in second.commands] == ["CLIENT", "WAITAOF", "INFO"]
    assert first.commands[2][3] == "PX"  # no garbage
    assert {first.lane, second.lane} == {"durable"}


def test_on_another_connection_it_writes_again() -> None:
    # There WAITAOF has nothing to wait for and says 1 at once.
    exchange = prove([7, b"OK", [0, 0], info()], [8, [1, 0], info()], [8, b"OK", [1, 0], info()])
    assert [len(batch.commands) for batch in exchange.asked[-3:]] == [5, 3, 5]


def test_a_rewrite_that_begins_meanwhile_needs_a_barrier_in_the_new_file() -> None:
    # The new file has nothing to sync, so WAITAOF says 1, while the end of the old one is not synced yet.
    exchange = prove(
        [7, info(rewrites=3), b"OK", [1, 0], info(rewrites=4, rewriting=1)],
        [7, info(rewrites=4, rewriting=1), b"OK", [0, 0], info(rewrites=4, rewriting=1)],
        [7, [1, 0], info(rewrites=4)],
    )
    assert [command[0] for command in exchange.commands()].count("WAITAOF") == 4  # one of them asks what can be done


def test_a_rewrite_between_two_waits_needs_a_barrier_in_the_new_file() -> None:
    exchange = prove(
        [7, b"OK", [0, 0], info()],
        [7, [1, 0], info(rewrites=1)],
        [7, info(rewrites=1), b"OK", [1, 0], info(rewrites=1)],
    )
    assert [command[0] for command in exchange.asked[-1].commands] == ["CLIENT", "INFO", "SET", "WAITAOF", "INFO"]


def test_rewrites_without_end_are_no_proof() -> None:
    script = [[7, info(rewrites=n), b"OK", [1, 0], info(rewrites=n + 1)] for n in range(300)]
    with pytest.raises(NotDurableError, match="no fsync"):
        prove(*script)


def test_the_server_is_asked_once_what_it_can_do() -> None:
    clock = Clock()
    shared = promise(clock=clock)
    done = [7, b"OK", [1, 0], info()]
    exchange = Exchange(clock, *ABLE, WRITTEN, done, WRITTEN, done)
    for _ in range(2):
        exchange.run(durably(write(), shared))
    assert len(exchange.asked) == 6


@pytest.mark.parametrize(
    "proof",
    [
        pytest.param([[7, b"OK", [1, 0], info(run="r2")]], id="another process"),
        pytest.param([[7, b"OK", [1, 0], info(replid="p2")]], id="was a replica meanwhile"),
        pytest.param([[7, b"OK", [1, 0], info(status="err")]], id="failed fsync, WAITAOF says 1"),
        pytest.param(
            [[7, b"OK", [0, 0], info(status="err")], [7, [1, 0], info()], [b"started"]], id="failed, then forgotten"
        ),
        pytest.param([[7, b"OK", [0, 0], info()]] + [[7, [0, 0], info()]] * 200, id="timeout"),
        pytest.param([PersistenceError("MISCONF")], id="MISCONF"),
        pytest.param([ServerFullError("OOM")], id="no room for the barrier"),
        pytest.param([DeadlineExceededError("late")], id="no answer"),
        pytest.param([CommandError("ERR WAITAOF cannot be used when appendonly is disabled")], id="AOF went off"),
    ],
)
def test_less_than_promised_is_refused(proof: list[Any]) -> None:
    with pytest.raises(NotDurableError, match="executed and is readable") as raised:
        prove(*proof)
    assert raised.value.data["written"] is True


def test_a_proof_that_begins_after_another_has_broken_off_asks_again_what_the_server_can_do() -> None:
    clock = Clock()
    shared = promise(clock=clock)

    def write_while_another_proof_breaks_off() -> Steps[list[Any]]:
        replies = yield from write()
        shared.waits_for_disk = None
        return replies

    exchange = Exchange(clock, *ABLE, WRITTEN, *ABLE, [7, b"OK", [1, 0], info()])
    exchange.run(durably(write_while_another_proof_breaks_off(), shared))
    assert exchange.commands()[-2] == ("WAITAOF", 1, 0, 50)

    exchange = Exchange(clock, *ABLE, WRITTEN, [[0, 0], info(aof=0)])
    shared.waits_for_disk = None
    with pytest.raises(NotDurableError, match="keeps no AOF") as raised:
        exchange.run(durably(write_while_another_proof_breaks_off(), shared))
    assert "nothing was written" not in str(raised.value)


@pytest.mark.parametrize("synced", [True, False])
def test_a_proof_under_way_goes_on_when_another_one_breaks_off(synced: bool) -> None:
    clock = Clock()
    shared = promise(clock=clock)

    def another_breaks_off() -> list[Any]:
        shared.waits_for_disk = None
        return [7, b"OK", [0, 0], info()]

    exchange = Exchange(clock, *ABLE, WRITTEN, another_breaks_off, *[[7, [int(synced), 0], info()]] * 200)
    if synced:
        exchange.run(durably(write(), shared))
        return
    with pytest.raises(NotDurableError, match="no fsync has finished"):
        exchange.run(durably(write(), shared))


@pytest.mark.parametrize(("looks", "refused"), [(0, False), (1, False), (3, True), (9, True)])
def test_an_fsync_under_way_for_nearly_a_second_is_refused(looks: int, refused: bool) -> None:
    # 200 ms between looks. A failure at the end of a longer one would be forgotten before anybody looks.
    slow = [[7, [0, 0], info(pending=1)]] * looks
    script = [[7, b"OK", [0, 0], info(pending=1)], *slow, [7, [1, 0], info()]]
    if not refused:
        prove(*script, step_s=0.2, timeout_ms=10_000)
        return
    with pytest.raises(NotDurableError, match="would not have been noticed"):
        prove(*script, step_s=0.2, timeout_ms=10_000)


@pytest.mark.parametrize(
    ("now", "asked", "refused"),
    [
        (info(rewrites=5), True, True),
        (info(rewrites=5, rewriting=1), False, True),  # perhaps the one that had begun before
        (info(rewrites=6, rewriting=1), False, True),
        (info(rewrites=6, rewritten="err"), True, True),
        (info(rewrites=6), False, False),
    ],
)
def test_behind_a_failed_fsync_nothing_is_proved_until_the_log_was_written_anew(
    now: bytes, asked: bool, refused: bool
) -> None:
    clock = Clock()
    shared = promise(clock=clock)
    failed: list[Any] = [7, b"OK", [1, 0], info(status="err", rewrites=5)]
    with pytest.raises(NotDurableError, match="meanwhile"):
        Exchange(clock, *ABLE, WRITTEN, failed).run(durably(write(), shared))
    clock.now_s += 0.5
    exchange = Exchange(clock, WRITTEN, [7, b"OK", [1, 0], now], [b"started"])
    if refused:
        with pytest.raises(NotDurableError, match="hole"):
            exchange.run(durably(write(), shared))
    else:
        exchange.run(durably(write(), shared))
    assert (("BGREWRITEAOF",) in exchange.commands()) == asked


def test_quiet_looks_allow_any_length() -> None:
    quiet = [[7, [0, 0], info()]] * 20
    prove([7, b"OK", [0, 0], info()], *quiet, [7, [1, 0], info()], step_s=0.2, timeout_ms=10_000)


@pytest.mark.parametrize(("replicas", "enough"), [(1, False), (2, True)])
def test_replicas_are_counted(replicas: int, enough: bool) -> None:
    counted = [7, b"OK", [1, replicas], info()]
    if enough:
        prove(counted, ack="replica", replicas=2)
        return
    with pytest.raises(NotDurableError, match="1 of 2 replicas") as raised:
        prove(counted, ack="replica", replicas=2, timeout_ms=1)
    assert raised.value.data["replicas"] == 1


@pytest.mark.parametrize(("connected", "mend"), [(1, "ask for fewer"), (2, "`INFO replication` tells")])
def test_who_waits_for_replicas_in_vain_is_told_how_many_there_are(connected: int, mend: str) -> None:
    counted = [7, b"OK", [1, 1], info(connected=connected)]
    with pytest.raises(NotDurableError, match=f"and {connected} are connected to this server: .*{mend}"):
        prove(counted, ack="replica", replicas=2, timeout_ms=1)


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ([ServerTooOldError("ERR unknown command", reply="ERR unknown command")], ServerTooOldError),
        ([[[0, 0], info(aof=0)]], ConfigError),
        ([[[0, 0], info()], [{b"appendfsync": b"no"}]], ConfigError),
    ],
)
def test_a_server_that_cannot_prove_is_refused_before_the_write(answers: list[Any], kind: type[RtmemError]) -> None:
    exchange = Exchange(Clock(), *answers)
    with pytest.raises(kind, match="nothing was written"):
        exchange.run(durably(write(), promise()))
    assert ("SET", "k", 1) not in exchange.commands()


def test_a_replica_is_waited_for_in_memory_where_nothing_is_synced() -> None:
    clock = Clock()
    exchange = Exchange(clock, [[0, 0], info(aof=0)], WRITTEN, [7, b"OK", 1, info(aof=0, status="")])
    exchange.run(durably(write(), promise("replica", clock=clock)))
    assert exchange.commands()[-2][0] == "WAIT"


def test_a_server_that_hides_its_config_is_taken_at_its_word() -> None:
    clock = Clock()
    exchange = Exchange(clock, [[0, 0], info()], PermissionDeniedError("NOPERM"))
    assert exchange.run(prepare(promise(clock=clock))) is True  # its disk is waited for


def test_an_error_of_the_write_itself_is_not_turned_into_another() -> None:
    exchange = Exchange(Clock(), *ABLE, PersistenceError("MISCONF"))
    with pytest.raises(PersistenceError):
        exchange.run(durably(write(), promise()))
    assert len(exchange.asked) == 3


def test_a_look_that_was_just_taken_is_not_taken_again() -> None:
    clock = Clock()
    shared = promise(clock=clock)
    exchange = Exchange(clock, *ABLE, [info()], [info()])
    exchange.run(prepare(shared))
    for _ in range(3):
        exchange.run(look(shared))
    assert len(exchange.asked) == 3
    clock.now_s += 1
    exchange.run(look(shared))
    assert len(exchange.asked) == 4
