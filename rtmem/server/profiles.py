"""A running Redis, held to a profile: what it promises less than `configs/redis/<profile>.conf` does, and the cure.

The files are the truth. A directive for which only the file gives a reason is told with that reason; the few that
decide what a crash can lose have a consequence of their own here. A server that promises more than the profile is fine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from rtmem.server import conf, facts, machine, remedies
from rtmem.server.conf import Directive
from rtmem.server.facts import ServerFacts
from rtmem.server.judgement import Finding, ServerReport, durability_words, judge, state_findings
from rtmem.server.machine import MachineFacts
from rtmem.steps import Steps

# How to reach a server and what it is allowed is its owner's business; memory is judged by itself.
_NOT_JUDGED: Final = frozenset(
    {"port", "unixsocketperm", "protected-mode", "enable-debug-command", "enable-module-command", "maxclients"}
)
_ALSO_ASKED: Final = ("dir", "appenddirname", "disable-thp")
_FSYNC_RANK: Final = {"no": 0, "everysec": 1, "always": 2}
_DURABILITY: Final = re.compile(r"aof-|auto-aof-|stop-writes-|min-replicas-|save$|rdb")

_UNITS: Final = {"kb": 1024, "mb": 1024**2, "gb": 1024**3}
_NETWORK: Final = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse.s3fs", "ceph", "glusterfs"}


def ask(profile: str, prefix: str = "rtmem", log_dir: str = "", restart: str = "") -> Steps[ServerReport]:
    """Ask a server and hold it to a profile. See facts.ask for round trips and errors.

    Args:
        log_dir: where its log is going to lie, for a server that is only tried out.
        restart: see remedies.set_directives.

    Raises:
        ConfigError: no such profile.
    """
    names = [directive.name for directive in conf.directives(profile)]
    answered = yield from facts.ask(prefix, (*names, *_ALSO_ASKED))
    return judged(profile, answered, machine.look(answered, log_dir), restart)


def judged(profile: str, answered: ServerFacts, below: MachineFacts | None, restart: str = "") -> ServerReport:
    """The report of a server with these facts; `below` is None for a machine that cannot be seen from here."""
    findings = (
        *state_findings(answered),
        *_promise_findings(profile, answered, restart),
        *_replication_findings(profile, answered),
        *_memory_findings(answered, restart),
        *_machine_findings(profile, answered, below),
        *_other_findings(profile, answered, restart),
    )
    return ServerReport(answered, judge(answered).line, findings)


# --- what decides what a crash can lose ---------------------------------------------------------------------------


def _promise_findings(profile: str, answered: ServerFacts, restart: str) -> Iterator[Finding]:
    wanted = {directive.name: directive.value for directive in conf.directives(profile)}
    if wanted["appendonly"] == "no":
        return
    if answered.aof is False:
        yield Finding(
            "error",
            f"AOF is off, and {profile} keeps a log",
            durability_words(answered).removeprefix("no AOF: "),
            remedies.set_directives(answered, {"appendonly": "yes", "appendfsync": wanted["appendfsync"]}, restart),
        )
        return
    fsync = wanted["appendfsync"]
    if answered.fsync in _FSYNC_RANK and _FSYNC_RANK[answered.fsync] < _FSYNC_RANK[fsync]:
        yield Finding(
            "error",
            f"appendfsync is {answered.fsync}, and {profile} says {fsync}",
            {
                "no": "a power cut loses everything the kernel had not written back, up to half a minute",
                "everysec": "a power cut loses about a second of acknowledged writes, 1.9 s at worst",
            }[answered.fsync],
            remedies.set_directives(answered, {"appendfsync": fsync}, restart),
        )
    if answered.fsync_pauses_on_rewrite and fsync != "no":
        yield Finding(
            "error",
            "no-appendfsync-on-rewrite is yes",
            f"while a rewrite runs nothing is fsynced: a power cut then lost 3 s of acknowledged writes under always, "
            f"so {profile} holds only between rewrites",
            remedies.set_directives(answered, {"no-appendfsync-on-rewrite": "no"}, restart),
        )


def _memory_findings(answered: ServerFacts, restart: str) -> Iterator[Finding]:
    if answered.eviction is not None and answered.eviction != "noeviction":
        whose = "checkpoints with a TTL" if answered.eviction.startswith("volatile") else "any checkpoint"
        yield Finding(
            "error",
            f"maxmemory-policy is {answered.eviction}",
            f"a full server throws away {whose} without a word",
            remedies.set_directives(answered, {"maxmemory-policy": "noeviction"}, restart),
        )
    if answered.maxmemory_bytes == 0:
        yield Finding(
            "warning",
            "no maxmemory",
            "a full machine kills the server, where a limit would refuse a write",
            remedies.limit_memory(answered, restart),
        )


def _replication_findings(profile: str, answered: ServerFacts) -> Iterator[Finding]:
    if answered.master_link_ok is False:
        yield Finding(
            "error",
            "this replica has lost its master",
            "it answers with old data, and would be promoted without what it misses",
            "look at its log, at the network and at masterauth",
        )
    if profile != "replicated" or answered.role != "master":
        return
    wanted = {
        directive.name: int(directive.value) for directive in conf.directives(profile) if "min-rep" in directive.name
    }
    for name, value in wanted.items():
        found = answered.config.get(name, "")
        if not found.isdigit():
            continue  # not answered
        as_strong = int(found) >= value if "to-write" in name else 0 < int(found) <= value
        if not as_strong:
            yield Finding(
                "error",
                f"{name} is {found}, and {profile} says {value}",
                "a master that is cut off goes on acknowledging what the failover throws away (2,901 of 3,091 writes)",
                remedies.set_directives(answered, {name: str(value)}),
            )
    lag_s = wanted["min-replicas-max-lag"]
    near = [one for one in answered.replicas or () if one.online and one.lag_s <= lag_s]
    if answered.replicas is not None and len(near) < wanted["min-replicas-to-write"]:
        far = ", ".join(
            f"{one.address} {'online' if one.online else 'syncing'}, {one.lag_s} s" for one in answered.replicas
        )
        yield Finding(
            "error",
            f"no replica is within {lag_s} s" + (f" ({far})" if far else ": none is connected"),
            "writes are refused (NOREPLICAS), or the data is on this machine only",
            "REPLICAOF <this host> <this port>, typed at another server",
        )


# --- the machine --------------------------------------------------------------------------------------------------


def _machine_findings(profile: str, answered: ServerFacts, below: MachineFacts | None) -> Iterator[Finding]:
    if below is None:
        yield Finding(
            "info",
            "the server's machine cannot be seen from here",
            "overcommit, huge pages and the file system of the log are not judged",
            f"run `rtmem doctor --profile {profile}` on that machine, outside containers",
        )
        return
    if below.overcommit not in (None, 1):
        yield Finding(
            "warning",
            f"vm.overcommit_memory is {below.overcommit}",
            "the fork of a rewrite can be refused although memory is free: the log then grows, and BGSAVE fails",
            "sysctl -w vm.overcommit_memory=1, and `vm.overcommit_memory = 1` in a file of /etc/sysctl.d to keep it",
        )
    if below.huge_pages == "always" and answered.config.get("disable-thp") == "no":
        yield Finding(
            "warning",
            "transparent huge pages are always on",
            "after a fork every write copies 2 MB instead of 4 KB: pauses, and memory, during each rewrite",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )
    if answered.aof:
        yield from _file_system_findings(answered, below)


def _file_system_findings(answered: ServerFacts, below: MachineFacts) -> Iterator[Finding]:
    kind, place = below.file_system, f"the log lies on {below.file_system} ({below.log_dir})"
    if kind in ("tmpfs", "ramfs"):
        yield Finding(
            "error",
            place,
            "it is memory: a restart of the machine loses all",
            f"stop it, copy {answered.config.get('dir', 'its directory')} to a disk, start it with `dir` there (an "
            "embedded one with --data-dir)",
        )
    elif kind == "overlay":
        yield Finding("warning", place, "it goes with its container", "mount a volume there")
    elif kind in _NETWORK or (kind or "").startswith("fuse"):
        yield Finding(
            "warning",
            place,
            "what its fsync promises, and how long it takes, is up to another machine",
            "use a local disk",
        )
    elif kind == "ext4" and answered.fsync != "always":
        yield Finding(
            "info",
            place,
            "a power cut under everysec often leaves zero bytes at its end (18 of 20 cuts with another program syncing "
            "there; XFS 0 of 20), and Redis then refuses to start",
            "rtmem repairs its own server at start; for another: `redis-check-aof --fix`, or put the log on XFS",
        )


# --- everything else in the file ----------------------------------------------------------------------------------

_JUDGED_ABOVE: Final = frozenset(
    {"appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory-policy"}
    | {"min-replicas-to-write", "min-replicas-max-lag"}
)


def _other_findings(profile: str, answered: ServerFacts, restart: str) -> Iterator[Finding]:
    """Directives that differ, with the reason that the profile gives for its own values; one finding for a reason."""
    differing: dict[str, list[Directive]] = {}
    for directive in conf.directives(profile):
        if directive.name in _NOT_JUDGED | _JUDGED_ABOVE or directive.name not in answered.config:
            continue
        if not _same(directive, answered.config[directive.name]):
            differing.setdefault(directive.reason, []).append(directive)
    for reason, directives in differing.items():
        wanted: dict[str, str] = {}
        for directive in directives:
            # Limits of several classes of clients are one value.
            wanted[directive.name] = f"{wanted.get(directive.name, '')} {directive.value}".strip()
        found = ", ".join(f"{name} is {answered.config[name] or 'empty'}" for name in wanted)
        values = list(dict.fromkeys(wanted.values()))
        yield Finding(
            "warning" if any(_DURABILITY.match(name) for name in wanted) else "info",
            f"{found}, and {profile} says {', '.join(value or 'empty' for value in values)}",
            reason,
            remedies.set_directives(answered, wanted, restart),
        )


def _same(directive: Directive, found: str) -> bool:
    if directive.name == "client-output-buffer-limit":
        # One line says "pubsub 32mb 8mb 60"; CONFIG GET answers all classes in a row, and calls replicas slaves.
        words = found.split(" ")
        classes = {words[at]: words[at + 1 : at + 4] for at in range(0, len(words) - 3, 4)}
        kind, *limits = directive.value.split(" ")
        return classes.get({"replica": "slave"}.get(kind, kind)) == [_plain(limit) for limit in limits]
    return found == _plain(directive.value)


def _plain(value: str) -> str:
    match = re.fullmatch(r"(\d+)(kb|mb|gb)", value)
    return str(int(match[1]) * _UNITS[match[2]]) if match else value
