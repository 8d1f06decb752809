"""What a promise costs: `AsyncRedisSaver.aput` against a server of every profile, as a ratio to one without a log.

All servers run at once with their data on one disk, and take turns. A turn ends by time, because a put that waits for
the fsync of a second and one that waits for nothing differ a thousandfold; before each turn the disk finishes what
the one before left behind. A server that nobody writes to at the moment costs nothing.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import redis

from loadtest.checkpoint.states import SIZES, Threads
from loadtest.ports import free_port
from rtmem import settings
from rtmem.checkpoint import AsyncRedisSaver
from rtmem.loadtest import Contender, Experiment, Plan, measure
from rtmem.server import binaries, conf, embedded, machine
from rtmem.server.binaries import Binaries
from rtmem.settings import Ack, Profile

if TYPE_CHECKING:
    from loadtest.crash.lab import Bar

CROWDS: Final = (1, 32, 256)
STATES: Final = ("2 KB", "50 KB")

_OPERATIONS_MAX: Final = 100_000  # no turn reaches it
_READY_TIMEOUT_S: Final = 60.0
_MEMORY_BYTES: Final = 2 * 1024**3
# Enough that a thread never puts the same values twice in a row; made once, because making a state takes longer than
# putting it.
_POOL: Final = {"2 KB": 97, "50 KB": 17}


class NoDiskError(Exception):
    """The folder is not on a disk; says where it is and what to do."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A promise that one can buy: a server's profile, and what each write waits for."""

    profile: Profile
    ack: Ack = "memory"

    @property
    def name(self) -> str:
        return self.profile if self.ack == "memory" else f"{self.profile}, ack {self.ack}"


