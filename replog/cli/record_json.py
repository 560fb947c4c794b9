"""Records and batches as JSON lines, in the form of the fixtures' expected files.

A record: `topic, partition, offset, timestamp, timestamp_type, leader_epoch, key, value, headers`;
bytes are base64, null is null, headers are pairs. A control record adds `control`, its type's name.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from replog.errors import UsageError, shown
from replog.types import Codec, TimestampType, TopicPartition

TIMESTAMP_TYPES = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}
CONTROL_TYPES = (
    "ABORT",
    "COMMIT",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "SNAPSHOT_FOOTER",
    "KRAFT_VERSION",
    "KRAFT_VOTERS",
)
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

RECORD_FIELDS = frozenset(
    {
        "topic", "partition", "segment", "offset", "timestamp", "timestamp_type", "leader_epoch",
        "key", "value", "headers", "control",
    }
)  # fmt: skip
"""All that a record's row may have."""

Row = dict[str, Any]


def line(row: Row) -> bytes:
    """One row as a line of compact UTF-8 JSON; what UTF-8 cannot express is escaped."""
    text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="backslashreplace") + b"\n"


def encoded(content: bytes | None) -> str | None:
    """Base64 text, null for null."""
    return None if content is None else base64.b64encode(content).decode("ascii")


def decoded(text: Any, field: str) -> bytes | None:
    """The bytes of a base64 text. Raises UsageError naming the field."""
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise UsageError(
            f"expected base64 text or null for {field}, found {shown(text)}"
        ) from error


def record_rows(place: TopicPartition, records: pa.RecordBatch) -> Iterator[Row]:
    """Rows of decoded records, in order."""
    columns = [
        records.column(name).to_pylist()
        for name in ("offset", "timestamp_type", "leader_epoch", "key", "value", "headers")
    ]
    # Not as datetime: a timestamp may be any 64-bit number of ms.
    stamps = records.column("timestamp").cast(pa.int64()).to_pylist()
    for stamp, offset, kind, leader_epoch, key, value, headers in zip(
        stamps, *columns, strict=True
    ):
        yield {
            "topic": place.topic,
            "partition": place.partition,
            "offset": offset,
            "timestamp": stamp,
            "timestamp_type": TIMESTAMP_TYPES[TimestampType(kind)],
            "leader_epoch": leader_epoch,
            "key": encoded(key),
            "value": encoded(value),
            "headers": [[one["key"], encoded(one["value"])] for one in headers or ()],
        }


def control_name(key: str | None) -> str:
    """Name of a control record's type, from its base64 key (i16 version | i16 type)."""
    kind = int.from_bytes(base64.b64decode(key or "")[2:4], "big", signed=True)
    return CONTROL_TYPES[kind] if 0 <= kind < len(CONTROL_TYPES) else "UNKNOWN"


def last_sequence(header: Any) -> int:
    """Sequence of a batch's last record: -1 for none, wrapping behind 2147483647 to 0."""
    base = int(header["base_sequence"])
    if base < 0:
        return -1
    return (base + int(header["last_offset"]) - int(header["base_offset"])) & 0x7FFFFFFF


def batch_row(place: TopicPartition, segment: int, header: Any, *, valid: bool) -> Row:
    """Row of one batch from its header; `valid`: size and CRC are right."""
    attributes = int(header["attributes"])
    deletes = bool(attributes & DELETE_HORIZON_BIT)
    base_timestamp = int(header["base_timestamp"])
    codec = attributes & 0x07
    kind = (
        TimestampType.LOG_APPEND_TIME
        if attributes & LOG_APPEND_TIME_BIT
        else TimestampType.CREATE_TIME
    )
    return {
        "topic": place.topic,
        "partition": place.partition,
        "segment": segment,
        "position": int(header["position"]),
        "base_offset": int(header["base_offset"]),
        "last_offset": int(header["last_offset"]),
        "size": int(header["size_bytes"]),
        "count": int(header["record_count"]),
        "magic": int(header["magic"]),
        "codec": Codec(codec).name.lower() if codec <= Codec.ZSTD else f"unknown {codec}",
        "timestamp_type": TIMESTAMP_TYPES[kind],
        "base_timestamp": base_timestamp,
        "max_timestamp": int(header["max_timestamp"]),
        "producer_id": int(header["producer_id"]),
        "producer_epoch": int(header["producer_epoch"]),
        "base_sequence": int(header["base_sequence"]),
        "last_sequence": last_sequence(header),
        "transactional": bool(attributes & TRANSACTIONAL_BIT),
        "control": bool(attributes & CONTROL_BIT),
        "leader_epoch": int(header["leader_epoch"]),
        "crc": int(header["crc"]),
        "valid": valid,
        "delete_horizon": base_timestamp if deletes else None,
    }
