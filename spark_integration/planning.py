"""From offset ranges to Spark partitions: segments cut at batches, small ones packed together."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from replog.reader import AbortedRange, SplitRange
from replog.types import Isolation
from spark_integration.cut import OffsetRange
from spark_integration.options import MIB, SourceOptions

# A range costs its bytes and this much: opening files and seeking is not free.
OPEN_COST_BYTES = 256 * 1024
SPLIT_BYTES_MIN = 4 * MIB


@dataclasses.dataclass(frozen=True, slots=True)
class SegmentRange:
    """One range of one segment, with what an executor needs to know of its partition."""

    topic: str
    partition: int
    split: SplitRange
    aborted: tuple[AbortedRange, ...]

    @property
    def offsets(self) -> int:
        """How many offsets it spans."""
        return self.split.end_offset - self.split.start_offset


class SegmentRanges(InputPartition):
    """Ranges that one Spark task reads, in order: paths and integers only."""

    def __init__(self, ranges: Sequence[SegmentRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


class Bounds(NamedTuple):
    """What a Spark partition may hold, about; None for no bound."""

    size_bytes: int
    offsets: int | None


def plan(ranges: Sequence[OffsetRange], options: SourceOptions) -> list[SegmentRanges]:
    """A Spark partition for about maxPartitionBytes of file, less where cores would idle.

    Raises LogTruncatedError if a segment is gone meanwhile.
    """
    total_bytes = sum(one.reader.size_bytes for one in ranges)
    wanted = max(options.partitions_min or 0, os.cpu_count() or 1)
    size = min(max(SPLIT_BYTES_MIN, total_bytes // wanted + 1), options.partition_bytes_max)
    bounds = Bounds(size, _offsets_max(ranges, options))
    return list(_packed([part for one in ranges for part in _parts(one, bounds, options)], bounds))


def _offsets_max(ranges: Sequence[OffsetRange], options: SourceOptions) -> int | None:
    limits = [options.partition_records_max] if options.partition_records_max else []
    if options.partitions_min:
        total = sum(one.end_offset - one.start_offset for one in ranges)
        limits.append(max(-(-total // options.partitions_min), 1))
    return min(limits, default=None)


def _parts(one: OffsetRange, bounds: Bounds, options: SourceOptions) -> Iterator[SegmentRange]:
    reader, start, end = one
    aborted: list[AbortedRange] = []
    if options.isolation is Isolation.TXN_COMMITTED:
        aborted = reader.aborted_transactions(start, end)
    topic, partition = reader.topic_partition
    for split in reader.split_points(bounds.size_bytes, start, end):
        inside = tuple(
            one
            for one in aborted
            if one.first_offset < split.end_offset and one.last_offset >= split.start_offset
        )
        parts = [split] if bounds.offsets is None else split.divided(bounds.offsets)
        for part in parts:
            yield SegmentRange(topic, partition, part, inside)


def _packed(parts: Sequence[SegmentRange], bounds: Bounds) -> Iterator[SegmentRanges]:
    """Neighbours together, as long as they keep to the bounds."""
    gathered: list[SegmentRange] = []
    size = offsets = 0
    for one in parts:
        cost = one.split.size_bytes + OPEN_COST_BYTES
        full = size + cost > bounds.size_bytes
        full |= bounds.offsets is not None and offsets + one.offsets > bounds.offsets
        if gathered and full:
            yield SegmentRanges(gathered)
            gathered, size, offsets = [], 0, 0
        gathered.append(one)
        size += cost
        offsets += one.offsets
    if gathered:
        yield SegmentRanges(gathered)
