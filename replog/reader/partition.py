"""Read-only access to one partition directory, ours or Kafka's, live or not, from any process.

Files are opened for reading, read by pread, never mapped and never locked, so nothing that the
writer does can harm this process, and this process can harm nothing. What a reader sees is fixed
when it is made or refreshed: [log_start_offset, end_offset), where the end is the high-watermark
checkpoint or, without one, the end of what is whole. Records below the high watermark never change;
what retention, truncation or compaction takes meanwhile raises LogTruncatedError (read again).
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator, Sequence
from typing import NoReturn

import pyarrow as pa

from replog._native.arguments import flag, integer, path_of
from replog._native.record_decoder import decode_arrow
from replog.config import LONG_MAX
from replog.errors import (
    CorruptBatchError,
    CorruptFileError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    UsageError,
    shown,
)
from replog.reader import names, times
from replog.reader.checkpoints import Checkpoints
from replog.reader.listing import list_segments
from replog.reader.names import SegmentName
from replog.reader.records import BATCH_ROWS, decode_chunks, segment_chunks
from replog.reader.segment import (
    CHUNK_BYTES,
    HEADER_BYTES,
    BatchStamp,
    Chunk,
    Headers,
    SegmentReader,
    segment_size,
)
from replog.reader.side_files import AbortedRange
from replog.reader.splits import SplitRange, split_segment
from replog.reader.transactions import TransactionWalk, aborted_ranges, walk_from_snapshot
from replog.reader.witness import Witness
from replog.storage.checkpoint_files import LEADER_EPOCH_CHECKPOINT, read_leader_epochs
from replog.storage.clean_shutdown import CLEAN_SHUTDOWN_FILE
from replog.types import Isolation, TimestampedOffset, TopicPartition

# A segment that is taken between two looks at the directory is not there at the next one.
LOOKS_MAX = 3


class PartitionReader:
    """A snapshot of one partition's extent, and reads inside it.

    path, topic_partition: which partition. segments: its data files by base offset.
    log_start_offset: first offset that may be read. log_end_offset: exclusive end of whole batches.
    high_watermark: what was given or the checkpoint says, None without one.
    cleaned_offset: exclusive end of what compaction has been over, None if it never was.
    end_offset: exclusive end of reads that are not asked to pass it.
    Invariant: log_start_offset <= end_offset <= log_end_offset.
    """

    topic_partition: TopicPartition
    segments: tuple[SegmentName, ...]
    log_start_offset: int
    log_end_offset: int
    end_offset: int
    high_watermark: int | None
    cleaned_offset: int | None

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        high_watermark: int | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        """Look at the directory.

        high_watermark: instead of the one that a checkpoint tells. checkpoints: read already, for
        many partitions of one directory. Raises UsageError, StorageError.
        """
        self.path = path_of(path)
        if high_watermark is not None:
            high_watermark = integer(high_watermark, "high_watermark", self.path)
        if checkpoints is not None and not isinstance(checkpoints, Checkpoints):
            raise UsageError(
                f"expected checkpoints to be a Checkpoints or None, found {shown(checkpoints)}",
                argument="checkpoints",
            )
        self._given_high_watermark = high_watermark
        if not os.path.isdir(self.path):
            raise UsageError(
                f"expected a partition directory at {self.path}, found none; give a directory "
                f"named TOPIC-N that holds segment files"
            )
        self.topic_partition = names.topic_partition_of(self.path)
        self._walked: TransactionWalk | None = None
        self._active_size_seen = 0
        self._look(checkpoints or Checkpoints())

    def refresh(self) -> None:
        """Look at the directory again: new segments, new high watermark, new start."""
        self._look(Checkpoints())

    def _look(self, checkpoints: Checkpoints) -> None:
        for attempt in range(1, LOOKS_MAX + 1):
            try:
                self._look_once(checkpoints)
            except LogTruncatedError:
                if attempt == LOOKS_MAX:
                    raise
            else:
                return

    def _look_once(self, checkpoints: Checkpoints) -> None:
        # The checkpoints first: what they call committed is in the files when they are looked at.
        known = checkpoints.of(self.path, self.topic_partition)
        self.high_watermark = known.high_watermark
        if self._given_high_watermark is not None:
            self.high_watermark = self._given_high_watermark
        self.cleaned_offset = known.cleaned_offset
        home = names.checkpoint_home(self.path)
        clean = os.path.exists(os.path.join(home, CLEAN_SHUTDOWN_FILE))
        self._dense = known.recovery_point is not None and known.cleaned_offset is None
        checkpointed_start = known.log_start_offset or 0
        self.segments = tuple(list_segments(self.path))
        self._walked = None
        self._witness = Witness()
        if not self.segments:
            self.log_start_offset = self.log_end_offset = self.end_offset = checkpointed_start
            return
        self.log_end_offset = self._find_end(known.recovery_point or 0)
        first = max(checkpointed_start, self.segments[0].base_offset)
        told = known.log_start_offset if home != self.path else checkpointed_start
        if clean and self._dense:
            # Retention moves the checkpoint before it takes a segment: what is missing was lost.
            first = self._first_epoch_start(first) if told is None else told
        self.log_start_offset = min(first, self.log_end_offset)
        bound = self.log_end_offset
        if self.high_watermark is not None:
            bound = min(bound, self.high_watermark)
        self.end_offset = max(bound, self.log_start_offset)

    def _first_epoch_start(self, first_offset: int) -> int:
        """What the epoch checkpoint says of the log start: it begins there or behind it."""
        try:
            epochs = read_leader_epochs(os.path.join(self.path, LEADER_EPOCH_CHECKPOINT))
        except CorruptFileError:
            return first_offset  # derived from the batches: it is no witness then
        return min(first_offset, epochs[0][1]) if epochs else first_offset

    def _find_end(self, recovery_point: int) -> int:
        with SegmentReader(self.segments[-1]) as segment:
            self._active_size_seen = segment.size()
            tail = segment.tail()
        if tail.problem is None:
            return tail.end_offset
        # Below the recovery point the bytes were synced, so what is missing is damage and no torn
        # write. The end stays behind it: a read that gets there meets the damage and tells it.
        return max(tail.end_offset, recovery_point)

    # -- extents

    def bound(self, isolation: Isolation | str) -> int:
        """Exclusive end of a read at this isolation. Raises UsageError for another level."""
        level = Isolation.of(isolation)
        if level is Isolation.LOG_END:
            return self.log_end_offset
        if level is Isolation.HIGH_WATERMARK:
            return self.end_offset
        return self.last_stable_offset

    @property
    def last_stable_offset(self) -> int:
        """Exclusive end of what is decided: no transaction below is open. Walks batch headers."""
        return self.last_stable_offset_at(self.end_offset)

    def last_stable_offset_at(self, end_offset: int) -> int:
        """As `last_stable_offset`, of the log as it was when it ended at `end_offset`.

        What follows changes nothing in the answer, so a read up to it can be repeated.
        """
        walk = self._transactions() if end_offset == self.end_offset else self._walk(end_offset)
        return max(walk.last_stable_offset(end_offset), self.log_start_offset)

    @property
    def size_bytes(self) -> int:
        """Size of the data files now. Raises LogTruncatedError if one is gone."""
        return sum(segment_size(segment) for segment in self.segments)

    def _transactions(self) -> TransactionWalk:
        if self._walked is None:
            self._walked = self._walk(self.end_offset)
        return self._walked

    def _walk(self, end_offset: int) -> TransactionWalk:
        walk = walk_from_snapshot(self.path, self.log_start_offset, end_offset)
        for headers in self.headers(walk.offset, end_offset):
            walk.walk(headers, end_offset)
        return walk

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedRange]:
        """Aborted transactions that overlap [start_offset, end_offset), by first offset."""
        segments = self.segments[self._floor(start_offset) :]
        # An index that lost its tail in a crash is made good by the markers behind the snapshot.
        found = {
            (one.producer_id, one.last_offset): one
            for one in [*self._transactions().aborted, *aborted_ranges(segments)]
            if one.last_offset >= start_offset and one.first_offset < end_offset
        }
        return sorted(found.values(), key=lambda one: (one.first_offset, one.producer_id))

    # -- batches

    def last_batch_below(self, end_offset: int) -> BatchStamp | None:
        """The last batch that begins below `end_offset`; None if the log has none.

        Raises CorruptBatchError, LogTruncatedError.
        """
        for segment in reversed(self.segments):
            if segment.base_offset < end_offset:
                with SegmentReader(segment, self._witness) as file:
                    header, _ = file.headers_around(end_offset)
                if header is not None:
                    return BatchStamp.of(header)
        return None

    def headers(
        self, start_offset: int | None = None, end_offset: int | None = None
    ) -> Iterator[Headers]:
        """HEADER_DTYPE arrays of the batches that overlap [start_offset, end_offset), in order."""
        for chunk in self.chunks(start_offset, end_offset):
            yield chunk.headers

    def chunks(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        check_crc: bool = False,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> Iterator[Chunk]:
        """Whole batches that overlap [start_offset, end_offset), about chunk_bytes at a time.

        The first and the last batch may reach past the range. Raises OffsetOutOfRangeError,
        CorruptBatchError, LogTruncatedError, and UsageError for arguments of other kinds or
        chunk_bytes below the size of a batch's header (61).
        """
        offset, end = self._range(start_offset, end_offset)
        flag(check_crc, "check_crc", self.path)
        integer(chunk_bytes, "chunk_bytes", self.path, low=HEADER_BYTES)
        for at in range(self._floor(offset), len(self.segments)):
            if offset >= end:
                return
            segment = self.segments[at]
            active = at + 1 == len(self.segments)
            stop = end if active else min(end, self.segments[at + 1].base_offset)
            if offset < segment.base_offset and self._dense:
                self._refuse_lost(offset, segment)
            if offset >= stop:
                continue
            reached = yield from segment_chunks(
                segment,
                max(offset, segment.base_offset),
                stop,
                size_seen=self._active_size_seen if active else 0,
                joined=self._dense and not active,
                check_crc=check_crc,
                chunk_bytes=chunk_bytes,
                witness=self._witness,
            )
            offset = max(reached, stop) if not active else reached
        if offset < end:
            raise LogTruncatedError(
                f"expected records of {self.topic_partition} up to offset {end}, found the end of "
                f"the log at {offset}: it was cut meanwhile; read it again",
                path=self.path,
                offset=offset,
            )

    def _refuse_lost(self, offset: int, segment: SegmentName) -> NoReturn:
        raise CorruptBatchError(
            f"expected a segment with offset {offset} in {self.path}, found the first one to be "
            f"{segment.path}; those before it are gone: bring them back, or copy them from a "
            f"replica",
            path=segment.path,
            position=0,
            offset=offset,
        )

    def _range(self, start_offset: int | None, end_offset: int | None) -> tuple[int, int]:
        start, end = self.log_start_offset, self.end_offset
        if start_offset is not None:
            start = integer(start_offset, "start_offset", self.path, low=-LONG_MAX)
        if end_offset is not None:
            end = min(integer(end_offset, "end_offset", self.path), self.log_end_offset)
        if not self.log_start_offset <= start <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"expected a start offset in [{self.log_start_offset}, {self.log_end_offset}] of "
                f"{self.topic_partition}, found {start}; start at log_start_offset",
                offset=start,
                path=self.path,
                topic_partition=str(self.topic_partition),
            )
        return start, end

    def _floor(self, offset: int) -> int:
        bases = [segment.base_offset for segment in self.segments]
        return max(bisect.bisect_right(bases, offset) - 1, 0)

    # -- records

    def record_batches(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        isolation: Isolation | str = Isolation.HIGH_WATERMARK,
        include_control: bool = False,
        check_crc: bool = True,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """Records of [start_offset, end_offset) as Arrow, at most batch_rows a time, none empty.

        Columns: `key, value, offset, timestamp, timestamp_type, leader_epoch, headers`, or those
        named. The end is clamped to the bound of `isolation`; read_committed leaves out what was
        aborted. Raises as `chunks` does, DecompressionError, and UsageError for offsets that are no
        integers, unknown columns or isolation.
        """
        bound = self.bound(isolation)
        start, end = self._range(
            start_offset,
            bound
            if end_offset is None
            else min(integer(end_offset, "end_offset", self.path), bound),
        )
        integer(batch_rows, "batch_rows", self.path, low=1)
        flag(include_control, "include_control", self.path)
        flag(check_crc, "check_crc", self.path)
        committed = Isolation.of(isolation) is Isolation.TXN_COMMITTED
        aborted = self.aborted_transactions(start, end) if committed and start < end else []
        yield from decode_chunks(
            self.chunks(start, end),
            start,
            end,
            columns=columns,
            aborted=aborted,
            include_control=include_control,
            check_crc=check_crc,
            batch_rows=batch_rows,
        )

    def to_arrow(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        isolation: Isolation | str = Isolation.HIGH_WATERMARK,
    ) -> pa.Table:
        """Records of [start_offset, end_offset) in one table; memory grows with the range.

        Raises as `record_batches` does.
        """
        batches = list(
            self.record_batches(start_offset, end_offset, columns=columns, isolation=isolation)
        )
        return pa.Table.from_batches(batches or [decode_arrow(b"", columns=columns)])

    # -- look-ups and plans

    def offset_for_timestamp(
        self, timestamp: int, *, isolation: Isolation | str = Isolation.HIGH_WATERMARK
    ) -> TimestampedOffset | None:
        """First record at or after `timestamp` ms below the bound of `isolation`, by Kafka's walk.

        Timestamps may fall along the log: the answer is where reading should start, and a later
        record may be older. None if there is no such record. Raises UsageError for no integer.
        """
        timestamp = integer(timestamp, "timestamp", self.path, low=-LONG_MAX)
        end = self.bound(isolation)
        if self.segments and self._dense and self.log_start_offset < self.segments[0].base_offset:
            self._refuse_lost(self.log_start_offset, self.segments[0])
        return times.first_at_or_after(
            self.segments, timestamp, self.log_start_offset, end, self._witness, dense=self._dense
        )

    def split_points(
        self, target_bytes: int, start_offset: int | None = None, end_offset: int | None = None
    ) -> list[SplitRange]:
        """Cut [start_offset, end_offset) at batches into ranges of about target_bytes of file each.

        The cuts come from the offset indexes and are checked against the log; a segment whose index
        cannot be used is one range. Ranges are contiguous, in order, and hold no native objects.
        Raises UsageError for no integers, or a target below 1; OffsetOutOfRangeError,
        LogTruncatedError.
        """
        integer(target_bytes, "target_bytes", self.path, low=1)
        start, end = self._range(start_offset, end_offset)
        ranges: list[SplitRange] = []
        for at in range(self._floor(start), len(self.segments)):
            segment = self.segments[at]
            active = at + 1 == len(self.segments)
            stop = end if active else min(end, self.segments[at + 1].base_offset)
            if start < segment.base_offset and not ranges and self._dense:
                self._refuse_lost(start, segment)
            low = max(start, segment.base_offset)
            if low < stop:
                joined = self._dense and not active
                ranges += split_segment(
                    self.path, segment, low, stop, target_bytes, active=active, joined=joined
                )
        return ranges
