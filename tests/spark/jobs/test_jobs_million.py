"""A million records through the source and the jobs: none lost, none twice, none changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark.sql.datasource", reason="needs the extra `spark`")

import replog
from replog._native import record_encoder
from replog.reader import open_partitions
from spark_integration.jobs.compact_view import compact_view
from spark_integration.jobs.engine import LocalEngine
from spark_integration.jobs.export import export
from spark_integration.jobs.restore import restore
from spark_integration.jobs.verify import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 1_000_000
PARTITIONS = 2
KEYS = 1000
PIECE = 50_000


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Value: the offset in eight bytes. Key: the offset modulo KEYS in two."""
    path = tmp_path_factory.mktemp("million") / "logs"
    config = replog.LogConfig(segment_bytes=8 << 20)
    with replog.LogDirectory.open(path, config) as directory:
        for partition in range(PARTITIONS):
            log = directory.create_log("numbers", partition)
            for first in range(0, ROWS // PARTITIONS, PIECE):
                numbers = np.arange(first, first + PIECE, dtype=">i8")
                batches = record_encoder.encode(
                    numbers.view(np.uint8).reshape(-1, 8),
                    (numbers % KEYS).astype(">u2").view(np.uint8).reshape(-1, 2),
                    1_700_000_000_000 + numbers.astype(np.int64),
                    now_ms=0,
                    base_offset=first,
                    leader_epoch=0,
                    batch_bytes_max=16384,
                )
                log.append_as_follower(batches)
            log.high_watermark = log.log_end_offset
    return path


def numbers_in(column: pa.ChunkedArray, width: int) -> np.ndarray:
    """Values of `width` bytes each as numbers."""
    joined = column.combine_chunks().cast(pa.binary(width))
    return np.frombuffer(joined.buffers()[1], f">u{width}")[joined.offset :][: len(joined)]


def test_spark_and_an_export_hold_each_of_a_million_records_once(
    spark: SparkSession, logs: Path, tmp_path: Path
) -> None:
    frame = spark.read.format("replog").option("maxPartitionBytes", "4m").load(str(logs))
    figures = ("count(*)", "sum(offset)", "bit_xor(xxhash64(partition, offset, key, value))")
    assert export([logs], tmp_path / "out", LocalEngine(2)).records == ROWS
    direct = frame.selectExpr(*figures).first()
    exported = spark.read.parquet(str(tmp_path / "out")).selectExpr(*figures).first()
    each = ROWS // PARTITIONS
    assert tuple(direct)[:2] == (ROWS, PARTITIONS * each * (each - 1) // 2)
    assert tuple(exported) == tuple(direct)
    latest = compact_view(frame).selectExpr("count(*)", "min(offset)", "max(offset)").first()
    assert tuple(latest) == (PARTITIONS * KEYS, each - KEYS, each - 1)


def test_a_million_records_come_back_from_an_export(logs: Path, tmp_path: Path) -> None:
    export([logs], tmp_path / "out", LocalEngine(2))
    assert restore([tmp_path / "out"], tmp_path / "written", LocalEngine(2)).records == ROWS
    assert restore([logs], tmp_path / "copied", LocalEngine(2)).partitions == PARTITIONS
    assert verify([logs, tmp_path / "copied"], LocalEngine(2)).differences == []
    for one, other in zip(
        open_partitions(logs), open_partitions(tmp_path / "written"), strict=True
    ):
        records = other.to_arrow()
        assert one.to_arrow().equals(records)
        offsets = records["offset"].to_numpy()
        assert np.array_equal(offsets, np.arange(ROWS // PARTITIONS))
        assert np.array_equal(numbers_in(records["value"], 8), offsets)
        assert np.array_equal(numbers_in(records["key"], 2), offsets % KEYS)
