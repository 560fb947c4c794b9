"""The streaming reader: offsets are the checkpoint, executors read the files.

An offset of the stream is {topic: {partition: [offset, leader_epoch]}}: the next offset to read and
the epoch of the last batch before it, -1 if there is none. A batch that is run again after a crash
reads [start, end) once more: the same bytes, as nothing below a high watermark changes; where it
did (an unclean election, a directory put in the place of another), the epoch tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from replog.errors import LogTruncatedError
from replog.reader import PartitionReader
from replog.types import NO_LEADER_EPOCH, TopicPartition
from spark_integration.cut import Extent, OffsetRange, clamp, data_loss, resolve
from spark_integration.inputs import Readers, one_sentence, open_inputs
from spark_integration.options import SourceOptions
from spark_integration.planning import SegmentRanges, plan
from spark_integration.reading import ReadSettings, read_ranges
from spark_integration.triggers import limit_bytes, limit_offsets

if TYPE_CHECKING:
    import pyarrow as pa

ATTEMPTS = 3
StreamOffset = dict[str, dict[str, list[int]]]
# Next offset and epoch of the last batch before it.
Position = tuple[int, int]
Positions = dict[TopicPartition, Position]


def positions_of(offset: Mapping[str, Any]) -> Positions:
    """A checkpointed offset by partition."""
    return {
        TopicPartition(topic, int(partition)): (position[0], position[1])
        for topic, partitions in offset.items()
        for partition, position in partitions.items()
    }


def offset_of(positions: Positions) -> StreamOffset:
    """What is checkpointed, in a fixed order: Spark compares its text."""
    offset: StreamOffset = {}
    for (topic, partition), position in sorted(positions.items()):
        offset.setdefault(topic, {})[str(partition)] = list(position)
    return offset


class ReplogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the partitions under the paths of the options, new ones included."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self.options = options
        self.settings = ReadSettings.of(options, columns)
        self._clock_ms: Callable[[], float] = _now_ms
        self._last_trigger_ms = 0.0
        self._available_now = False
        self._target: Positions | None = None
        self._latest: Positions = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self.settings}

    # -- offsets, on the driver

    def initialOffset(self) -> StreamOffset:  # noqa: N802
        """Where a new query starts; by default at the end, as Kafka's source does."""
        with one_sentence():
            readers = open_inputs(self.options)
            extents = {key: self._extent(reader) for key, reader in readers.items()}
            offsets = resolve(self.options.start, "starting", readers, extents, self.options)
            return offset_of({
                key: _position(
                    readers[key], clamp(offset, "start", key, extents[key], self.options)
                )
                for key, offset in offsets.items()
            })  # fmt: skip

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Not ReadAllAvailable where an option limits a trigger; the option says how."""
        options = self.options
        if options.trigger_offsets_max is not None:
            return ReadMaxRows(options.trigger_offsets_max)
        if options.trigger_bytes_max is not None:
            return ReadMaxBytes(options.trigger_bytes_max)
        if options.trigger_offsets_min is not None:
            return ReadMinRows(options.trigger_offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on the stream ends where it ends at the next look."""
        self._available_now = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> StreamOffset:  # noqa: N802
        """How far the next batch goes. Raises OffsetOutOfRangeError, StorageError, UsageError."""
        begun = positions_of(start)
        with one_sentence():
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    return offset_of(self._next(begun, limit))
                except LogTruncatedError:
                    if attempt == ATTEMPTS:
                        raise
        return offset_of(begun)

    def reportLatestOffset(self) -> StreamOffset | None:  # noqa: N802
        """How far the last look saw, for the query's progress."""
        return offset_of(self._latest) or None

    def _extent(self, reader: PartitionReader) -> Extent:
        return Extent(reader.log_start_offset, reader.bound(self.options.isolation))

    def _next(self, begun: Positions, limit: ReadLimit) -> Positions:
        readers = open_inputs(self.options)
        for gone in begun.keys() - readers.keys():
            data_loss(
                self.options,
                f"expected the partition {gone} of the stream under the paths, found it gone",
                gone,
                begun[gone][0],
            )
        if self._target is None:
            seen = {key: self._seen(key, reader, begun) for key, reader in readers.items()}
            self._latest = {
                key: _moved(readers[key], offset, begun.get(key)) for key, offset in seen.items()
            }
            if self._available_now:
                self._target = self._latest
        else:
            # A partition of the checkpoint that was not there at the start keeps its place.
            self._latest = {key: at for key, at in begun.items() if key in readers} | self._target
        starts = {
            key: begun[key][0] if key in begun else readers[key].log_start_offset
            for key in self._latest
            if key in readers
        }
        ends = {key: self._latest[key][0] for key in starts}
        if not isinstance(limit, ReadAllAvailable):
            if self._waits_for_more(sum(end - starts[key] for key, end in ends.items())):
                return begun
            ends = self._limited(readers, starts, ends)
        return {key: _moved(readers[key], end, begun.get(key)) for key, end in ends.items()}

    def _seen(self, key: TopicPartition, reader: PartitionReader, begun: Positions) -> int:
        """The end of what can be read, before the start only if the log was cut below it.

        A high watermark may stand below the start for a while, where another replica is read or a
        broker was restarted: that is no loss, and nothing new either.
        """
        start = begun[key][0] if key in begun else 0
        if reader.log_end_offset < start:
            data_loss(
                self.options,
                f"expected the log of {key} to reach offset {start}, which was read already, found "
                f"its end at {reader.log_end_offset}",
                key,
                start,
            )
            return reader.log_end_offset
        return max(reader.bound(self.options.isolation), start)

    def _waits_for_more(self, offsets: int) -> bool:
        """Whether so few offsets are left for a later trigger, as they can be for a while only."""
        wanted, delay_ms = self.options.trigger_offsets_min, self.options.trigger_delay_ms_max
        if wanted is None or self._available_now:
            return False
        if offsets < wanted and self._clock_ms() - self._last_trigger_ms < delay_ms:
            return True
        self._last_trigger_ms = self._clock_ms()
        return False

    def _limited(
        self,
        readers: Readers,
        starts: dict[TopicPartition, int],
        ends: dict[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        options = self.options
        if options.trigger_offsets_max is not None:
            ends = limit_offsets(options.trigger_offsets_max, starts, ends)
        if options.trigger_bytes_max is not None:
            ends = limit_bytes(options.trigger_bytes_max, readers, starts, ends)
        return ends

    # -- batches

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[SegmentRanges]:
        """The plan of a batch. Raises OffsetOutOfRangeError, LogTruncatedError, StorageError."""
        begun, ended = positions_of(start), positions_of(end)
        if all(begun.get(key) == at for key, at in ended.items()):
            return []
        with one_sentence():
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    readers = open_inputs(self.options)
                    return plan(self._ranges(begun, ended, readers), self.options)
                except LogTruncatedError:
                    if attempt == ATTEMPTS:
                        raise
        return []

    def _ranges(self, begun: Positions, ended: Positions, readers: Readers) -> list[OffsetRange]:
        ranges = []
        for key, (end, epoch) in ended.items():
            if begun.get(key) == (end, epoch):
                continue
            if key not in readers:
                data_loss(
                    self.options,
                    f"expected the partition {key} of the stream under the paths, found it gone",
                    key,
                    end,
                )
                continue
            reader = readers[key]
            extent = Extent(reader.log_start_offset, reader.log_end_offset)
            if key in begun and (problem := _rewritten(reader, begun[key])):
                data_loss(self.options, problem, key, begun[key][0])
            # A partition that was not there before is read from its first offset on.
            first = clamp(begun[key][0] if key in begun else 0, "start", key, extent, self.options)
            last = clamp(end, "end", key, extent, self.options)
            if last == end and (problem := _rewritten(reader, (end, epoch))):
                raise LogTruncatedError(
                    f"{problem}; start the query with a new checkpoint",
                    path=reader.path,
                    offset=end,
                    topic_partition=str(key),
                )
            if first < last:
                ranges.append(OffsetRange(reader, first, last))
        return ranges

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one Spark partition, on an executor."""
        if isinstance(partition, SegmentRanges):
            yield from read_ranges(partition.ranges, self.settings)


def _now_ms() -> float:
    return time.time() * 1000


def _position(reader: PartitionReader, offset: int) -> Position:
    last = reader.last_batch_below(offset)
    return offset, NO_LEADER_EPOCH if last is None else last.leader_epoch


def _moved(reader: PartitionReader, offset: int, begun: Position | None) -> Position:
    """The position at `offset`; word for word the one it was if nothing moved."""
    return begun if begun is not None and begun[0] == offset else _position(reader, offset)


def _rewritten(reader: PartitionReader, position: Position) -> str | None:
    """A sentence if what stands before the position is not what stood there; None if it is.

    Where compaction removed that batch, an older one stands before the position.
    """
    offset, epoch = position
    if not reader.log_start_offset < offset <= reader.log_end_offset or epoch == NO_LEADER_EPOCH:
        return None
    _, found = _position(reader, offset)
    if found == epoch or (found < epoch and reader.cleaned_offset is not None):
        return None
    return (
        f"expected leader epoch {epoch} below offset {offset} of {reader.topic_partition}, as the "
        f"stream's checkpoint says, found {found} in {reader.path}: the log was truncated and "
        f"written anew"
    )
