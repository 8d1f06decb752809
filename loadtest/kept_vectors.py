"""Vectors that are kept on disk between runs: five thousand texts take a minute, and are the same every time."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rtmem.steps import Embedder, TextKind


class KeptVectors:
    """An embedder that asks another one only for what it has not in its file."""

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        self._embedder = embedder
        self.name, self.fingerprint, self.dims = embedder.name, embedder.fingerprint, embedder.dims
        self.setting: str = getattr(embedder, "setting", "")  # what [embedding] model calls it
        self._path = folder / f"{sha256(embedder.fingerprint.encode()).hexdigest()[:16]}.npz"
        self._vectors: dict[str, NDArray[np.float32]] = {}
        if self._path.exists():
            with np.load(self._path) as kept:
                self._vectors = dict(zip(kept["keys"].tolist(), kept["vectors"], strict=True))

    def embed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        """See steps.Embedder."""
        keys = [f"{what}:{sha256(text.encode()).hexdigest()[:32]}" for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._vectors}
        if missing:
            made = self._embedder.embed(list(missing.values()), what)
            self._vectors |= dict(zip(missing, made, strict=True))
        return np.stack([self._vectors[key] for key in keys])

    async def aembed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        """See steps.Embedder."""
        return self.embed(texts, what)

    def save(self) -> None:
        """Keep what there is for the next run."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("wb") as file:
            np.savez(file, keys=np.array(list(self._vectors)), vectors=np.stack(list(self._vectors.values())))
