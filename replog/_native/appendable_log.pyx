# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The append side of a log: checks, stamps, rolls, writes, publishes.

One writer at a time, many readers: see log_guard for both, and for what a failure does. What must
outlive a crash beside the segments (epochs, recovery point, log start) is the keeper's, who is
called before the step that relies on it. Order of an append: epoch file, batch, producers, log end.
A crash in between leaves an epoch without records or a torn batch at the tail; recovery cuts both.
An error in between takes the batch back, but for what the epoch file says: the next write of it
says less.
"""

from cpython.buffer cimport PyBuffer_Release
from libc.limits cimport INT_MAX
from libc.stdint cimport int32_t, int64_t, uint8_t

from replog._native.append_result cimport AppendResult, result_of
from replog._native.arguments cimport (
    epoch_of, flag_of, int32_of, int64_of, offset_of, take_buffer,
)
from replog._native.batch_format cimport CODEC_MASK, CONTROL_ABORT
from replog._native.batch_set cimport BatchSet
from replog._native.leader_epoch_cache cimport LeaderEpochCache
from replog._native.log_guard cimport LogGuard
from replog._native.log_segment cimport LogSegment
from replog._native.producer_state cimport ProducerState
from replog._native.record_batch cimport BatchHeader
from replog._native.retired_files cimport RetiredFiles
from replog._native.segment_list cimport SegmentList
from replog._native.snapshot_files cimport SnapshotFiles

import os

from replog.errors import (
    FencedLeaderEpochError, LogClosedError, LogFailedError, NoSpaceError, OutOfDescriptorsError,
    StorageError, UsageError,
)

from replog._native import mapped_file
from replog._native.segment_files import SEGMENT_SUFFIXES

# A truncation replays at most this much of the log, however long its segments are.
SNAPSHOT_INTERVAL_BYTES = 64 * 1024 * 1024
cdef int64_t SNAPSHOT_BYTES = SNAPSHOT_INTERVAL_BYTES
# How often idle producers are looked for: Kafka's producer.id.expiration.check.interval.ms.
cdef int64_t PRODUCER_CHECK_MS = 600_000
cdef int64_t OFFSET_MAX = 0x7FFFFFFFFFFFFFFF
CODECS = {"producer": -1, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


cdef class AppendableLog(ReadableLog):
    """See the module. Segments and offsets are filled in by `log_recovery.load`."""

    def __init__(self, str path, object config, object keeper, *, clock, jitter=None):
        """keeper: what outlives a crash beside the segments; see `storage.log_keeper`."""
        self.path = path
        self.keeper = keeper
        self.guard = LogGuard(path)
        self.config = config
        self.clock = clock
        self.jitter = jitter
        self.segments = SegmentList()
        self.watermark = -1
        self.unit_start = -1
        self.written_epoch = -1
        self.epochs = LeaderEpochCache()
        self.producers = ProducerState(config.producer_id_expiration_ms)
        self.batches = BatchSet()
        self.filler = BatchSet()
        self.retired = RetiredFiles(config.file_delete_delay_ms)
        self.snapshots = SnapshotFiles(path)
        self.segment_bytes = config.segment_bytes
        self.segment_ms = config.segment_ms
        self.max_message_bytes = config.max_message_bytes
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.after_max_ms = config.message_timestamp_after_max_ms
        self.decompressed_bytes_max = config.decompressed_bytes_max
        self.flush_messages = config.flush_messages
        self.flush_ms = config.flush_ms
        self.flushed_at_ms = self.producers_checked_ms = self.now(None)
        self.compacted = config.compacted
        self.log_append_time = config.message_timestamp_type == "LogAppendTime"
        self.commit_each = config.flush_mode == "commit"
        self.target_codec = CODECS[config.compression_type]

    @property
    def recovery_point(self):
        """Exclusive: offsets below it are known flushed.

        After a cut inside a batch that may be offsets behind the last batch, as it is for Kafka.
        """
        # Between the last batch and the log end there is nothing that could be lost.
        return self.log_end_offset if self.recovered_to >= self.dense_end else self.recovered_to

    @property
    def synced_end_offset(self):
        """Exclusive end of the batches that are known flushed: what a crashed log may rely on."""
        return self.recovered_to

    cdef int64_t now(self, object now_ms) except? -1:
        return int64_of(self.clock() if now_ms is None else now_ms, "now_ms", self.path)

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
        cdef Py_buffer given
        cdef AppendResult appended = None
        cdef int64_t now = 0
        # As `with self.guard`, which costs a tenth of an append.
        self.guard.lock()
        try:
            take_buffer(batches, &given, "batches", self.path)
            try:
                now = self.now(now_ms)
                appended = self.append_leader_locked(
                    <const uint8_t*> given.buf, given.len,
                    int32_of(leader_epoch, "leader_epoch", self.path), now,
                    flag_of(coordinator, "coordinator", self.path),
                )
            finally:
                self.batches.release()
                PyBuffer_Release(&given)
        except BaseException as error:
            self.guard.unlock(error)
            raise
        self.guard.unlock(None)
        self.sync_as_configured(appended.last_offset + 1, now)
        return appended

    def append_parts_as_leader(self, parts, leader_epoch, *, now_ms=None):
        """append_as_leader for each buffer of `parts`, as a unit: all of them or none.

        Nobody else's records come between, and whoever reads up to the high watermark sees none of
        them before the last. Returns one AppendResult for all. Raises as append_as_leader does.
        """
        cdef Py_buffer given
        cdef AppendResult appended = None
        cdef int64_t start_offset, now = 0
        cdef int32_t epoch = int32_of(leader_epoch, "leader_epoch", self.path)
        log_append_time_ms = -1
        with self.guard:
            now = self.now(now_ms)
            start_offset = self.unit_start = self.log_end_offset
            epochs = self.epochs.copy()
            try:
                for part in parts:
                    take_buffer(part, &given, "parts", self.path)
                    try:
                        appended = self.append_leader_locked(
                            <const uint8_t*> given.buf, given.len, epoch, now, False
                        )
                    finally:
                        self.batches.release()
                        PyBuffer_Release(&given)
                    log_append_time_ms = appended.log_append_time_ms
            except BaseException as error:
                self.undo_to(start_offset, epochs, error)
                raise
            finally:
                self.unit_start = -1
            appended = result_of(start_offset, self.log_end_offset - 1, log_append_time_ms)
            self.producers.release_below(self.high_watermark)
        self.sync_as_configured(appended.last_offset + 1, now)
        return appended

    cdef int undo_to(self, int64_t offset, LeaderEpochCache epochs, object error) except -1:
        """Cut the parts of a unit that went in before one of them met `error`."""
        if self.log_end_offset > offset and not isinstance(error, LogFailedError):
            self.guard.begin_change()
            self.truncate_locked(offset)
            self.restore_epochs(epochs)
            self.guard.end_change()
        return 0

    cdef int sync_as_configured(self, int64_t end_offset, int64_t now) except -1:
        """Sync what flush_mode, flush_messages and flush_ms ask for behind an append."""
        if self.commit_each:
            try:
                self.commit(end_offset)
            except (LogClosedError, LogFailedError):
                raise
            except StorageError as error:
                # The records are in, and others may have followed: they cannot be taken back.
                self.guard.fail()
                raise LogFailedError(
                    f"expected to sync the records that were appended to {self.path}, found that "
                    f"it cannot be done now ({error}); open the log again",
                    path=self.path,
                ) from error
        if self.log_end_offset - self.recovered_to >= self.flush_messages or (
            self.flush_ms < OFFSET_MAX and now - self.flushed_at_ms >= self.flush_ms
        ):
            self.flushed_at_ms = now
            try:
                self.flush()
            except LogFailedError:
                raise
            except StorageError:
                pass  # nothing was promised of these records yet: the next append tries again
        return 0

    cdef AppendResult append_leader_locked(
        self, const uint8_t* bytes, int64_t length, int32_t leader_epoch, int64_t now,
        bint coordinator
    ):
        cdef BatchSet batches = self.batches
        cdef BatchHeader* first
        cdef int64_t base_offset = self.log_end_offset
        cdef int64_t append_time = now if self.log_append_time else -1
        cdef int32_t floor_epoch = max(self.epochs.latest(), self.written_epoch, 0)
        if leader_epoch < floor_epoch:
            raise FencedLeaderEpochError(
                f"expected a leader epoch of at least {floor_epoch} to append "
                f"to {self.path}, found {leader_epoch}; a newer leader has written here",
                path=self.path, leader_epoch=leader_epoch,
            )
        batches.load_from_client(bytes, length, self.path, self.decompressed_bytes_max)
        batches.check_client(
            self.path, self.max_message_bytes, self.compacted, now, self.before_max_ms,
            self.after_max_ms, self.log_append_time, coordinator,
        )
        first = &batches.batches[0].header
        if self.target_codec >= 0 or first.attributes & CODEC_MASK:
            batches.rewrite(
                self.target_codec, self.config.compression_level, self.decompressed_bytes_max
            )
        batches.check_size(self.segment_bytes, self.path)
        if first.producer_id >= 0:
            self.expire_producers(now)
            if batches.count > 1:
                raise UsageError(
                    f"expected one batch at a time of producer {first.producer_id}, found "
                    f"{batches.count}; append them one by one"
                )
            duplicate = self.producers.duplicate_of(first)
            if duplicate is not None:
                return AppendResult(duplicate[0], duplicate[1], duplicate[2], True)
            self.producers.check(first, not coordinator)
        batches.stamp(base_offset, leader_epoch, append_time)
        self.write(now)
        return result_of(base_offset, self.log_end_offset - 1, append_time)

    cdef int restart_locked(self, int64_t offset, int64_t log_start_offset) except -1:
        raise NotImplementedError("AppendableLog leaves truncation to Log")

    cdef int truncate_locked(self, int64_t offset) except -1:
        raise NotImplementedError("AppendableLog leaves truncation to Log")

    cdef int replay_producers(self, int64_t end_offset, int64_t now) except -1:
        raise NotImplementedError("AppendableLog leaves truncation to Log")

    cdef int write(self, int64_t now) except -1:
        """Roll if need be, note epochs, then write the loaded set and publish it."""
        cdef BatchHeader* first = &self.batches.batches[0].header
        cdef BatchHeader* last = &self.batches.batches[self.batches.count - 1].header
        if self.dense_end != self.log_end_offset:
            self.fill_hole()
        if self.bytes_since_snapshot + self.batches.length_bytes >= SNAPSHOT_BYTES:
            self.expire_producers(now)
        self.maybe_roll(first.base_offset, last.last_offset, now)
        cdef LeaderEpochCache before = None
        if last.leader_epoch != self.epochs.latest() or self.epochs_owed:
            before = self.epochs.copy()
            self.note_epochs(before)
        try:
            self.write_set()
        except BaseException:
            if before is not None:  # an entry of its second epoch would lie behind the log's end
                self.restore_epochs(before)
            raise

    cdef int fill_hole(self) except -1:
        """Put an empty batch where a cut inside a batch left none: offsets then have no hole.

        Compaction leaves such batches, so every reader knows them. It is synced if all before it
        is, for then the recovery point is reported to stand behind it.
        """
        cdef LogSegment active = self.segments.last()
        cdef int64_t position
        cdef int32_t epoch = max(
            self.epochs.epoch_for_offset(self.log_end_offset - 1), self.written_epoch
        )
        # Only in a compacted log, where holes are legal, can one be wider than a segment.
        if self.log_end_offset - 1 - active.base_offset <= INT_MAX:
            self.filler.load_empty(self.dense_end, self.log_end_offset - 1, epoch)
            active.open_timestamp()
            position = active.file.size_bytes
            active.append(self.filler)
            self.guard.begin_change()
            active.index(self.filler, position)
            if self.recovered_to >= self.dense_end:
                active.flush_records()
                self.recovered_to = self.log_end_offset
            self.written_epoch = epoch
            self.dense_end = self.log_end_offset
            self.guard.end_change()
        self.dense_end = self.log_end_offset
        return 0

    cdef int note_epochs(self, LeaderEpochCache before) except -1:
        """Enter the set's epochs, on disk before their first batch is.

        A batch that no epoch entry covers could be kept by a truncation that should have cut it
        (KAFKA-7415). If the file cannot be written, those of `before` hold again: the next try
        writes it.
        """
        cdef BatchHeader* header
        cdef int64_t number
        cdef bint changed = False
        for number in range(self.batches.count):
            header = &self.batches.batches[number].header
            if header.leader_epoch >= 0 and self.epochs.maybe_assign(
                header.leader_epoch, header.base_offset
            ):
                changed = True
        if changed or self.epochs_owed:
            self.write_epochs_or(before)
        return 0

    cdef int write_epochs_or(self, LeaderEpochCache before) except -1:
        """Write the epochs; if that fails, the cache holds those of `before` again."""
        try:
            self.keeper.write_epochs(self)
            self.epochs_owed = False
        except BaseException:
            self.restore_epochs(before)
            raise
        return 0

    cdef int restore_epochs(self, LeaderEpochCache before) except -1:
        self.epochs.restore(before)
        self.epochs_owed = True

    cdef int write_set(self) except -1:
        """Write the set, note what it tells, then let readers see it."""
        cdef BatchHeader* last = &self.batches.batches[self.batches.count - 1].header
        cdef LogSegment active = self.segments.last()
        cdef int64_t start_offset = self.log_end_offset
        cdef int64_t end_offset = last.last_offset + 1
        cdef int64_t position, number
        active.open_timestamp()
        position = active.file.size_bytes
        # What may fail and need not come after the batch comes before it.
        if self.commit_each and self.names_unsynced:
            mapped_file.fsync_dir(self.path)
            self.names_unsynced = False
        for number in range(self.batches.count):
            if self.batches.batches[number].header.control_type == CONTROL_ABORT:
                active.transaction_index.make_file()
                break
        active.append(self.batches)
        self.guard.begin_change()
        active.index(self.batches, position)
        try:
            self.note_producers(active, end_offset)
        except LogFailedError:
            raise
        except Exception:
            self.take_back(active, position, start_offset)
            self.guard.end_change()
            raise
        self.dense_end = end_offset
        self.written_epoch = last.leader_epoch
        self.log_end_offset = end_offset
        self.guard.end_change()
        if self.watermark < 0:
            self.producers.release_below(end_offset if self.unit_start < 0 else self.unit_start)
        self.bytes_since_snapshot += self.batches.length_bytes
        if self.bytes_since_snapshot >= SNAPSHOT_BYTES and self.producers.producer_count:
            self.take_snapshot()
        return 0

    cdef int note_producers(self, LogSegment active, int64_t end_offset) except -1:
        """Apply the batches of the set to the producers; keep aborted transactions."""
        cdef BatchHeader* header
        cdef int64_t number
        for number in range(self.batches.count):
            header = &self.batches.batches[number].header
            if header.producer_id < 0:
                continue
            completed = self.producers.update(header)
            if completed is not None and completed.aborted:
                active.transaction_index.append(completed)
        self.producers.end_offset = end_offset
        return 0

    cdef int take_back(self, LogSegment active, int64_t position, int64_t offset) except -1:
        """Cut batches from `offset` on that nobody has seen, and forget what they told.

        Synced: what was refused must not be there after a crash.
        """
        active.cut(position, offset)
        active.flush_records()
        self.replay_producers(offset, self.now(None))
        return 0

    cdef int expire_producers(self, int64_t now) except -1:
        now = self.clock() if now < 0 else now
        if not 0 <= now - self.producers_checked_ms < PRODUCER_CHECK_MS:
            self.producers_checked_ms = now
            self.producers.remove_expired(now)
        return 0

    cdef int take_snapshot(self) except -1:
        """Write the producers' state up to log_end_offset, unless nothing came since the last."""
        self.take_snapshot_at(self.log_end_offset, self.producers)
        self.bytes_since_snapshot = 0
        return 0

    cdef int take_snapshot_at(self, int64_t offset, ProducerState producers) except -1:
        """Write the producers' state, which is that of `offset`, unless there is one."""
        if offset > self.snapshot_offset:
            try:
                self.snapshots.write(offset, producers.to_snapshot())
            except (NoSpaceError, OutOfDescriptorsError):
                # A snapshot only shortens a replay; the records themselves are safe.
                return 0
            self.snapshot_offset = offset
        return 0

    cdef int maybe_roll(self, int64_t first_offset, int64_t last_offset, int64_t now) except -1:
        cdef LogSegment active = self.segments.last()
        # Not with the set's first offset, which a gap may set apart: it may yet be refused.
        cdef int64_t base_offset = self.log_end_offset
        if last_offset - base_offset > INT_MAX:
            base_offset = max(first_offset, base_offset)
        if now < 0 and (self.batches.max_timestamp < 0 or active.first_timestamp < 0):
            now = self.clock()
        if active.base_offset != base_offset and active.must_roll(
            self.batches, last_offset, self.segment_bytes,
            self.segment_ms - self.segment_jitter_now_ms, now,
        ):
            self.roll_locked(base_offset, now)
        return 0

    def roll(self, *, now_ms=None):
        """Seal the active segment and open a new one at log_end_offset; False if it is empty."""
        with self.guard:
            if self.segments.last().base_offset == self.log_end_offset:
                return False
            self.roll_locked(self.log_end_offset, self.now(now_ms))
            return True

    cdef int roll_locked(self, int64_t base_offset, int64_t now) except -1:
        cdef LogSegment active = self.segments.last()
        if self.dense_end != self.log_end_offset:
            self.fill_hole()
        active.seal()
        now = self.clock() if now < 0 else now
        self.expire_producers(now)
        self.segments = self.segments.with_last(self.new_segment(base_offset, now))
        self.take_snapshot()
        return 0

    cdef LogSegment new_segment(self, int64_t base_offset, int64_t now):
        """Create the files of a segment; leftovers of the same name go first."""
        for path in [f"{self.path}/{base_offset:020d}{suffix}" for suffix in SEGMENT_SUFFIXES]:
            if os.path.exists(path):
                mapped_file.remove(path)
        return self.make_segment(base_offset, now)

    cdef LogSegment make_segment(self, int64_t base_offset, int64_t now):
        cdef LogSegment segment = LogSegment(
            self.path, base_offset,
            index_interval_bytes=self.config.index_interval_bytes,
            index_bytes_max=self.config.segment_index_bytes,
            map_bytes=self.segment_bytes, dense=not self.compacted, created_ms=now,
        )
        segment.create()
        segment.guard = self.guard
        self.names_unsynced = True
        if self.jitter is not None and self.config.segment_jitter_ms:
            # As for Kafka, the jitter takes no more than all of segment_ms away.
            self.segment_jitter_now_ms = self.jitter(
                min(self.config.segment_jitter_ms, self.segment_ms)
            )
        return segment

    def assign_epoch(self, leader_epoch, start_offset):
        """Note that `leader_epoch` begins at start_offset; durable on return. True if it is news.

        A new leader calls it with log_end_offset before it takes records (KIP-101). Raises
        UsageError for what is no integer from 0 on.
        """
        cdef int32_t epoch = epoch_of(leader_epoch, "leader_epoch", self.path)
        cdef int64_t start = offset_of(start_offset, "start_offset", self.path)
        with self.guard:
            before = self.epochs.copy()
            changed = self.epochs.maybe_assign(epoch, start)
            if changed:
                self.write_epochs_or(before)
            return changed
