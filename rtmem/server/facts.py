"""What a Redis says of itself: two round trips, and fewer words where an ACL or a provider forbids some.

Every question is optional. A managed Redis often has no CONFIG, and a restricted user may have neither INFO nor
FUNCTION; what could not be asked is written down as such and never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rtmem.errors import (
    CommandError,
    PermissionDeniedError,
    PersistenceError,
    ReadOnlyReplicaError,
    RtmemError,
    ServerFullError,
    ServerTooOldError,
)
from rtmem.steps import Batch, Command, Steps

# Names under which the modules are asked for here; what is not in the list keeps its own name.
_MODULE_NAMES: Final = {"rejson": "json", "searchlight": "search", "ft": "search", "vectorset": "vectors"}

_CONFIG_NAMES: Final = ("appendfsync", "no-appendfsync-on-rewrite", "save")
_INFO: Final[Command] = ("INFO",)
# No library has an empty text: a user who may load functions is told so by a complaint about the text.
_LOAD_NOTHING: Final[Command] = ("FUNCTION", "LOAD", "")

# A refusal for one of these reasons comes after the ACL has let the command pass.
_ALLOWED_BUT: Final = (CommandError, ReadOnlyReplicaError, ServerFullError, PersistenceError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One follower, as its master sees it."""

    address: str
    online: bool
    lag_s: int  # since it last confirmed anything


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What was answered. None: could not be asked; `denied` says which command, and why."""

    product: str | None = None  # redis, valkey, dragonfly, keydb
    version: tuple[int, ...] | None = None  # of the product
    redis_version: tuple[int, ...] | None = None  # whose commands it has; Valkey 8 says 7.2.4
    mode: str | None = None  # standalone, cluster, sentinel
    role: str | None = None  # master, replica
    modules: Mapping[str, int] | None = None  # search, json, vectors, ... -> version as the module numbers it
    aof: bool | None = None
    fsync: str | None = None  # always, everysec, no
    fsync_pauses_on_rewrite: bool | None = None
    snapshots: bool | None = None
    aof_write_ok: bool | None = None
    aof_rewrite_ok: bool | None = None
    snapshot_ok: bool | None = None
    eviction: str | None = None
    maxmemory_bytes: int | None = None
    used_memory_bytes: int | None = None
    total_memory_bytes: int | None = None  # of its machine
    config_file: str | None = None  # redis.conf; empty: it was started without
    process_id: int | None = None  # on the server's machine, or in its container
    replicas: tuple[Replica, ...] | None = None  # of a master
    master_link_ok: bool | None = None  # of a replica
    config: Mapping[str, str] = field(default_factory=dict)  # every directive that was asked for and answered
    denied: Mapping[str, str] = field(default_factory=dict)


def ask(prefix: str = "rtmem", directives: Sequence[str] = ()) -> Steps[ServerFacts]:
    """Ask the server what it is.

    Args:
        prefix: of the keys that will be used; whether the user may touch them is asked too.
        directives: of redis.conf whose values are wanted besides.

    Raises:
        ServerLoadingError, ServerUnavailableError, AuthenticationError: there is nobody to ask yet.

    Redis: 2 round trips (INFO, CONFIG GET, EXISTS; FUNCTION LOAD of nothing); up to 5 for a restricted user.
    """
    touch: Command = ("EXISTS", f"{prefix}:probe")
    get_config: Command = ("CONFIG", "GET", *dict.fromkeys((*_CONFIG_NAMES, *directives)))
    denied: dict[str, str] = {}
    hello: Any = None
    try:
        info, config, _ = yield Batch((_INFO, get_config, touch))
    except _OPTIONAL:
        info = yield from _ask_one(_INFO, denied)
        if info is None:
            hello = yield from _ask_one(("HELLO",), denied)
        config = yield from _ask_one(get_config, denied)
        yield from _ask_one(touch, denied)
    yield from _ask_one(_LOAD_NOTHING, denied)
    facts = _read_info(_info_fields(info)) if info is not None else _read_hello(_mapping(hello))
    return _with_config(facts, _mapping(config), denied)


_OPTIONAL: Final = (*_ALLOWED_BUT, PermissionDeniedError, ServerTooOldError)


def _ask_one(command: Command, denied: dict[str, str]) -> Steps[Any]:
    """The reply, or None; a refusal is noted in `denied`."""
    try:
        (reply,) = yield Batch((command,))
    except (PermissionDeniedError, ServerTooOldError) as exc:
        denied[str(command[0])] = _reason(exc)
        return None
    except _ALLOWED_BUT:
        return None
    return reply


def _reason(exc: RtmemError) -> str:
    if isinstance(exc, ServerTooOldError):
        return "unknown"
    # Redis: "NOPERM No permissions to access a key"; the command itself is then allowed.
    return "keys" if "access a key" in exc.message else "denied"


def _info_fields(reply: Any) -> dict[str, str]:
    """INFO as one flat table. Several modules share one field name, so they are joined by spaces."""
    fields: dict[str, str] = {}
    for line in _text(reply).splitlines():
        name, colon, value = line.partition(":")
        if colon and not line.startswith("#"):
            fields[name] = f"{fields[name]} {value}" if name == "module" and name in fields else value
    return fields


def _read_info(fields: Mapping[str, str]) -> ServerFacts:
    product, version = _product(fields)
    return ServerFacts(
        product=product,
        version=version,
        redis_version=_version(fields.get("redis_version")),
        mode=fields.get("redis_mode") or fields.get("server_mode"),
        role={"slave": "replica"}.get(fields.get("role", ""), fields.get("role")),
        modules=_info_modules(fields.get("module", "")),
        aof=_flag(fields.get("aof_enabled"), yes="1"),
        aof_write_ok=_flag(fields.get("aof_last_write_status"), yes="ok"),
        aof_rewrite_ok=_flag(fields.get("aof_last_bgrewrite_status"), yes="ok"),
        snapshot_ok=_flag(fields.get("rdb_last_bgsave_status"), yes="ok"),
        eviction=fields.get("maxmemory_policy"),
        maxmemory_bytes=_number(fields.get("maxmemory")),
        used_memory_bytes=_number(fields.get("used_memory")),
        total_memory_bytes=_number(fields.get("total_system_memory")),
        config_file=fields.get("config_file"),
        process_id=_number(fields.get("process_id")),
        replicas=_replicas(fields) if fields.get("role") == "master" else None,
        master_link_ok=_flag(fields.get("master_link_status"), yes="up"),
    )


def _replicas(fields: Mapping[str, str]) -> tuple[Replica, ...]:
    # slave0:ip=10.0.0.2,port=6379,state=online,offset=1234,lag=0,io-thread=0
    found = []
    for number in range(_number(fields.get("connected_slaves")) or 0):
        line = dict(part.split("=", 1) for part in fields.get(f"slave{number}", "").split(",") if "=" in part)
        address = f"{line.get('ip', '?')}:{line.get('port', '?')}"
        found.append(
            Replica(address=address, online=line.get("state") == "online", lag_s=_number(line.get("lag")) or 0)
        )
    return tuple(found)


def _product(fields: Mapping[str, str]) -> tuple[str, tuple[int, ...] | None]:
    for product in ("valkey", "dragonfly", "keydb"):
        version = fields.get(f"{product}_version")
        if version:
            return product, _version(version.removeprefix("df-v"))
    return "redis", _version(fields.get("redis_version"))


def _info_modules(text: str) -> dict[str, int]:
    # "name=search,ver=21005,api=1,... name=ReJSON,ver=20803,..."
    modules = {}
    for entry in text.split(" "):
        fields = dict(part.split("=", 1) for part in entry.split(",") if "=" in part)
        if "name" in fields:
            modules[_module_name(fields["name"])] = _number(fields.get("ver")) or 0
    return modules


def _read_hello(reply: Mapping[str, Any]) -> ServerFacts:
    """The little that the greeting tells, which needs no permission beyond connecting."""
    if not reply:
        return ServerFacts()
    product = _text(reply.get("server", b"redis"))
    version = _version(_text(reply.get("version", b"")))
    modules = [_mapping(module) for module in reply.get("modules") or ()]
    return ServerFacts(
        product=product,
        version=version,
        redis_version=version if product == "redis" else (7, 2, 4),
        mode=_text(reply.get("mode", b"")) or None,
        role={"slave": "replica"}.get(role := _text(reply.get("role", b"")), role) or None,
        modules={_module_name(_text(module["name"])): int(module.get("ver", 0)) for module in modules},
    )


def _with_config(facts: ServerFacts, config: Mapping[str, Any], denied: Mapping[str, str]) -> ServerFacts:
    values = {name: _text(value) for name, value in config.items()}
    return replace(
        facts,
        fsync=values.get("appendfsync"),
        fsync_pauses_on_rewrite=_flag(values.get("no-appendfsync-on-rewrite"), yes="yes"),
        snapshots=bool(values["save"]) if "save" in values else None,
        denied=denied,
        config=values,
    )


def _mapping(reply: Any) -> dict[str, Any]:
    """A RESP3 map, or a RESP2 list of names and values in turn, as a dict."""
    if reply is None:
        return {}
    pairs = reply.items() if isinstance(reply, Mapping) else zip(reply[::2], reply[1::2], strict=True)
    return {_text(name): value for name, value in pairs}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _version(text: str | None) -> tuple[int, ...] | None:
    if not text:
        return None
    numbers = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers) or None


def _module_name(name: str) -> str:
    return _MODULE_NAMES.get(name.lower(), name.lower())


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _flag(text: str | None, *, yes: str) -> bool | None:
    return None if text is None else text == yes
