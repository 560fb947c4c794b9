"""Columns of the data source `replog`, those of Spark's own Kafka source, and their Arrow form.

Spark checks only the first batch against its schema, so every batch is built to the exact types
here: `timestamp[us, UTC]`, plain binary, no dictionaries. A user's schema picks columns, which is
the only pruning that PySpark's data source API has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from replog.errors import UsageError


class Column(NamedTuple):
    """ddl, simple_type: the type in Spark's two spellings. decoded: the record decoder's name,
    None for what is the same in all rows of a partition.
    """

    ddl: str
    simple_type: str
    arrow_type: pa.DataType
    decoded: str | None


_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
HEADERS = "headers"
LEADER_EPOCH = "leaderEpoch"
CORRUPT_RECORD = "_corrupt_record"  # as Spark's own readers call it
COLUMNS: dict[str, Column] = {
    "key": Column("binary", "binary", pa.binary(), "key"),
    "value": Column("binary", "binary", pa.binary(), "value"),
    "topic": Column("string", "string", pa.string(), None),
    "partition": Column("int", "int", pa.int32(), None),
    "offset": Column("bigint", "bigint", pa.int64(), "offset"),
    "timestamp": Column("timestamp", "timestamp", pa.timestamp("us", tz="UTC"), "timestamp"),
    "timestampType": Column("int", "int", pa.int32(), "timestamp_type"),
    HEADERS: Column(
        "array<struct<key: string, value: binary>>",
        "array<struct<key:string,value:binary>>",
        _HEADERS,
        "headers",
    ),
    LEADER_EPOCH: Column("int", "int", pa.int32(), "leader_epoch"),
    CORRUPT_RECORD: Column("string", "string", pa.string(), None),
}
_ASKED_FOR = (HEADERS, LEADER_EPOCH, CORRUPT_RECORD)
# Milliseconds that fit Spark's timestamps, which are 64-bit microseconds.
_MS_MAX = (2**63 - 1) // 1000


def default_columns(*, headers: bool, leader_epoch: bool, corrupt_record: bool) -> list[str]:
    """The columns of a read that has no schema of the user's."""
    asked = zip(_ASKED_FOR, (headers, leader_epoch, corrupt_record), strict=True)
    return [name for name in COLUMNS if name not in _ASKED_FOR] + [name for name, on in asked if on]


def ddl(names: Sequence[str]) -> str:
    """A schema of these columns in Spark's language."""
    return ", ".join(f"{name} {COLUMNS[name].ddl}" for name in names)


def columns_to_decode(names: Sequence[str]) -> list[str]:
    """Decoder columns for Spark's columns; one cheap column where only constants are asked for."""
    decoded = [COLUMNS[name].decoded for name in names]
    return [name for name in decoded if name is not None] or ["offset"]


def check_columns(fields: Sequence[tuple[str, str, bool]]) -> list[str]:
    """Names of a schema's (name, simple type, nullable) fields. Raises UsageError."""
    for name, simple_type, nullable in fields:
        if name not in COLUMNS:
            raise UsageError(
                f"expected columns out of {', '.join(COLUMNS)} in the schema, found {name!r}; "
                f"leave it out"
            )
        wanted = COLUMNS[name].simple_type
        if simple_type != wanted or not nullable:
            raise UsageError(
                f"expected column {name} as a nullable {wanted}, found {simple_type}"
                f"{'' if nullable else ' NOT NULL'}; read it so and cast it in a select"
            )
    return [name for name, _, _ in fields]


class RowShape:
    """Turns decoded records into batches of the columns `names`, in that order.

    Columns that are the same in every row are built once for many batches.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.schema = pa.schema([pa.field(name, COLUMNS[name].arrow_type) for name in names])
        self._repeated: dict[tuple[str, str | int | None], pa.Array] = {}

    def batch(self, records: pa.RecordBatch, topic: str, partition: int) -> pa.RecordBatch:
        """The rows of `records`, all of one partition."""
        constants: dict[str, str | int] = {"topic": topic, "partition": partition}
        arrays = [
            self._constant(name, constants.get(name), records.num_rows)
            if COLUMNS[name].decoded is None
            else _converted(name, records.column(COLUMNS[name].decoded))
            for name in self.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def report(self, topic: str, partition: int, offset: int, problem: str) -> pa.RecordBatch:
        """One row that stands for records that cannot be read."""
        told = {"topic": topic, "partition": partition, "offset": offset, CORRUPT_RECORD: problem}
        arrays = [pa.array([told.get(field.name)], field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _constant(self, name: str, constant: str | int | None, rows: int) -> pa.Array:
        kept = self._repeated.get((name, constant))
        if kept is None or len(kept) < rows:
            kept = pa.repeat(pa.scalar(constant, COLUMNS[name].arrow_type), rows)
            self._repeated[name, constant] = kept
        return kept.slice(0, rows)


def _converted(name: str, column: pa.Array) -> pa.Array:
    if name == "timestamp":
        return _microseconds(column)
    if name == HEADERS:
        return _headers(column)
    wanted = COLUMNS[name].arrow_type
    return column if column.type.equals(wanted) else column.cast(wanted)


def _microseconds(column: pa.Array) -> pa.Array:
    """Milliseconds to microseconds; a time that microseconds cannot hold becomes null."""
    try:
        return column.cast(COLUMNS["timestamp"].arrow_type)
    except pa.ArrowInvalid:
        stamps = column.cast(pa.int64())
        holds = pc.and_(pc.less_equal(stamps, _MS_MAX), pc.greater_equal(stamps, -_MS_MAX))
        kept = pc.if_else(holds, stamps, pa.scalar(None, pa.int64()))
        return pc.multiply(kept, 1000).cast(COLUMNS["timestamp"].arrow_type)


def _headers(column: pa.Array) -> pa.Array:
    """Null where a record has no headers, as Spark's Kafka source says it."""
    lengths = pc.list_value_length(column)
    if column.null_count == 0 and pc.min(lengths).as_py() != 0:
        return column.cast(_HEADERS)
    none = pc.fill_null(pc.equal(lengths, 0), fill_value=True)
    if pc.all(none).as_py():
        return pa.nulls(len(column), _HEADERS)
    # from_arrays takes no mask beside sliced offsets, so the column is brought to offset 0 first.
    whole = (
        pa.concat_arrays([column])
        if column.offset == 0
        else column.take(pa.array(range(len(column)), pa.int64()))
    )
    entries = whole.values.cast(_HEADERS.value_type)
    return pa.ListArray.from_arrays(whole.offsets, entries, type=_HEADERS, mask=none)
