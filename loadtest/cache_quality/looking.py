"""Everything that takes time: texts are embedded, the guard judges, RedisVL's class and rtmem's answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from loadtest.cache_quality import rtmem_cache
from loadtest.cache_quality.guard_time import Times, times_us
from loadtest.cache_quality.looked import Looked
from loadtest.cache_quality.redisvl_cache import RedisVL
from loadtest.cache_quality.sets import LANGUAGES, PairSet, own, public
from loadtest.kept_vectors import KeptVectors
from rtmem import settings
from rtmem.cli.cache.comparing import compare_pairs, guard_reason, texts_of
from rtmem.embedding import LocalEmbedder, MultilingualEmbedder
from rtmem.loadtest.console import Bar

_EMBEDDERS: Final = {"local": LocalEmbedder, "multilingual": MultilingualEmbedder}


def look(
    url: str,
    bar: Bar,
    *,
    embedders: Sequence[str],
    public_files: Sequence[Path],
    own_max: int,
    public_max: int,
    seed: int,
    vectors: Path,
) -> tuple[list[Looked], Times]:
    """All sets with all embedders, and how long the guard took.

    Raises:
        InvalidRequestError, OSError: a file of pairs cannot be read.
    """
    sets = [own(language, "held_out", own_max, seed) for language in LANGUAGES]
    sets += [own(language, "dev", own_max, seed) for language in LANGUAGES]
    sets += [public(path, public_max, seed) for path in public_files]
    bar.describe("time of the guard")
    dev, held_out = (
        [pair for each in sets if each.part == part for pair in each.pairs] for part in ("dev", "held_out")
    )
    guard_us = times_us(dev, held_out, guard_reason)
    looked = []
    for name in embedders:
        embedder = KeptVectors(_EMBEDDERS[name](), vectors)
        for pairs in sets:
            looked.append(_look_at(url, bar, name, embedder, pairs))
            embedder.save()  # a run that is broken off begins where it was
    return looked, guard_us


def _look_at(url: str, bar: Bar, name: str, embedder: KeptVectors, pairs: PairSet) -> Looked:
    what = f"{pairs.part} {pairs.name}, {name}"
    texts = len(texts_of(pairs.pairs))
    bar.announce(texts + 4 * len(pairs.pairs))
    bar.describe(f"embedding {what}")

    def embedded(count: int) -> None:
        for _ in range(count):
            bar.step()

    threshold = settings.Cache().thresholds[name]
    compared = compare_pairs(pairs.pairs, embedder, guard_reason, embedded)
    bar.describe(f"redisvl, {what}")
    peer = RedisVL(url, f"{pairs.part}-{pairs.name}-{name}", embedder)
    try:
        peer.fill(pairs, bar.step)
        theirs, distance = peer.hits(pairs, None, bar.step), peer.default_distance
    finally:
        peer.close()
    bar.describe(f"rtmem, {what}")
    ours = rtmem_cache.hits(url, embedder, pairs, threshold, bar.step)
    return Looked(name, pairs, compared, threshold, theirs, distance, ours)
