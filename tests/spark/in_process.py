"""The data source without a JVM: made, planned and read as Spark does it, through pickles."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from replog import LogConfig
from replog.storage.partition_log import PartitionLog
from spark_integration.reader import ReplogReader
from spark_integration.source import ReplogDataSource

GOLDEN = Path(__file__).parents[1] / "golden"
MANY_SEGMENTS = GOLDEN / "segments" / "data" / "falling-time-0"
HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SCHEMA = StructType([
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
])  # fmt: skip
ASKED = StructType([
    StructField("headers", ArrayType(HEADER)),
    StructField("leaderEpoch", IntegerType()),
    StructField("_corrupt_record", StringType()),
])  # fmt: skip
EVERY = StructType([*SCHEMA.fields, *ASKED.fields])


def source_of(paths: Path | list[Path], **options: str) -> ReplogDataSource:
    if isinstance(paths, list):
        return ReplogDataSource({"paths": json.dumps([str(path) for path in paths]), **options})
    return ReplogDataSource({"path": str(paths), **options})


def schema_of(*columns: str) -> StructType:
    return StructType([EVERY[name] for name in columns]) if columns else SCHEMA


def reader_of(paths: Path | list[Path], *columns: str, **options: str) -> ReplogReader:
    reader = source_of(paths, **options).reader(schema_of(*columns))
    assert isinstance(reader, ReplogReader)
    return reader


def read_partition(reader: Any, partition: Any) -> list[pa.RecordBatch]:
    return list(pickle.loads(pickle.dumps(reader)).read(pickle.loads(pickle.dumps(partition))))


def read(reader: Any) -> pa.Table:
    """All rows, planned here and read from pickled copies, as executors do."""
    batches = [
        one for partition in reader.partitions() for one in read_partition(reader, partition)
    ]
    return pa.Table.from_batches(batches, batches[0].schema if batches else pa.schema([]))


def rows(reader: Any) -> list[dict[str, Any]]:
    return list(read(reader).to_pylist())


def offsets(reader: Any) -> dict[str, list[int]]:
    """Offsets by partition, in the order they were read."""
    found: dict[str, list[int]] = {}
    for row in rows(reader):
        found.setdefault(f"{row['topic']}-{row['partition']}", []).append(row["offset"])
    return found


def written(directory: Path, records: int = 400, *, start: int = 0) -> Path:
    """A partition directory of many small segments; record n has value b"record n" and time(n)."""
    config = LogConfig(segment_bytes=4000, index_interval_bytes=300)
    with PartitionLog.open(directory, config) as log:
        for first in range(start, start + records, 10):
            several = range(first, min(first + 10, start + records))
            log.append(
                [b"record %d" % n for n in several], timestamps=[time_of(n) for n in several]
            )
    return directory


def retain_from(directory: Path, offset: int) -> None:
    """Delete the records before `offset`, as retention does."""
    with PartitionLog.open(
        directory, LogConfig(segment_bytes=4000, index_interval_bytes=300)
    ) as log:
        log.truncate_prefix_to(offset)


def time_of(offset: int) -> int:
    """Rising by a second an offset, but every seventh record is an hour late."""
    return 1_700_000_000_000 + 1000 * offset - (3_600_000 if offset % 7 == 3 else 0)
