"""What a scenario is given: decisions by seed, a number of cuts, a place, servers to kill, a bar to show progress."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from loadtest.crash.outcome import NotCovered, Outcome, Verdict
from loadtest.crash.victim import MAXMEMORY_BYTES, Victim, program_with
from rtmem.server import embedded
from rtmem.settings import Profile


class Bar(Protocol):
    """rtmem.loadtest.console.Bar, or nothing to look at."""

    def announce(self, steps: int) -> None: ...
    def describe(self, what: str) -> None: ...
    def step(self, _name: str = "") -> None: ...


class NoBar:
    """Shows nothing."""

    def announce(self, steps: int) -> None:
        pass

    def describe(self, what: str) -> None:
        pass

    def step(self, _name: str = "") -> None:
        pass


@dataclass(slots=True)
class Lab:
    """One run of the lab. Make it by `laboratory`, which leaves no process and no folder behind."""

    seed: int
    cuts: int  # how many crashes each promise has to survive; scenarios may take less where one costs much
    scratch: Path
    bar: Bar = field(default_factory=NoBar)
    say: Callable[[str], None] = print
    not_covered: list[str] = field(default_factory=list)  # one sentence each; printed at the end
    _victims: list[Victim] = field(default_factory=list)
    _folders: int = 0

    def chance(self, *names: object) -> random.Random:
        """Decisions for `names` (scenario, number of the cut ...), the same whatever else is run."""
        return random.Random(self.label(*names))

    def label(self, *names: object) -> str:
        """What an Outcome carries as its seed."""
        return "/".join(map(str, (self.seed, *names)))

    def folder(self) -> Path:
        """A new empty folder, gone at the end of the lab; remove it earlier if it is large."""
        self._folders += 1
        made = self.scratch / str(self._folders)
        made.mkdir(mode=0o700)
        return made

    def serve(
        self,
        profile: Profile,
        data_dir: Path,
        environment: Mapping[str, str] | None = None,
        *,
        extra_conf: Sequence[str] = (),
        maxmemory_bytes: int = MAXMEMORY_BYTES,
    ) -> Victim:
        """A server of `profile` on `data_dir`; killed at the end at the latest.

        Args:
            environment: for its process, as a shim needs it.
            extra_conf: lines of redis.conf that have the last word, such as a port.
        """
        program = program_with(environment or {}, self.folder())
        victim = Victim(profile, data_dir, program, extra_conf=extra_conf, maxmemory_bytes=maxmemory_bytes)
        self._victims.append(victim)
        return victim

    @contextmanager
    def covering(self) -> Iterator[None]:
        """What cannot be had on this machine is noted, once, and the rest of the block left out."""
        try:
            yield
        except NotCovered as exc:
            if str(exc) not in self.not_covered:
                self.not_covered.append(str(exc))

    def close(self) -> None:
        """End every server that was served, and those that came back in their places."""
        for victim in self._victims:
            victim.kill()
            if victim.data_dir.exists():  # its volume may be gone
                embedded.stop(victim.settings)


@contextmanager
def laboratory(seed: int, cuts: int, *, bar: Bar | None = None, say: Callable[[str], None] = print) -> Iterator[Lab]:
    """A lab in a temporary folder."""
    # Short, so that the sockets of servers stay inside of their directories.
    scratch = Path(tempfile.mkdtemp(prefix="rtmem-crash-"))
    lab = Lab(seed, cuts, scratch, bar or NoBar(), say)
    try:
        yield lab
    finally:
        lab.close()
        shutil.rmtree(scratch)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way to crash. `run` takes announced steps of the bar; `judge` says what was promised of its outcomes."""

    name: str  # for --only; outcomes carry it or a more exact one
    what: str
    run: Callable[[Lab], Awaitable[list[Outcome]]]
    judge: Callable[[list[Outcome]], list[Verdict]]
