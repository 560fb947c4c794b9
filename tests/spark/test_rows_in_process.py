"""Every fixture row for row as Kafka's own consumer saw it, planned and read without a JVM."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark.sql.datasource", reason="needs the extra `spark`")

from replog.errors import CorruptBatchError
from tests.fixtures.cases import Row
from tests.reader.consumed import Consumed, consumed
from tests.spark.in_process import read, read_partition, reader_of

COLUMNS = (
    "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
)  # fmt: skip
KINDS = {"CreateTime": 0, "LogAppendTime": 1}
ALL = list(consumed())
WHOLE = [one for one in ALL if not any("error" in told for told in one.counts().values())]


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def shown(row: Row) -> tuple[Any, ...]:
    """A fixture's row in the shape of the data source; times in microseconds."""
    headers = [(name, decoded(value)) for name, value in row["headers"]]
    return (
        decoded(row["key"]),
        decoded(row["value"]),
        row["topic"],
        row["partition"],
        row["offset"],
        row["timestamp"] * 1000 if abs(row["timestamp"]) < 2**53 else None,
        KINDS[row["timestamp_type"]],
        headers or None,
    )


def found_rows(batches: list[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for batch in batches:
        columns = [
            batch[name].cast("int64").to_pylist()
            if name == "timestamp"
            else batch[name].to_pylist()
            for name in COLUMNS[:-1]
        ]
        headers = [
            None if one is None else [(header["key"], header["value"]) for header in one]
            for one in batch["headers"].to_pylist()
        ]
        rows += zip(*columns, headers, strict=True)
    return rows


def read_case(told: Consumed, **options: str) -> dict[str, list[tuple[Any, ...]]]:
    reader = reader_of(
        told.directory, *COLUMNS, **{"kafka.isolation.level": told.isolation, **options}
    )
    batches = [one for part in reader.partitions() for one in read_partition(reader, part)]
    by_partition: dict[str, list[tuple[Any, ...]]] = {}
    for row in found_rows(batches):
        by_partition.setdefault(f"{row[2]}-{row[3]}", []).append(row)
    return by_partition


@pytest.mark.parametrize("told", WHOLE, ids=str)
def test_rows_are_those_that_kafkas_consumer_read(told: Consumed) -> None:
    found, expected = read_case(told), told.rows()
    for partition in told.partitions():
        assert found.get(partition.name, []) == [shown(row) for row in expected[partition.name]]


@pytest.mark.parametrize("told", WHOLE, ids=str)
def test_rows_are_the_same_however_the_plan_is_cut(told: Consumed) -> None:
    whole = read_case(told)
    assert read_case(told, maxPartitionBytes="2k", batchRows="3") == whole
    assert read_case(told, maxRecordsPerPartition="17") == whole


@pytest.mark.parametrize("told", [one for one in ALL if one not in WHOLE], ids=str)
def test_where_kafkas_consumer_broke_off_so_does_a_task(told: Consumed) -> None:
    """The consumer stopped at damage; a task fails there, and what is before it can be read."""
    expected, counts = told.rows(), told.counts()
    for partition in told.partitions():
        if "error" not in counts[partition.name]:
            continue
        options = {"kafka.isolation.level": told.isolation}
        reader = reader_of(partition.path, *COLUMNS, **options)
        with pytest.raises(CorruptBatchError, match=partition.name):
            read(reader)
        lenient = reader_of(partition.path, *COLUMNS, mode="DROPMALFORMED", **options)
        batches = [one for part in lenient.partitions() for one in read_partition(lenient, part)]
        before = [shown(row) for row in expected[partition.name]]
        assert found_rows(batches)[: len(before)] == before
