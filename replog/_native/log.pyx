# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The whole log of one partition, as Python sees it: checks what it is given, and hands on.

What it holds, and in which order that stands, is told in `log_state`. Every verb that changes the
log takes the writer's lock here or in the part that it hands on to.

close: flush with closing time entries and a producer snapshot. A crash or an error in between: an
    unclean stop. The log is closed in any case.
"""

from libc.stdint cimport int32_t, int64_t

from replog._native.aborted_transactions cimport AbortedTransactions
from replog._native.arguments cimport (
    epoch_of, flag_of, int32_of, int64_of, integer_of, offset_of,
)
from replog._native.epoch_file cimport EpochFile
from replog._native.log_cut cimport LogCut
from replog._native.log_follower cimport LogFollower
from replog._native.log_lookup cimport LogLookup
from replog._native.log_producers cimport LogProducers
from replog._native.log_retention cimport LogRetention
from replog._native.log_segment cimport LogSegment
from replog._native.log_start cimport LogStart
from replog._native.log_state cimport LogState
from replog._native.log_sync cimport LogSync
from replog._native.log_writer cimport LogWriter
from replog._native.retired_files cimport RetiredFiles
from replog._native.segment_maker cimport SegmentMaker

from replog.errors import OffsetOutOfRangeError

cdef int64_t OFFSET_MAX = 0x7FFFFFFFFFFFFFFF


cdef class Log:
    """See the module. `log_recovery.load` fills in segments and offsets."""

    def __init__(self, str path, object config, object keeper, *, clock, jitter=None):
        """keeper: what outlives a crash beside the segments; see `storage.log_keeper`."""
        cdef LogState state = LogState(path, config, keeper, clock)
        self.state = state
        self.retired = RetiredFiles(config.file_delete_delay_ms)
        self.maker = SegmentMaker(state, jitter)
        self.epoch_file = EpochFile(state)
        self.producers = LogProducers(state)
        self.aborted = AbortedTransactions(state, self.producers)
        self.lookup = LogLookup(state)
        self.sync = LogSync(state)
        self.start = LogStart(state, self.epoch_file)
        self.cut = LogCut(
            state, self.maker, self.epoch_file, self.producers, self.sync, self.start, self.retired
        )
        self.writer = LogWriter(
            state, self.maker, self.epoch_file, self.producers, self.sync, self.cut
        )
        self.follower = LogFollower(state, self.cut, self.writer)
        self.retention = LogRetention(
            state, self.producers, self.start, self.writer, self.retired
        )

    # What is known.

    @property
    def path(self):
        return self.state.path

    @property
    def config(self):
        return self.state.config

    @property
    def keeper(self):
        return self.state.keeper

    @property
    def segments(self):
        return self.state.segments

    @property
    def log_start_offset(self):
        return self.state.log_start_offset

    @property
    def log_end_offset(self):
        return self.state.log_end_offset

    @property
    def written_epoch(self):
        """Leader epoch of the last batch, whether it has an entry or not; -1: none."""
        return self.state.written_epoch

    @property
    def closed(self):
        return self.state.guard.closed

    @property
    def failed(self):
        """Whether an I/O error has made the log unfit for writing; it is readable, and can be
        closed."""
        return self.state.guard.failed

    @property
    def forked(self):
        """Whether this is a child that was forked from the process that opened the log."""
        return self.state.guard.forked()

    def check_open(self):
        """Raise LogClosedError if the log is closed; never blocks."""
        self.state.check_open()

    @property
    def high_watermark(self):
        """Exclusive: offsets below it are committed. Follows log_end_offset where nobody set it."""
        return self.state.committed_end()

    @property
    def follows_high_watermark(self):
        """Whether somebody has set the high watermark: other replicas decide what is committed."""
        return self.state.watermark >= 0

    @property
    def last_stable_offset(self):
        """Exclusive end of what read_committed may read."""
        return self.lookup.stable_end()

    @property
    def recovery_point(self):
        """Exclusive: offsets below it are known flushed.

        After a cut inside a batch that may be offsets behind the last batch, as it is for Kafka.
        """
        cdef LogState state = self.state
        # Between the last batch and the log end there is nothing that could be lost.
        if state.recovered_to >= state.dense_end:
            return state.log_end_offset
        return state.recovered_to

    @property
    def synced_end_offset(self):
        """Exclusive end of the batches that are known flushed: what a crashed log may rely on."""
        return self.state.recovered_to

    @property
    def size_bytes(self):
        """Bytes of all data files together."""
        return self.state.size_bytes()

    @property
    def latest_epoch(self):
        """The highest leader epoch known, -1 for none."""
        return self.state.epochs.latest_epoch

    @property
    def epoch_entries(self):
        """(leader_epoch, start_offset) of every epoch, ascending."""
        return self.state.epochs.entries()

    @property
    def epoch_text(self):
        """What `leader-epoch-checkpoint` is to hold of them."""
        return self.state.epoch_text

    @property
    def producer_entries(self):
        """State of every idempotent producer, in the order of Kafka's snapshot file."""
        return self.state.producers.entries()

    def end_offset_for_epoch(self, leader_epoch):
        """(leader_epoch, exclusive end offset) of the largest epoch <= the one asked; (-1, -1).

        Raises UsageError for what is no 32-bit integer, LogClosedError.
        """
        cdef LogState state = self.state
        state.check_open()
        return state.epochs.end_offset_for(
            int32_of(leader_epoch, "leader_epoch", state.path), state.log_end_offset
        )

    def epoch_for_offset(self, offset):
        """The leader epoch that `offset` was written in, -1 if unknown.

        Raises UsageError for what is no integer from 0 on, LogClosedError.
        """
        self.state.check_open()
        return self.state.epochs.epoch_for_offset(offset_of(offset, "offset", self.state.path))

    # Reads.

    def read(self, start_offset, max_bytes=1048576, *, end_offset=None, min_one_message=True,
             whole_batches=False):
        """A LogSlice from the batch that holds start_offset, within one segment.

        Reads below end_offset (exclusive; None: the log end) and about max_bytes: the last batch
        may be cut there, but with min_one_message the first is whole however large. A batch that
        ends above end_offset is left out, as Kafka does at a high watermark, or with whole_batches
        taken whole. Empty where nothing is below the bound. Raises OffsetOutOfRangeError outside
        [log_start_offset, log_end_offset], CorruptBatchError where bytes or files below the log end
        are damaged or missing, UsageError for what is no integer (bytes and end from 0 on) or no
        bool, LogClosedError. Source: Kafka's UnifiedLog.read.
        """
        cdef LogState state = self.state
        state.check_open()
        return self.lookup.read(
            int64_of(start_offset, "start_offset", state.path),
            offset_of(max_bytes, "max_bytes", state.path),
            OFFSET_MAX if end_offset is None else offset_of(end_offset, "end_offset", state.path),
            flag_of(min_one_message, "min_one_message", state.path),
            flag_of(whole_batches, "whole_batches", state.path),
        )

    def offset_for_timestamp(self, timestamp):
        """(timestamp, offset, leader_epoch) of the first record at or after `timestamp` ms, or
        None.

        Only offsets from log_start_offset on count. Raises UsageError for what is no 64-bit
        integer, CorruptBatchError, LogClosedError. Source: Kafka's ListOffsets.
        """
        self.state.check_open()
        return self.lookup.first_from(int64_of(timestamp, "timestamp", self.state.path))

    def offset_of_max_timestamp(self):
        """(timestamp, offset, leader_epoch) of the first record with the largest one, or None."""
        self.state.check_open()
        return self.lookup.first_of_largest()

    def aborted_transactions(self, start_offset, end_offset):
        """Aborted transactions that overlap [start_offset, end_offset), from the .txnindex.

        Raises UsageError for what is no integer from 0 on, LogClosedError.
        """
        cdef int64_t start = offset_of(start_offset, "start_offset", self.state.path)
        cdef int64_t end = offset_of(end_offset, "end_offset", self.state.path)
        self.state.check_open()
        return self.aborted.between(start, end)

    # Appends.

    def append_as_leader(self, batches, leader_epoch, *, now_ms=None, coordinator=False):
        """Append a client's record batches: assigns offsets from log_end_offset on, and the epoch.

        batches: a buffer of one or more whole v2 batches, which must not change meanwhile.
        coordinator: end-of-transaction markers are allowed. Returns an AppendResult. Durable on
        return with flush_mode `commit`; otherwise after flush(). On any error nothing is appended.
        Raises UsageError for no batch, no contiguous bytes or no integers; CorruptBatchError,
        InvalidRecordError, InvalidTimestampError, UnknownCodecError, DecompressionError,
        RecordBatchTooLargeError, ProducerError, FencedLeaderEpochError, NoSpaceError,
        LogFailedError, LogClosedError. Source: Kafka's appendAsLeader.
        """
        return self.writer.append(batches, leader_epoch, now_ms, coordinator)

    def append_parts_as_leader(self, parts, leader_epoch, *, now_ms=None):
        """append_as_leader for each buffer of `parts`, as a unit: all of them or none.

        Nobody else's records come between, and whoever reads up to the high watermark sees none of
        them before the last. Returns one AppendResult for all. Raises as append_as_leader does.
        """
        cdef int32_t epoch = int32_of(leader_epoch, "leader_epoch", self.state.path)
        return self.writer.append_parts(parts, epoch, now_ms)

    def append_as_follower(self, batches, *, now_ms=None):
        """Append batches of a leader's log as they are: offsets, epochs and bytes are kept.

        batches: a buffer of whole v2 batches; a partial one at its end is ignored, as a fetch may
        end in one. The first must continue the log. Returns an AppendResult. Durability as in
        append_as_leader. Raises UsageError for no whole batch or no contiguous bytes,
        CorruptBatchError, OutOfOrderOffsetError, RecordBatchTooLargeError, NoSpaceError,
        LogFailedError, LogClosedError. Source: Kafka's appendAsFollower.
        """
        return self.follower.append(batches, now_ms)

    def roll(self, *, now_ms=None):
        """Seal the active segment and open a new one at log_end_offset; False if it is empty."""
        cdef LogState state = self.state
        with state.guard:
            if state.segments.last().base_offset == state.log_end_offset:
                return False
            self.writer.roll(state.log_end_offset, state.now(now_ms))
            return True

    def assign_epoch(self, leader_epoch, start_offset):
        """Note that `leader_epoch` begins at start_offset; durable on return. True if it is news.

        A new leader calls it with log_end_offset before it takes records (KIP-101). Raises
        UsageError for what is no integer from 0 on.
        """
        cdef int32_t epoch = epoch_of(leader_epoch, "leader_epoch", self.state.path)
        cdef int64_t start = offset_of(start_offset, "start_offset", self.state.path)
        with self.state.guard:
            return self.epoch_file.assign(epoch, start)

    def set_high_watermark(self, offset):
        """Move the high watermark, clamped to [log_start_offset, log_end_offset]; returns it.

        Raises UsageError for what is no integer from 0 on, LogClosedError.
        """
        cdef int64_t asked = offset_of(offset, "high_watermark", self.state.path)
        self.state.check_open()
        return self.state.move_watermark(asked)

    # Syncs.

    def commit(self, end_offset):
        """Return once every record below end_offset is synced; callers that wait share one sync.

        Raises UsageError for what is no integer from 0 on, LogFailedError, LogClosedError.
        """
        self.sync.commit(offset_of(end_offset, "end_offset", self.state.path))

    def flush(self):
        """Sync everything written so far, then move the recovery point to it. Returns it.

        Durable on return. Raises NoSpaceError (an index could not be written; the next flush tries
        again), LogClosedError, LogFailedError if a sync fails, after which the log takes no work.
        """
        self.sync.flush()
        return self.recovery_point

    def checkpoint(self):
        """Flush, and persist the recovery point now; durable on return.

        Raises as flush() does.
        """
        self.sync.checkpoint()

    # Cuts.

    def truncate_to(self, offset):
        """Keep offsets below `offset`; the whole batch that holds it goes. True if records went.

        log_end_offset becomes `offset`. Views of cut bytes stay readable. Durable on
        return. The cost does not depend on the size of the log. Raises UsageError for what is no
        integer from 0 on, NoSpaceError, LogFailedError, LogClosedError.
        """
        cdef int64_t end = offset_of(offset, "offset", self.state.path)
        with self.state.guard:
            return self.cut.to(end)

    def truncate_fully_and_start_at(self, offset, *, log_start_offset=None):
        """Drop everything and go on, empty, at `offset`; durable on return.

        log_start_offset: at most `offset`, which it is if None. Raises UsageError for what is no
        integer from 0 on, NoSpaceError, LogFailedError, LogClosedError.
        """
        cdef int64_t end = offset_of(offset, "offset", self.state.path)
        cdef int64_t start = end
        if log_start_offset is not None:
            start = integer_of(log_start_offset, "log_start_offset", self.state.path, 0, end)
        with self.state.guard:
            self.cut.restart(end, start)

    def truncate_prefix_to(self, offset):
        """Delete records below `offset`: log_start_offset moves at once, segments go by retention.

        True if it moved. Durable on return. Raises OffsetOutOfRangeError above the high watermark,
        UsageError for what is no integer from 0 on, LogClosedError. Source: Kafka's DeleteRecords
        (KIP-107).
        """
        cdef LogState state = self.state
        cdef int64_t start = offset_of(offset, "offset", state.path)
        with state.guard:
            if start > state.committed_end():
                raise OffsetOutOfRangeError(
                    f"expected an offset in [0, {state.committed_end()}] to delete the records of "
                    f"{state.path} below, found {start}; only committed records can be deleted",
                    path=state.path, offset=start,
                )
            return self.start.move(start)

    def apply_retention(self, *, now_ms=None):
        """Drop old segments by log start, size and time; returns the base offsets that went.

        Only committed segments go, the oldest first. Files are renamed now and unlinked once
        file_delete_delay_ms has passed, by a later call; views stay readable. Raises UsageError
        for a now_ms that is no integer, LogFailedError, LogClosedError.
        """
        return self.retention.apply(self.state.now(now_ms))

    def unlink_retired(self, *, now_ms=None):
        """Unlink renamed files whose delay is over; mappings of them stay readable."""
        with self.state.guard:
            self.retired.unlink_due(self.state.now(now_ms))

    # The end.

    def close(self, *, flush=True):
        """Flush, write a producer snapshot and give all files back; views stay readable.

        With flush=False nothing is synced or written, as if the process had been killed. The log is
        closed when this returns, and also when it raises: the stop is then not a clean one. Raises
        UsageError for what is no bool, NoSpaceError, LogFailedError.
        """
        cdef bint flushing = flag_of(flush, "flush", self.state.path)
        cdef LogSegment segment
        if self.state.guard.closed or self.state.guard.forked():
            return
        self.state.guard.sync_lock.acquire()
        self.state.guard.lock_any()
        try:
            if self.state.guard.closed:
                return
            if flushing:
                self.state.guard.check()
                self.finish()
        finally:
            self.state.guard.close()
            for segment in self.state.segments:
                segment.abandon()
            self.state.guard.unlock(None)
            self.state.guard.sync_lock.release()

    cdef int finish(self) except -1:
        """Write and sync all that is in memory: the log is whole behind this."""
        cdef LogSegment segment, active = self.state.segments.last()
        self.producers.take_snapshot()
        if self.epoch_file.owed:
            # Behind a clean close the file is believed: an entry too many says what is no more.
            self.epoch_file.write_or(self.state.epochs.copy())
        self.state.names_unsynced = True
        active.seal()
        self.sync.flush()
        self.retired.unlink_all()
        for segment in self.state.segments:
            segment.close()
        return 0
