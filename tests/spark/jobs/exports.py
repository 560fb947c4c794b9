"""Logs to export, and what an export directory shows to a reader that knows nothing of replog."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from replog.storage.partition_log import PartitionLog

# Every step at which a job can be killed in `make test-spark-long`, every third in `make test`.
STEP = 1 if int(os.environ.get("REPLOG_SPARK_KILLS", "0")) > 2 else 3
SECOND_DAY_MS = 1_700_000_000_000 + 86_400_000
FIRST_DAY_MS = 1_700_000_000_000


def append(path: Path, count: int, *, first: int = 0, timestamp: int = FIRST_DAY_MS) -> None:
    """Records numbered from `first`, a batch of ten at a time, each with key, value and headers."""
    with PartitionLog.open(path) as log:
        for begin in range(first, first + count, 10):
            numbers = range(begin, min(begin + 10, first + count))
            log.append(
                [None if number % 7 == 3 else b"value-%d" % number for number in numbers],
                keys=[None if number % 5 == 4 else b"key-%d" % (number % 6) for number in numbers],
                timestamps=[timestamp + number for number in numbers],
                headers=[[("n", b"%d" % number)] if number % 3 else [] for number in numbers],
                leader_epoch=begin // 50,
            )
        log.high_watermark = log.log_end_offset


def visible(directory: Path) -> dict[str, str]:
    """Path and digest of every file that Spark or pyarrow would read under `directory`."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not any(part[0] in "_." for part in path.relative_to(directory).parts)
    }


def table(directory: Path) -> pa.Table:
    """All rows in order, topic and date from the paths, timestamps as microseconds."""
    files = [str(directory / name) for name in visible(directory)]
    partitioning = ds.partitioning(
        pa.schema([("topic", pa.string()), ("date", pa.string())]), flavor="hive"
    )
    whole = ds.dataset(files, partitioning=partitioning, partition_base_dir=str(directory))
    names = pa.unify_schemas([whole.schema, *(pq.read_schema(file) for file in files)])
    whole = whole.replace_schema(names)
    order = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
    read = whole.to_table().sort_by(order)
    at = read.schema.get_field_index("timestamp")
    return read.set_column(at, "timestamp", read["timestamp"].cast(pa.int64()))


def rows(directory: Path) -> list[dict[str, Any]]:
    return table(directory).to_pylist()
