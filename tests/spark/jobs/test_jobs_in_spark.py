"""The jobs on Spark's executors: the same results as on threads, and readable errors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import replog
from replog.errors import CorruptBatchError
from spark_integration.jobs.engine import LocalEngine, SparkEngine
from spark_integration.jobs.export import export
from tests.spark.jobs.exports import append, rows, visible

pytest.importorskip("pyspark.sql.datasource", reason="needs the extra `spark`")

from pyspark.sql import functions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GOLDEN = Path(__file__).parents[2] / "golden"


def test_both_engines_export_the_same_files_and_spark_reads_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = GOLDEN / "leader_changes" / "broker-1"
    steps: list[tuple[int, int]] = []
    on_spark = export(
        [source], tmp_path / "spark", SparkEngine(spark), progress=lambda *at: steps.append(at)
    )
    local = export([source], tmp_path / "local", LocalEngine())
    assert visible(tmp_path / "spark") == visible(tmp_path / "local")
    assert (on_spark.records, on_spark.engine) == (local.records, "spark")
    assert steps[-1][0] == steps[-1][1] > 0
    columns = ["topic", "partition", "offset", "key", "value", "timestamp", "timestampType"]
    exported = spark.read.parquet(str(tmp_path / "spark")).select(*columns)
    original = spark.read.format("replog").load(str(source)).select(*columns)
    assert exported.count() == original.count() == local.records
    assert exported.exceptAll(original).count() == 0
    assert exported.agg(functions.countDistinct("topic", "partition", "offset")).first()[0] == (
        local.records
    )


def test_an_error_on_an_executor_is_the_tasks_own(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "t-0", 500)
    (segment,) = (tmp_path / "t-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    with replog.Log.open(tmp_path / "u-0") as log:
        log.append([b"good"])
    with pytest.raises(CorruptBatchError, match=segment.name) as raised:
        export([tmp_path / "t-0", tmp_path / "u-0"], tmp_path / "out", SparkEngine(spark))
    assert raised.value.position is not None
    assert rows_seen(tmp_path / "out") == 0


def rows_seen(directory: Path) -> int:
    return len(rows(directory)) if visible(directory) else 0
