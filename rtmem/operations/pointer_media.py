"""The media type of a value that came without one."""

from __future__ import annotations

from typing import Any, Final

from rtmem.records import PointerKind

JSON: Final = "application/json"
BLOCKS: Final = "application/vnd.langchain.content-blocks+json"
ARROW: Final = "application/vnd.apache.arrow.stream"
_MEDIA_TYPES: Final[dict[PointerKind, str]] = {
    "text": "text/plain",
    "bytes": "application/octet-stream",
    "json": JSON,
    "table": ARROW,
    "dataframe": ARROW,
    "object": "application/vnd.langgraph.msgpack",
}
_MAGIC: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF-": "application/pdf",
    b"PK\x03\x04": "application/zip",
    b"ID3": "audio/mpeg",
    b"\xff\xfb": "audio/mpeg",
    b"\xff\xf3": "audio/mpeg",
    b"OggS": "audio/ogg",
    b"fLaC": "audio/flac",
}
_CONTAINED: Final = {  # in the containers RIFF and ISO 14496-12, which say so at the same place
    b"WAVE": "audio/wav",
    b"WEBP": "image/webp",
    b"avif": "image/avif",
    b"heic": "image/heic",
    b"M4A ": "audio/mp4",
    b"isom": "video/mp4",
    b"mp42": "video/mp4",
}
_MAGIC_BYTES: Final = tuple(_MAGIC)
_BLOCK_TYPES: Final = frozenset(
    ("text", "text-plain", "image", "image_url", "audio", "video", "file", "reasoning", "non_standard")
)


def media_type(kind: PointerKind, value: Any) -> str:
    """What `value` looks like."""
    if kind == "text":
        start = value[:256].lstrip().lower()
        return "text/html" if start.startswith(("<!doctype html", "<html")) else _MEDIA_TYPES[kind]
    if kind == "json" and _is_blocks(value):
        return BLOCKS
    if kind == "bytes":
        start = bytes(value[:16])
        if start.startswith(_MAGIC_BYTES):
            return next(media for magic, media in _MAGIC.items() if start.startswith(magic))
        if (start[:4] == b"RIFF" or start[4:8] == b"ftyp") and start[8:12] in _CONTAINED:
            return _CONTAINED[start[8:12]]
    return _MEDIA_TYPES[kind]


def _is_blocks(value: Any) -> bool:
    """Whether `value` is a list of content blocks, as the messages of LangChain have."""
    return (
        type(value) is list
        and 0 < len(value) <= 1_000
        and all(type(block) is dict and type(block.get("type")) is str for block in value)
        and any(block["type"] in _BLOCK_TYPES for block in value)
    )
