"""Plain stretches are read on a way of their own: rows and errors must be those of the other way.

Method: a segment with everything that ends a stretch, whole and with each byte of its headers and
some of its records flipped, cut at many places, is read as stretches in small pieces and as chunks.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from replog._native import record_encoder
from replog.errors import ReplogError
from replog.reader import SplitRange, open_partitions, read_split, stretches
from replog.reader.names import segment_names
from replog.types import Codec

GOLDEN = Path(__file__).parents[1] / "golden"
HEADER_BYTES = 61


def batch(base_offset: int, count: int = 3, *, epoch: int = 0, **options: Any) -> bytes:
    return record_encoder.encode(
        [b"%d" % offset * 5 for offset in range(base_offset, base_offset + count)],
        [None if offset % 4 == 0 else b"k" for offset in range(count)],
        now_ms=1_700_000_000_000,
        base_offset=base_offset,
        leader_epoch=epoch,
        **options,
    )


def mixed() -> list[bytes]:
    """Plain ones between a gap, rises of the epoch, a codec, a marker, headers, a large one."""
    marker = record_encoder.encode_control(
        1,
        producer_id=4,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=0,
        base_offset=33,
        leader_epoch=2,
    )
    return [
        batch(0), batch(3), batch(6), batch(12), batch(15), batch(18, epoch=1), batch(21, epoch=2),
        batch(24, epoch=2, codec=Codec.LZ4.value), batch(27, epoch=2), batch(30, epoch=2), marker,
        batch(34, epoch=2, headers=[[("n", b"1")], [], []]), batch(37, 40, epoch=2),
        batch(77, epoch=2), batch(80, epoch=2),
    ]  # fmt: skip


def split_of(path: Path, start: int = 0, end: int = 83) -> SplitRange:
    size = path.stat().st_size
    return SplitRange(str(path.parent), segment_names(str(path.parent))[0], start, end, size, size)


def outcome(split: SplitRange, **options: Any) -> tuple[list[Any], str]:
    """Rows, and the kind and place of the error that came behind them."""
    rows: list[Any] = []
    try:
        for one in read_split(split, batch_rows=7, **options):
            assert 0 < one.num_rows <= 7
            one.validate(full=True)
            rows += plain(one).to_pylist()
    except ReplogError as error:
        return rows, f"{type(error).__name__} {error.facts}"
    return rows, ""


def plain(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Timestamps as numbers: a flipped one may be none that Python has."""
    at = rows.schema.get_field_index("timestamp")
    if at < 0:
        return rows
    return rows.set_column(at, "timestamp", rows.column(at).cast(pa.int64()))


def both_ways(split: SplitRange, **options: Any) -> tuple[list[Any], str]:
    found = outcome(split, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stretches, "FRUITLESS_MAX", 0)
        assert outcome(split, **options) == found
    return found


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "PIECE_BYTES", 400)
    monkeypatch.setattr(stretches, "FRUITLESS_MAX", 100)


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / "t-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(b"".join(mixed()))
    return path


@pytest.mark.parametrize("check_crc", [True, False])
@pytest.mark.parametrize("columns", [None, ["offset"], ["headers", "key"]])
def test_whole_ranges_are_the_same(
    segment: Path, columns: list[str] | None, *, check_crc: bool
) -> None:
    wanted = [n for n in range(83) if n not in {9, 10, 11, 33}]
    rows, error = both_ways(split_of(segment), columns=columns, check_crc=check_crc)
    assert (len(rows), error) == (len(wanted), "")
    if columns != ["headers", "key"]:
        assert [row["offset"] for row in rows] == wanted
    for start, end in ((1, 82), (4, 5), (10, 13), (20, 40), (33, 34), (38, 79), (82, 83)):
        rows, error = both_ways(split_of(segment, start, end), columns=columns)
        assert (len(rows), error) == (len([n for n in wanted if start <= n < end]), "")


def test_most_of_a_plain_log_is_read_as_stretches(segment: Path, monkeypatch) -> None:
    taken = []
    decoder = stretches.StretchDecoder.take
    monkeypatch.setattr(stretches, "PIECE_BYTES", 1 << 18)

    class Counting(stretches.StretchDecoder):
        def take(self):
            rows = decoder(self)
            taken.append(rows.num_rows)
            return rows

    monkeypatch.setattr(stretches, "StretchDecoder", Counting)
    segment.write_bytes(b"".join(batch(3 * number, epoch=5) for number in range(1000)))
    assert len(outcome(split_of(segment, 1, 2999))[0]) == 2998
    assert sum(taken) == 2998


def test_flipped_bytes_give_the_rows_and_the_error_of_the_other_way(segment: Path) -> None:
    content = segment.read_bytes()
    chance = random.Random(5)
    places, at = [], 0
    for one in mixed():
        places += range(at, at + HEADER_BYTES)
        places += (at + chance.randrange(HEADER_BYTES, len(one)) for _ in range(3))
        at += len(one)
    errors = 0
    chosen = chance.sample(places, 400)
    for number, place in enumerate(chosen):
        flipped = bytearray(content)
        flipped[place] ^= 1 << chance.randrange(8)
        segment.write_bytes(flipped)
        errors += both_ways(split_of(segment), check_crc=number % 2 == 0)[1] != ""
    assert errors > 200


def test_a_batch_that_contradicts_itself_takes_no_other_with_it(segment: Path, monkeypatch) -> None:
    """Without checksums: batches decoded from earlier pieces have to be read again, and once."""
    monkeypatch.setattr(stretches, "PIECE_BYTES", 200)
    content, at = segment.read_bytes(), 0
    for number, one in enumerate(mixed()[:3]):
        damaged = bytearray(content)
        damaged[at + HEADER_BYTES] = 0x7F
        segment.write_bytes(damaged)
        rows, error = both_ways(split_of(segment), check_crc=False)
        assert [row["offset"] for row in rows] == list(range(3 * number))
        assert error.startswith("CorruptBatchError")
        at += len(one)


def test_a_file_cut_anywhere_gives_what_the_other_way_gives(segment: Path) -> None:
    content = segment.read_bytes()
    for size in range(0, len(content), 31):
        os.truncate(segment, 0)
        segment.write_bytes(content[:size])
        rows, _ = both_ways(split_of(segment))
        assert len(rows) < 79


def test_a_batch_that_reaches_over_the_next_segment_is_not_taken(segment: Path) -> None:
    (segment.parent / f"{79:020d}.log").touch()
    rows, error = both_ways(split_of(segment))
    assert error.startswith("CorruptBatchError")
    assert rows[-1]["offset"] == 76


def test_every_directory_of_kafkas_is_read_the_same(monkeypatch) -> None:
    monkeypatch.setattr(stretches, "PIECE_BYTES", 30_000)
    compared = 0
    for directory in sorted(GOLDEN.glob("*/data")):
        for reader in open_partitions(directory):
            for split in reader.split_points(1 << 20, None, None):
                compared += len(both_ways(split)[0])
    assert compared > 1000
