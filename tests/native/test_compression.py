"""Payload framings: written as Kafka's clients write them, read with a cap, never trusted."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from replog._native import compression, crc32c
from replog.errors import DecompressionError, UnknownCodecError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
GOLDEN = Path(os.environ.get("REPLOG_FIXTURES", Path(__file__).parents[1] / "golden"))


def text(length: int) -> bytes:
    words = [random.Random(word).randbytes(5).hex().encode() for word in range(400)]
    chance = random.Random(1)
    return b" ".join(chance.choices(words, k=length // 11 + 1))[:length]


def noise(length: int) -> bytes:
    return random.Random(2).randbytes(length)


PAYLOADS = {
    "empty": b"",
    "one": b"x",
    "text-1k": text(1000),
    "text-32k": text(32768),
    "text-64k": text(65536),
    "text-64k+1": text(65537),
    "text-300k": text(300_000),
    "noise-200k": noise(200_000),
    "zeros-1m": bytes(1 << 20),
    "mixed-400k": text(100_000) + noise(200_000) + text(100_000),
}


@pytest.fixture(params=CODECS, ids=lambda codec: compression.CODEC_NAMES[codec])
def codec(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
def test_payload_comes_back_at_exactly_the_cap(codec: int, payload: bytes) -> None:
    packed = bytes(compression.compress(codec, payload))
    assert bytes(compression.decompress(codec, packed, len(payload))) == payload
    assert bytes(compression.decompress(codec, packed, 2**63 - 1)) == payload
    assert compression.refused_by_java(codec, packed) is None


@pytest.mark.parametrize("name", ["text-1k", "text-300k", "zeros-1m", "mixed-400k"])
def test_one_byte_over_the_cap_is_refused(codec: int, name: str) -> None:
    payload = PAYLOADS[name]
    packed = compression.compress(codec, payload)
    with pytest.raises(DecompressionError, match=f"at most {len(payload) - 1} bytes") as caught:
        compression.decompress(codec, packed, len(payload) - 1)
    assert caught.value.output_bytes_max == len(payload) - 1


@pytest.mark.parametrize(
    ("codec", "levels"), [(GZIP, (-1, 1, 9)), (LZ4, (1, 9, 17)), (ZSTD, (-7, 1, 3, 22))]
)
def test_every_level_of_kafka_is_taken(codec: int, levels: tuple[int, ...]) -> None:
    payload = text(100_000)
    for level in levels:
        packed = compression.compress(codec, payload, level)
        assert bytes(compression.decompress(codec, packed, 100_000)) == payload


@pytest.mark.parametrize(
    ("codec", "level"), [(GZIP, 0), (GZIP, 10), (SNAPPY, 1), (LZ4, 0), (LZ4, 18), (ZSTD, 23)]
)
def test_a_level_out_of_range_is_refused(codec: int, level: int) -> None:
    with pytest.raises(UsageError, match="level"):
        compression.compress(codec, b"x", level)


@pytest.mark.parametrize("codec", [-1, 5, 6, 7])
def test_codecs_that_the_format_does_not_define_are_refused(codec: int) -> None:
    with pytest.raises(UnknownCodecError, match=f"found {codec}"):
        compression.decompress(codec, b"x", 100)
    with pytest.raises(UnknownCodecError):
        compression.compress(codec, b"x")


def test_codec_none_hands_the_payload_through_under_the_cap() -> None:
    assert bytes(compression.decompress(0, b"abc", 3)) == b"abc"
    with pytest.raises(DecompressionError):
        compression.decompress(0, b"abc", 2)


def test_lz4_is_written_as_java_can_read_it() -> None:
    """Independent blocks of 64 KiB at most, incompressible ones stored, then the end mark."""
    payload = PAYLOADS["mixed-400k"]
    frame = bytes(compression.compress(LZ4, payload))
    assert frame[:7] == bytes.fromhex("04224d18604082")
    at, out, stored_blocks = 7, b"", 0
    while word := struct.unpack_from("<I", frame, at)[0]:
        block = frame[at + 4 : at + 4 + (word & 0x7FFFFFFF)]
        at += 4 + len(block)
        expected = payload[len(out) : len(out) + 65536]
        if word >> 31:
            stored_blocks += 1
            out += block
        else:
            assert len(block) < len(expected)
            out += bytes(pa.Codec("lz4_raw").decompress(block, len(expected)))
    assert out == payload
    assert at + 4 == len(frame)
    assert stored_blocks >= 2


def test_snappy_is_written_in_the_xerial_framing() -> None:
    payload = text(100_000)
    frame = bytes(compression.compress(SNAPPY, payload))
    assert frame[:16] == bytes.fromhex("82534e41505059000000000100000001")
    at, lengths = 16, []
    while at < len(frame):
        size = struct.unpack_from(">i", frame, at)[0]
        lengths.append(len(frame[at + 4 : at + 4 + size]))
        at += 4 + size
    assert at == len(frame)
    assert len(lengths) == 4


def test_a_raw_snappy_block_is_read() -> None:
    payload = text(100_000)
    raw = bytes(pa.Codec("snappy").compress(payload))
    assert bytes(compression.decompress(SNAPPY, raw, 100_000)) == payload


def test_snappy_frames_may_follow_each_other() -> None:
    first, second = text(50_000), noise(40_000)
    both = bytes(compression.compress(SNAPPY, first)) + bytes(compression.compress(SNAPPY, second))
    assert bytes(compression.decompress(SNAPPY, both, 90_000)) == first + second


def test_gzip_members_and_zstd_frames_may_follow_each_other() -> None:
    for codec in (GZIP, ZSTD):
        both = bytes(compression.compress(codec, b"one ")) + bytes(
            compression.compress(codec, b"two")
        )
        assert bytes(compression.decompress(codec, both, 7)) == b"one two"
        with pytest.raises(DecompressionError):
            compression.decompress(codec, both, 6)


def test_frames_with_linked_blocks_are_read_but_named() -> None:
    payload = text(300_000)
    linked = bytes(pa.Codec("lz4").compress(payload))
    assert bytes(compression.decompress(LZ4, linked, 300_000)) == payload
    assert "linked" in str(compression.refused_by_java(LZ4, linked))


@pytest.mark.parametrize("length", [0, 1, 5, 70_000, 200_000])
def test_every_cut_of_a_payload_is_refused(codec: int, length: int) -> None:
    packed = bytes(compression.compress(codec, text(length)))
    chance = random.Random(3)
    cuts = range(len(packed)) if len(packed) < 60 else sorted(chance.sample(range(len(packed)), 60))
    for cut in cuts:
        if codec == SNAPPY and is_whole_xerial(packed[:cut]):
            continue  # a cut between two blocks cannot be seen here; the record count shows it
        with pytest.raises(DecompressionError):
            compression.decompress(codec, packed[:cut], length)


def is_whole_xerial(frame: bytes) -> bool:
    at = 16
    while at + 4 <= len(frame):
        at += 4 + struct.unpack_from(">i", frame, at)[0]
    return at == len(frame)


def test_flipped_bytes_give_an_answer_or_a_typed_error(codec: int) -> None:
    packed = bytes(compression.compress(codec, text(20_000)))
    chance = random.Random(4)
    for _ in range(1500):
        flipped = bytearray(packed)
        flipped[chance.randrange(min(len(packed), 200))] ^= 1 << chance.randrange(8)
        try:
            out = compression.decompress(codec, flipped, 30_000)
        except DecompressionError:
            continue
        assert len(out) <= 30_000


def test_garbage_is_refused(codec: int) -> None:
    for garbage in (b"\x00" * 100, b"\xff" * 100, noise(100), compression.XERIAL_HEADER[:12]):
        with pytest.raises(DecompressionError):
            compression.decompress(codec, garbage, 1 << 20)


def test_snappy_lengths_are_checked_before_they_are_believed() -> None:
    """Chunk lengths beyond the input, negative or zero, and a block of 4 GiB (CVE-2023-34455)."""
    header = compression.XERIAL_HEADER
    for length in (0, -1, -(2**31), 2**31 - 1, 11):
        with pytest.raises(DecompressionError, match="block length"):
            compression.decompress(SNAPPY, header + struct.pack(">i", length) + b"x" * 10, 1 << 30)
    claim = b"\xff\xff\xff\xff\x0f" + b"\x00" * 20
    with pytest.raises(DecompressionError, match="claims to hold 4294967295"):
        compression.decompress(SNAPPY, claim, 1 << 40)
    with pytest.raises(DecompressionError, match="no valid length"):
        compression.decompress(SNAPPY, b"\xff" * 20, 1 << 40)


@pytest.mark.parametrize("descriptor", [b"\xc0\x00", b"\xe0"], ids=["windowed", "single-segment"])
@pytest.mark.parametrize("declared", [1 << 40, 1 << 63, (1 << 64) - 3], ids=hex)
def test_a_zstd_frame_allocates_none_of_what_it_declares(descriptor: bytes, declared: int) -> None:
    block = b"\x21\x00\x00four"
    frame = bytes.fromhex("28b52ffd") + descriptor + struct.pack("<Q", declared) + block
    with pytest.raises(DecompressionError):
        compression.decompress(ZSTD, frame, 1 << 20)


BOMB = """
import resource, sys
from replog._native import compression
from replog.errors import DecompressionError
codec = int(sys.argv[1])
bomb = open(sys.argv[2], "rb").read()
compression.decompress(codec, compression.compress(codec, b"warm" * 50_000), 200_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    compression.decompress(codec, bomb, 1 << 20)
except DecompressionError:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_bomb_stops_at_the_cap_and_memory_stays_bounded(codec: int, tmp_path: Path) -> None:
    """256 MiB of zeros under a cap of 1 MiB: resident memory grows by less than 8 MiB."""
    bomb = tmp_path / "bomb"
    bomb.write_bytes(compression.compress(codec, bytes(1 << 28)))
    found = subprocess.run(
        [sys.executable, "-c", BOMB, str(codec), str(bomb)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(found.stdout) < 8 * 1024


def fixture_batches(segment: Path) -> Iterator[bytes]:
    content = segment.read_bytes()
    at = 0
    while at + 61 <= len(content):
        size = 12 + struct.unpack_from(">i", content, at + 8)[0]
        if size < 61 or at + size > len(content):
            return
        yield content[at : at + size]
        at += size


def record_count(payload: bytes) -> int:
    """Records in a payload, by their length varints; fails unless they fill it exactly."""
    at = count = 0
    while at < len(payload):
        number = shift = 0
        while True:
            byte = payload[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        at += number >> 1
        count += 1
    assert at == len(payload)
    return count


def test_every_payload_that_real_clients_wrote_is_read() -> None:
    """Java, librdkafka, kafka-python and aiokafka, each codec: all records are there."""
    segments = sorted((GOLDEN / "codecs").glob("**/*.log"))
    if not segments:
        pytest.skip(f"no codec cases under {GOLDEN}")
    seen = set()
    for segment in segments:
        for batch in fixture_batches(segment):
            (crc,) = struct.unpack_from(">I", batch, 17)
            assert crc32c.checksum(memoryview(batch)[21:]) == crc
            codec = batch[22] & 7
            (count,) = struct.unpack_from(">i", batch, 57)
            payload = bytes(compression.decompress(codec, memoryview(batch)[61:], 1 << 24))
            assert record_count(payload) == count, segment
            assert compression.refused_by_java(codec, batch[61:]) is None
            again = compression.compress(codec, payload)
            assert bytes(compression.decompress(codec, again, len(payload))) == payload
            seen.add(codec)
    assert seen == {0, *CODECS}


def test_gzip_and_zstd_payloads_open_with_their_own_tools() -> None:
    payload = text(200_000)
    assert zlib.decompress(compression.compress(GZIP, payload), 31) == payload
    frame = bytes(compression.compress(ZSTD, payload))
    assert frame[:4] == bytes.fromhex("28b52ffd")
    assert bytes(pa.Codec("zstd").decompress(frame, len(payload))) == payload
