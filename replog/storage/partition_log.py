"""One partition's log with its checkpoint files, and records in place of batches.

The native Log owns segments, epochs and producers; this class keeps what must outlive a crash
beside them (leader-epoch-checkpoint, partition.metadata, recovery point, log start) and turns
values into batches and batches into Arrow tables. Who holds the checkpoints decides what the
directory is: alone (`PartitionLog.open`) or one of many in a log directory (`LogDirectory`).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from replog._native import record_batch, record_decoder, record_encoder
from replog._native.append_result import AppendResult
from replog._native.arguments import flag, integer
from replog._native.log import Log
from replog._native.log_recovery import RecoveryReport, begin, load
from replog.config import LogConfig
from replog.errors import (
    CorruptBatchError,
    UsageError,
)
from replog.storage.directory_access import (
    absolute_path,
    check_calls,
    check_config,
    make_directory,
    names_in,
)
from replog.storage.log_checkpoints import BareCheckpoints, CheckpointedOffsets, LogCheckpoints
from replog.storage.log_keeper import LogKeeper
from replog.storage.meta_properties import META_PROPERTIES_FILE
from replog.storage.open_mark import LastStop
from replog.storage.settled_files import SettledFiles
from replog.types import (
    Codec,
    EpochEndOffset,
    Isolation,
    Record,
    TimestampedOffset,
    TopicPartition,
)

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterator, Sequence

    from replog._native.log_slice import LogSlice

ARROW_SLICE_BYTES = 64 * 1024 * 1024
RECORDS_SLICE_BYTES = 1024 * 1024
OFFSET_MIN = -(2**63)


def wall_clock_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def _draw_below(bound: int) -> int:
    import random  # only here: few logs have a jitter

    return random.randrange(bound)  # noqa: S311 - spreads rolls, keeps no secret


class PartitionLog(Log):
    """One partition's log, open for writing. Use `open`, as a context manager.

    Offsets are exclusive at their ends: records of [log_start_offset, log_end_offset) can be read.
    One process writes at a time; any thread may call any method.
    """

    recovery_report: RecoveryReport
    keeper: LogKeeper

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: LogConfig,
        checkpoints: LogCheckpoints,
        offsets: CheckpointedOffsets,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        on_progress: Callable[[int, int], None] | None = None,
        new_topic_id: uuid.UUID | None = None,
    ) -> None:
        """new_topic_id: of a partition that is being made, on no disk yet (see `settle`), in a
        directory that is new and empty.
        """
        directory = os.fspath(path)
        settled_files = SettledFiles(directory, new_topic_id)
        keeper = LogKeeper(checkpoints, settled_files)
        super().__init__(directory, config, keeper, clock=now_ms, jitter=_draw_below)
        self.topic_partition = TopicPartition.parse(os.path.basename(directory))
        self._checkpoints = checkpoints
        self._now_ms = now_ms
        self._batch_bytes_max = min(config.max_message_bytes, config.segment_bytes)
        self.topic_id = settled_files.topic_id
        if config.compacted:
            checkpoints.note_compacted()
        if new_topic_id is not None:
            self.recovery_report = begin(
                self, high_watermark=offsets.high_watermark, now_ms=now_ms()
            )
            return
        self.recovery_report = load(
            self,
            clean=offsets.last_stop is LastStop.CLEAN,
            keeps_whole=(offsets.last_stop.keeps_whole and config.unclean_recovery == "refuse"),
            holes=config.compacted or offsets.compacted,
            adopts=offsets.last_stop is LastStop.FOREIGN,
            recovery_point=offsets.recovery_point,
            log_start_offset=offsets.log_start_offset,
            epoch_entries=settled_files.epochs_found,
            high_watermark=offsets.high_watermark,
            now_ms=now_ms(),
            on_progress=on_progress,
        )
        if self.recovery_report.holes:
            # For whoever opens or reads it later: there is nothing missing here.
            checkpoints.note_compacted()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        config: LogConfig | None = None,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Self:
        """Open the partition directory TOPIC-N at `path` for writing; it is created if missing.

        After an unclean stop the tail is checked and a torn one is cut (`recovery_report` tells),
        but no batch that is whole, unless power was lost or config.unclean_recovery says so;
        on_progress(done_bytes, total_bytes) follows that. Raises UsageError for another name or a
        partition of a log directory, LogDirectoryLockedError, CorruptBatchError for damage in what
        was synced, CorruptFileError; UsageError for what is no path, no directory or no LogConfig.
        """
        directory = absolute_path(path)
        config = check_config(config)
        check_calls(now_ms, on_progress)
        topic_partition = TopicPartition.parse(os.path.basename(directory))
        parent = os.path.dirname(directory)
        if os.path.exists(os.path.join(parent, META_PROPERTIES_FILE)):
            raise UsageError(
                f"expected a partition directory that stands alone, found {directory} inside the "
                f"log directory {parent}; open that with replog.LogDirectory",
                path=directory,
            )
        make_directory(directory)
        fresh = not any(name.endswith(".log") for name in names_in(directory))
        checkpoints = BareCheckpoints(directory, topic_partition, now_ms)
        try:
            offsets = checkpoints.take(fresh=fresh)
            opened = cls(
                directory,
                config,
                checkpoints,
                offsets,
                now_ms=now_ms,
                on_progress=on_progress,
            )
            checkpoints.opened()
            return opened
        except BaseException:
            checkpoints.release()
            raise

    def __enter__(self) -> Self:
        self.check_open()
        return self

    def __exit__(self, *exception: object) -> None:
        # A failed log must not look clean: it is left as a crash would leave it.
        self.close(flush=not self.failed)

    def __repr__(self) -> str:
        ends = f"[{self.log_start_offset}, {self.log_end_offset})"
        return f"<PartitionLog {self.topic_partition} {ends}>"

    def close(self, *, flush: bool = True) -> None:
        """Flush, close and mark the log clean. With flush=False: leave it as a crash would.

        Closing twice is no mistake. Raises UsageError for what is no bool, NoSpaceError,
        LogFailedError.
        """
        flush = flag(flush, "flush", self.path)
        if self.closed or self.forked:
            return
        try:
            try:
                # One that begins behind 0 holds something: where its leader's log starts.
                if flush and self.keeper.is_new and self.log_end_offset:
                    self.keeper.settle(self)
            finally:
                try:
                    super().close(flush=flush)
                finally:
                    self.keeper.settled_files.close()
            if flush:
                watermark = self.high_watermark if self.follows_high_watermark else None
                self._checkpoints.closed(self.synced_end_offset, self.log_start_offset, watermark)
        finally:
            self._checkpoints.release()

    def assign_epoch_later(self, leader_epoch: int, start_offset: int) -> bool:
        """As assign_epoch, but durable only once the keeper's `settle` has returned.

        An epoch without records is forgotten at the next open, so nothing is lost with it.
        """
        self.keeper.puts_off = True
        try:
            return self.assign_epoch(leader_epoch, start_offset)
        finally:
            self.keeper.puts_off = False

    @property
    def high_watermark(self) -> int:
        """Exclusive: offsets below it are committed. Follows log_end_offset until it is set."""
        return super().high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        self.set_high_watermark(offset)

    def append(
        self,
        values: Any,
        keys: Any = None,
        timestamps: Any = None,
        headers: Any = None,
        *,
        codec: Codec | str | int | None = None,
        leader_epoch: int | None = None,
    ) -> AppendResult:
        """Append records given as columns; returns the offsets they were given.

        values, keys: a sequence of bytes or None, an Arrow (chunked) array of binary or string, or
        a numpy array of bytes; shape (records,). timestamps: ms since the epoch, one for all or
        (records,); now if None. headers: per record a sequence of (name, bytes or None). codec: a
        Codec, its name or number; as the topic's compression_type if None. All or nothing. Durable
        on return with flush_mode `commit`, else after flush(). Raises UsageError for no record,
        unequal lengths or another type, RecordBatchTooLargeError for a record above
        max_message_bytes, and what append_as_leader raises.
        """
        self.check_open()
        batches = record_encoder.encode(
            values,
            keys,
            timestamps,
            headers,
            now_ms=self._now_ms(),
            codec=self._codec_of_topic if codec is None else Codec.of(codec),
            level=self.config.compression_level,
            batch_bytes_max=self._batch_bytes_max,
        )
        epoch = leader_epoch
        if epoch is None:
            epoch = max(self.latest_epoch, self.written_epoch, 0)
        if not batches:
            raise UsageError(
                f"expected values to hold at least one record to append to {self.path}, found none",
                argument="values",
            )
        if len(batches) <= self.config.segment_bytes:
            return self.append_as_leader(batches, epoch)
        return self._append_in_parts(batches, epoch)

    def _append_in_parts(self, batches: Any, leader_epoch: int) -> AppendResult:
        """Append what no segment holds at once, a batch at a time."""
        view = memoryview(batches).cast("B")
        headers = record_batch.scan(view, check_crc=False).headers
        ends = headers["position"] + headers["size_bytes"]
        # Each goes in by itself and so starts at offset 0, which lies outside the CRC.
        parts = (
            bytes(8) + view[at + 8 : end]
            for at, end in zip(headers["position"].tolist(), ends.tolist(), strict=True)
        )
        return self.append_parts_as_leader(parts, leader_epoch)

    def to_arrow(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        zero_copy: bool = False,
        isolation: Isolation | str = Isolation.HIGH_WATERMARK,
    ) -> pa.Table:
        """Records of [start_offset, end_offset) as an Arrow table, one chunk per 64 MiB of log.

        Columns: key, value, offset, timestamp (ms, UTC), timestamp_type, leader_epoch, headers.
        zero_copy: values of uncompressed batches are views into the mapped segments. Reads no
        further than `isolation` allows. Raises OffsetOutOfRangeError, UsageError for offsets that
        are no integers, unknown columns or isolation, CorruptBatchError, DecompressionError,
        LogClosedError.
        """
        batches = self.record_batches(
            start_offset, end_offset, columns=columns, zero_copy=zero_copy, isolation=isolation
        )
        schema = record_decoder.schema(columns, zero_copy=zero_copy)
        return pa.Table.from_batches(batches, schema)

    def record_batches(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        zero_copy: bool = False,
        isolation: Isolation | str = Isolation.HIGH_WATERMARK,
    ) -> Iterator[pa.RecordBatch]:
        """As to_arrow, one chunk after the other; raises about its arguments at once."""
        zero_copy = flag(zero_copy, "zero_copy", self.path)
        names = record_decoder.schema(columns, zero_copy=zero_copy).names
        slices = self._slices(start_offset, end_offset, ARROW_SLICE_BYTES, isolation)
        return (
            piece.to_arrow(end_offset=bound, columns=names, zero_copy=zero_copy, aborted=aborted)
            for piece, bound, aborted in slices
        )

    def records(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        isolation: Isolation | str = Isolation.HIGH_WATERMARK,
    ) -> Iterator[Record]:
        """Iterate the records of [start_offset, end_offset), decoding a batch at a time.

        Raises as to_arrow does: about its arguments at once, about the log as it gets there.
        """
        slices = self._slices(start_offset, end_offset, RECORDS_SLICE_BYTES, isolation)
        return (
            record
            for piece, bound, aborted in slices
            for record in piece.records(end_offset=bound, aborted=aborted, record_type=Record)
        )

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def _slices(
        self,
        start_offset: int | None,
        end_offset: int | None,
        size: int,
        isolation: Isolation | str,
    ) -> Iterator[tuple[LogSlice, int, Sequence[Any]]]:
        """Check the arguments now; the slices come when they are asked for."""
        self.check_open()
        level = Isolation.of(isolation)
        offset = self.log_start_offset
        if start_offset is not None:
            offset = integer(start_offset, "start_offset", self.path, low=OFFSET_MIN)
        limit = bound = self.bound(level)
        if end_offset is not None:
            bound = min(integer(end_offset, "end_offset", self.path), limit)
        if not self.log_start_offset <= offset <= self.log_end_offset:
            self.read(offset)  # which says why not
        return self._slices_between(offset, bound, limit, size, level)

    def _slices_between(
        self, offset: int, bound: int, limit: int, size: int, isolation: Isolation
    ) -> Iterator[tuple[LogSlice, int, Sequence[Any]]]:
        while offset < bound or offset > self.log_end_offset or offset < self.log_start_offset:
            # The caller's end may lie inside a batch; the isolation's end is never read past.
            piece = self.read(offset, size, end_offset=bound, whole_batches=bound < limit)
            if not piece.size_bytes:
                return
            aborted: Sequence[Any] = ()
            if isolation is Isolation.TXN_COMMITTED:
                aborted = self.aborted_transactions(offset, bound)
            yield piece, bound, aborted
            if piece.end_offset <= offset:
                raise CorruptBatchError(
                    f"expected a whole batch with offset {offset} at position {piece.position} of "
                    f"{piece.path}, found one that runs past the end of the records; restore the "
                    f"segment from a replica",
                    path=piece.path,
                    position=piece.position,
                    offset=offset,
                )
            offset = piece.end_offset

    def bound(self, isolation: Isolation) -> int:
        """Exclusive: how far a read may go."""
        if isolation is Isolation.LOG_END:
            return self.log_end_offset
        if isolation is Isolation.TXN_COMMITTED:
            return self.last_stable_offset
        return self.high_watermark

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record at or after `timestamp` (ms), None if there is none.

        Raises UsageError for what is no 64-bit integer, CorruptBatchError, LogClosedError.
        """
        found = super().offset_for_timestamp(timestamp)
        return None if found is None else TimestampedOffset(*found)

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """The largest epoch <= leader_epoch with its exclusive end; (-1, -1) if unknown.

        Raises UsageError for what is no 32-bit integer, LogClosedError.
        """
        return EpochEndOffset(*super().end_offset_for_epoch(leader_epoch))

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """(leader_epoch, start_offset) of every epoch, ascending."""
        return self.epoch_entries

    @property
    def _codec_of_topic(self) -> int:
        names = {"producer": Codec.NONE, "uncompressed": Codec.NONE}
        name = self.config.compression_type
        return names[name] if name in names else Codec[name.upper()]
