"""The Parquet files of one export task: one a UTC date, every row that the range holds.

Columns: all those of the data source but the topic, which with the date is part of the path. A
timestamp that has no date between the years 1 and 9999 goes to Hive's name for "no value"; there
the column `timestampMillis` keeps what Spark's microseconds may not hold.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_integration.jobs.durable_files import make_directories, sync_path
from spark_integration.schema import LEADER_EPOCH, RowShape, columns_to_decode

NO_DATE = "__HIVE_DEFAULT_PARTITION__"
DAY_MS = 86_400_000
FIRST_DAY = (dt.date.min - dt.date(1970, 1, 1)).days
LAST_DAY = (dt.date.max - dt.date(1970, 1, 1)).days
# Rows are held back until they fill a row group; many dates at once share this much memory.
ROW_GROUP_BYTES = 64 * 1024 * 1024
HELD_BYTES_MAX = 4 * ROW_GROUP_BYTES
OPEN_FILES_MAX = 128

COLUMNS = (
    "key",
    "value",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
    LEADER_EPOCH,
)
DECODED = columns_to_decode(COLUMNS)
SCHEMA = RowShape(COLUMNS).schema
TIMESTAMP_MILLIS = pa.field("timestampMillis", pa.int64())
# Offsets and timestamps hardly differ from row to row; keys may repeat, values seldom do.
ENCODINGS = {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"}
DICTIONARIES = ["key", "partition", "timestampType", "leaderEpoch", "headers.list.element.key"]


@dataclasses.dataclass(slots=True)
class DatedFile:
    """A file being written, and the rows that wait for their row group."""

    path: str
    first_offset: int
    writer: pq.ParquetWriter
    rows: int = 0
    last_offset: int = -1
    held: list[pa.RecordBatch] = dataclasses.field(default_factory=list)
    held_bytes: int = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self.held.append(rows)
        self.held_bytes += rows.nbytes
        self.rows += rows.num_rows
        self.last_offset = rows.column("offset")[-1].as_py()

    def write_held(self) -> None:
        """Make what is held a row group."""
        if self.held:
            self.writer.write_table(pa.Table.from_batches(self.held))
            self.held, self.held_bytes = [], 0


class DatedFiles:
    """Writes rows of one range, in their order, under `directory`. Close it, then read `facts`."""

    def __init__(self, directory: str, topic: str, partition: int, compression: str) -> None:
        self._directory = directory
        self._topic = topic
        self._partition = partition
        self._compression = compression
        self._shape = RowShape(COLUMNS)
        self._open: dict[str, DatedFile] = {}
        self.facts: list[dict[str, Any]] = []

    def add(self, records: pa.RecordBatch) -> None:
        """Take decoded records with the columns DECODED."""
        rows = self._shape.batch(records, self._topic, self._partition)
        stamps = records.column("timestamp").cast(pa.int64())
        for date, chosen in _by_date(stamps):
            part = rows if chosen is None else rows.filter(chosen)
            if date == NO_DATE:
                part = part.append_column(
                    TIMESTAMP_MILLIS, stamps if chosen is None else stamps.filter(chosen)
                )
            file = self._open.get(date) or self._create(date, part)
            file.add(part)
            if file.held_bytes >= ROW_GROUP_BYTES:
                file.write_held()
        while sum(file.held_bytes for file in self._open.values()) > HELD_BYTES_MAX:
            max(self._open.values(), key=lambda file: file.held_bytes).write_held()

    def _create(self, date: str, rows: pa.RecordBatch) -> DatedFile:
        if len(self._open) >= OPEN_FILES_MAX:
            self._finish(next(iter(self._open)))
        first_offset = rows.column("offset")[0].as_py()
        path = os.path.join(
            f"topic={self._topic}",
            f"date={date}",
            f"{self._partition}-{first_offset:020d}.parquet",  # a topic may begin with a hiding _
        )
        whole = os.path.join(self._directory, path)
        make_directories(os.path.dirname(whole))
        writer = pq.ParquetWriter(
            whole,
            rows.schema,
            compression=self._compression,
            use_dictionary=DICTIONARIES,
            column_encoding=ENCODINGS,
        )
        self._open[date] = DatedFile(path, first_offset, writer)
        return self._open[date]

    def _finish(self, date: str) -> None:
        file = self._open.pop(date)
        file.write_held()
        file.writer.close()
        whole = os.path.join(self._directory, file.path)
        sync_path(whole)
        sync_path(os.path.dirname(whole))
        self.facts.append(
            {
                "path": file.path,
                "topic": self._topic,
                "partition": self._partition,
                "date": date,
                "records": file.rows,
                "size_bytes": os.path.getsize(whole),
                "first_offset": file.first_offset,
                "last_offset": file.last_offset,
            }
        )

    def close(self) -> None:
        """Finish every file; durable on return."""
        for date in sorted(self._open):
            self._finish(date)

    def abandon(self) -> None:
        """Give up after an error; what was written is of no use."""
        for file in self._open.values():
            file.writer.close()
        self._open.clear()


def _by_date(stamps: pa.Array) -> Iterator[tuple[str, pa.Array | None]]:
    """Each date among timestamps in ms, with which rows have it; None where all have."""
    extent = pc.min_max(stamps).as_py()
    first, last = extent["min"] // DAY_MS, extent["max"] // DAY_MS
    if first == last:
        yield _name(first), None
        return
    days = pa.array(stamps.to_numpy() // DAY_MS)
    names: dict[str, pa.Array] = {}
    for day in sorted(pc.unique(days).to_pylist()):
        chosen = pc.equal(days, day)
        name = _name(day)
        names[name] = pc.or_(names[name], chosen) if name in names else chosen
    yield from names.items()


def _name(day: int) -> str:
    if not FIRST_DAY <= day <= LAST_DAY:
        return NO_DATE
    return (dt.date(1970, 1, 1) + dt.timedelta(days=day)).isoformat()
