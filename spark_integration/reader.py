"""Plan and read: ranges of segments become Spark partitions, ranges become Arrow batches.

`partitions()` runs once per load() and fixes the end of every log, so what is appended later is not
seen, and what retention takes meanwhile fails with the segment's name. A partition carries paths
and integers only; an executor opens the files by itself, with pread.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from replog.reader import AbortedRange, PartitionReader, SplitRange, partition_paths, read_split
from replog.types import Isolation
from spark_integration.options import MIB, ReadOptions
from spark_integration.schema import check_columns, columns_to_decode, to_spark

if TYPE_CHECKING:
    import pyarrow as pa

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


class SegmentRanges(InputPartition):
    """Ranges that one Spark task reads, in order."""

    def __init__(self, ranges: Sequence[SegmentRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


class ReplogReader(DataSourceReader):
    """Reads the partitions under the paths of the options, up to where they end now."""

    def __init__(self, options: Mapping[str, str], fields: Sequence[tuple[str, str, bool]]) -> None:
        self.options = ReadOptions.parse(options)
        self.columns = check_columns(fields)

    def partitions(self) -> Sequence[InputPartition]:
        """A Spark partition for about maxPartitionBytes of file, less where cores would idle."""
        readers = [
            PartitionReader(directory)
            for path in self.options.paths
            for directory in partition_paths(path)
        ]
        total = sum(reader.size_bytes for reader in readers)
        target = max(SPLIT_BYTES_MIN, total // (os.cpu_count() or 1) + 1)
        target = min(target, self.options.partition_bytes_max)
        ranges = [one for reader in readers for one in self._ranges(reader, target)]
        return list(_packed(ranges, target))

    def _ranges(self, reader: PartitionReader, target_bytes: int) -> Iterator[SegmentRange]:
        start, end = reader.log_start_offset, reader.bound(self.options.isolation)
        aborted: list[AbortedRange] = []
        if self.options.isolation is Isolation.TXN_COMMITTED and start < end:
            aborted = reader.aborted_transactions(start, end)
        topic, partition = reader.topic_partition
        for split in reader.split_points(target_bytes, start, end):
            inside = tuple(
                one
                for one in aborted
                if one.first_offset < split.end_offset and one.last_offset >= split.start_offset
            )
            yield SegmentRange(topic, partition, split, inside)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one Spark partition; Spark sends None where there is nothing to read."""
        if not isinstance(partition, SegmentRanges):
            return
        decoded = columns_to_decode(self.columns)
        for one in partition.ranges:
            for records in read_split(
                one.split,
                columns=decoded,
                aborted=one.aborted,
                check_crc=self.options.check_crc,
                batch_rows=self.options.batch_rows,
            ):
                yield to_spark(records, self.columns, one.topic, one.partition)


def _packed(ranges: Sequence[SegmentRange], target_bytes: int) -> Iterator[SegmentRanges]:
    """Neighbouring ranges together until they make about target_bytes."""
    gathered: list[SegmentRange] = []
    size = 0
    for one in ranges:
        cost = one.split.size_bytes + OPEN_COST_BYTES
        if gathered and size + cost > target_bytes:
            yield SegmentRanges(gathered)
            gathered, size = [], 0
        gathered.append(one)
        size += cost
    if gathered:
        yield SegmentRanges(gathered)
