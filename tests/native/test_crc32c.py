"""CRC-32C: every way this processor has, against a bit-by-bit oracle."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from replog._native import crc32c
from replog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

WAYS = crc32c.implementations()


def bitwise(content: bytes, crc: int = 0) -> int:
    """The definition: reflected polynomial 0x82F63B78, all ones in and out."""
    crc ^= 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    before = crc32c.implementation()
    crc32c.use(request.param)
    yield request.param
    crc32c.use(before)


def noise(length: int, seed: int = 2026) -> bytes:
    return random.Random(seed).randbytes(length)


def test_the_best_way_is_chosen_on_import() -> None:
    assert crc32c.implementation() == WAYS[-1]
    assert "portable" in WAYS


def test_check_value_of_castagnoli(way: str) -> None:
    assert crc32c.implementation() == way
    assert crc32c.checksum(b"123456789") == 0xE3069283
    assert crc32c.checksum(b"") == 0


def test_every_length_up_to_a_thousand_equals_the_definition(way: str) -> None:
    content = noise(1000)
    expected = 0
    for length in range(1001):
        assert crc32c.checksum(content[:length]) == expected, (way, length)
        if length < 1000:
            expected = bitwise(content[length : length + 1], expected)


def test_every_alignment_gives_the_same_number(way: str) -> None:
    content = noise(5000)
    for length in (7, 64, 191, 192, 255, 256, 319, 2047, 2048, 2111, 4090):
        numbers = set()
        for shift in range(65):
            area = bytearray(shift) + content[:length]
            numbers.add(crc32c.checksum(memoryview(area)[shift:]))
        assert numbers == {bitwise(content[:length])}, (way, length)


def test_all_ways_agree_on_large_buffers(way: str) -> None:
    chance = random.Random(7)
    content = noise(300_000)
    for _ in range(200):
        start = chance.randrange(1000)
        stop = start + chance.randrange(len(content) - start)
        piece = content[start:stop]
        found = crc32c.checksum(piece)
        crc32c.use("portable")
        expected = crc32c.checksum(piece)
        crc32c.use(way)
        assert found == expected, (way, start, stop)


def test_a_checksum_can_be_continued_at_any_cut(way: str) -> None:
    content = noise(9000)
    whole = crc32c.checksum(content)
    for cut in [*range(300), 1007, 1008, 4096, 8192, 8999, 9000]:
        assert crc32c.checksum(content[cut:], crc32c.checksum(content[:cut])) == whole


def test_zeros_of_any_length_are_told_apart(way: str) -> None:
    numbers = {crc32c.checksum(bytes(length)) for length in range(2000)}
    assert len(numbers) == 2000


def test_an_unknown_way_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="'fastest'"):
        crc32c.use("fastest")
