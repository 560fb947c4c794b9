"""The data source inside Spark, over directories that a real Kafka wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from replog.cli.main import run
from tests.reader.consumed import Consumed

pytest.importorskip("pyspark.sql.datasource", reason="needs the extra `spark`")

from pyspark.sql import functions

from tests.spark.test_rows_in_process import WHOLE, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GOLDEN = Path(__file__).parents[1] / "golden"
# Every fixture is read in process; through Spark go those with the most kinds of rows.
SAMPLE = [one for one in WHOLE if one.case in {"codecs", "transactions"} or one.stage == "after-2"]


def collected(spark: SparkSession, told: Consumed) -> list[tuple[Any, ...]]:
    frame = (
        spark.read.format("replog")
        .option("kafka.isolation.level", told.isolation)
        .option("includeHeaders", "true")
        .load(str(told.directory))
        .withColumn("timestamp", functions.unix_micros("timestamp"))
    )
    rows = []
    for row in frame.collect():
        headers = None if row.headers is None else [(h.key, plain(h.value)) for h in row.headers]
        rows.append((plain(row.key), plain(row.value), *row[2:7], headers))
    return rows


def plain(content: bytes | bytearray | None) -> bytes | None:
    return None if content is None else bytes(content)


@pytest.mark.parametrize("told", SAMPLE, ids=str)
def test_spark_reads_the_rows_that_kafkas_consumer_read(
    spark: SparkSession, told: Consumed
) -> None:
    expected = told.rows()
    found = collected(spark, told)
    for partition in told.partitions():
        mine = [row for row in found if (row[2], row[3]) == (partition.topic, partition.number)]
        assert sorted(mine, key=lambda row: row[4]) == [shown(x) for x in expected[partition.name]]


def test_counts_and_aggregates_are_right_when_a_frame_is_used_twice(spark: SparkSession) -> None:
    """Guards against filters that stick to a frame: each use must see all rows again."""
    path = GOLDEN / "leader_changes" / "broker-1"
    frame = spark.read.format("replog").load(str(path))
    rows = frame.count()
    assert frame.where("offset >= 20").count() < rows
    assert frame.count() == rows
    assert frame.union(frame.where("offset >= 20")).count() > rows
    sums = frame.groupBy("topic", "partition").agg(functions.sum(functions.length("value")))
    assert sums.count() == frame.select("topic", "partition").distinct().count()


def test_a_projected_frame_counts_the_same(spark: SparkSession) -> None:
    path = str(GOLDEN / "segments" / "data")
    whole = spark.read.format("replog").load(path)
    narrow = spark.read.format("replog").schema("offset bigint, topic string").load(path)
    assert narrow.columns == ["offset", "topic"]
    assert narrow.count() == whole.count()


def test_several_paths_and_sql_tables(spark: SparkSession) -> None:
    paths = [str(GOLDEN / "segments" / "data" / name) for name in ("falling-time-0", "time-roll-0")]
    both = spark.read.format("replog").load(paths)
    assert {row.topic for row in both.select("topic").distinct().collect()} == {
        "falling-time",
        "time-roll",
    }
    spark.sql(f"CREATE TEMPORARY VIEW rolled USING replog OPTIONS (path '{paths[1]}')")
    counted = spark.sql("SELECT count(*) AS rows FROM rolled").collect()[0].rows
    assert counted == both.where("topic = 'time-roll'").count()


def test_an_error_reaches_the_user_with_its_path(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.read.format("replog")
    with pytest.raises(Exception, match="found nothing"):
        frame.load(str(tmp_path / "absent")).count()


def test_the_source_is_found_without_being_registered() -> None:
    from pyspark.sql.datasource import DataSource

    import pyspark_replog

    assert issubclass(pyspark_replog.DefaultSource, DataSource)
    assert pyspark_replog.DefaultSource.name() == "replog"


def test_the_command_counts_and_aggregates_by_partition(
    spark: SparkSession, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """In the session that is there already, which the command leaves running."""
    path = GOLDEN / "leader_changes" / "broker-1"
    counted, rows = (commanded(capfdbinary, name, path) for name in ("count", "aggregate"))
    frame = spark.read.format("replog").load(str(path))
    assert sum(row["records"] for row in rows) == frame.count() == counted[0]["records"]
    assert {row["topic"] for row in rows} == {"moves", "moves-zstd"}


def commanded(
    capfdbinary: pytest.CaptureFixture[bytes], name: str, path: Path
) -> list[dict[str, Any]]:
    assert run(["spark", name, "--json", str(path)]) == 0
    return [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
