"""Kafka's files decoded in plain Python: the judge of the native decoders in tests.

Written from the format alone, with no code of the engine: batches of every codec, offset and time
indexes, producer snapshots, transaction indexes. Slow and strict: what does not add up raises
`MalformedError`.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

import pyarrow as pa

HEADER = struct.Struct(">qiibIhiqqqhii")
XERIAL = b"\x82SNAPPY\x00"


class MalformedError(Exception):
    """Bytes that the format does not allow."""


class Batch(NamedTuple):
    position: int
    base_offset: int
    leader_epoch: int
    crc: int
    attributes: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    payload: bytes  # as it stands, maybe compressed


class Record(NamedTuple):
    offset: int
    timestamp: int
    timestamp_type: int
    leader_epoch: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def _remainder(number: int) -> int:
    for _ in range(8):
        number = (number >> 1) ^ (0x82F63B78 if number & 1 else 0)
    return number


_TABLE = [_remainder(number) for number in range(256)]


def crc32c(content: bytes) -> int:
    remainder = 0xFFFFFFFF
    for byte in content:
        remainder = _TABLE[(remainder ^ byte) & 0xFF] ^ (remainder >> 8)
    return remainder ^ 0xFFFFFFFF


def batches(content: bytes, *, check_crc: bool = True) -> Any:
    """Iterate over the whole batches of `content`; a partial one at the end is left out."""
    at = 0
    while len(content) - at >= 12:
        (length,) = struct.unpack_from(">i", content, at + 8)
        if length < HEADER.size - 12:
            raise MalformedError(f"batch of length {length} at byte {at}")
        if (end := at + 12 + length) > len(content):
            return
        fields = HEADER.unpack_from(content, at)
        base, _, epoch, magic, crc, attributes, last_delta, *others = fields
        if magic != 2 or last_delta < 0 or base < 0 or others[-1] < 0:
            raise MalformedError(f"header of the batch at byte {at}")
        if check_crc and crc32c(content[at + 21 : end]) != crc:
            raise MalformedError(f"checksum of the batch at byte {at}")
        payload = content[at + HEADER.size : end]
        yield Batch(at, base, epoch, crc, attributes, base + last_delta, *others, payload)
        at = end


def decompress(codec: int, payload: bytes) -> bytes:
    if codec == 0:
        return payload
    if codec == 1:
        return zlib.decompress(payload, wbits=31)
    if codec == 2:
        return b"".join(_snappy_blocks(payload))
    if codec > 4:
        raise MalformedError(f"codec {codec}")
    name = "lz4" if codec == 3 else "zstd"
    return bytes(pa.CompressedInputStream(pa.BufferReader(payload), name).read())


def _snappy_blocks(payload: bytes) -> Any:
    at = 16
    if not payload.startswith(XERIAL):
        yield _raw_snappy(payload)  # librdkafka writes one raw block
    while payload.startswith(XERIAL) and at < len(payload):
        (length,) = struct.unpack_from(">i", payload, at)
        yield _raw_snappy(payload[at + 4 : at + 4 + length])
        at += 4 + length


def _raw_snappy(block: bytes) -> bytes:
    last = next(place for place in range(5) if block[place] < 0x80)
    size = sum((block[place] & 0x7F) << 7 * place for place in range(last + 1))
    return bytes(pa.decompress(block, size, "snappy", asbytes=True))


class _Cursor:
    """Reads the fields of a record; every read past the end is a MalformedError."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def take(self, length: int) -> bytes:
        if not 0 <= length <= len(self.content) - self.at:
            raise MalformedError(f"{length} bytes at byte {self.at} of {len(self.content)}")
        self.at += length
        return self.content[self.at - length : self.at]

    def varint(self, bits: int = 32) -> int:
        folded = shift = 0
        while True:
            (byte,) = self.take(1)
            folded |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                folded &= (1 << bits) - 1
                return (folded >> 1) ^ -(folded & 1)
            if shift >= (35 if bits == 32 else 70):
                raise MalformedError(f"varint at byte {self.at}")

    def sized(self) -> bytes | None:
        length = self.varint()
        return self.take(length) if length >= 0 else None


def records(batch: Batch) -> list[Record]:
    payload = _Cursor(decompress(batch.attributes & 7, batch.payload))
    found: list[Record] = []
    for _ in range(batch.record_count):
        size = payload.varint()
        fields = _Cursor(payload.take(size))
        fields.take(1)  # attributes
        timestamp = batch.base_timestamp + fields.varint(64)
        offset = batch.base_offset + fields.varint()
        key, value, headers = fields.sized(), fields.sized(), []
        count = fields.varint()
        for _ in range(count):
            name = fields.sized()
            if name is None:
                raise MalformedError("header without a name")
            headers.append((name.decode("utf-8", "replace"), fields.sized()))
        if count < 0 or fields.at != size or not (found[-1].offset if found else -1) < offset:
            raise MalformedError(f"record at offset {offset}")
        if offset > batch.last_offset or offset < batch.base_offset:
            raise MalformedError(f"offset {offset} past the batch's last")
        kind = batch.attributes >> 3 & 1
        timestamp = batch.max_timestamp if kind else timestamp
        found.append(
            Record(offset, timestamp, kind, batch.leader_epoch, key, value, tuple(headers))
        )
    if payload.at != len(payload.content):
        raise MalformedError("bytes after the last record")
    return found


def _entries(content: bytes, layout: str) -> list[tuple[int, ...]]:
    size = struct.calcsize(layout)
    return list(struct.iter_unpack(layout, content[: len(content) // size * size]))


def offset_index(content: bytes, base_offset: int) -> list[tuple[int, int]]:
    """(offset, position) of each entry."""
    return [(base_offset + relative, position) for relative, position in _entries(content, ">ii")]


def time_index(content: bytes, base_offset: int) -> list[tuple[int, int]]:
    """(timestamp, offset) of each entry."""
    return [(timestamp, base_offset + relative) for timestamp, relative in _entries(content, ">qi")]


def transaction_index(content: bytes) -> list[tuple[int, ...]]:
    """(version, producer_id, first_offset, last_offset, last_stable_offset) of each entry."""
    return _entries(content, ">hqqqq")


def snapshot(content: bytes) -> list[tuple[int, ...]]:
    """Producer id, epoch, last sequence and offset, delta, timestamp, coordinator, transaction."""
    version, crc, count = struct.unpack_from(">hIi", content)
    if version != 1 or crc != crc32c(content[6:]) or len(content) != 10 + 46 * count:
        raise MalformedError(f"snapshot of version {version} with {count} entries")
    return _entries(content[10:], ">qhiqiqiq")
