"""Every key rtmem writes. Nothing else builds keys.

A stored thread is (principal, thread_id). Both come from people, so both are escaped into an alphabet that has no
meaning to Redis: letters, digits and `-_.~@+=`, anything else as `%XX` of its UTF-8 bytes. The escaping is reversible
and two different ids never share a key. All keys of a thread carry the hash tag `{principal/thread_id}`, so one Redis
Function may touch them all, also in a Cluster.

    rtmem:t:{alice/support-7}:c      hash     checkpoints, pieces, pending writes (operations/lua/checkpoints_v2/)
    rtmem:t:{alice/support-7}:i      zset     checkpoint_id NUL checkpoint_ns, newest last
    rtmem:t:{alice/support-7}:d      string   tombstone of a deleted thread, expires
    rtmem:t:{alice/support-7}:log    stream   events streamed to clients
    rtmem:t:{alice/support-7}:run    hash     who runs the thread (lease, fencing token)
    rtmem:p:{alice/}:h               hash     pointers: their records, and what they lead to (lua/pointers_v2.lua)
    rtmem:p:{alice/}:p               zset     which thread pins which pointer, and the other way round
    rtmem:p:{alice/}:d               zset     what of the pointers is due when
    rtmem:p:{alice/}:l               zset     ids of pointers by time of creation
    rtmem:p:{alice/}:c:<id>:<n>      string   a chunk of the value that pointer <id> brought
    rtmem:m:{<id>}                   hash     an item of long-term memory (lua/memories_v1.lua)
    rtmem:m:{<id>}:<n>               hash     one more vector of that item
    rtmem:m:{mf_<id>}                hash     a fact (lua/facts_v1.lua)
    rtmem:memory                     hash     which embedder the vectors are of; also the name that leads to the index
    rtmem:memory:again               set      what a reindex has to embed once more (lua/reindex_v1.lua)
    rtmem:memory:pause               list     never there: waiting for it is a way to wait
    rtmem:memory:upkeep              string   which process looks after the index for the moment, expires
    rtmem:c:e:{<tenant>}:<id>        hash     an answer in the cache (lua/cache_v1/)
    rtmem:c:t:{<tenant>}:<what>      several  what is known of all answers of a tenant
    rtmem:cache:<fingerprint>        index    of the answers' questions, by one embedder
    rtmem:n:{<tenant>}:v:<id>        string   what a node of a graph returned (lua/nodes_v1.lua)
    rtmem:n:{<tenant>}:i             zset     the ids of all such values of a tenant, by namespace
    rtmem:n:{<tenant>}:x             zset     the same by when they end
    rtmem:threads:alice              zset     thread_ids of a principal; derived, can be rebuilt
    rtmem:run:alice/<run_id>         set      thread_ids that a run has written to; derived
    rtmem:sweeper                    string   which process frees pointers for the moment, expires
    rtmem:barrier                    string   empty, expires; written to prove that all writes before it are durable
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote_from_bytes, unquote

from rtmem.errors import IdTooLongError, InvalidRequestError

ID_BYTES_MAX: Final = 512
LAYOUT_VERSION: Final = 1

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.~@+=-]*")


def escape(value: str) -> str:
    """`value` in the key alphabet: reversible, injective, case kept."""
    if _PLAIN.fullmatch(value):
        return value
    # Letters, digits and `_.-~` are always safe. 60 ns a byte, for somebody makes up a label of a megabyte.
    return quote_from_bytes(value.encode("utf-8", "surrogatepass"), safe="@+=")


def unescape(value: str) -> str:
    """What `escape` was given."""
    return unquote(value, errors="surrogatepass")


def check_id(value: object, what: str) -> str:
    """`value` as an id, or a typed error: not a string, or longer than 512 bytes in UTF-8."""
    if not isinstance(value, str):
        raise InvalidRequestError(f"{what} must be a string, got {type(value).__name__}: pass str({what})", what=what)
    # len() counts code points; an id of 200 is short enough whatever they are.
    if len(value) * 4 > ID_BYTES_MAX:
        size = len(value.encode("utf-8", "surrogatepass"))
        if size > ID_BYTES_MAX:
            raise IdTooLongError(
                f"{what} has {size} bytes, at most {ID_BYTES_MAX} are allowed: use a shorter id or its hash",
                what=what,
                size_bytes=size,
            )
    return value


@dataclass(frozen=True, slots=True)
class ThreadKeys:
    """The keys of one thread; all in one hash slot."""

    checkpoints: str
    index: str
    tombstone: str
    event_log: str
    run: str


@dataclass(frozen=True, slots=True)
class PointerKeys:
    """The keys of all pointers of a principal; in one hash slot, so that quota and sharing can be exact."""

    records: str
    pins: str
    due: str
    ids: str
    chunks: str  # what the keys of chunks begin with

    @property
    def all(self) -> tuple[str, str, str, str, str]:
        """As every function takes them."""
        return (self.records, self.pins, self.due, self.ids, self.chunks)

    def chunk(self, host: str, number: int) -> str:
        """Key of one chunk of the value that pointer `host` brought."""
        return f"{self.chunks}{host}:{number}"


@dataclass(frozen=True, slots=True)
class CacheKeys:
    """The keys of all cached answers of a principal; in one hash slot, so that a function may touch them all."""

    tenant: str  # 128 bits, as hex: a principal may be long, and nobody has to read it out of a key
    entries: str  # what the keys of entries begin with
    books: str  # what the keys of everything else begin with

    def entry(self, entry_id: str) -> str:
        """Key of one answer."""
        return self.entries + entry_id


@dataclass(frozen=True, slots=True)
class NodeKeys:
    """The keys of all that nodes returned for a principal; in one hash slot, so that a function may touch them all."""

    values: str  # what the keys of values begin with
    ids: str
    ends: str

    @property
    def all(self) -> tuple[str, str, str]:
        """As every function takes them."""
        return (self.values, self.ids, self.ends)

    def namespace_id(self, namespace: Sequence[str]) -> str:
        """A namespace of LangGraph: 128 bits, as hex. Labels have no limit there, and anything in them."""
        path = "/".join((str(len(namespace)), *map(escape, namespace)))
        return sha256(path.encode("ascii")).hexdigest()[:32]

    def value_id(self, namespace: Sequence[str], key: str) -> str:
        """What a value is called: that of its namespace, so that it is found by it, and 128 bits of its key."""
        return f"{self.namespace_id(namespace)}:{sha256(escape(key).encode('ascii')).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class Place:
    """A namespace of a principal, as long-term memory writes it."""

    path: str  # owner/label/label, each escaped
    tags: tuple[str, ...]  # the scope tag of every prefix, the empty one first
    hashed: Any  # SHA-256 of what the keys of its items are made of, but for the key that was given

    def key_hash(self, key: str) -> str:
        """128 bits of SHA-256 over (depth, principal, labels, key), each escaped: no two paths are written alike."""
        whole = self.hashed.copy()
        whole.update(escape(key).encode("ascii"))
        digest: str = whole.hexdigest()
        return digest[:32]


def place_of(principal: str, namespace: Sequence[str]) -> Place:
    """The place of a namespace. Remembered, for a program has few namespaces at a time and a put needs all of it."""
    labels = tuple(namespace)
    if len(labels) <= _LABELS_MAX and len(principal) + sum(map(len, labels)) <= _CHARACTERS_MAX:
        return _remembered_place(principal, labels)
    return _place(principal, labels)


def _place(principal: str, labels: tuple[str, ...]) -> Place:
    owner, *escaped = map(escape, (principal, *labels))
    whole = sha256(owner.encode("ascii"))
    tags = [whole.hexdigest()[:32]]
    for label in escaped:
        whole.update(b"/" + label.encode("ascii"))
        tags.append(whole.hexdigest()[:32])
    path = "/".join((owner, *escaped))
    return Place(path, tuple(tags), sha256(f"{len(labels)}/{path}/".encode("ascii")))


_LABELS_MAX, _CHARACTERS_MAX = 16, 512  # of a namespace that is remembered; 1,024 of them take 6 MB at most
_remembered_place = lru_cache(maxsize=1024)(_place)


def scope_tag(principal: str, path: Sequence[str]) -> str:
    """What stands in the index for everything of `principal` whose namespace begins with `path`: 128 bits, as hex.

    Neither a principal nor a label reaches a query, so none can mean anything there.
    """
    return place_of(principal, path).tags[-1]


def fact_scope_tag(kind: str, name: str) -> str:
    """What stands in the index for all facts of a user, a team or an application. No item has one like it: the colon
    stands in no escaped label."""
    return sha256(f"fact:{kind}/{escape(name)}".encode("ascii")).hexdigest()[:32]


def scope_tags(principal: str, namespace: Sequence[str]) -> tuple[str, ...]:
    """The scope tags of every prefix of a namespace, the empty one first."""
    return place_of(principal, namespace).tags


@dataclass(frozen=True, slots=True)
class Keys:
    """Key names below one prefix."""

    prefix: str = "rtmem"

    def thread(self, principal: str, thread_id: str) -> ThreadKeys:
        """Keys of the thread `thread_id` of `principal`. Raises IdTooLongError."""
        owner = escape(check_id(principal, "principal"))
        name = escape(check_id(thread_id, "thread_id"))
        base = f"{self.prefix}:t:{{{owner}/{name}}}:"
        return ThreadKeys(base + "c", base + "i", base + "d", base + "log", base + "run")

    def pointers(self, principal: str) -> PointerKeys:
        """Keys of the pointers of `principal`. Raises IdTooLongError."""
        # With a slash in the tag, because an empty one would be none; no thread has a key below `p`.
        base = f"{self.prefix}:p:{{{escape(check_id(principal, 'principal'))}/}}:"
        return PointerKeys(base + "h", base + "p", base + "d", base + "l", base + "c:")

    def memory(self, principal: str, namespace: Sequence[str], key: str) -> str:
        """Key of an item of long-term memory. By a hash, because namespaces and keys have no limit in LangGraph."""
        return f"{self.memories}{{{place_of(principal, namespace).key_hash(key)}}}"

    def cache(self, principal: str) -> CacheKeys:
        """Keys of the cached answers of `principal`. Raises IdTooLongError."""
        owner = escape(check_id(principal, "principal"))
        return self.cache_of(sha256(f"cache:{owner}".encode("ascii")).hexdigest()[:32])

    def cache_of(self, tenant: str) -> CacheKeys:
        """The same of a tenant that is known by its hash only."""
        return CacheKeys(tenant, f"{self.cache_entries}{{{tenant}}}:", f"{self.prefix}:c:t:{{{tenant}}}:")

    def nodes(self, principal: str) -> NodeKeys:
        """Keys of what nodes returned for `principal`. Raises IdTooLongError."""
        owner = escape(check_id(principal, "principal"))
        tenant = sha256(f"nodes:{owner}".encode("ascii")).hexdigest()[:32]
        base = f"{self.prefix}:n:{{{tenant}}}:"
        return NodeKeys(base + "v:", base + "i", base + "x")

    @property
    def cache_entries(self) -> str:
        """What the keys of all cached answers begin with, and no other key: indexes take every hash that does."""
        return f"{self.prefix}:c:e:"

    def cache_index(self, fingerprint: str) -> str:
        """The index of cached questions by the vectors of one embedder; without a fingerprint, what all begin with."""
        return f"{self.prefix}:cache:{fingerprint}"

    def fact(self, fact_id: str) -> str:
        """Key of a fact. Its id is a hash, of its owner too (operations/fact_items.py)."""
        return f"{self.memories}{{{fact_id}}}"

    @property
    def memories(self) -> str:
        """What the keys of all items of long-term memory begin with; it ends in a colon, because an index takes every
        key that begins so."""
        return f"{self.prefix}:m:"

    @property
    def memory_index(self) -> str:
        """What is known about the index of long-term memory; the alias of the index has the same name."""
        return f"{self.prefix}:memory"

    @property
    def memory_upkeep(self) -> str:
        """Who holds it makes a large flat index a graph, until it expires."""
        return f"{self.prefix}:memory:upkeep"

    def threads(self, principal: str) -> str:
        """Index of the threads of `principal`."""
        return f"{self.prefix}:threads:{escape(check_id(principal, 'principal'))}"

    def run(self, principal: str, run_id: str) -> str:
        """Index of the threads of `principal` that `run_id` wrote to."""
        return f"{self.prefix}:run:{escape(principal)}/{escape(check_id(run_id, 'run_id'))}"

    @property
    def barrier(self) -> str:
        """What a proof of durability writes. One key for all, of one minute: it leaves nothing behind. It belongs to
        no slot that matters, because a Cluster cannot be asked for a proof (operations/durability_proof.py)."""
        return f"{self.prefix}:barrier"

    @property
    def pointer_sweeper(self) -> str:
        """Who holds it frees what is over of everybody's pointers, until it expires."""
        return f"{self.prefix}:sweeper"

    def thread_pattern(self, principal: str | None = None) -> str:
        """SCAN pattern of the checkpoint hashes of `principal`, or of everybody."""
        owner = "" if principal is None else escape(principal) + "/"
        base = re.sub(r"([*?\[\]\\^])", r"\\\1", f"{self.prefix}:t:{{{owner}")
        return base + "*}:c"

    def pointer_pattern(self, principal: str | None = None, what: str = "h") -> str:
        """SCAN pattern of the keys of pointers that end in `what`, of `principal` or of everybody."""
        owner = "" if principal is None else escape(principal) + "/}"
        base = re.sub(r"([*?\[\]\\^])", r"\\\1", f"{self.prefix}:p:{{{owner}")
        return base + ("*}:" if principal is None else ":") + what

    def parse_thread(self, key: str) -> tuple[str, str]:
        """(principal, thread_id) of any key of a thread."""
        owner, name = key[key.index("{") + 1 : key.rindex("}")].split("/", 1)
        return unescape(owner), unescape(name)
