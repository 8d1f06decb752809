"""A master that dies, or freezes and comes back, with two replicas and three Sentinels: what its successor has not got.

Everything runs on this machine, from the embedded server's program, with profile `replicated` and `sentinel.conf` as
they are shipped. Two replicas, because the profile refuses writes to a master that nobody follows: a single replica
that takes over would wait for the dead one.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import anyio
import anyio.to_thread
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from loadtest.crash.checking import Checked, check
from loadtest.crash.lab import Lab, Scenario
from loadtest.crash.ledger import Acked
from loadtest.crash.outcome import Outcome, Verdict
from loadtest.crash.persevering import becomes, savers, told_words
from loadtest.crash.victim import Victim
from loadtest.ports import free_port
from rtmem.server import binaries, conf

SERVICE: Final = "rtmem"
FROZEN_S: Final = 5.0
MAX_LAG_S: Final = 2  # min-replicas-max-lag of the profile
_PATIENCE_S: Final = 120.0
_STAYS: Final = {
    "deadline_ms": 60_000,
    "retries_max": 0,
}  # a client that waits for a frozen server, as long as it takes


@dataclass(frozen=True, slots=True)
class Machines:
    """A master, its replicas, and who watches over them."""

    master: Victim
    replicas: tuple[Victim, ...]
    ports: dict[int, int]  # of a server's pid
    sentinel_ports: tuple[int, ...]

    @property
    def url(self) -> str:
        """The address that follows a failover."""
        return f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in self.sentinel_ports)}/{SERVICE}/0"

    @property
    def master_url(self) -> str:
        """The address of the first master, whoever is the master now."""
        return f"redis://127.0.0.1:{self.ports[self.master.pid]}"

    def master_port(self) -> int:
        """Who is the master, by the first Sentinel."""
        with _client(self.sentinel_ports[0]) as sentinel:
            _, port = sentinel.sentinel_get_master_addr_by_name(SERVICE) or ("", 0)
        return int(port)

    def has_failed_over(self) -> bool:
        return self.master_port() != self.ports[self.master.pid]


def _client(port: int) -> redis.Redis:
    return redis.Redis(port=port, retry=Retry(NoBackoff(), 0), socket_timeout=5.0)


@contextmanager
def machines(lab: Lab, *, limits: bool = True, down_after_ms: int = 2_000) -> Iterator[Machines]:
    """Three servers and three Sentinels, once all of them know each other.

    Args:
        limits: min-replicas-to-write and -max-lag as the profile has them; without, as Redis has them by default.
        down_after_ms: how long a master is silent before it is down; sentinel.conf says 2000.
    """
    own = [] if limits else ["min-replicas-to-write 0"]
    ports = [free_port() for _ in range(3)]
    servers: list[Victim] = []
    for port in ports:
        follows = [f"replicaof 127.0.0.1 {ports[0]}"] if servers else []
        lines = [f"port {port}", "bind 127.0.0.1", "repl-diskless-sync-delay 0", *own, *follows]
        servers.append(lab.serve("replicated", lab.folder() / "data", extra_conf=lines))
    with ExitStack() as stack:
        sentinel_ports = tuple(free_port() for _ in range(3))
        for port in sentinel_ports:
            stack.enter_context(_sentinel(lab, port, ports[0], down_after_ms))
        pids = dict(zip((server.pid for server in servers), ports, strict=True))
        try:
            yield Machines(servers[0], tuple(servers[1:]), pids, sentinel_ports)
        finally:
            for server in servers:
                server.kill()


@contextmanager
def _sentinel(lab: Lab, port: int, master_port: int, down_after_ms: int) -> Iterator[None]:
    folder = lab.folder()
    text = conf.sentinel_text()
    for shipped, here in (
        ("port 26379", f"port {port}\nbind 127.0.0.1"),
        ("dir /tmp", f"dir {folder}"),
        (f"monitor {SERVICE} 127.0.0.1 6379 2", f"monitor {SERVICE} 127.0.0.1 {master_port} 2"),
        ("down-after-milliseconds rtmem 2000", f"down-after-milliseconds rtmem {down_after_ms}"),
    ):
        assert shipped in text, shipped
        text = text.replace(shipped, here)
    file = folder / "sentinel.conf"
    file.write_text(text)
    process = subprocess.Popen([binaries.find().server, file, "--sentinel"], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def _until_all_know_each_other(made: Machines) -> None:
    def known() -> bool:
        for port in made.sentinel_ports:
            with _client(port) as sentinel:
                seen = sentinel.sentinel_master(SERVICE)
            if seen["num-slaves"] < len(made.replicas) or seen["num-other-sentinels"] < len(made.sentinel_ports) - 1:
                return False
        with _client(made.ports[made.master.pid]) as master:
            return int(master.info("replication")["connected_slaves"]) == len(made.replicas)

    def known_by_all() -> bool:
        with suppress(redis.RedisError):
            return known()
        return False  # not listening yet

    await becomes(known_by_all, "replicas and Sentinels know each other", within_s=_PATIENCE_S)


async def kill_master(lab: Lab, number: int, *, down_after_ms: int = 2_000) -> Outcome:
    """kill -9 of the master while savers write by redis+sentinel://; they go on by themselves."""
    seed = lab.label("kill -9 of the master", number)
    over = threading.Event()
    with machines(lab, down_after_ms=down_after_ms) as made:
        await _until_all_know_each_other(made)
        async with AsyncExitStack() as stack:
            lives = await savers(stack, made.url, seed, ("memory", "replica"))
            clients = [client for client, _ in lives]
            async with anyio.create_task_group() as fleet:
                for _, life in lives:
                    fleet.start_soon(life, over)
                try:
                    await becomes(lambda: all(len(one.acked) > 1 for one in clients), "everybody is served")
                    killed_s = time.monotonic()
                    made.master.kill()
                    await becomes(
                        lambda: all(len(one.acked_since(killed_s)) > 2 for one in clients),
                        "everybody is served by another master",
                        within_s=_PATIENCE_S,
                    )
                finally:
                    over.set()
        acked = [one for client in clients for one in client.acked]
        checked = await check(made.url, acked)
    promised = {id(one) for client in clients if client.ack == "replica" for one in client.acked}
    lost = [one for one in checked.lost if id(one) in promised]
    gap_ms = max(one.gap_ms(killed_s) for one in clients if one.ack == "memory")
    return Outcome(
        scenario="kill -9 of the master",
        profile="replicated",
        ack="replica",
        seed=seed,
        acked=len(promised),
        lost=len(lost),
        recovery_ms=round(gap_ms, 1),
        faults=_faults(checked),
        note=f"{len(checked.lost) - len(lost)} of {len(acked) - len(promised)} acknowledged in memory gone; "
        + told_words(clients, killed_s),
    )


