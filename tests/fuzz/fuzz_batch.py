"""Fuzz target: bytes taken for record batches, raw or made whole enough to pass the checksum.

The first byte chooses what is done with the rest: bits 0-2 a codec, bit 3 whether length, magic,
codec and CRC are put right first (or no input would get past them), bit 4 whether the rest is a
compressed payload alone. Whatever comes: rows that all ways of decoding agree on, or a typed error.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

import contextlib

from replog._native import compression, crc32c, record_batch, record_decoder, record_encoder
from replog.errors import ReplogError
from tests.fuzz import fuzzing

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTPUT_BYTES_MAX = 1 << 20
PUT_RIGHT = 8
PAYLOAD_ALONE = 16
NOW = 1_700_000_000_000


def put_right(content: bytes, codec: int) -> bytes:
    """`content` as one batch whose length, magic, codec and CRC are right."""
    batch = bytearray(content)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    batch[16] = 2
    batch[21] = 0
    batch[22] = batch[22] & ~7 | codec
    struct.pack_into(">I", batch, 17, crc32c.checksum(memoryview(batch)[21:]))
    return bytes(batch)


def decode_all_ways(batches: bytes) -> None:
    """Arrow, tuples and counts give the same rows, or each raises a typed error."""
    outcomes: list[object] = []
    for zero_copy in (False, True):
        try:
            rows = record_decoder.decode_arrow(
                batches, zero_copy=zero_copy, output_bytes_max=OUTPUT_BYTES_MAX
            )
            rows.validate(full=True)
            outcomes.append(
                list(zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True))
            )
        except ReplogError as error:
            outcomes.append(type(error))
    try:
        records = record_decoder.iter_records(batches, output_bytes_max=OUTPUT_BYTES_MAX)
        listed = [(record[0], record[5]) for record in records]
        outcomes.append(listed)
        assert record_decoder.count_records(batches) == len(listed)
    except ReplogError as error:
        outcomes.append(type(error))
    assert outcomes[0] == outcomes[1] == outcomes[2], outcomes


def one_input(content: bytes) -> None:
    if not content:
        return
    codec, rest = content[0] & 7, content[1:]
    if content[0] & PAYLOAD_ALONE:
        with contextlib.suppress(ReplogError):
            assert len(compression.decompress(codec, rest, OUTPUT_BYTES_MAX)) <= OUTPUT_BYTES_MAX
        compression.refused_by_java(codec, rest)
        return
    if content[0] & PUT_RIGHT and len(rest) >= 61:
        rest = put_right(rest, codec)
    scan = record_batch.scan(rest)
    assert 0 <= scan.end <= len(rest)
    assert (scan.problem is None) == (scan.outcome == 0)
    decode_all_ways(rest)
    for target in (0, 4):
        try:
            recoded = bytes(record_encoder.recode(rest, target, None, OUTPUT_BYTES_MAX))
        except ReplogError:
            continue
        found = record_batch.scan(recoded)
        assert scan.outcome or (found.outcome, found.end) == (0, len(recoded))


def seeds() -> Iterator[bytes]:
    values = [b"value", None, b"", b"x" * 200]
    headers = [(), [("h", b"x"), ("n", None)], (), [("", b"")]]
    for codec in range(5):
        batch = bytes(
            record_encoder.encode(values, values[::-1], None, headers, now_ms=NOW, codec=codec)
        )
        yield bytes([codec]) + batch
        yield bytes([codec | PUT_RIGHT]) + batch
        yield bytes([codec]) + batch + batch[:-5]
        if codec:
            yield bytes([codec | PAYLOAD_ALONE]) + batch[61:]
            yield (
                bytes([codec | PAYLOAD_ALONE])
                + bytes(compression.compress(codec, bytes(3 * OUTPUT_BYTES_MAX)))[:4096]
            )
    marker = record_encoder.encode_control(
        1, producer_id=9, producer_epoch=1, coordinator_epoch=3, timestamp=NOW
    )
    yield b"\0" + marker
    yield bytes([PUT_RIGHT]) + marker


if __name__ == "__main__":
    fuzzing.main(one_input, seeds())
