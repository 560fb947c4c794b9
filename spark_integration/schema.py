"""Columns of the data source `replog`, those of Spark's own Kafka source, and their Arrow form.

Spark checks only the first batch against its schema, so every batch is built to the exact types
here: `timestamp[us, UTC]`, plain binary, no dictionaries. A user's schema picks columns, which is
the only pruning that PySpark's data source API has.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from replog.errors import UsageError

DDL = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)

_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
ARROW_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": _HEADERS,
}
# Spark's name to the record decoder's; topic and partition are constants of a partition.
DECODED = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
}
# Milliseconds that fit Spark's timestamps, which are 64-bit microseconds.
_MS_MAX = (2**63 - 1) // 1000


def columns_to_decode(names: Sequence[str]) -> list[str]:
    """Decoder columns for Spark's columns; one cheap column where only constants are asked for."""
    return [DECODED[name] for name in names if name in DECODED] or ["offset"]


def check_columns(fields: Sequence[tuple[str, str, bool]]) -> list[str]:
    """Names of a schema's (name, simple type, nullable) fields. Raises UsageError."""
    wanted = dict(_simple_types())
    for name, simple_type, nullable in fields:
        if name not in wanted:
            raise UsageError(
                f"expected columns out of {', '.join(wanted)} in the schema, found {name!r}; "
                f"leave it out"
            )
        if simple_type != wanted[name] or not nullable:
            raise UsageError(
                f"expected column {name} as a nullable {wanted[name]}, found {simple_type}"
                f"{'' if nullable else ' NOT NULL'}; read it so and cast it in a select"
            )
    return [name for name, _, _ in fields]


def _simple_types() -> list[tuple[str, str]]:
    return [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]


def to_spark(
    records: pa.RecordBatch, names: Sequence[str], topic: str, partition: int
) -> pa.RecordBatch:
    """Decoded records as the columns `names`, in that order and of the exact types."""
    rows = records.num_rows
    arrays: list[pa.Array] = []
    for name in names:
        if name == "topic":
            arrays.append(pa.repeat(pa.scalar(topic, pa.string()), rows))
        elif name == "partition":
            arrays.append(pa.repeat(pa.scalar(partition, pa.int32()), rows))
        else:
            arrays.append(_converted(name, records.column(DECODED[name])))
    schema = pa.schema([pa.field(name, ARROW_TYPES[name]) for name in names])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _converted(name: str, column: pa.Array) -> pa.Array:
    if name == "timestamp":
        return _microseconds(column)
    if name == "headers":
        return _headers(column)
    return column.cast(ARROW_TYPES[name])


def _microseconds(column: pa.Array) -> pa.Array:
    """Milliseconds to microseconds; a time that microseconds cannot hold becomes null."""
    stamps = column.cast(pa.int64())
    extent = pc.min_max(stamps).as_py()
    if extent["max"] is not None and max(extent["max"], -extent["min"]) > _MS_MAX:
        holds = pc.and_(pc.less_equal(stamps, _MS_MAX), pc.greater_equal(stamps, -_MS_MAX))
        stamps = pc.if_else(holds, stamps, pa.scalar(None, pa.int64()))
    return pc.multiply(stamps, 1000).cast(ARROW_TYPES["timestamp"])


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