async def freeze_master(
    lab: Lab, number: int, *, limits: bool, frozen_s: float = FROZEN_S, brief: bool = False
) -> Outcome:
    """The master freezes, is replaced, and comes back with clients who have waited for it. By and by it is told that it
    is a replica now; what it has acknowledged until then is thrown away.

    Args:
        frozen_s: for so long at least, and until it is replaced.
        brief: Sentinels decide after a second, and nobody waits until it is told (8 s) once it refuses everybody.
    """
    name = "frozen master" if limits else "frozen master, no limits (control)"
    seed = lab.label(name, number)
    over = threading.Event()
    with machines(lab, limits=limits, down_after_ms=1_000 if brief else 2_000) as made:
        await _until_all_know_each_other(made)
        async with AsyncExitStack() as stack:
            lives = await savers(stack, made.master_url, seed, ("memory", "replica"), connection_args=_STAYS)
            clients = [client for client, _ in lives]
            async with anyio.create_task_group() as fleet:
                for _, life in lives:
                    fleet.start_soon(life, over)
                try:
                    await becomes(lambda: all(len(one.acked) > 1 for one in clients), "everybody is served")
                    froze_s, thawed_s = await _freeze(made, frozen_s)
                    await becomes(
                        lambda: (brief and all(one.told_since(thawed_s) for one in clients)) or _is_replica(made),
                        "the old master refuses everybody, or follows the new one",
                        within_s=_PATIENCE_S,
                    )
                finally:
                    over.set()
        acked = [one for client in clients for one in client.acked]
        checked = await check(made.url, acked)
    proved = {id(one) for client in clients if client.ack == "replica" for one in client.acked}
    lied = sum(id(one) in proved for one in checked.lost)
    return Outcome(
        scenario=name,
        profile="replicated",
        ack="memory",
        seed=seed,
        acked=len(acked),
        lost=len(checked.lost),
        window_ms=round(_acknowledging_ms(checked.lost, froze_s, thawed_s), 1),
        faults=(*_faults(checked), *([f"{lied} writes with ack=replica are lost"] if lied else [])),
        note=f"frozen for {thawed_s - froze_s:.1f} s; {len(proved)} proved by a replica, {lied} of them lost; "
        + told_words(clients, froze_s),
    )


