"""Record batches the slow and obvious way: what the native encoder is held against."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from replog._native import crc32c

Headers = Sequence[tuple[str, bytes | None]]


def varint(number: int) -> bytes:
    left = (number << 1) ^ (number >> 63)
    out = bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def piece(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> bytes:
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + piece(key) + piece(value)
    body += varint(len(headers))
    for name, content in headers:
        body += piece(name.encode()) + piece(content)
    return varint(len(body)) + body


def records(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None],
    timestamps: Sequence[int],
    headers: Sequence[Headers],
) -> bytes:
    return b"".join(
        record(row, timestamps[row] - timestamps[0], keys[row], values[row], headers[row])
        for row in range(len(values))
    )


def batch(
    payload: bytes,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
    last_offset_delta: int | None = None,
) -> bytes:
    """A version 2 batch header around `payload`."""
    checked = struct.pack(
        ">hiqqqhii",
        attributes,
        count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    checked += payload
    head = struct.pack(">qiib", base_offset, len(checked) + 9, leader_epoch, 2)
    return head + struct.pack(">I", crc32c.checksum(checked)) + checked
