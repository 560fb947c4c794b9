"""Streaming queries inside Spark: triggers, restarts, rows while a log is written."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs PySpark 4.2")

from replog.storage.partition_log import PartitionLog
from tests.spark.in_process import written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark
NAMES = itertools.count()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return written(tmp_path / "data" / "orders-0", 100)


def run_now(spark: SparkSession, log: Path, where: Path, **options: str) -> list[dict]:
    """Trigger.AvailableNow into files; what each batch's progress said of the source."""
    query = (
        spark.readStream.format("replog")
        .schema("partition int, offset bigint")
        .option("startingOffsets", "earliest")
        .options(**options)
        .load(str(log.parent))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(where / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(where / "out"))
    )
    query.awaitTermination()
    return [json.loads(one.json) for one in query.recentProgress]


def offsets(spark: SparkSession, where: Path) -> list[tuple[int, int]]:
    return sorted(tuple(row) for row in spark.read.parquet(str(where / "out")).collect())


def test_available_now_reads_in_limited_batches_and_goes_on_after_a_restart(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    progress = run_now(spark, log, tmp_path, maxOffsetsPerTrigger="40")
    assert [one["numInputRows"] for one in progress if one["numInputRows"]] == [40, 40, 20]
    assert progress[0]["sources"][0]["endOffset"] == {"orders": {"0": [40, 0]}}
    with PartitionLog.open(log) as opened:
        opened.append([b"more"] * 50)
    written(log.parent / "orders-1", 30)
    run_now(spark, log, tmp_path, maxBytesPerTrigger="100m")
    with PartitionLog.open(log) as opened:
        opened.append([b"and more"] * 5)
    run_now(spark, log, tmp_path, minOffsetsPerTrigger="100")
    assert offsets(spark, tmp_path) == sorted(
        [*((0, n) for n in range(155)), *((1, n) for n in range(30))]
    )


def test_a_running_query_follows_a_log_that_is_written(spark: SparkSession, log: Path) -> None:
    name = f"followed_{next(NAMES)}"
    query: StreamingQuery = (
        spark.readStream.format("replog")
        .option("includeHeaders", "true")
        .load(str(log.parent))
        .writeStream.format("memory")
        .queryName(name)
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        query.processAllAvailable()
        assert spark.table(name).count() == 0
        for turn in range(3):
            with PartitionLog.open(log) as opened:
                opened.append([b"turn %d" % turn] * 20)
            query.processAllAvailable()
            assert spark.table(name).count() == 20 * (turn + 1)
        seen = sorted(row["offset"] for row in spark.table(name).select("offset").collect())
        assert seen == list(range(100, 160))
    finally:
        query.stop()
