"""Every setting with its unit in its name. Loaded once, at the top, and handed down.

Order, later wins: defaults here, a TOML file (configs/rtmem.toml shows every line), RTMEM_* variables
(`RTMEM_GATEWAY__PORT=8100`, section and name joined by two underscores), arguments.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from rtmem.errors import ConfigError

Ack = Literal["memory", "fsync", "replica"]
"""What a write waits for; operations/durability.py tells what each proves."""

Profile = Literal["ephemeral", "relaxed", "balanced", "durable", "replicated"]


class Redis(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to reach Redis. An empty url means the embedded server."""

    url: str = ""
    protocol: Literal[2, 3] = 3
    connect_timeout_ms: int = 2_000
    deadline_ms: int = 5_000  # one exchange, retries included
    retries_max: int = 2  # of idempotent batches, after a lost connection
    connections_max: int = 32  # per driver; callers wait for a free one
    large_bytes_min: int = 64 * 1024  # a batch above this leaves the pipelined lane


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The embedded server."""

    data_dir: str = ""  # empty: $XDG_DATA_HOME/rtmem or ~/.local/share/rtmem
    profile: Profile = "balanced"
    maxmemory_bytes: int = 0  # 0: half of the machine's memory
    start_timeout_ms: int = 15_000
    stop_timeout_ms: int = 10_000


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The savers."""

    prefix: str = "rtmem"
    ttl_ms: int = 0  # 0: threads do not expire
    refresh_on_read: bool = False
    inline_bytes_max: int = 96  # smaller values live inside the checkpoint record
    piece_bytes_min: int = 8_192  # new neighbours of a list share a piece up to about this size
    compress_bytes_min: int = 4 * 1024 * 1024  # zstd above this; below, compressing takes longer than writing
    page_size: int = 20
    cache_bytes_max: int = 64 * 1024 * 1024  # what this process remembers of thread heads
    tombstone_ttl_ms: int = 3_600_000  # how long a deleted thread refuses late writes
    ack: Ack = "memory"  # what every write waits for
    ack_replicas: int = 1  # how many replicas "replica" asks for
    ack_timeout_ms: int = 5_000  # a write that is not proved by then raises NotDurableError, and stays readable


class Gateway(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The websocket gateway."""

    host: str = "127.0.0.1"
    port: int = 8123
    tokens: dict[str, str] = {}  # bearer token -> principal
    frame_bytes_max: int = 4 * 1024 * 1024
    outbox_frames_max: int = 2_048  # per connection; a slower reader is served from the log
    outbox_bytes_max: int = 8 * 1024 * 1024
    stall_timeout_ms: int = 10_000  # a reader that takes nothing for so long is closed with 4429
    send_buffer_bytes: int = 128 * 1024
    log_flush_ms: int = 25  # events are appended to the log in groups
    log_group_events_max: int = 256
    log_groups_max: int = 4_096  # kept per thread; older ones are dropped
    log_values_bytes_max: int = 64 * 1024  # a larger state is not logged; who replays it gets the current one
    log_ttl_ms: int = 86_400_000
    subscriptions_max: int = 64  # per connection
    threads_cached_max: int = 4_096  # idle threads this process remembers the end of
    graphs_cached_max: int = 1_024  # graphs bound to one principal's saver
    fragments_max: int = 1_024  # of one websocket message
    header_bytes_max: int = 64 * 1024  # of one HTTP request
    header_timeout_ms: int = 10_000  # to send them
    close_timeout_ms: int = 1_000  # a closed connection that does not finish is aborted
    ping_interval_ms: int = 20_000
    drain_timeout_ms: int = 10_000
    turn_durability: Ack = "memory"  # what is proved before the end of a turn is told; a run may ask for more


class Agent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The demo agent."""

    model: str = ""  # provider:name, for example openai:gpt-5-mini; empty: rules, no key, no download
    model_base_url: str = ""  # an OpenAI-compatible server of your own
    token_interval_ms: int = 15  # between words of the rules model, so that an answer is seen to stream


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All of them."""

    redis: Redis = Redis()
    server: Server = Server()
    checkpoint: Checkpoint = Checkpoint()
    gateway: Gateway = Gateway()
    agent: Agent = Agent()


def load(path: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from `path` (or $RTMEM_CONFIG, or defaults) with RTMEM_* variables on top.

    Raises:
        ConfigError: unreadable file, unknown name, wrong type; names the setting.
    """
    environ = os.environ if environ is None else environ
    source = path or environ.get("RTMEM_CONFIG")
    tree: dict[str, Any] = {}
    if source:
        try:
            tree = tomllib.loads(Path(source).read_text("utf-8"))
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
            raise ConfigError(f"settings file {source}: {exc}: check the path and the TOML syntax") from exc
    overlay(tree, environ)
    try:
        return msgspec.convert(tree, Settings, strict=False)
    except msgspec.ValidationError as exc:
        raise ConfigError(f"settings: {exc}: `rtmem configs show` lists every name with its type") from exc


def overlay(tree: dict[str, Any], environ: Mapping[str, str]) -> None:
    """Put RTMEM_SECTION__NAME variables into `tree`; a value that looks like JSON is read as JSON."""
    if model := environ.get("RTMEM_MODEL"):
        # The one setting that people type in front of a command has a short name too.
        environ = {"RTMEM_AGENT__MODEL": model, **environ}
    for variable, text in environ.items():
        if not variable.startswith("RTMEM_") or "__" not in variable:
            continue
        section, name = variable.removeprefix("RTMEM_").lower().split("__", 1)
        if not isinstance(tree.setdefault(section, {}), dict):
            raise ConfigError(f"settings: [{section}] must be a table to take {variable}")
        tree[section][name] = _value(text)


def _value(text: str) -> Any:
    if text[:1] in "{[":
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text
    return {"true": True, "false": False}.get(text.lower(), text)
