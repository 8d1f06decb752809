"""What settings name is what embeds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rtmem import embedding
from rtmem.embedding import LocalEmbedder, MultilingualEmbedder, RemoteEmbedder, from_settings
from rtmem.errors import ConfigError, ExtraMissingError
from rtmem.settings import Embedding
from rtmem.steps import Embedder

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        (Embedding(), LocalEmbedder),
        (Embedding(model="multilingual"), MultilingualEmbedder),
        (Embedding(model="remote:text-embedding-3-small", dims=1536), RemoteEmbedder),
    ],
    ids=["local", "multilingual", "remote"],
)
def test_settings_name_an_embedder_and_nothing_is_loaded_or_connected(settings: Embedding, kind: type) -> None:
    embedder = from_settings(settings)
    face: Embedder = embedder
    assert type(embedder.embedder) is kind
    assert (face.dims, face.fingerprint) == (embedder.embedder.dims, embedder.embedder.fingerprint)
    assert embedder.bytes_max == settings.cache_bytes_max
    embedder.close()


def test_the_default_needs_no_key_and_no_server() -> None:
    embedder = from_settings(Embedding())
    assert np.array_equal(embedder.embed(["Oslo"]), LocalEmbedder().embed(["Oslo"]))
    embedder.close()


@pytest.mark.parametrize("model", ["", "minilm", "remote", "remote:", "Local", "local:x"])
def test_a_model_that_is_none_is_refused_with_the_choices(model: str) -> None:
    with pytest.raises(ConfigError, match="write local, multilingual or remote:NAME"):
        from_settings(Embedding(model=model))


@pytest.mark.parametrize(
    ("module", "settings", "extra"),
    [
        ("numpy", Embedding(), "embedding"),
        ("httpx", Embedding(model="remote:m", dims=3), "embedding-remote"),
    ],
)
def test_a_missing_package_is_told_with_the_extra_that_brings_it(module: str, settings: Embedding, extra: str) -> None:
    # In a process of its own: this one has loaded them.
    program = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from rtmem.embedding import from_settings\n"
        "from rtmem.errors import ExtraMissingError\n"
        "from rtmem.settings import Embedding\n"
        f"try: from_settings(Embedding(model={settings.model!r}, dims={settings.dims}))\n"
        "except ExtraMissingError as exc: print(exc)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert f"pip install 'rtmem[{extra}]'" in done.stdout, done.stderr
    assert issubclass(ExtraMissingError, ImportError)


def test_names_are_loaded_when_they_are_used() -> None:
    assert set(embedding._HOME) | {"from_settings"} == set(embedding.__all__)
    program = "import sys, rtmem.embedding; print(sorted({'numpy', 'httpx', 'onnxruntime'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "[]", done.stderr
    with pytest.raises(AttributeError, match="no_such_embedder"):
        _ = embedding.no_such_embedder
