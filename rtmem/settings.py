"""Every setting with its unit in its name. Loaded once, at the top, and handed down.

Order, later wins: defaults here, a TOML file (configs/rtmem.toml shows every line), RTMEM_* variables
(`RTMEM_GATEWAY__PORT=8100`, section and name joined by two underscores), arguments.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_type_hints

import msgspec
from msgspec import Meta

from rtmem.errors import ConfigError

Ack = Literal["memory", "fsync", "replica"]
"""What a write waits for; operations/durability.py tells what each proves."""

Profile = Literal["ephemeral", "relaxed", "balanced", "durable", "replicated"]

# Kept by `load`, for everything that people write: a struct made in a program is taken as it is.
NotNegative: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Distance: TypeAlias = Annotated[float, Meta(ge=0, le=2)]  # cosine distance: 0 is the same, 2 the opposite
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Floor: TypeAlias = Annotated[float, Meta(ge=0, lt=1)]
Port: TypeAlias = Annotated[int, Meta(ge=0, le=65_535)]
SocketBytes: TypeAlias = Annotated[int, Meta(ge=1, le=2**31 - 1)]  # the kernel's own limit
Token: TypeAlias = Annotated[str, Meta(min_length=1)]


class Redis(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to reach Redis. An empty url means the embedded server."""

    url: str = ""
    protocol: Literal[2, 3] = 3
    connect_timeout_ms: Positive = 2_000
    deadline_ms: Positive = 5_000  # one exchange, retries included
    retries_max: NotNegative = 2  # of idempotent batches, after a lost connection
    connections_max: Positive = 32  # per driver; callers wait for a free one
    large_bytes_min: NotNegative = 64 * 1024  # a batch above this leaves the pipelined lane


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The embedded server."""

    data_dir: str = ""  # empty: $XDG_DATA_HOME/rtmem or ~/.local/share/rtmem
    profile: Literal["", Profile] = ""  # empty: whatever runs in its directory; if nothing does, balanced
    maxmemory_bytes: NotNegative = 0  # 0: half of the machine's memory
    start_timeout_ms: Positive = 60_000
    stop_timeout_ms: Positive = 10_000


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The savers."""

    prefix: str = "rtmem"
    ttl_ms: NotNegative = 0  # 0: threads do not expire
    refresh_on_read: bool = False
    inline_bytes_max: NotNegative = 96  # smaller values live inside the checkpoint record
    piece_bytes_min: NotNegative = 8_192  # new neighbours of a list share a piece up to about this size
    compress_bytes_min: NotNegative = 4 * 1024 * 1024  # zstd above this; below, compressing takes longer than writing
    offload_bytes_min: NotNegative = 0  # a value from here on lies at a pointer instead of in its thread; 0: none does
    page_size: Positive = 20
    cache_bytes_max: NotNegative = 64 * 1024 * 1024  # what this process remembers of thread heads
    tombstone_ttl_ms: Positive = 3_600_000  # how long a deleted thread refuses late writes
    ack: Ack = "memory"  # what every write waits for
    ack_replicas: NotNegative = 1  # how many replicas "replica" asks for
    ack_timeout_ms: Positive = 5_000  # a write that is not proved by then raises NotDurableError, and stays readable


