"""Whether an RDB image, the base of an append-only log, is whole. Reads only.

Redis syncs a base before the manifest names it, so a power cut does not damage one; a dying disk or a half-made copy
does. What the values inside mean is Redis's business: here are only the two ends and the checksum over everything.
"""

from __future__ import annotations

import re
from typing import Final

from rtmem.server.aof import Bytes

_HEADER: Final = re.compile(rb"REDIS[0-9]{4}")
_CHECKSUM_BYTES: Final = 8
_END: Final = b"\xff"
_CONTENT: Final = re.compile(rb"\xfe.\xfb|\xf5", re.DOTALL)
_EMPTY_BYTES_MAX: Final = 4_096  # with the notes of two modules it has 131
_STEP: Final = 1024 * 1024
_POLYNOMIAL: Final = 0x95AC9329AC4BC9B5  # CRC-64/Jones, bits reversed


def is_rdb(data: Bytes) -> bool:
    """Whether this claims to be an image, whole or not."""
    return data[:5] == b"REDIS"


def is_without_data(data: Bytes) -> bool:
    """Whether the image certainly holds no key and no function, as the one that a first start writes."""
    # SELECTDB with RESIZEDB before the keys of a database; FUNCTION2. By chance they may stand in a number too, and
    # then an empty image is not called so.
    return len(data) <= _EMPTY_BYTES_MAX and not _CONTENT.search(data[: len(data) - _CHECKSUM_BYTES])


def flaw(data: Bytes, *, thorough: bool) -> str:
    """What is wrong with the image, or an empty string.

    Args:
        thorough: also compute the checksum, which takes about a second for every 10 MB; Redis does it while loading.
    """
    if not data:
        return "it is empty"
    if not _HEADER.match(data):
        return "it does not start as an RDB file"
    if len(data) < 10 + _CHECKSUM_BYTES or data[-_CHECKSUM_BYTES - 1 : -_CHECKSUM_BYTES] != _END:
        return "its end is missing"
    written = int.from_bytes(data[-_CHECKSUM_BYTES:], "little")
    # Zero: written with rdbchecksum no.
    if thorough and written and written != crc64(data, len(data) - _CHECKSUM_BYTES):
        return "its checksum does not fit: bytes have changed since it was written"
    return ""


def crc64(data: Bytes, end: int) -> int:
    """The checksum Redis uses, over the first `end` bytes."""
    crc = 0
    for at in range(0, end, _STEP):
        for byte in data[at : min(at + _STEP, end)]:
            crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_TABLE: Final = _table()
