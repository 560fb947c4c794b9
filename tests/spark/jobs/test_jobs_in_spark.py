"""The jobs on Spark's executors: the same results as on threads, and readable errors."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from replog.cli.main import run
from replog.errors import CorruptBatchError, UsageError
from replog.reader import PartitionReader, open_partitions
from replog.storage.partition_log import PartitionLog
from spark_integration.jobs.compact_view import compact_view, write_view
from spark_integration.jobs.engine import LocalEngine, SparkEngine
from spark_integration.jobs.export import export
from spark_integration.jobs.restore import restore
from spark_integration.jobs.stats import stats
from spark_integration.jobs.stats_page import stats_page
from spark_integration.jobs.verify import verify
from tests.spark.jobs.exports import FIRST_DAY_MS, append, rows, visible

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
    with PartitionLog.open(tmp_path / "u-0") as log:
        log.append([b"good"])
    with pytest.raises(CorruptBatchError, match=segment.name) as raised:
        export([tmp_path / "t-0", tmp_path / "u-0"], tmp_path / "out", SparkEngine(spark))
    assert raised.value.position is not None
    assert rows_seen(tmp_path / "out") == 0


def rows_seen(directory: Path) -> int:
    return len(rows(directory)) if visible(directory) else 0


def test_both_engines_compare_and_restore_alike(spark: SparkSession, tmp_path: Path) -> None:
    brokers = [GOLDEN / "leader_changes" / f"broker-{number}" for number in (1, 2, 3)]
    on_spark, local = (verify(brokers, one) for one in (SparkEngine(spark), LocalEngine()))
    assert on_spark.comparisons == local.comparisons
    assert on_spark.differences == []
    export(brokers, tmp_path / "out", LocalEngine())
    for source, name in ((brokers[0], "copied"), (tmp_path / "out", "written")):
        restored = restore([source], tmp_path / name, SparkEngine(spark))
        assert restored.partitions == 2
    assert verify([brokers[0], tmp_path / "copied"], LocalEngine()).differences == []


def latest_by_key(path: Path) -> dict[tuple[str, int, bytes], tuple[int, bytes]]:
    """Plain Python's answer: offset and value of each key's latest record, no tombstones."""
    found: dict[tuple[str, int, bytes], tuple[int, bytes | None]] = {}
    for reader in open_partitions(path):
        topic, partition = reader.topic_partition
        for row in reader.to_arrow(columns=["key", "value", "offset"]).to_pylist():
            if row["key"] is not None:
                found[topic, partition, row["key"]] = (row["offset"], row["value"])
    return {key: (at, value) for key, (at, value) in found.items() if value is not None}


@pytest.mark.parametrize("case", ["compaction/before", "leader_changes/broker-1"])
def test_the_view_has_each_keys_latest_record_and_no_tombstones(
    spark: SparkSession, case: str, tmp_path: Path, capfd
) -> None:
    source = GOLDEN / case
    expected = latest_by_key(source)
    records = spark.read.format("replog").load(str(source))
    view = compact_view(records)
    assert view.columns == records.columns
    found = {
        (row.topic, row.partition, bytes(row.key)): (row.offset, bytes(row.value))
        for row in view.collect()
    }
    assert found == expected
    capfd.readouterr()
    command = ["spark", "compact-view", "--json", str(source)]
    assert run(command) == 0
    assert len(capfd.readouterr().out.splitlines()) == len(expected)
    assert run([*command, "--output", str(tmp_path / "view")]) == 0
    assert json.loads(capfd.readouterr().out)["keys"] == len(expected)
    assert [path.name for path in tmp_path.iterdir()] == ["view"]
    assert run([*command, "--output", str(tmp_path / "view")]) == 1
    assert "give a new one" in capfd.readouterr().err


def test_a_view_needs_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "t-0", 3)
    records = spark.read.format("replog").load(str(tmp_path / "t-0"))
    with pytest.raises(UsageError, match="found no value"):
        compact_view(records.drop("value"))


def test_a_view_that_cannot_be_written_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "logs" / "t-0", 500)
    (segment,) = (tmp_path / "logs" / "t-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    records = spark.read.format("replog").load(str(tmp_path / "logs"))
    with pytest.raises(Exception, match=segment.name):
        write_view(compact_view(records), tmp_path / "view")
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def test_statistics_are_those_of_plain_python(spark: SparkSession, tmp_path: Path, capfd) -> None:
    append(tmp_path / "logs" / "t-0", 500)
    append(tmp_path / "logs" / "t-1", 100, timestamp=FIRST_DAY_MS + 600_000)
    report = stats(spark, [tmp_path / "logs"], keys_max=2)
    tables = {one.topic_partition: one.to_arrow() for one in open_partitions(tmp_path / "logs")}
    for one in report.partitions:
        rows = tables[one.topic, one.partition].to_pylist()
        keys = Counter(row["key"] for row in rows if row["key"] is not None)
        assert (one.records, one.keys) == (len(rows), len(keys))
        assert one.without_key == sum(row["key"] is None for row in rows)
        assert one.tombstones == sum(row["value"] is None for row in rows)
        assert one.value_bytes == sum(len(row["value"] or b"") for row in rows)
        assert one.key_bytes == sum(len(row["key"] or b"") for row in rows)
        assert one.largest_key_share == round(max(keys.values()) / keys.total(), 4)
        assert one.codecs == {"none": one.batches}
        (path,) = (tmp_path / "logs" / f"{one.topic}-{one.partition}").glob("*.log")
        assert one.size_bytes == path.stat().st_size
    (topic,) = report.topics
    assert (topic.records, topic.record_skew) == (600, round(500 / 300, 4))
    assert sum(point.records for point in report.rates) == 600
    assert len(report.keys) == 2
    assert sum(count * keys for count, keys in report.key_frequencies["t"]) == sum(
        one.records - one.without_key for one in report.partitions
    )
    page = tmp_path / "page.html"
    assert run(["spark", "stats", "--html", str(page), str(tmp_path / "logs")]) == 0
    assert capfd.readouterr().out.splitlines()[0].startswith("topic")
    text = page.read_text()
    assert text.count("<svg") == 3
    assert not re.search(r"(?:src|href)=[\"']?(?!#)", text.replace('xlink:href="#', ""))
    assert run(["spark", "stats", "--json", str(tmp_path / "logs")]) == 0
    kinds = [json.loads(line)["kind"] for line in capfd.readouterr().out.splitlines()]
    assert {"topic", "partition", "key", "rate"} == set(kinds)


def test_statistics_take_every_directory_that_kafka_wrote(spark: SparkSession) -> None:
    for case in ("codecs/data", "transactions/data"):
        report = stats(spark, [GOLDEN / case])
        assert "<svg" in stats_page(report, case)
        for one in report.partitions:
            reader = PartitionReader(GOLDEN / case / f"{one.topic}-{one.partition}")
            rows = reader.to_arrow(columns=["offset"]).num_rows
            assert one.keys + one.without_key <= rows
            assert one.records >= rows  # a batch may have been emptied by an aborted transaction