class Pointers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Large values that conversations carry as pointers."""

    prefix: str = "rtmem"
    ttl_ms: Positive = 7 * 86_400_000  # of a pointer that was given neither a thread nor a ttl
    value_bytes_max: Positive = 256 * 1024 * 1024  # of one value; a larger one raises TooLargeError
    tenant_bytes_max: NotNegative = 4 * 1024 * 1024 * 1024  # of all pointers of a principal; 0: no quota
    # Values are stored in pieces of about this size. With its header it fills 128 KB; 128 KB itself would take 160.
    chunk_bytes: Annotated[int, Meta(ge=1024)] = 128 * 1024 - 64
    batch_bytes: Annotated[int, Meta(ge=1024)] = 1024 * 1024  # of chunks in one round trip; a smaller value takes one
    compress_bytes_min: NotNegative = 32 * 1024 * 1024  # zstd for values from here on; 0: never
    inline_characters_max: Annotated[int, Meta(ge=500)] = 4_000  # a longer tool result becomes a pointer; 4 to a token
    preview_characters_max: Positive = 400  # head and tail together
    output_characters_max: Positive = 8_000  # of one answer of slice, search or select, unless the caller says less
    select_bytes_max: Positive = 4 * 1024 * 1024  # JSON that `select` may have to decode
    compute_ms_max: Positive = 100  # of one search or select; a search then goes on with a continuation
    grace_ms: Positive = 3_600_000  # how long a pinning thread may have no checkpoint before `sweep` takes it for gone
    upload_ttl_ms: Positive = 600_000  # what an upload that stopped half-way leaves behind is swept after this
    tombstone_ttl_ms: Positive = 86_400_000  # so long its owner is told that a pointer has expired


class Store(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Long-term memory: LangGraph's BaseStore."""

    redis_url: str = ""  # a Redis of its own, behind a gateway and for `rtmem memory`; empty: that of [redis]
    prefix: str = "rtmem"
    ttl_ms: NotNegative = 0  # of an item that was given none; 0: items stay
    refresh_on_read: bool = True  # whether reading an item that has a ttl begins it anew, as LangGraph says
    value_bytes_max: Positive = 16 * 1024 * 1024  # of one value; a larger one raises TooLargeError
    ranking: Literal["vector", "hybrid"] = "vector"  # of a search by a query: as InMemoryStore, or by words besides
    thread: str = ""  # path of a value's thread, with `position`: ranking "hybrid" then lets neighbours lift each other
    position: str = ""  # path of its place there, a whole number
    numbers: list[str] = []  # paths of numbers that range filters ask for ("price", "meta.stars"): indexed
    vectors: Literal["auto", "flat", "hnsw"] = "auto"  # exact, or faster for much; auto: flat until it is much
    flat_items_max: Positive = 50_000  # documents of one owner; with more, "auto" goes from flat to hnsw
    hnsw_links: Positive = 16  # M: neighbours of a vector in the graph
    hnsw_building: Positive = 200  # EF_CONSTRUCTION: candidates looked at to insert one
    hnsw_searching: Positive = 128  # EF_RUNTIME: candidates looked at to find some
    page_items_max: Positive = 1_000  # items in one reply, where a filter cannot be left to the server
    compress_bytes_min: NotNegative = 64 * 1024  # zstd for values from here on; 0: never
    ack: Ack = "memory"  # what every write waits for, as for [checkpoint]
    ack_replicas: NotNegative = 1
    ack_timeout_ms: Positive = 5_000


