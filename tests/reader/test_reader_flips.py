"""Every single-byte flip of a small log and of its side files, met by a reader of bare files.

Whatever is flipped, a reader gives the rows as they were, or the first of them and then a typed
error or the end; never a crash, never a record that was not written. Two things no reader can know,
since the CRC leaves them out: an offset flipped upwards in the very last batch is a legal gap, and
an epoch flipped to a value between its neighbours' is a legal epoch. The engine does better.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from replog.config import LogConfig
from replog.errors import StorageError
from replog.reader import PartitionReader
from replog.storage.partition_log import PartitionLog

BASE_OFFSET_BYTES = 8
COLUMNS = ["key", "value", "offset", "timestamp", "timestamp_type", "headers"]
MASKS = (0x01, 0x80, 0xFF)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Two segments of five small batches, two leader epochs, all synced."""
    path = tmp_path / "small-0"
    with PartitionLog.open(path, LogConfig(segment_bytes=700)) as log:
        for number in range(10):
            values = [b"value %d of %d" % (record, number) for record in range(3)]
            log.append(values, keys=[b"k", None, b""], timestamps=1000 + number)
            if number == 2:
                log.assign_epoch(4, log.log_end_offset)
    return path


def rows(path: Path) -> tuple[list[dict[str, object]], StorageError | None]:
    found: list[dict[str, object]] = []
    try:
        for records in PartitionReader(path).record_batches(columns=COLUMNS):
            found += records.to_pylist()
    except StorageError as error:
        return found, error
    return found, None


def test_no_flip_of_a_log_gives_a_record_that_was_not_written(partition: Path) -> None:
    whole, problem = rows(partition)
    assert problem is None
    segments = sorted(partition.glob("*.log"))
    assert len(segments) > 1
    starts = PartitionReader(partition)
    last_batch = [int(h["position"]) for headers in starts.headers() for h in headers][-1]
    detected = 0
    for segment in segments:
        content = segment.read_bytes()
        for position in range(len(content)):
            if segment == segments[-1] and 0 <= position - last_batch < BASE_OFFSET_BYTES:
                continue
            for mask in MASKS:
                flipped = bytearray(content)
                flipped[position] ^= mask
                segment.write_bytes(flipped)
                found, problem = rows(partition)
                assert found == whole[: len(found)], (segment.name, position, mask)
                assert problem is None or problem.path, (segment.name, position, mask)
                detected += problem is not None or found != whole
        segment.write_bytes(content)
    assert detected > 0


def test_no_flip_of_a_side_file_changes_a_row(partition: Path) -> None:
    whole, _ = rows(partition)
    for path in sorted(partition.iterdir()):
        if path.suffix == ".log":
            continue
        content = path.read_bytes()
        for position in range(len(content)):
            flipped = bytearray(content)
            flipped[position] ^= 0x41
            path.write_bytes(flipped)
            found, _ = rows(partition)
            assert found == whole[: len(found)], (path.name, position)
            if path.suffix in {".index", ".timeindex", ".snapshot", ".txnindex"}:
                assert found == whole, (path.name, position)
        path.write_bytes(content)


def test_any_side_file_may_be_gone(partition: Path, tmp_path: Path) -> None:
    whole, _ = rows(partition)
    for path in sorted(partition.iterdir()):
        if path.suffix == ".log":
            continue
        kept = tmp_path / "kept"
        shutil.move(path, kept)
        assert rows(partition) == (whole, None), path.name
        shutil.move(kept, path)
