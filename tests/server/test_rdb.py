from __future__ import annotations

from pathlib import Path

import pytest

from rtmem.server import embedded, rdb
from tests.server.processes import client, settings


@pytest.fixture
def image(data_dir: Path) -> bytes:
    """The base of a real log, with a key in it."""
    with embedded.start(settings(data_dir)) as server, client(server) as connection:
        connection.set("k", "v" * 1_000)
        connection.save()
        return (data_dir / "dump.rdb").read_bytes()


def test_an_image_of_redis_is_whole(image: bytes) -> None:
    assert rdb.is_rdb(image)
    assert rdb.flaw(image, thorough=True) == ""


def test_every_flipped_bit_is_seen_by_the_checksum(image: bytes) -> None:
    for position in range(9, len(image) - 9, 7):
        flipped = image[:position] + bytes([image[position] ^ 1]) + image[position + 1 :]
        assert rdb.flaw(flipped, thorough=False) == ""
        assert "checksum" in rdb.flaw(flipped, thorough=True)


def test_an_image_without_checksum_is_taken(image: bytes) -> None:
    assert rdb.flaw(image[:-8] + bytes(8), thorough=True) == ""


def test_an_image_without_data_is_known(image: bytes, data_dir: Path) -> None:
    assert not rdb.is_without_data(image)
    with embedded.start(settings(data_dir)) as server, client(server) as connection:
        connection.flushall()
        connection.save()
        empty = (data_dir / "dump.rdb").read_bytes()
        connection.function_load("#!lua name=kept\nredis.register_function('kept', function() return 1 end)")
        connection.save()
        assert not rdb.is_without_data((data_dir / "dump.rdb").read_bytes())
    # Its numbers (time, memory) may by chance look like content, which only makes it less certain.
    assert rdb.is_without_data(empty) or b"\xf5" in empty[:-8]


def test_missing_ends_are_seen_at_once(image: bytes) -> None:
    assert rdb.flaw(b"", thorough=False) == "it is empty"
    assert "start" in rdb.flaw(bytes(100), thorough=False)
    assert "end is missing" in rdb.flaw(image[:-1], thorough=False)
    assert "end is missing" in rdb.flaw(image[:9], thorough=False)


def test_the_checksum_is_the_one_of_redis() -> None:
    # The check value of CRC-64/Jones, as in crc64.c of Redis.
    assert rdb.crc64(b"123456789", 9) == 0xE9C6D914C4B8D9CA
