"""Record batches straight from the bytes of `.log` files: an opinion apart from replog's reader.

It knows the first 27 bytes of Kafka's batch header and nothing else:

    base_offset 8 | length 4 | leader_epoch 4 | magic 1 | crc 4 | attributes 2 | last_offset_delta 4

The first 16 bytes are the leader's to stamp; from byte 16 on a batch is as its producer made it.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

from replog.errors import CorruptBatchError, ReplicationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_HEADER = struct.Struct(">qiibIhi")
_LENGTH_FOLLOWS = 12
PRODUCERS_PART = 16


class RawBatch(NamedTuple):
    """One batch; `content` is all its bytes."""

    path: str
    position: int
    base_offset: int
    last_offset: int
    content: bytes

    @property
    def checksum(self) -> int:
        """CRC-32 (zlib's) of the producer's part."""
        return zlib.crc32(memoryview(self.content)[PRODUCERS_PART:])


class AcknowledgedBatch(NamedTuple):
    """What a producer remembers of a batch that was acknowledged."""

    base_offset: int
    last_offset: int
    checksum: int


class Comparison(NamedTuple):
    """What was found equal on all replicas, and present of all that was acknowledged."""

    batches: int
    size_bytes: int
    records: int
    acknowledged_records: int


def walk(content: bytes | memoryview | mmap.mmap, path: str = "buffer") -> Iterator[RawBatch]:
    """The whole batches of `content`, from its beginning; a partial one at the end is left out."""
    position = 0
    while position + _HEADER.size <= len(content):
        base_offset, length, _, magic, _, _, delta = _HEADER.unpack_from(content, position)
        end = position + _LENGTH_FOLLOWS + length
        if length < _HEADER.size - _LENGTH_FOLLOWS or magic != 2 or delta < 0:
            raise CorruptBatchError(
                f"expected a batch of magic 2 at byte {position} of {path}, found magic {magic}, "
                f"length {length}, last offset delta {delta}",
                path=path,
                position=position,
            )
        if end > len(content):
            return
        whole = bytes(content[position:end])
        yield RawBatch(path, position, base_offset, base_offset + delta, whole)
        position = end


def committed_batches(directory: str, high_watermark: int) -> Iterator[RawBatch]:
    """The batches of a partition directory whose offsets lie below `high_watermark`."""
    for name in sorted(os.listdir(directory)):
        if not name.endswith(".log"):
            continue
        path = os.path.join(directory, name)
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                continue
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                for batch in walk(content, path):
                    if batch.last_offset >= high_watermark:
                        return
                    yield batch


def compare_replicas(
    directories: Sequence[str],
    high_watermark: int,
    acknowledged: Iterable[AcknowledgedBatch],
) -> Comparison:
    """Hold the committed bytes of all replicas against each other and what was acknowledged.

    Raises ReplicationError with the first place where two replicas differ, where offsets leave a
    hole, or where an acknowledged batch is missing.
    """
    waiting = {(batch.base_offset, batch.last_offset): batch for batch in acknowledged}
    acknowledged_records = sum(last - base + 1 for base, last in waiting)
    batches = size_bytes = next_offset = 0
    replicas = [committed_batches(directory, high_watermark) for directory in directories]
    while True:
        row = [next(replica, None) for replica in replicas]
        first = row[0]
        if first is None and all(batch is None for batch in row):
            break
        _refuse_difference(directories, row)
        assert first is not None
        if first.base_offset != next_offset:
            raise ReplicationError(
                f"expected offset {next_offset} at byte {first.position} of {first.path}, found "
                f"{first.base_offset}",
                path=first.path,
                position=first.position,
                offset=next_offset,
            )
        next_offset = first.last_offset + 1
        batches += 1
        size_bytes += len(first.content)
        promised = waiting.get((first.base_offset, first.last_offset))
        if promised is not None and promised.checksum == first.checksum:
            del waiting[first.base_offset, first.last_offset]
    if next_offset != high_watermark or waiting:
        missing = min(waiting, default=(next_offset, high_watermark - 1))
        raise ReplicationError(
            f"expected every acknowledged record below offset {high_watermark} in "
            f"{directories[0]}, found those of [{missing[0]}, {missing[1]}] missing or changed",
            path=directories[0],
            offset=missing[0],
        )
    return Comparison(batches, size_bytes, next_offset, acknowledged_records)


def _refuse_difference(directories: Sequence[str], row: Sequence[RawBatch | None]) -> None:
    first = row[0]
    for directory, batch in zip(directories, row, strict=True):
        same = first is not None and batch is not None and batch.content == first.content
        if not same:
            place = next(found for found in row if found is not None)
            raise ReplicationError(
                f"expected {directories[0]} and {directory} to hold the same bytes from offset "
                f"{place.base_offset} on, found that they differ (byte {place.position} of "
                f"{place.path})",
                path=place.path,
                position=place.position,
                offset=place.base_offset,
            )
