"""How a read is cut into tasks and batches: neither too small nor too large."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark.sql.datasource", reason="needs the extra `spark`")

from replog import LogConfig
from replog.storage.partition_log import PartitionLog
from spark_integration.options import MIB
from spark_integration.reading import BATCH_BYTES_MAX
from tests.spark.in_process import read, read_partition, reader_of, written


def test_many_small_files_are_few_tasks_and_batches(tmp_path: Path) -> None:
    for number in range(20):
        written(tmp_path / f"orders-{number}")
    segments = len(list(tmp_path.glob("*/*.log")))
    reader = reader_of(tmp_path)
    planned = reader.partitions()
    assert segments > 40
    assert len(planned) <= segments // 10
    for part in planned:
        batches = read_partition(reader, part)
        assert len(batches) == 1
    assert read(reader).num_rows == 20 * 400


def test_a_large_segment_is_cut_at_its_batches(tmp_path: Path) -> None:
    path = tmp_path / "large-0"
    with PartitionLog.open(path) as log:
        for _ in range(160):
            log.append([bytes(25_000)] * 10)
    reader = reader_of(path, "offset", maxPartitionBytes="8m")
    planned = reader.partitions()
    sizes = [sum(one.split.size_bytes for one in part.ranges) for part in planned]
    assert sum(sizes) == sum(segment.stat().st_size for segment in path.glob("*.log"))
    assert all(3 * MIB < size < 9 * MIB for size in sizes[:-1])
    starts = [part.ranges[0].split.start_offset for part in planned]
    assert all(start % 10 == 0 for start in starts)
    assert read(reader)["offset"].to_pylist() == list(range(1600))


@pytest.mark.parametrize("record_bytes", [10, 1000, 300_000, 9 * MIB])
def test_batches_are_neither_small_nor_larger_than_8_mib(tmp_path: Path, record_bytes: int) -> None:
    path = tmp_path / "sized-0"
    records = max(40 * MIB // (record_bytes + 60), 4)
    with PartitionLog.open(path, LogConfig(max_message_bytes=32 * MIB)) as log:
        for first in range(0, records, 1000):
            log.append([bytes(record_bytes)] * min(1000, records - first))
    reader = reader_of(path)
    batches = [one for part in reader.partitions() for one in read_partition(reader, part)]
    assert sum(one.num_rows for one in batches) == records
    for one in batches:
        assert one.num_rows <= 32768
        assert one.nbytes <= BATCH_BYTES_MAX or one.num_rows == 1
    large = [one for one in batches if one.num_rows >= 16000 or one.nbytes >= MIB]
    assert len(large) >= len(batches) - len(reader.partitions())


def test_a_few_large_records_among_small_ones_do_not_swell_a_batch(tmp_path: Path) -> None:
    path = tmp_path / "mixed-0"
    with PartitionLog.open(path, LogConfig(max_message_bytes=64 * MIB)) as log:
        log.append([b"small"] * 500 + [bytes(5 * MIB)] * 3 + [b"small"] * 500)
    reader = reader_of(path)
    batches = [one for part in reader.partitions() for one in read_partition(reader, part)]
    assert all(one.nbytes <= BATCH_BYTES_MAX for one in batches)
    assert [n for one in batches for n in one["offset"].to_pylist()] == list(range(1003))


def test_columns_that_are_not_named_are_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from replog.reader import stretches

    asked = []
    decoder = stretches.StretchDecoder
    monkeypatch.setattr(
        stretches,
        "StretchDecoder",
        lambda *args, **options: asked.append(options["columns"]) or decoder(*args, **options),
    )
    path = written(tmp_path / "orders-0", 20)
    reader = reader_of(path, "topic", "value", "offset")
    list(reader.read(reader.partitions()[0]))
    assert asked == [["value", "offset"]]
