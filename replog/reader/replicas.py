"""Several copies of one partition: which to read, and whether they are the same.

Replicas that follow one leader hold the same batches byte for byte, so their committed prefixes can
be compared by headers, once each batch has been found to match its own checksum. Replicas of a
compacted topic are compacted each by itself and may differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replog.reader.partition import PartitionReader
from replog.reader.segment import Chunk
from replog.types import TopicPartition

_COMPARED = ("base_offset", "leader_epoch", "crc", "size_bytes")


class ReplicaDifference(NamedTuple):
    """The first batch in which two replicas differ.

    paths, positions: the segments and the byte in each that differs first; a position of None is a
    batch that the replica lacks.
    """

    topic_partition: TopicPartition
    offset: int
    paths: tuple[str, str]
    positions: tuple[int | None, int | None]

    def __str__(self) -> str:
        places = [
            f"byte {position} of {path}" if position is not None else f"no such batch in {path}"
            for path, position in zip(self.paths, self.positions, strict=True)
        ]
        return (
            f"{self.topic_partition} differs from offset {self.offset} on: {' and '.join(places)}"
        )


def choose_replica(replicas: Sequence[PartitionReader]) -> PartitionReader:
    """The one with the highest high watermark; of equal ones that with most records, then first."""
    return max(replicas, key=lambda one: (one.end_offset, one.log_end_offset))


def first_difference(
    one: PartitionReader,
    other: PartitionReader,
    start_offset: int | None = None,
    end_offset: int | None = None,
) -> ReplicaDifference | None:
    """Where the committed prefixes that both have part; None if they do not.

    start_offset, end_offset: look at [start_offset, end_offset) of them only; batches that reach
    past the end are not looked at. Raises CorruptBatchError where a batch contradicts its checksum,
    LogTruncatedError.
    """
    start = max(one.log_start_offset, other.log_start_offset, start_offset or 0)
    end = min(one.end_offset, other.end_offset)
    end = end if end_offset is None else min(end, end_offset)
    if start >= end:
        return None
    sides = _Batches(one, start, end), _Batches(other, start, end)
    while sides[0].fill() and sides[1].fill():
        length = min(len(side.headers) for side in sides)
        left, right = (side.headers[:length] for side in sides)
        unlike = np.zeros(length, bool)
        for name in _COMPARED:
            unlike |= left[name] != right[name]
        if unlike.any():
            row = int(np.flatnonzero(unlike)[0])
            return _difference(one, sides[0], left[row], sides[1], right[row])
        for side in sides:
            side.take(length)
    for at, side in enumerate(sides):
        if side.fill():
            offset = int(side.headers["base_offset"][0])
            place = int(side.headers["position"][0])
            if at == 0:
                return ReplicaDifference(
                    one.topic_partition, offset, (side.path, other.path), (place, None)
                )
            return ReplicaDifference(
                one.topic_partition, offset, (one.path, side.path), (None, place)
            )
    return None


class _Batches:
    """Batches of a range, those that begin below its end, a chunk at a time."""

    def __init__(self, reader: PartitionReader, start_offset: int, end_offset: int) -> None:
        self._chunks: Iterator[Chunk] = reader.chunks(start_offset, end_offset, check_crc=True)
        self._chunk: Chunk | None = None
        self._end_offset = end_offset
        self.headers: npt.NDArray[Any] = np.empty(0)
        self.path = reader.path

    def fill(self) -> bool:
        """Whether there are more batches."""
        while not len(self.headers):
            self._chunk = next(self._chunks, None)
            if self._chunk is None:
                return False
            self.path = self._chunk.path
            headers = self._chunk.headers
            self.headers = headers[headers["last_offset"] < self._end_offset]
        return True

    def take(self, count: int) -> None:
        self.headers = self.headers[count:]

    def bytes_of(self, header: Any) -> npt.NDArray[np.uint8]:
        assert self._chunk is not None
        return np.frombuffer(self._chunk.batch(header), np.uint8)


def _difference(
    reader: PartitionReader, left: _Batches, one: Any, right: _Batches, other: Any
) -> ReplicaDifference:
    first, second = left.bytes_of(one), right.bytes_of(other)
    length = min(len(first), len(second))
    unlike = np.flatnonzero(first[:length] != second[:length])
    byte = int(unlike[0]) if len(unlike) else length
    return ReplicaDifference(
        reader.topic_partition,
        min(int(one["base_offset"]), int(other["base_offset"])),
        (left.path, right.path),
        (int(one["position"]) + byte, int(other["position"]) + byte),
    )
