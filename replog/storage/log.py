"""`replog.Log`: what a program holds that keeps one partition's log.

It has what a user needs. The verbs of replicas and brokers are those of the `PartitionLog` that it
holds, which stays the only place where the log changes.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

import pyarrow as pa

from replog._native import record_decoder
from replog._native.arguments import flag, integer
from replog.errors import OffsetOutOfRangeError, UsageError, shown
from replog.storage.directory_access import absolute_path
from replog.storage.kept_options import keep_options, read_options
from replog.storage.partition_log import PartitionLog, wall_clock_ms
from replog.types import Isolation

if TYPE_CHECKING:
    import os
    import uuid
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from replog._native.append_result import AppendResult
    from replog._native.log_recovery import RecoveryReport
    from replog._native.log_slice import LogSlice
    from replog.config import LogConfig
    from replog.types import Codec, Record, TimestampedOffset, TopicPartition

    class ArrowColumn(Protocol):
        """An array of Arrow, of any library: pyarrow, polars, nanoarrow."""

        def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

    class ArrowColumns(Protocol):
        """An array of Arrow in several chunks."""

        def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...

    Column: TypeAlias = (
        Sequence[bytes | None] | npt.NDArray[np.bytes_ | np.object_] | ArrowColumn | ArrowColumns
    )
    Timestamps: TypeAlias = int | Sequence[int] | npt.NDArray[Any] | ArrowColumn | ArrowColumns
    Headers: TypeAlias = (
        Sequence[Sequence[tuple[str, bytes | None]] | None] | ArrowColumn | ArrowColumns
    )

RECORDS_SLICE_BYTES = 1024 * 1024
REVERSE_OFFSETS = 1024
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Log:
    """One partition's log, open for writing. Use `open`, as a context manager.

    Ends of offsets are exclusive: records of [log_start_offset, log_end_offset) can be read. One
    process writes at a time; any thread may call any method.
    """

    __slots__ = ("__weakref__", "_news", "_partition_log", "_waiting")

    def __init__(self, partition_log: PartitionLog) -> None:
        """For `open` and for log directories."""
        self._partition_log = partition_log
        self._news = threading.Condition()
        self._waiting = 0
        """Threads that follow, and wait for records."""

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

        config: None for the options that the log was opened with last, or the defaults. After an
        unclean stop the tail is checked and a torn one is cut (`recovery_report` tells), but no
        batch that is whole, unless power was lost or config.unclean_recovery says so;
        on_progress(done_bytes, total_bytes) follows that. Raises UsageError for another name, a
        partition of a log directory, or what is no path, directory or LogConfig;
        LogDirectoryLockedError; CorruptBatchError for damage in what was synced; CorruptFileError.
        """
        directory = absolute_path(path)
        if config is None:
            config = read_options(directory)
        opened = PartitionLog.open(directory, config, now_ms=now_ms, on_progress=on_progress)
        try:
            keep_options(directory, opened.config)
        except BaseException:
            opened.close(flush=False)
            raise
        return cls(opened)

    def __enter__(self) -> Self:
        self._partition_log.check_open()
        return self

    def __exit__(self, *exception: object) -> None:
        # A failed log must not look clean: it is left as a crash would leave it.
        self.close(flush=not self._partition_log.failed)

    def __repr__(self) -> str:
        state = ""
        if self._partition_log.closed:
            state = ", closed"
        elif self._partition_log.failed:
            state = ", failed"
        ends = f"[{self.log_start_offset}, {self.log_end_offset})"
        return f"<replog.Log {self.topic_partition} {ends}{state}>"

    # Writing.

    def append(
        self,
        values: Column,
        keys: Column | None = None,
        timestamps: Timestamps | None = None,
        headers: Headers | None = None,
        *,
        codec: Codec | str | int | None = None,
    ) -> AppendResult:
        """Append records given as columns; returns the offsets they were given.

        values, keys: a sequence of bytes or None, an Arrow (chunked) array of binary or string, or
        a numpy array of bytes; shape (records,). timestamps: ms since the epoch, one for all or
        (records,); now if None. headers: per record a sequence of (name, bytes or None). codec: a
        Codec, its name or number; as the config's compression_type if None.

        An error appends nothing. A kill in the middle may leave the first batches of a call whose
        records need several of them; one batch is whole or not there. Durable on return with
        flush_mode `commit`, else after flush(). Raises UsageError for no record, unequal lengths or
        another type, RecordBatchTooLargeError for a record above max_message_bytes,
        InvalidRecordError, InvalidTimestampError, NoSpaceError, LogFailedError, LogClosedError.
        """
        appended = self._partition_log.append(values, keys, timestamps, headers, codec=codec)
        if self._waiting:
            self._tell()
        return appended

    def flush(self) -> int:
        """Sync all records; returns the offset below which they are durable.

        Raises NoSpaceError (try again), LogClosedError, and LogFailedError if a sync fails, after
        which the log takes no more work.
        """
        return self._partition_log.flush()

    def truncate_to(self, offset: int) -> bool:
        """Keep the records below `offset`; durable on return. True if any went.

        The next record gets `offset`. Arrow tables and slices of what was cut stay readable. Raises
        UsageError for what is no integer from 0 on, NoSpaceError, LogFailedError, LogClosedError.
        """
        return self._partition_log.truncate_to(offset)

    def delete_records(self, before_offset: int) -> int:
        """Delete the records below `before_offset`; returns log_start_offset, durable on return.

        Whole segments give their space back with the next apply_retention(). Raises
        OffsetOutOfRangeError above the high watermark, UsageError for what is no integer from 0 on,
        NoSpaceError, LogFailedError, LogClosedError. Source: Kafka's DeleteRecords (KIP-107).
        """
        self._partition_log.truncate_prefix_to(before_offset)
        return self._partition_log.log_start_offset

    def apply_retention(self) -> list[int]:
        """Delete the oldest segments that retention_ms, retention_bytes or the log start let go.

        Returns their base offsets. Their files are unlinked by the first call that comes
        file_delete_delay_ms later, or by close(). Nothing calls this but the owner of the log.
        Raises NoSpaceError, LogFailedError, LogClosedError. Source: Kafka's deleteOldSegments.
        """
        deleted = self._partition_log.apply_retention()
        self._partition_log.unlink_retired()
        return deleted

    def close(self, *, flush: bool = True) -> None:
        """Flush, close and mark the log clean; all that was appended is durable on return.

        With flush=False the log is left as a crash would leave it. Closing twice is no mistake; in
        a child that was forked it leaves the parent's log alone. Raises UsageError for what is no
        bool, NoSpaceError, LogFailedError; the log is closed nevertheless.
        """
        try:
            self._partition_log.close(flush=flush)
        finally:
            self._tell()

    # Reading.

    def records(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        start_time: dt.datetime | int | None = None,
        reverse: bool = False,
        isolation: Isolation | str = Isolation.HIGH_WATERMARK,
    ) -> Iterator[Record]:
        """Iterate the records of [start_offset, end_offset), decoding a batch at a time.

        start_time: in place of start_offset, begin with the first record at or after it (aware
        datetime, or ms). reverse: the newest first. Raises OffsetOutOfRangeError, UsageError for
        what is no offset, time or isolation; as it gets there CorruptBatchError,
        DecompressionError, LogClosedError, and OffsetOutOfRangeError where retention was faster.
        """
        start_offset = self._start(start_offset, start_time)
        if flag(reverse, "reverse", self.path):
            return self._reversed(start_offset, end_offset, isolation)
        return self._partition_log.records(start_offset, end_offset, isolation=isolation)

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def to_arrow(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        start_time: dt.datetime | int | None = None,
        columns: Sequence[str] | None = None,
        zero_copy: bool = False,
        isolation: Isolation | str = Isolation.HIGH_WATERMARK,
    ) -> pa.Table:
        """Records of [start_offset, end_offset) as an Arrow table, one chunk per 64 MiB of log.

        Columns: key, value, offset, timestamp (ms, UTC), timestamp_type, leader_epoch, headers.
        zero_copy: values of uncompressed batches are views into the mapped segments. start_time,
        isolation and errors: as for records(), all of them at once; UsageError for unknown columns.
        """
        return self._partition_log.to_arrow(
            self._start(start_offset, start_time),
            end_offset,
            columns=columns,
            zero_copy=zero_copy,
            isolation=isolation,
        )

    def record_batches(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        start_time: dt.datetime | int | None = None,
        columns: Sequence[str] | None = None,
        zero_copy: bool = False,
        isolation: Isolation | str = Isolation.HIGH_WATERMARK,
    ) -> pa.RecordBatchReader:
        """As to_arrow, a stretch of at most 64 MiB of log at a time: for logs beyond memory.

        The reader is what Arrow's other libraries take, too. Errors as for records().
        """
        batches = self._partition_log.record_batches(
            self._start(start_offset, start_time),
            end_offset,
            columns=columns,
            zero_copy=zero_copy,
            isolation=isolation,
        )
        schema = record_decoder.schema(columns, zero_copy=zero_copy)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def follow(
        self,
        start_offset: int | None = None,
        *,
        timeout: float | None = None,
        on_gap: Callable[[int, int], None] | None = None,
        isolation: Isolation | str = Isolation.HIGH_WATERMARK,
    ) -> Iterator[Record]:
        """Iterate the records from start_offset (None: those to come) on, and wait for more.

        timeout: seconds without a new record after which the iterator ends; None for never. It
        sleeps until another thread appends. on_gap(expected_offset, log_start_offset) is called
        where retention has deleted what was not read yet, and the iterator goes on behind it;
        without on_gap that is OffsetOutOfRangeError. Raises LogClosedError once the log is closed,
        and as records() does.
        """
        self._partition_log.check_open()
        level = Isolation.of(isolation)
        offset = self.log_end_offset
        if start_offset is not None:
            offset = integer(start_offset, "start_offset", self.path)
        check_timeout(timeout)
        return self._follow(offset, timeout, on_gap, level)

    def read(
        self,
        start_offset: int,
        max_bytes: int = RECORDS_SLICE_BYTES,
        *,
        end_offset: int | None = None,
    ) -> LogSlice:
        """Bytes of whole batches from the one with start_offset on, as they are on disk.

        A view of about max_bytes of one segment; the last batch may be cut there, the first never.
        Empty where nothing is below end_offset (None: the log end). Raises OffsetOutOfRangeError,
        CorruptBatchError, UsageError for what is no integer, LogClosedError.
        """
        return self._partition_log.read(start_offset, max_bytes, end_offset=end_offset)

    def offset_for_timestamp(self, timestamp: dt.datetime | int) -> TimestampedOffset | None:
        """The first record at or after `timestamp` (aware datetime, or ms); None if there is none.

        Raises UsageError for what is neither, CorruptBatchError, LogClosedError.
        """
        return self._partition_log.offset_for_timestamp(milliseconds(timestamp))

    # Facts.

    @property
    def path(self) -> str:
        """The partition directory, absolute."""
        return self._partition_log.path

    @property
    def topic_partition(self) -> TopicPartition:
        """What the directory's name says."""
        return self._partition_log.topic_partition

    @property
    def topic_id(self) -> uuid.UUID:
        """Which of the topics that had this name it is."""
        return self._partition_log.topic_id

    @property
    def config(self) -> LogConfig:
        """The options that are in force."""
        return self._partition_log.config

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._partition_log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._partition_log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Exclusive: offsets below it are committed. In a log that is no replica, the log end."""
        return self._partition_log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Exclusive: below it every transaction has ended."""
        return self._partition_log.last_stable_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all data files together."""
        return self._partition_log.size_bytes

    @property
    def recovery_report(self) -> RecoveryReport:
        """What opening found and cut."""
        return self._partition_log.recovery_report

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._partition_log.closed

    @property
    def failed(self) -> bool:
        """Whether the disk has failed it: it can be read and closed, nothing else."""
        return self._partition_log.failed

    def _start(self, start_offset: int | None, start_time: dt.datetime | int | None) -> int | None:
        if start_time is None:
            return start_offset
        if start_offset is not None:
            raise UsageError(
                f"expected start_offset or start_time, found both ({shown(start_offset)} and "
                f"{shown(start_time)}); give the one to begin at",
                argument="start_time",
            )
        found = self.offset_for_timestamp(start_time)
        return self.log_end_offset if found is None else found.offset

    def _reversed(
        self, start_offset: int | None, end_offset: int | None, isolation: Isolation | str
    ) -> Iterator[Record]:
        log = self._partition_log
        log.records(start_offset, end_offset, isolation=isolation)  # checks the arguments now
        first = log.log_start_offset if start_offset is None else start_offset
        bound = log.bound(Isolation.of(isolation))
        if end_offset is not None:
            bound = min(bound, end_offset)
        return self._descending(first, bound, isolation)

    def _descending(self, first: int, bound: int, isolation: Isolation | str) -> Iterator[Record]:
        step = REVERSE_OFFSETS
        while bound > first:
            start = max(bound - step, first)
            found = list(self._partition_log.records(start, bound, isolation=isolation))
            yield from reversed(found)
            bound = start
            # Compaction leaves wide gaps: over them in ever longer steps.
            step = REVERSE_OFFSETS if found else step * 2

    def _follow(
        self,
        offset: int,
        timeout: float | None,
        on_gap: Callable[[int, int], None] | None,
        isolation: Isolation,
    ) -> Iterator[Record]:
        while self._wait_for(offset, timeout, isolation):
            bound = self._partition_log.bound(isolation)
            try:
                for record in self._partition_log.records(offset, bound, isolation=isolation):
                    yield record
                    offset = record.offset + 1
                # Behind the last record there may be markers, and what compaction took away.
                offset = max(offset, bound)
            except OffsetOutOfRangeError:
                start_offset = self.log_start_offset
                if on_gap is None or offset >= start_offset:
                    raise
                on_gap(offset, start_offset)
                offset = start_offset

    def _wait_for(self, offset: int, timeout: float | None, isolation: Isolation) -> bool:
        """Return once something may be read from `offset` on, False if nothing has come in time."""
        log = self._partition_log
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._news:
            self._waiting += 1
            try:
                while log.log_start_offset <= offset and log.bound(isolation) <= offset:
                    log.check_open()
                    if log.log_end_offset < offset:
                        log.read(offset)  # which says why not
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        return False
                    self._news.wait(left)
            finally:
                self._waiting -= 1
        log.check_open()
        return True

    def _tell(self) -> None:
        with self._news:
            self._news.notify_all()


def check_timeout(found: object) -> None:
    """Raise UsageError unless it is None or seconds from 0 on."""
    if found is None:
        return
    if isinstance(found, bool) or not isinstance(found, int | float) or not found >= 0:
        raise UsageError(
            f"expected timeout to be seconds from 0 on or None, found {shown(found)}",
            argument="timeout",
        )


def milliseconds(moment: dt.datetime | int) -> int:
    """Milliseconds since the epoch. Raises UsageError for a datetime without a time zone."""
    if not isinstance(moment, dt.datetime):
        return moment
    if moment.tzinfo is None:
        raise UsageError(
            f"expected a datetime with a time zone, found {moment!r}; say which, as by "
            f"replace(tzinfo=dt.UTC)",
            argument="timestamp",
        )
    # Rounded up: a record of the millisecond that has begun before it is too early.
    return -((EPOCH - moment) // dt.timedelta(milliseconds=1))