async def _freeze(made: Machines, at_least_s: float) -> tuple[float, float]:
    """Freeze the master until another one is chosen. Returns when it began and ended."""
    froze_s = time.monotonic()
    made.master.freeze()
    try:
        await becomes(made.has_failed_over, "another master is chosen", within_s=_PATIENCE_S)
        await becomes(lambda: time.monotonic() - froze_s > at_least_s, "the time is over")
        return froze_s, time.monotonic()
    finally:
        made.master.thaw()


def _is_replica(made: Machines) -> bool:
    with suppress(redis.ConnectionError), _client(made.ports[made.master.pid]) as client:
        return str(client.info("replication")["role"]) == "slave"
    return False  # it closes the connections of its clients when it is told


def _acknowledging_ms(lost: Sequence[Acked], frozen_s: float, thawed_s: float) -> float:
    """For how long the old master acknowledged what was thrown away, while it was awake."""
    if not lost:
        return 0.0
    first_s, last_s = min(one.at_s for one in lost), max(one.at_s for one in lost)
    asleep_s = max(0.0, min(last_s, thawed_s) - max(first_s, frozen_s))
    return (last_s - first_s - asleep_s) * 1000


async def run(lab: Lab) -> list[Outcome]:
    """Some failovers: each takes a quarter of a minute."""
    times = max(1, lab.cuts // 25)
    lab.bar.announce(3 * times)
    outcomes = []
    for number in range(times):
        lab.bar.describe(f"replicas {number + 1}/{times}")
        outcomes.append(await kill_master(lab, number))
        lab.bar.step()
        for limits in (True, False):
            outcomes.append(await freeze_master(lab, number, limits=limits))
            lab.bar.step()
    return outcomes


def judge(outcomes: list[Outcome]) -> list[Verdict]:
    """What was promised of replicas."""
    kills = [one for one in outcomes if one.scenario.startswith("kill")]
    frozen = [one for one in outcomes if one.scenario == "frozen master"]
    control = [one for one in outcomes if "control" in one.scenario]
    lost, gap_ms = sum(one.lost for one in kills), max((one.recovery_ms for one in kills), default=0.0)
    window_ms = max((one.window_ms for one in frozen), default=0.0)
    return [
        Verdict(
            what='kill -9 of the master, ack="replica"',
            promised="0 acknowledged writes lost; savers go on by themselves",
            found=f"{lost} of {sum(one.acked for one in kills):,} lost, write gap {gap_ms / 1000:.1f} s at most",
            kept=lost == 0 and bool(kills),
        ),
        Verdict(
            what="a frozen master that was replaced and comes back",
            promised=f"no more is lost than {MAX_LAG_S} s (min-replicas-max-lag) of acknowledged writes",
            found=f"{[one.lost for one in frozen]} lost, of at most {window_ms:.0f} ms",
            kept=bool(frozen) and window_ms <= MAX_LAG_S * 1000,
        ),
        Verdict(
            what="control: the same without min-replicas-to-write",
            promised="has to lose many",
            found=f"{[one.lost for one in control]} lost",
            kept=bool(control) and min(one.lost for one in control) > max(one.lost for one in frozen),
        ),
    ]


SCENARIOS: Final = [Scenario(name="replicas", what="the master dies, or freezes and comes back", run=run, judge=judge)]


def _faults(checked: Checked) -> tuple[str, ...]:
    """What is wrong afterwards. A writer that goes on at the new master may follow a checkpoint that was acknowledged
    in memory and went with the old one: such a gap in a history is counted as a loss already."""
    return tuple(fault for fault in checked.faults if not ("-memory-" in fault and "its parent" in fault))
