"""Damaged batches: the task fails, a row reports them, or they are skipped and counted."""

from __future__ import annotations

import logging
import struct
from pathlib import Path

import pytest

pytest.importorskip("pyspark.sql.datasource", reason="needs the extra `spark`")

from replog import Codec
from replog._native.crc32c import checksum
from replog.errors import CorruptBatchError, DecompressionError
from replog.storage.partition_log import PartitionLog
from spark_integration.source import ReplogDataSource
from tests.spark.in_process import offsets, read, reader_of, rows, written

COLUMNS = ("topic", "partition", "offset", "value", "_corrupt_record")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return written(tmp_path / "orders-0")


def batches(segment: Path) -> list[tuple[int, int]]:
    """(position, base offset) of the batches in a file."""
    content, at, found = segment.read_bytes(), 0, []
    while at < len(content):
        base, length = struct.unpack_from(">qi", content, at)
        found.append((at, base))
        at += 12 + length
    return found


def flip(segment: Path, position: int) -> None:
    content = bytearray(segment.read_bytes())
    content[position] ^= 0x10
    segment.write_bytes(content)


def damage(log: Path, segment_number: int, batch: int, byte: int) -> tuple[Path, int, int]:
    """Flip a byte of a batch; its segment, position and base offset."""
    segment = sorted(log.glob("*.log"))[segment_number]
    position, base = batches(segment)[batch]
    flip(segment, position + byte)
    return segment, position, base


LENGTH, MAGIC, PAYLOAD = 9, 16, 80


@pytest.mark.parametrize("byte", [LENGTH, MAGIC, PAYLOAD])
def test_a_corrupt_batch_fails_the_task_with_path_position_and_offset(log: Path, byte: int) -> None:
    segment, position, base = damage(log, 1, 2, byte)
    with pytest.raises(CorruptBatchError) as caught:
        read(reader_of(log))
    said = str(caught.value)
    assert str(segment) in said
    assert f"byte {position} " in said
    assert str(base) in said
    assert (caught.value.path, caught.value.position) == (str(segment), position)


@pytest.mark.parametrize("byte", [LENGTH, MAGIC, PAYLOAD])
def test_permissive_reports_a_row_and_reads_on_behind_it(
    log: Path, byte: int, caplog: pytest.LogCaptureFixture
) -> None:
    segment, position, base = damage(log, 1, 2, byte)
    with caplog.at_level(logging.WARNING):
        found = rows(reader_of(log, *COLUMNS, mode="PERMISSIVE"))
    (report,) = [row for row in found if row["_corrupt_record"] is not None]
    assert (report["topic"], report["partition"], report["offset"]) == ("orders", 0, base)
    assert f"byte {position} " in report["_corrupt_record"]
    assert str(segment) in report["_corrupt_record"]
    assert report["value"] is None
    good = [row["offset"] for row in found if row["_corrupt_record"] is None]
    lost = set(range(400)) - set(good)
    assert set(range(base, base + 10)) <= lost
    assert len(good) == len(set(good))
    # Without a length to trust, the next index entry is where reading goes on.
    assert len(lost) == 10 or byte != PAYLOAD
    assert max(good) == 399
    assert "skipped 1 damaged regions in all" in caplog.text


def test_drop_malformed_skips_and_counts_in_the_log(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damage(log, 0, 1, PAYLOAD)
    damage(log, 2, 3, PAYLOAD)
    with caplog.at_level(logging.WARNING):
        found = offsets(reader_of(log, mode="DROPMALFORMED"))["orders-0"]
    assert len(found) == 380
    assert "skipped 2 damaged regions in all" in caplog.text
    assert caplog.text.count("CRC") == 2


def test_a_schema_without_the_column_drops_what_is_damaged(log: Path) -> None:
    damage(log, 1, 2, PAYLOAD)
    assert len(offsets(reader_of(log, mode="PERMISSIVE"))["orders-0"]) == 390


@pytest.mark.parametrize("batch", [0, -1])
def test_damage_at_either_end_of_a_segment_is_reported_once(log: Path, batch: int) -> None:
    """However the plan is cut: a range ends where the next begins, damage in between is of one."""
    damage(log, 1, batch, PAYLOAD)
    for limit in ("1k", "100m"):
        found = rows(reader_of(log, *COLUMNS, mode="PERMISSIVE", maxPartitionBytes=limit))
        assert sum(row["_corrupt_record"] is not None for row in found) == 1
        assert len(found) == 391


def test_every_batch_of_a_segment_damaged_is_one_region(log: Path) -> None:
    segment = sorted(log.glob("*.log"))[1]
    all_of_it = batches(segment)
    for position, _ in all_of_it:
        flip(segment, position + PAYLOAD)
    found = rows(reader_of(log, *COLUMNS, mode="PERMISSIVE"))
    assert len(found) == 400 - 10 * len(all_of_it) + 1


def test_without_checksums_a_flipped_payload_is_read(log: Path) -> None:
    damage(log, 1, 2, PAYLOAD)
    assert len(offsets(reader_of(log, checkCrcs="false"))["orders-0"]) == 400


def test_the_report_column_is_there_in_permissive_mode_only() -> None:
    permissive = ReplogDataSource({"path": "x", "mode": "permissive"}).schema()
    assert permissive.endswith("_corrupt_record string")
    assert "_corrupt_record" not in ReplogDataSource({"path": "x"}).schema()


def test_a_payload_that_cannot_be_decompressed_is_damage_too(tmp_path: Path) -> None:
    """Its checksum is right: a producer compressed it wrongly."""
    path = tmp_path / "packed-0"
    with PartitionLog.open(path) as log:
        for _ in range(3):
            log.append([b"compressible " * 20] * 10, codec=Codec.ZSTD)
    (segment,) = path.glob("*.log")
    position, base = batches(segment)[1]
    content = bytearray(segment.read_bytes())
    end = batches(segment)[2][0]
    content[position + 61 : position + 65] = b"junk"
    struct.pack_into(">I", content, position + 17, checksum(content[position + 21 : end]))
    segment.write_bytes(content)
    with pytest.raises(DecompressionError, match=rf"byte {position} .*offset {base}") as caught:
        read(reader_of(path))
    assert caught.value.position == position
    found = rows(reader_of(path, *COLUMNS, mode="PERMISSIVE"))
    assert [row["offset"] for row in found] == [*range(10), 10, *range(20, 30)]