class Retrieval(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How memories are ranked. Chosen on four conversations of LoCoMo: `python -m loadtest recall`."""

    fusion: Literal["linear", "rrf"] = "linear"
    window: Positive = 50  # candidates of each search, text and vector
    words_max: Positive = 32  # of a question that are searched for, its last ones
    vector_weight: Share = 0.4  # against 1 - vector_weight of the text
    rrf_k: NotNegative = 5  # of fusion "rrf": a rank weighs 1 / (rrf_k + rank)
    sharpness: Annotated[float, Meta(gt=0)] = 2.0  # exponent of the fused score, so that few strong hits lift others
    smoothing: Share = 0.3  # of a hit's score that its neighbours gain, where thread and position are known
    smoothing_span: NotNegative = 2  # how far a neighbour may be
    relevance_weight: Share = 0.9
    recency_weight: Share = 0.05
    importance_weight: Share = 0.05
    half_life_ms: Positive = 90 * 86_400_000  # recency halves in so long
    confidence_min: Share = 0.15  # below it the answer is "nothing known"; depends on the kind of texts
    # Cosine of texts that have nothing in common, by embedder; 0 where there is none.
    cosine_floors: dict[str, Floor] = msgspec.field(default_factory=lambda: {"multilingual": 0.72})
    relevance_min: Share = 0.05  # of a hit, as a share of the best one's: what has hardly any is no answer
    items_max: Positive = 10
    tokens_max: Positive = 1_000  # of the framed text


class Embedding(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What turns texts into vectors, for memory and cache."""

    model: str = "local"  # "local", "multilingual" or "remote:NAME", a model of an OpenAI-compatible server
    threads: Positive = 1  # of a model in this process: so many documents at the same time; a query has its own
    cache_bytes_max: NotNegative = 16 * 1024 * 1024  # vectors of repeated texts, about 9,000 of 384 dims; 0: none
    base_url: str = "https://api.openai.com/v1"  # of the remote server; `/embeddings` follows
    api_key_env: str = "OPENAI_API_KEY"  # the variable that holds its key; unset: none is sent
    dims: NotNegative = 0  # of the remote model's vectors; must be given for one
    document_prefix: str = ""  # what the remote model wants in front of texts; E5: "passage: " and "query: "
    query_prefix: str = ""
    request_texts_max: Positive = 128  # in one request to the remote server
    deadline_ms: Positive = 10_000  # of one call to it, all requests and retries included


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Facts: what is remembered, and for how long. [store] says how it is kept."""

    semantic_ttl_ms: NotNegative = 0  # since a fact was last written; 0: it stays
    episodic_ttl_ms: NotNegative = 90 * 86_400_000
    procedural_ttl_ms: NotNegative = 0
    preference_ttl_ms: NotNegative = 365 * 86_400_000
    forgotten_ttl_ms: NotNegative = 90 * 86_400_000  # so long a history says that something was forgotten; 0: for ever
    text_characters_max: Positive = 8_000  # of a fact; a reason has at most as many
    value_bytes_max: Positive = 256 * 1024  # of all that is stored of one fact, but its vector
    tags_max: Positive = 32  # of one fact
    history_max: Positive = 1_000  # facts in one chain that `history` answers and `forget` follows


class Cache(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The semantic cache of answers."""

    redis_url: str = ""  # a Redis of its own, behind a gateway and for `rtmem cache`; empty: that of [redis]
    prefix: str = "rtmem"
    # How far a question may be from the one that was answered, by the name of the embedder; others: exact hits only.
    thresholds: dict[str, Distance] = msgspec.field(default_factory=lambda: {"local": 0.08, "multilingual": 0.05})
    adaptive: bool = True  # whether `report(hit, correct=False)` draws the threshold of an entry tighter
    candidates_max: Positive = 4  # nearest questions that are shown to the guard
    text_characters_max: Positive = 2_000  # a longer question hits exactly only: embedders read its beginning
    lookup_deadline_ms: Positive = 200  # of one look-up, embedding and judge included; after it the model is asked
    update_deadline_ms: Positive = 2_000  # of one write
    pause_ms: NotNegative = 1_000  # Redis, or the embedder, is left alone for so long after it has failed
    ttl_ms: NotNegative = 86_400_000  # of an entry that was given none; 0: it stays
    refresh_on_hit: bool = False  # whether a hit begins the ttl anew; costs a round trip for each
    entries_max: Positive = 10_000  # of one tenant; the least valuable are evicted
    bytes_max: Positive = 64 * 1024 * 1024  # of one tenant, counted as questions, answers, vectors and a share of keys
    answer_bytes_max: Positive = 256 * 1024  # a larger one is not stored
    compress_bytes_min: NotNegative = 16 * 1024  # zstd for answers from here on; 0: never
    lease_ms: Positive = 3_000  # a process that computes and is gone is replaced after so long
    wait_max_ms: Positive = 60_000  # who waits longer for somebody else's answer asks the model too
    question_ms_max: Positive = 3_600_000  # an answer that took longer is not stored: floors are kept for so long
    usage_max: Positive = 256  # hits that this process counts before it tells Redis
    vectors: Literal["flat", "hnsw"] = "flat"  # of a new index
    hnsw_links: Positive = 16  # M
    hnsw_building: Positive = 200  # EF_CONSTRUCTION
    hnsw_searching: Positive = 64  # EF_RUNTIME


Reading = Literal["always", "relevant", "question", "never"]


class Recall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When an agent reads and writes its memory. [retrieval] says how what it reads is ranked."""

    deadline_ms: Positive = 300  # of one recall, embedding included; after it the turn goes on without
    semantic_read: Reading = "relevant"
    semantic_write: Literal["tool", "never"] = "tool"
    semantic_items_max: Positive = 6
    semantic_tokens_max: Positive = 400  # of the framed text, for these alone
    episodic_read: Reading = "question"
    episodic_write: Literal["turn", "tool", "never"] = "tool"
    episodic_items_max: Positive = 6
    episodic_tokens_max: Positive = 400
    procedural_read: Reading = "relevant"
    procedural_write: Literal["tool", "never"] = "never"
    procedural_items_max: Positive = 3
    procedural_tokens_max: Positive = 300
    preference_read: Reading = "always"
    preference_write: Literal["tool", "never"] = "tool"
    preference_items_max: Positive = 10
    preference_tokens_max: Positive = 300
    tool_deadline_ms: Positive = 3_000  # of one call of `remember`, `search_memory` or `forget` by the model
    tool_items_max: Positive = 10  # in one answer of `search_memory`
    tool_tokens_max: Positive = 800  # of that answer
    turn_keep_ms: NotNegative = 600_000  # so long a recall serves the turn it was made for
    prefetch_keep_ms: NotNegative = 10_000  # so long a prefetch may serve the next one
    kept_max: Positive = 1_024  # threads of which one is kept
    likeness_min: Share = 0.8  # share of words that what was prefetched and what was then asked must have in common


class Gateway(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The websocket gateway."""

    host: str = "127.0.0.1"
    port: Port = 8123
    tokens: dict[Token, Token] = {}  # bearer token -> principal
    frame_bytes_max: Positive = 4 * 1024 * 1024
    upload_bytes_max: Positive = 64 * 1024 * 1024  # of a value that is sent to POST /pointers; this process holds it
    state_pointer_ttl_ms: Positive = 3_600_000  # of what `offload_bytes_min` keeps out of a state that is asked for
    sweep_interval_ms: NotNegative = 60_000  # pointers that are over are freed, memory's index looked after; 0: never
    outbox_frames_max: Positive = 2_048  # per connection; a slower reader is served from the log
    outbox_bytes_max: Positive = 8 * 1024 * 1024
    stall_timeout_ms: Positive = 10_000  # a reader that takes nothing for so long is closed with 4429
    send_buffer_bytes: SocketBytes = 128 * 1024
    log_flush_ms: NotNegative = 25  # events are appended to the log in groups
    log_group_events_max: Positive = 256
    log_groups_max: Positive = 4_096  # kept per thread; older ones are dropped
    log_values_bytes_max: NotNegative = 64 * 1024  # a larger state is not logged; who replays it gets the current one
    log_ttl_ms: Positive = 86_400_000
    subscriptions_max: Positive = 64  # per connection
    threads_cached_max: NotNegative = 4_096  # idle threads this process remembers the end of
    graphs_cached_max: Positive = 1_024  # graphs bound to one principal's saver
    fragments_max: Positive = 1_024  # of one websocket message
    header_bytes_max: Positive = 64 * 1024  # of one HTTP request
    header_timeout_ms: Positive = 10_000  # to send them
    close_timeout_ms: Positive = 1_000  # a closed connection that does not finish is aborted
    ping_interval_ms: Positive = 20_000
    drain_timeout_ms: NotNegative = 10_000
    turn_durability: Ack = "memory"  # what is proved before the end of a turn is told; a run may ask for more


class Agent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The demo agent."""

    model: str = ""  # provider:name, for example openai:gpt-5-mini; empty: rules, no key, no download
    model_base_url: str = ""  # an OpenAI-compatible server of your own
    memory: Literal["principal", "thread"] = "principal"  # who knows what it was told: all threads of a person, or one
    token_interval_ms: NotNegative = 15  # between words of the rules model, so that an answer is seen to stream


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All of them."""

    redis: Redis = Redis()
    server: Server = Server()
    checkpoint: Checkpoint = Checkpoint()
    pointers: Pointers = Pointers()
    store: Store = Store()
    retrieval: Retrieval = Retrieval()
    embedding: Embedding = Embedding()
    memory: Memory = Memory()
    cache: Cache = Cache()
    recall: Recall = Recall()
    gateway: Gateway = Gateway()
    agent: Agent = Agent()


_SECTIONS: Final = {name: section.__struct_fields__ for name, section in get_type_hints(Settings).items()}
_SECRET: Final = {("redis", "url"), ("gateway", "tokens")}
_PLACE: Final = re.compile(r" - at .*`\$\.(?P<section>\w+)(?:\.(?P<name>\w+))?.*")

Origins: TypeAlias = dict[tuple[str, str], str]
"""(section, name) -> the variable that set it; the file set all others."""


def load(path: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from `path` (or $RTMEM_CONFIG, or defaults) with RTMEM_* variables on top.

    Raises:
        ConfigError: unreadable file, unknown name, wrong type or range; names the setting and where it was set.
    """
    environ = os.environ if environ is None else environ
    source = path or environ.get("RTMEM_CONFIG")
    tree: dict[str, Any] = _read(source, "--config" if path else "RTMEM_CONFIG") if source else {}
    origins = overlay(tree, environ)
    _check_names(tree, origins, source)
    try:
        return msgspec.convert(tree, Settings, strict=False)
    except msgspec.ValidationError as exc:
        raise _explained(str(exc), tree, origins, source) from exc


def overlay(tree: dict[str, Any], environ: Mapping[str, str]) -> Origins:
    """Put RTMEM_SECTION__NAME variables into `tree`; a value that looks like JSON is read as JSON."""
    if model := environ.get("RTMEM_MODEL"):
        # The one setting that people type in front of a command has a short name too.
        environ = {"RTMEM_AGENT__MODEL": model, **environ}
    origins: Origins = {}
    for variable, text in environ.items():
        if not variable.startswith("RTMEM_"):
            continue
        section, two, name = variable.removeprefix("RTMEM_").lower().partition("__")
        if not two:
            _check_underscores(variable)
            continue
        if not isinstance(tree.setdefault(section, {}), dict):
            raise ConfigError(f"settings: [{section}] must be a table to take {variable}")
        tree[section][name] = _value(text)
        origins[section, name] = variable
    return origins


def _read(source: str | os.PathLike[str], given_by: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(source).read_text("utf-8"))
    except OSError as exc:
        raise ConfigError(f"settings file {source}: {exc.strerror}: check the path in {given_by}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"settings file {source}: {exc}: check the TOML syntax") from exc


def _check_underscores(variable: str) -> None:
    """RTMEM_GATEWAY_PORT would otherwise change nothing, and say nothing."""
    section, _, name = variable.removeprefix("RTMEM_").lower().partition("_")
    if section in _SECTIONS and name:
        raise ConfigError(f"{variable} sets nothing: write RTMEM_{section.upper()}__{name.upper()}, two underscores")


def _check_names(tree: Mapping[str, Any], origins: Origins, source: object) -> None:
    for section, values in tree.items():
        names = list(values) if isinstance(values, Mapping) else []
        if section not in _SECTIONS:
            where = _origin(section, names[0] if names else "", origins, source)
            raise ConfigError(f"{where}: no section [{section}]: {_near(section, _SECTIONS)}")
        for name in names:
            if name not in _SECTIONS[section]:
                where = _origin(section, name, origins, source)
                raise ConfigError(f"{where}: no setting {name!r} in [{section}]: {_near(name, _SECTIONS[section])}")


def _explained(problem: str, tree: Mapping[str, Any], origins: Origins, source: object) -> ConfigError:
    """What msgspec says of a value, with the place where it was written, and the choices if there are some."""
    place = _PLACE.search(problem)
    section, name = (place["section"], place["name"] or "") if place else ("", "")
    what = problem[: place.start()] if place else problem
    if not name:
        return ConfigError(f"settings file {source}: [{section}]: {what}: write a table")
    found = "" if (section, name) in _SECRET else f" is {tree[section][name]!r}"
    if choices := get_args(get_type_hints(get_type_hints(Settings)[section])[name]):
        what = (
            f"choose one of {', '.join(str(choice) for choice in choices if choice != '')}"
            if what.startswith("Invalid enum")
            else what
        )
    return ConfigError(f"{_origin(section, name, origins, source)}: {name} in [{section}]{found}: {what}")


def _origin(section: str, name: str, origins: Origins, source: object) -> str:
    return origins.get((section, name)) or f"settings file {source}"


def _near(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


def _value(text: str) -> Any:
    if text[:1] in "{[":
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text
    return {"true": True, "false": False}.get(text.lower(), text)
