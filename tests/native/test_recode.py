"""recode(): another codec for the same records, as a leader with its own compression type does."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from replog._native import compression, record_batch, record_encoder
from replog.errors import CorruptBatchError, DecompressionError, UnknownCodecError
from tests.native import dumb_encoder

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = 1_700_000_000_000
FIXTURES = Path(os.environ.get("REPLOG_FIXTURES", Path(__file__).parents[1] / "golden"))
CODECS = (0, 1, 2, 3, 4)
VALUES = [b"record %d" % row for row in range(3000)]
PLACES = {"base_offset": 42, "leader_epoch": 7, "producer_id": 5, "base_sequence": 1}


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", CODECS)
def test_any_codec_becomes_any_other(source: int, target: int) -> None:
    batch = record_encoder.encode(VALUES, now_ms=NOW, codec=source, **PLACES)
    found = bytes(record_encoder.recode(batch, target))
    assert found == record_encoder.encode(VALUES, now_ms=NOW, codec=target, **PLACES)


def batch_of(deltas: list[tuple[int, int]], **header: int) -> bytes:
    """A batch whose records have these (offset, timestamp) deltas."""
    payload = b"".join(
        dumb_encoder.record(offset, timestamp, None, b"v%d" % row, ())
        for row, (offset, timestamp) in enumerate(deltas)
    )
    return dumb_encoder.batch(payload, len(deltas), NOW, NOW + 9, **header)


@pytest.mark.parametrize("target", CODECS)
def test_records_are_numbered_anew_and_timed_from_the_first(target: int) -> None:
    """Some clients write 0 as every inner offset delta; a leader's rebuild numbers them."""
    wrong = batch_of([(0, 4), (0, 0), (900, 9)])
    payload = b"".join(
        dumb_encoder.record(row, timestamp, None, b"v%d" % row, ())
        for row, timestamp in enumerate((0, -4, 5))
    )
    found = bytes(record_encoder.recode(wrong, target))
    assert bytes(compression.decompress(target, found[61:], 1000)) == payload
    assert struct.unpack_from(">qq", found, 27) == (NOW + 4, NOW + 9)
    assert record_batch.scan(found).end == len(found)


def test_permuted_deltas_of_the_same_length_are_noticed() -> None:
    found = bytes(record_encoder.recode(batch_of([(1, 0), (0, 0)]), 0))
    assert found == batch_of([(0, 0), (1, 0)])


def test_a_batch_with_holes_keeps_its_numbers() -> None:
    holed = batch_of([(3, 0), (7, 1)], last_offset_delta=9)
    found = bytes(record_encoder.recode(bytes(record_encoder.recode(holed, 4)), 0))
    assert found == holed


def test_markers_and_batches_without_records_come_back_as_they_are() -> None:
    marker = record_encoder.encode_control(
        1, producer_id=9, producer_epoch=1, coordinator_epoch=3, timestamp=NOW
    )
    assert record_encoder.recode(marker, 4) is marker
    empty = dumb_encoder.batch(b"", 0, -1, -1, last_offset_delta=5)
    assert record_encoder.recode(empty, 1) is empty


def test_damage_is_refused_before_a_new_checksum_hides_it() -> None:
    batch = record_encoder.encode(VALUES[:20], now_ms=NOW, codec=4)
    for at in range(16, len(batch)):
        flipped = bytearray(batch)
        flipped[at] ^= 0x10
        with pytest.raises(CorruptBatchError):
            record_encoder.recode(flipped, 0)
    for cut in range(len(batch)):
        with pytest.raises(CorruptBatchError):
            record_encoder.recode(batch[:cut], 0)
    with pytest.raises(CorruptBatchError, match="around one of"):
        record_encoder.recode(batch + b"x", 0)


def test_a_lying_record_count_is_refused() -> None:
    payload = dumb_encoder.records([b"a", b"b"], [None] * 2, [NOW] * 2, [()] * 2)
    for count in (1, 3, 2**31 - 1):
        with pytest.raises(CorruptBatchError, match=f"not {count} records"):
            record_encoder.recode(dumb_encoder.batch(payload, count, NOW, NOW), 0)


def test_the_cap_and_unknown_codecs_are_kept() -> None:
    batch = record_encoder.encode([bytes(100_000)], now_ms=NOW, codec=4)
    with pytest.raises(DecompressionError):
        record_encoder.recode(batch, 1, output_bytes_max=1000)
    with pytest.raises(UnknownCodecError):
        record_encoder.recode(batch, 6)
    unknown = dumb_encoder.batch(b"abc", 1, NOW, NOW, attributes=5)
    with pytest.raises((UnknownCodecError, CorruptBatchError)):
        record_encoder.recode(unknown, 0)


def fixture_batches() -> Iterator[bytes]:
    for segment in sorted((FIXTURES / "codecs").glob("**/*.log")):
        content = segment.read_bytes()
        headers = record_batch.scan(content).headers
        for place, size in zip(headers["position"], headers["size_bytes"], strict=True):
            yield content[place : place + size]


def decoded(payload: bytes) -> tuple[list[bytes | None], ...]:
    """Columns of the records in a payload: values, keys, timestamp deltas, headers."""
    at = 0

    def number() -> int:
        nonlocal at
        read = shift = 0
        while True:
            byte = payload[at]
            at += 1
            read |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (read >> 1) ^ -(read & 1)

    def piece() -> bytes | None:
        nonlocal at
        length = number()
        at += max(length, 0)
        return None if length < 0 else payload[at - length : at]

    values, keys, timestamps, headers = [], [], [], []
    while at < len(payload):
        number()
        at += 1
        timestamps.append(number())
        number()
        keys.append(piece())
        values.append(piece())
        headers.append([((piece() or b"").decode(), piece()) for _ in range(number())])
    return values, keys, timestamps, headers


def test_records_that_kafka_wrote_are_encoded_to_the_same_bytes() -> None:
    """Decode each batch, encode its columns: the uncompressed form is equal byte for byte."""
    seen = 0
    for batch in fixture_batches():
        if batch[22] & 0x20:
            continue
        plain = bytes(record_encoder.recode(batch, 0))
        values, keys, deltas, headers = decoded(plain[61:])
        base, largest, producer_id, epoch, sequence = struct.unpack_from(">qqqhi", plain, 27)
        found = record_encoder.encode(
            values,
            keys,
            [base + delta for delta in deltas],
            headers,
            now_ms=largest,
            timestamp_type=plain[22] >> 3 & 1,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=bool(plain[22] & 0x10),
            base_offset=int.from_bytes(plain[:8], "big"),
            leader_epoch=int.from_bytes(plain[12:16], "big", signed=True),
        )
        assert found == plain
        if batch[22] & 7 == 0:
            assert plain == batch
        seen += 1
    if not seen:
        pytest.skip(f"no codec cases under {FIXTURES}")


def test_flipped_payloads_under_a_correct_checksum_never_crash() -> None:
    chance = random.Random(8)
    batch = bytes(record_encoder.encode(VALUES[:50], now_ms=NOW))
    for _ in range(2000):
        payload = bytearray(batch[61:])
        payload[chance.randrange(len(payload))] ^= 1 << chance.randrange(8)
        crafted = dumb_encoder.batch(bytes(payload), 50, NOW, NOW)
        try:
            record_encoder.recode(crafted, 0)
        except CorruptBatchError:
            continue
