"""What a batch query reads: for each partition the offsets [start, end), fixed when it is planned.

The end is the high watermark, or what the options say; with read_committed also the last stable
offset as it stood when the log ended there. What is appended later is never part of the read.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import NamedTuple

from replog.errors import OffsetOutOfRangeError, UsageError
from replog.reader import PartitionReader
from replog.types import Isolation, TopicPartition
from spark_integration.inputs import Readers, open_inputs, require_all
from spark_integration.limits import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Everywhere,
    Limit,
    Side,
)
from spark_integration.options import SourceOptions
from spark_integration.snapshots import PartitionCut, Snapshot

logger = logging.getLogger(__name__)


class OffsetRange(NamedTuple):
    """Offsets [start_offset, end_offset) of one partition to be read."""

    reader: PartitionReader
    start_offset: int
    end_offset: int


def data_loss(
    options: SourceOptions, sentence: str, partition: TopicPartition, offset: int
) -> None:
    """Raises OffsetOutOfRangeError, or warns where failOnDataLoss is false."""
    if options.fail_on_data_loss:
        raise OffsetOutOfRangeError(
            f"{sentence}; to read on at what is there, set failOnDataLoss to false",
            offset=offset,
            topic_partition=str(partition),
        )
    logger.warning("%s; reading what is there", sentence)


def batch_ranges(options: SourceOptions) -> list[OffsetRange]:
    """The cut of a batch query, without partitions that have nothing to read.

    Raises UsageError, OffsetOutOfRangeError, StorageError.
    """
    readers = open_inputs(options)
    if options.snapshot is not None:
        snapshot = Snapshot.parse(options.snapshot)
        readers = snapshot.restrict(readers, selected=options.selection is not None)
        cuts = {key: _cut_of(snapshot, key, reader, options) for key, reader in readers.items()}
    else:
        cuts = {key: _extent(reader, options) for key, reader in readers.items()}
    starts = resolve(options.start, "starting", readers, cuts, options)
    ends = resolve(options.end, "ending", readers, cuts, options)
    ranges = [
        OffsetRange(
            reader,
            clamp(starts[key], "start", key, cuts[key], options),
            clamp(ends[key], "end", key, cuts[key], options),
        )
        for key, reader in readers.items()
    ]
    return [one for one in ranges if one.start_offset < one.end_offset]


class Extent(NamedTuple):
    """What there is to read of a partition: [start_offset, end_offset)."""

    start_offset: int
    end_offset: int


def _extent(reader: PartitionReader, options: SourceOptions) -> Extent:
    return Extent(reader.log_start_offset, reader.bound(options.isolation))


def _cut_of(
    snapshot: Snapshot, key: TopicPartition, reader: PartitionReader, options: SourceOptions
) -> Extent:
    cut = snapshot.cuts[key]
    cut.check(key, reader)
    end = cut.end_offset
    if options.isolation is Isolation.TXN_COMMITTED:
        end = max(reader.last_stable_offset_at(end), cut.start_offset)
    return Extent(cut.start_offset, end)


def resolve(
    limit: Limit,
    side: Side,
    readers: Readers,
    extents: Mapping[TopicPartition, Extent],
    options: SourceOptions,
) -> dict[TopicPartition, int]:
    """The offset that a limit means in each partition. Raises UsageError."""
    match limit:
        case Everywhere(offset):
            return {key: _fixed(offset, extent) for key, extent in extents.items()}
        case AtOffsets(offsets):
            require_all(f"{side}Offsets", offsets, readers)
            return {key: _fixed(offsets[key], extent) for key, extent in extents.items()}
        case AtTimestamp(timestamp):
            timestamps = dict.fromkeys(readers, timestamp)
        case AtTimestamps(by_partition):
            require_all(f"{side}OffsetsByTimestamp", by_partition, readers)
            timestamps = dict(by_partition)
    return {
        key: _at_timestamp(reader, side, timestamps[key], extents[key], options)
        for key, reader in readers.items()
    }


def _fixed(offset: int, extent: Extent) -> int:
    if offset == EARLIEST:
        return extent.start_offset
    return extent.end_offset if offset == LATEST else offset


def _at_timestamp(
    reader: PartitionReader, side: Side, timestamp: int, extent: Extent, options: SourceOptions
) -> int:
    found = reader.offset_for_timestamp(timestamp)
    if found is not None and found.offset < extent.end_offset:
        return max(found.offset, extent.start_offset)
    if side == "starting" and not options.strategy_latest:
        raise UsageError(
            f"expected a record of {reader.topic_partition} at or after the timestamp {timestamp}, "
            f"found none below offset {extent.end_offset}; set startingOffsetsByTimestampStrategy "
            f"to latest to start at the end of such partitions"
        )
    return extent.end_offset


def clamp(
    offset: int, what: str, key: TopicPartition, extent: Extent, options: SourceOptions
) -> int:
    """The offset, or the nearest there is if data loss is allowed. Raises OffsetOutOfRangeError."""
    start, end = extent
    if start <= offset <= end:
        return offset
    why = "retention or a deletion took what was before" if offset < start else "that is all that "
    why += "" if offset < start else "is committed"
    data_loss(
        options,
        f"expected the {what} offset {offset} of {key} to lie in [{start}, {end}], found it "
        f"outside: {why}",
        key,
        offset,
    )
    return min(max(offset, start), end)


def take_snapshot(options: SourceOptions) -> Snapshot:
    """The cut that a batch query with these options would read now, at the high watermark.

    Which transactions are decided below it follows from the log, so that a snapshot holds for both
    isolation levels.
    """
    whole = dataclasses.replace(options, isolation=Isolation.HIGH_WATERMARK)
    return Snapshot({
        one.reader.topic_partition: PartitionCut.of(one.reader, one.start_offset, one.end_offset)
        for one in batch_ranges(whole)
    })  # fmt: skip
