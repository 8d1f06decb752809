"""What the facts of a server mean for somebody who stores memories there: one line, and findings with a remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rtmem.server import remedies
from rtmem.server.binaries import DOCKER_LINE
from rtmem.server.facts import ServerFacts

# Redis Functions came with 7.0, and every saver needs them.
VERSION_MIN: Final = (7, 0)
WAITAOF_VERSION: Final = (7, 2)

Level = Literal["error", "warning", "info"]

_TITLES: Final = {"redis": "Redis", "valkey": "Valkey", "dragonfly": "Dragonfly", "keydb": "KeyDB"}
_MODULE_TITLES: Final = {"search": "search", "json": "JSON", "vectors": "vector sets"}
_MEBIBYTE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Finding:
    """error: something of rtmem will not work; warning: a promise is weaker than you may think; info: good to know."""

    level: Level
    what: str
    consequence: str
    fix: str


@dataclass(frozen=True, slots=True)
class ServerReport:
    """One server, judged."""

    facts: ServerFacts
    line: str
    findings: tuple[Finding, ...]


def judge(facts: ServerFacts, restart: str = "") -> ServerReport:
    """What these facts mean for somebody who stores memories here; `restart`: see remedies.set_directives."""
    return ServerReport(facts, _line(facts), tuple(_findings(facts, restart)))


# --- the line -----------------------------------------------------------------------------------------------------


def _line(facts: ServerFacts) -> str:
    parts = [
        name_words(facts),
        ", ".join(word for word in (facts.mode, facts.role) if word),
        modules_words(sorted(set(facts.modules) & set(_MODULE_TITLES))) if facts.modules is not None else "",
        durability_words(facts),
        _memory_words(facts),
    ]
    if facts.denied:
        parts.append("cannot tell all: " + ", ".join(map(_denied_words, facts.denied.items())))
    return "; ".join(part for part in parts if part)


def _denied_words(denied: tuple[str, str]) -> str:
    command, why = denied
    return "our keys denied" if why == "keys" else f"{command} {why}"


def name_words(facts: ServerFacts) -> str:
    if facts.product is None:
        return "a Redis that does not tell its version"
    return f"{_TITLES.get(facts.product, facts.product)} {dotted_words(facts.version or ())}".rstrip()


def modules_words(names: Sequence[str]) -> str:
    return ", ".join(_MODULE_TITLES.get(name, name) for name in names) or "no modules"


def durability_words(facts: ServerFacts) -> str:
    """What the log promises, in a few words."""
    if facts.aof is None:
        return ""
    if not facts.aof:
        return "no AOF: a restart loses what no snapshot holds" if facts.snapshots else "no AOF: a restart loses all"
    return {
        "always": "AOF always: no acknowledged write is lost",
        "everysec": "AOF everysec: a power cut loses about a second",
        "no": "AOF without fsync: a power cut loses up to half a minute",
    }.get(facts.fsync or "", "AOF, fsync policy unknown")


def _memory_words(facts: ServerFacts) -> str:
    if facts.eviction is None:
        return ""
    used = _mebibytes(facts.used_memory_bytes)
    return f"{facts.eviction}, {used} of {_mebibytes(facts.maxmemory_bytes) if facts.maxmemory_bytes else 'unlimited'}"


def _mebibytes(size: int | None) -> str:
    return f"{(size or 0) / _MEBIBYTE:.0f} MiB"


def dotted_words(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


# --- the findings -------------------------------------------------------------------------------------------------


def _findings(facts: ServerFacts, restart: str) -> Iterator[Finding]:
    yield from state_findings(facts)
    yield from _durability_findings(facts, restart)
    yield from _memory_findings(facts, restart)


def state_findings(facts: ServerFacts) -> Iterator[Finding]:
    """What is wrong whatever the configuration: kind of server, permissions, modules, failures, a full memory."""
    yield from _kind_findings(facts)
    yield from _permission_findings(facts)
    yield from _module_findings(facts)
    yield from _failure_findings(facts)
    if facts.maxmemory_bytes and (facts.used_memory_bytes or 0) > 0.9 * facts.maxmemory_bytes:
        yield Finding(
            "warning",
            "over 90 % of maxmemory is used",
            "writes will soon be refused",
            "delete threads or history (saver.prune), or give it more: maxmemory, RTMEM_SERVER__MAXMEMORY_BYTES",
        )


def _kind_findings(facts: ServerFacts) -> Iterator[Finding]:
    if facts.mode == "sentinel":
        yield Finding(
            "error",
            "this is a Sentinel, not a data server",
            "nothing can be stored",
            "use redis+sentinel://host/service/0",
        )
    if facts.redis_version is not None and facts.redis_version < VERSION_MIN:
        yield Finding("error", f"{name_words(facts)} has no Functions", "no saver works", DOCKER_LINE)
    elif facts.redis_version is not None and facts.redis_version < WAITAOF_VERSION:
        yield Finding(
            "info",
            f"{name_words(facts)} has no WAITAOF",
            'a write cannot ask for ack="fsync"',
            "upgrade to Redis 7.2 or later",
        )
    if facts.role == "replica":
        yield Finding(
            "error",
            "this server is a replica",
            "every write is refused",
            "connect to its master (`INFO replication` names it), or use redis+sentinel:// to follow failovers",
        )


def _permission_findings(facts: ServerFacts) -> Iterator[Finding]:
    for command, why in facts.denied.items():
        found = f"{command} is {'not offered by this server' if why == 'unknown' else 'denied to this user'}"
        if why == "keys":
            yield Finding(
                "error", "this user may not touch our keys", "nothing can be stored", "ACL SETUSER <user> ~rtmem:*"
            )
        elif command == "FUNCTION":
            fix = "ACL SETUSER <user> +function|load +fcall +fcall_ro" if why == "denied" else DOCKER_LINE
            yield Finding("error", found, "savers cannot load their functions", fix)
        elif command == "EXISTS":
            yield Finding("error", found, "savers cannot read", "ACL SETUSER <user> +@read +@write")
        elif command == "CONFIG":
            yield Finding(
                "info",
                found,
                "cannot tell how often the log is fsynced",
                "ACL SETUSER <user> +config|get" if why == "denied" else "read the provider's console",
            )
        else:
            yield Finding("info", found, "cannot tell what it promises", f"ACL SETUSER <user> +{command.lower()}")


def _module_findings(facts: ServerFacts) -> Iterator[Finding]:
    if facts.modules is None:
        return
    if "search" not in facts.modules:
        yield Finding(
            "info", "no query engine", "rtmem needs none; queries of other tools are not possible", DOCKER_LINE
        )
    elif "json" not in facts.modules:
        yield Finding("info", "no JSON module", "indexes of other tools over JSON are not possible", DOCKER_LINE)


def _failure_findings(facts: ServerFacts) -> Iterator[Finding]:
    if facts.aof_write_ok is False:
        yield Finding(
            "error",
            "the last write of the AOF failed",
            "writes are refused (MISCONF), and after a failed fsync still when the disk works again",
            "free or repair the disk, then `redis-cli BGREWRITEAOF` (`rtmem up` and `rtmem serve` do it for their own)",
        )
    if facts.aof_rewrite_ok is False:
        yield Finding(
            "warning",
            "the last rewrite of the AOF failed",
            "the log only grows, and a start reads all of it",
            "look at the server's log and at its disk, then `redis-cli BGREWRITEAOF`",
        )
    if facts.snapshot_ok is False:
        yield Finding("warning", "the last snapshot failed", "writes may be refused (MISCONF)", "free the disk, BGSAVE")


def _durability_findings(facts: ServerFacts, restart: str) -> Iterator[Finding]:
    if facts.aof is False:
        _, _, consequence = durability_words(facts).partition(": ")
        fix = remedies.set_directives(facts, {"appendonly": "yes"}, restart)
        yield Finding("warning", "AOF is off", consequence, fix)
    elif facts.aof and facts.fsync == "no":
        yield Finding(
            "warning",
            "the AOF is not fsynced",
            "a power cut loses everything the kernel had not written back, up to half a minute",
            remedies.set_directives(facts, {"appendfsync": "everysec"}, restart),
        )
    if facts.aof and facts.fsync_pauses_on_rewrite:
        yield Finding(
            "warning",
            "no-appendfsync-on-rewrite is on",
            "a power cut during a rewrite loses seconds, whatever the policy",
            remedies.set_directives(facts, {"no-appendfsync-on-rewrite": "no"}, restart),
        )


def _memory_findings(facts: ServerFacts, restart: str) -> Iterator[Finding]:
    if facts.eviction is None:
        return
    if facts.eviction != "noeviction":
        yield Finding(
            "warning",
            f"maxmemory-policy is {facts.eviction}",
            "a full server throws memories away without a word",
            remedies.set_directives(facts, {"maxmemory-policy": "noeviction"}, restart),
        )
    if not facts.maxmemory_bytes:
        yield Finding(
            "info",
            "no maxmemory",
            "a full machine kills the server instead of refusing writes",
            remedies.limit_memory(facts, restart),
        )
