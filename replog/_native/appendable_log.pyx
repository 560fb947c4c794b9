# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The append side of a log: checks, stamps, rolls, writes, publishes.

One writer at a time, many readers. What must outlive a crash beside the segments (epochs, recovery
point, log start) belongs to the owner of the checkpoint files, who overrides the `write_*` methods;
each is called before the step that relies on it. Order of an append: epoch file, batch, log end. A
crash in between leaves an epoch without records or a torn batch at the tail; recovery cuts both.
"""

from cpython.buffer cimport PyBuffer_Release
from libc.limits cimport INT_MAX
from libc.stdint cimport int32_t, int64_t, uint8_t

from replog._native.append_result cimport AppendResult, result_of
from replog._native.arguments cimport (
    epoch_of, flag_of, int32_of, int64_of, offset_of, take_buffer,
)
from replog._native.batch_format cimport CODEC_MASK
from replog._native.batch_set cimport BatchSet
from replog._native.file_system cimport fork_count
from replog._native.leader_epoch_cache cimport LeaderEpochCache
from replog._native.log_segment cimport LogSegment
from replog._native.mutex cimport Mutex
from replog._native.producer_state cimport ProducerState
from replog._native.record_batch cimport BatchHeader

import os

from replog.errors import (
    FencedLeaderEpochError, LogClosedError, LogFailedError, NoSpaceError,
    OutOfDescriptorsError, OutOfOrderOffsetError, UsageError,
)

from replog._native import mapped_file, snapshot_files

# A truncation replays at most this much of the log, however long its segments are.
SNAPSHOT_INTERVAL_BYTES = 64 * 1024 * 1024
cdef int64_t SNAPSHOT_BYTES = SNAPSHOT_INTERVAL_BYTES
cdef int64_t OFFSET_MAX = 0x7FFFFFFFFFFFFFFF
SEGMENT_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
CODECS = {"producer": -1, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


cdef class AppendableLog(ReadableLog):
    """See the module. Segments and offsets are filled in by `log_recovery.load`."""

    def __cinit__(self):
        self.write_lock = Mutex()
        self.sync_lock = Mutex()

    def __init__(self, str path, object config, *, clock, jitter=None):
        self.path = path
        self.config = config
        self.clock = clock
        self.jitter = jitter
        self.segments = ()
        self.bases = ()
        self.watermark = -1
        self.written_epoch = -1
        self.epochs = LeaderEpochCache()
        self.producers = ProducerState(config.producer_id_expiration_ms)
        self.batches = BatchSet()
        self.filler = BatchSet()
        self.checked_aborts = set()
        self.retired = []
        self.fork_generation = fork_count[0]
        self.segment_bytes = config.segment_bytes
        self.segment_ms = config.segment_ms
        self.max_message_bytes = config.max_message_bytes
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.after_max_ms = config.message_timestamp_after_max_ms
        self.decompressed_bytes_max = config.decompressed_bytes_max
        self.flush_messages = config.flush_messages
        self.flush_ms = config.flush_ms
        self.flushed_at_ms = self.now(None)
        self.compacted = config.compacted
        self.log_append_time = config.message_timestamp_type == "LogAppendTime"
        self.commit_each = config.flush_mode == "commit"
        self.target_codec = CODECS[config.compression_type]

    # What the owner of the checkpoint files overrides. Durable on return.

    def write_epochs(self):
        """Persist `epoch_entries`; called before the first batch of a new epoch is written."""

    def lower_recovery_point(self, int64_t offset):
        """See that no recovery point above `offset` is on disk; called before a cut there."""

    def write_recovery_point(self, int64_t offset):
        """Persist a recovery point: everything below `offset` is synced."""

    def note_recovery_point(self, int64_t offset):
        """Everything below `offset` is synced; the owner may persist that now or later."""

    def write_log_start(self, int64_t offset):
        """Persist the log start offset after it has moved."""

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

    cdef int lock(self) except -1:
        # First of all: another thread may have held the lock when this process was forked.
        if self.fork_generation != fork_count[0]:
            self.refuse()
        self.write_lock.acquire()
        if self.closed or self.failed:
            self.unlock()
            self.refuse()
        return 0

    cdef void unlock(self) noexcept:
        self.write_lock.release()

    def refuse(self):
        """Raise for a log that takes no more work."""
        if self.fork_generation != fork_count[0]:
            raise LogClosedError(
                f"expected the process that opened {self.path}, found a child forked from it; open "
                f"another log in the child, or start it by spawn",
                path=self.path,
            )
        self.check_open()
        raise LogFailedError(
            f"expected a healthy log, found {self.path} failed by an earlier I/O error; check the "
            f"disk and open it again, which recovers what is whole",
            path=self.path,
        )

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
        cdef AppendResult appended
        self.lock()
        try:
            take_buffer(batches, &given, "batches", self.path)
            try:
                appended = self.append_leader_locked(
                    <const uint8_t*> given.buf, given.len,
                    int32_of(leader_epoch, "leader_epoch", self.path), self.now(now_ms),
                    flag_of(coordinator, "coordinator", self.path),
                )
            finally:
                self.batches.release()
                PyBuffer_Release(&given)
        finally:
            self.unlock()
        if self.commit_each:
            self.commit(appended.last_offset + 1)
        return appended

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

    cdef int write(self, int64_t now) except -1:
        """Roll if need be, note epochs, then write the loaded set and publish it."""
        cdef BatchHeader* first = &self.batches.batches[0].header
        cdef BatchHeader* last = &self.batches.batches[self.batches.count - 1].header
        if self.dense_end != self.log_end_offset:
            self.fill_hole()
        self.maybe_roll(first.base_offset, last.last_offset, now)
        if last.leader_epoch != self.epochs.latest():
            self.note_epochs()
        self.write_set(now)
        return 0

    cdef int fill_hole(self) except -1:
        """Put an empty batch where a cut inside a batch left none: offsets then have no hole.

        Compaction leaves such batches, so every reader knows them. It is synced if all before it
        is, for then the recovery point is reported to stand behind it.
        """
        cdef LogSegment active = self.segments[len(self.segments) - 1]
        cdef int32_t epoch = max(
            self.epochs.epoch_for_offset(self.log_end_offset - 1), self.written_epoch
        )
        # Only in a compacted log, where holes are legal, can one be wider than a segment.
        if self.log_end_offset - 1 - active.base_offset <= INT_MAX:
            self.filler.load_empty(self.dense_end, self.log_end_offset - 1, epoch)
            try:
                active.append(self.filler)
                if self.recovered_to >= self.dense_end:
                    active.flush_records()
                    self.recovered_to = self.log_end_offset
            except LogFailedError:
                self.failed = True
                raise
            self.written_epoch = epoch
        self.dense_end = self.log_end_offset
        return 0

    cdef int note_epochs(self) except -1:
        """Enter the set's epochs, on disk before their first batch is.

        A batch that no epoch entry covers could be kept by a truncation that should have cut it
        (KAFKA-7415). If the file cannot be written, the cache goes back: the next try writes it.
        """
        cdef BatchHeader* header
        cdef int64_t number
        cdef bint changed = False
        before = self.epochs.entries()
        for number in range(self.batches.count):
            header = &self.batches.batches[number].header
            if header.leader_epoch >= 0 and self.epochs.maybe_assign(
                header.leader_epoch, header.base_offset
            ):
                changed = True
        if changed:
            self.write_epochs_or(before)
        return 0

    def write_epochs_or(self, before):
        """Write the epochs; if that fails, the cache holds those of `before` again."""
        try:
            self.write_epochs()
        except BaseException:
            self.epochs.clear()
            for entry in before:
                self.epochs.assign(*entry)
            raise

    cdef int write_set(self, int64_t now) except -1:
        cdef BatchHeader* last = &self.batches.batches[self.batches.count - 1].header
        cdef LogSegment active = self.segments[len(self.segments) - 1]
        cdef int64_t end_offset = last.last_offset + 1
        cdef int64_t size_before
        active.open()
        size_before = active.file.size_bytes
        try:
            active.append(self.batches)
        except BaseException as error:
            # What is in the file beyond the log's end would come between the next batches.
            self.failed = isinstance(error, LogFailedError) or active.file.size_bytes != size_before
            raise
        self.dense_end = end_offset
        self.written_epoch = last.leader_epoch
        self.log_end_offset = end_offset
        try:
            self.note_producers()
        except BaseException:
            # The batch is in the log and cannot be taken back: what was derived of it is unknown.
            self.failed = True
            raise
        if end_offset - self.recovered_to >= self.flush_messages or (
            self.flush_ms < OFFSET_MAX and now - self.flushed_at_ms >= self.flush_ms
        ):
            self.flushed_at_ms = now
            self.flush()
        return 0

    cdef int note_producers(self) except -1:
        """Apply the batches of the set to the producers; keep aborted transactions."""
        cdef BatchHeader* header
        cdef int64_t number
        for number in range(self.batches.count):
            header = &self.batches.batches[number].header
            if header.producer_id < 0:
                continue
            completed = self.producers.update(header)
            if completed is not None and completed.aborted:
                self.active_segment.transaction_index.append(completed)
        self.producers.end_offset = self.log_end_offset
        if self.watermark < 0:
            self.producers.release_below(self.log_end_offset)
        self.bytes_since_snapshot += self.batches.length_bytes
        if self.bytes_since_snapshot >= SNAPSHOT_BYTES and self.producers.producer_count:
            self.take_snapshot()
        return 0

    def take_snapshot(self):
        """Write the producers' state up to log_end_offset, unless nothing came since the last."""
        self.take_snapshot_at(self.log_end_offset)
        self.bytes_since_snapshot = 0

    cdef int take_snapshot_at(self, int64_t offset) except -1:
        """Write the producers' state, which is that of `offset`, unless there is one."""
        if offset > self.snapshot_offset:
            try:
                snapshot_files.write_snapshot(self.path, offset, self.producers.to_snapshot())
            except (NoSpaceError, OutOfDescriptorsError):
                # A snapshot only shortens a replay; the records themselves are safe.
                return 0
            self.snapshot_offset = offset
        return 0

    def append_as_follower(self, batches, *, now_ms=None):
        """Append batches of a leader's log as they are: offsets, epochs and bytes are kept.

        batches: a buffer of whole v2 batches; a partial one at its end is ignored, as a fetch may
        end in one. The first must continue the log. Returns an AppendResult. Durability as in
        append_as_leader. Raises UsageError for no whole batch or no contiguous bytes,
        CorruptBatchError, OutOfOrderOffsetError, RecordBatchTooLargeError, NoSpaceError,
        LogFailedError, LogClosedError. Source: Kafka's appendAsFollower.
        """
        cdef Py_buffer given
        cdef int64_t base_offset = 0, done = 0, now
        cdef const uint8_t* bytes
        self.lock()
        try:
            take_buffer(batches, &given, "batches", self.path)
            bytes = <const uint8_t*> given.buf
            try:
                # The wall clock is read only where something asks for it.
                now = -1
                if now_ms is not None or self.flush_ms < OFFSET_MAX:
                    now = self.now(now_ms)
                # All of it is checked before any of it is written.
                self.batches.load_from_leader(
                    bytes, given.len, OFFSET_MAX, self.path, not self.compacted
                )
                if not self.batches.count:
                    self.batches.refuse_cut(given.len, self.path)
                    return result_of(self.log_end_offset, self.log_end_offset - 1, -1)
                base_offset = self.batches.batches[0].header.base_offset
                self.check_continues()
                if self.batches.length_bytes <= self.segment_bytes:
                    self.write(now)
                    done = given.len
                while done < given.len:
                    self.batches.load_from_leader(
                        bytes + done, given.len - done, self.segment_bytes, self.path,
                        not self.compacted,
                    )
                    if not self.batches.count:
                        break
                    self.batches.check_size(self.segment_bytes, self.path)
                    done += self.batches.length_bytes
                    self.write(now)
            finally:
                self.batches.release()
                PyBuffer_Release(&given)
        finally:
            self.unlock()
        if self.commit_each:
            self.commit(self.log_end_offset)
        return result_of(base_offset, self.log_end_offset - 1, -1)

    cdef int check_continues(self) except -1:
        """Refuse a leader's batches that do not continue this log."""
        cdef BatchHeader* first = &self.batches.batches[0].header
        cdef bint inside = first.base_offset < self.log_end_offset <= first.last_offset
        cdef bint behind = first.base_offset > self.log_end_offset and not self.compacted
        if self.log_end_offset == self.log_start_offset and (inside or behind):
            # The leader's start lies inside this batch, or behind what this log was
            # told: an empty log may begin anywhere, but a segment begins with its first batch.
            self.restart_locked(first.base_offset, first.base_offset)
        if first.base_offset < self.log_end_offset or (
            first.base_offset > self.log_end_offset and not self.compacted
            and self.log_end_offset > self.log_start_offset
        ):
            raise OutOfOrderOffsetError(
                f"expected batches from offset {self.log_end_offset} on to append to {self.path}, "
                f"found {first.base_offset}; fetch from the log's end",
                path=self.path, offset=first.base_offset,
            )
        return 0

    cdef int maybe_roll(self, int64_t first_offset, int64_t last_offset, int64_t now) except -1:
        cdef LogSegment active = self.segments[len(self.segments) - 1]
        cdef int64_t base_offset = max(first_offset, self.log_end_offset)
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
        self.lock()
        try:
            if self.active_segment.base_offset == self.log_end_offset:
                return False
            self.roll_locked(self.log_end_offset, self.now(now_ms))
            return True
        finally:
            self.unlock()

    cdef int roll_locked(self, int64_t base_offset, int64_t now) except -1:
        cdef LogSegment active = self.segments[len(self.segments) - 1]
        if self.dense_end != self.log_end_offset:
            self.fill_hole()
        active.seal()
        if now < 0:
            now = self.clock()
        self.install(list(self.segments) + [self.new_segment(base_offset, now)])
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
        self.names_unsynced = True
        if self.jitter is not None and self.config.segment_jitter_ms:
            # As for Kafka, the jitter takes no more than all of segment_ms away.
            self.segment_jitter_now_ms = self.jitter(
                min(self.config.segment_jitter_ms, self.segment_ms)
            )
        return segment

    cdef int install(self, list segments) except -1:
        cdef LogSegment segment
        self.bases = tuple([segment.base_offset for segment in segments])
        self.segments = tuple(segments)
        return 0

    def assign_epoch(self, leader_epoch, start_offset):
        """Note that `leader_epoch` begins at start_offset; durable on return. True if it is news.

        A new leader calls it with log_end_offset before it takes records (KIP-101). Raises
        UsageError for what is no integer from 0 on.
        """
        cdef int32_t epoch = epoch_of(leader_epoch, "leader_epoch", self.path)
        cdef int64_t start = offset_of(start_offset, "start_offset", self.path)
        self.lock()
        try:
            before = self.epochs.entries()
            changed = self.epochs.maybe_assign(epoch, start)
            if changed:
                self.write_epochs_or(before)
            return changed
        finally:
            self.unlock()