BASELINE: Final = Offer("ephemeral")
OFFERS: Final = (
    BASELINE,
    Offer("relaxed"),
    Offer("balanced"),
    Offer("durable"),
    Offer("balanced", "fsync"),
    Offer("replicated", "replica"),
)


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured, and on what."""

    file_system: str  # below the servers' data
    redis_version: str
    experiments: list[Experiment]  # one per state and crowd; a row's contender is the name of an Offer


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """One offer, state and crowd, beside the baseline of the same experiment."""

    throughput_ratio: float
    p99_ratio: float


def cost(prices: Prices, offer: str, state: str, crowd: int) -> Cost | None:
    """What `offer` costs with this state and so many clients; None if that was not measured."""
    for experiment in prices.experiments:
        if experiment.name == _experiment_name(state) and experiment.concurrency == crowd:
            row, base = experiment.row(offer), experiment.row(experiment.baseline)
            if row and base and row.latency and base.latency and row.throughput_ratio is not None:
                return Cost(throughput_ratio=row.throughput_ratio, p99_ratio=row.latency.p99_us / base.latency.p99_us)
    return None


async def measure_prices(bar: Bar, *, seed: int, quick: bool = False) -> Prices:
    """All offers, states and crowds, in about four minutes; `quick`: small states and short turns."""
    folder = disk_folder()
    if quick:
        return await compare(folder, bar, seed=seed, states=STATES[:1], rounds=1, turn_s=0.4)
    return await compare(folder, bar, seed=seed)


async def compare(
    folder: Path,
    bar: Bar,
    *,
    seed: int,
    offers: Sequence[Offer] = OFFERS,
    states: Sequence[str] = STATES,
    crowds: Sequence[int] = CROWDS,
    rounds: int = 3,
    turn_s: float = 1.2,
) -> Prices:
    """Measure `offers` against BASELINE, which must be among them.

    Args:
        folder: on the disk whose fsync counts; servers make and delete folders of their own in it.

    Raises:
        NoDiskError: `folder` is in memory, where an fsync costs nothing.
    """
    file_system = require_disk(folder)
    async with AsyncExitStack() as stack:
        bar.describe("starting a server of each profile")
        servers = {offer: stack.enter_context(server_of(offer.profile, folder)) for offer in offers}
        savers = {offer: await stack.enter_async_context(_saver(servers[offer], offer)) for offer in offers}
        experiments = []
        for state in states:
            pool = _pool(state, seed)
            for crowd in crowds:
                bar.describe(f"{_experiment_name(state)}, c={crowd}")
                bar.announce(rounds * len(offers))
                for server in servers.values():
                    _empty(server)
                plan = Plan(
                    _experiment_name(state),
                    baseline=BASELINE.name,
                    rounds=rounds,
                    operations=crowd * (_OPERATIONS_MAX // crowd),
                    warmup=0,
                    concurrency=crowd,
                    seed=seed,
                    turn_s=turn_s,
                    between_turns=os.sync,
                )
                contenders = [
                    Contender(offer.name, _puts(saver, pool, f"{state} {crowd}", crowd), server_pid=servers[offer].pid)
                    for offer, saver in savers.items()
                ]
                experiments.append(await measure(plan, contenders, on_turn=bar.step))
        with redis.Redis.from_url(servers[BASELINE].url) as client:
            version = str(client.info("server")["redis_version"])
    return Prices(file_system=file_system, redis_version=version, experiments=experiments)


def _experiment_name(state: str) -> str:
    return f"aput, whole state new, {state}"


def _pool(state: str, seed: int) -> list[dict[str, Any]]:
    source = random.Random(f"{seed} {state}")
    return [SIZES[state](source) for _ in range(_POOL[state])]


def _puts(saver: AsyncRedisSaver, pool: Sequence[dict[str, Any]], name: str, crowd: int) -> Callable[[int], Any]:
    """Puts in `crowd` threads: number 0, crowd, 2 x crowd ... belong to the first one, and to one task."""
    threads = Threads(saver)

    async def put(number: int) -> None:
        turn, thread = divmod(number, crowd)
        values = pool[(turn + thread) % len(pool)]
        await saver.aput(*threads.next(f"{name} {thread}", values, list(values)))

    return put


@asynccontextmanager
async def _saver(server: embedded.Embedded, offer: Offer) -> AsyncIterator[AsyncRedisSaver]:
    async with AsyncRedisSaver.from_conn_string(server.url, ack=offer.ack) as saver:
        await saver.asetup()
        yield saver


# --- servers ------------------------------------------------------------------------------------------------------


def disk_folder() -> Path:
    """A folder for temporary files that outlives a restart, and so lies on a disk where /tmp may be memory."""
    lasting = Path("/var/tmp")
    return lasting if os.access(lasting, os.W_OK) else Path(tempfile.gettempdir())


def require_disk(folder: Path) -> str:
    """The file system below `folder`. Raises NoDiskError where it is memory."""
    mounts = Path("/proc/self/mounts")
    found = machine.file_system_of(str(folder.resolve()), mounts.read_text("utf-8")) if mounts.exists() else None
    if found in ("tmpfs", "ramfs"):
        raise NoDiskError(
            f"{folder} is on {found}, where an fsync costs nothing: choose a folder on a disk with --disk"
        )
    return found or "unknown"


@contextmanager
def server_of(profile: Profile, folder: Path) -> Iterator[embedded.Embedded]:
    """A server with the lines of `profile`, its data in a new folder below `folder`; `replicated` has a replica."""
    with ExitStack() as stack:
        if profile != "replicated":
            yield stack.enter_context(_started(folder, profile))
            return
        port = free_port()
        # The embedded server stands alone by design; with the profile's own lines, which have the last word, it does
        # not. Clients use its socket like everybody's here, the replica its port.
        lines = [f"{one.name} {one.value}" for one in conf.directives("replicated") if one.name not in ("port", "save")]
        door = [f"port {port}", "bind 127.0.0.1", "repl-diskless-sync-delay 0"]
        master = stack.enter_context(_started(folder, "balanced", *lines, *door))
        replica = stack.enter_context(_started(folder, "balanced", f"replicaof 127.0.0.1 {port}"))
        _wait(replica, lambda info: info.get("master_link_status") == "up")
        _wait(master, lambda info: info.get("min_slaves_good_slaves") == 1)
        yield master


@contextmanager
def _started(folder: Path, profile: Profile, *extra_conf: str) -> Iterator[embedded.Embedded]:
    data_dir = tempfile.mkdtemp(prefix="rtmem-price-", dir=folder)
    program = Binaries(binaries.find().server, ())  # no saver needs modules
    wanted = settings.Server(data_dir=data_dir, profile=profile, maxmemory_bytes=_MEMORY_BYTES)
    try:
        with embedded.start(wanted, program=program, extra_conf=extra_conf) as server:
            yield server
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)


def _empty(server: embedded.Embedded) -> None:
    """Nothing in memory and next to nothing in the log, so that no rewrite starts by itself in the middle of a turn."""
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        if client.info("persistence")["aof_enabled"]:
            client.bgrewriteaof()
    _wait(server, lambda info: not (info["aof_rewrite_in_progress"] or info["aof_rewrite_scheduled"]))


def _wait(server: embedded.Embedded, done: Callable[[dict[str, Any]], bool]) -> None:
    deadline = time.monotonic() + _READY_TIMEOUT_S
    with redis.Redis.from_url(server.url) as client:
        while not done(client.info()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the server in {server.data_dir} was not ready after {_READY_TIMEOUT_S:.0f} s")
            time.sleep(0.01)
