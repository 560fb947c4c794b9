# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The end of a log moves on: checks, stamps, rolls, writes, publishes.

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
from replog._native.arguments cimport flag_of, int32_of, take_buffer
from replog._native.batch_format cimport CODEC_MASK, CONTROL_ABORT
from replog._native.batch_set cimport BatchSet
from replog._native.epoch_file cimport EpochFile
from replog._native.leader_epoch_cache cimport LeaderEpochCache
from replog._native.log_cut cimport LogCut
from replog._native.log_producers cimport LogProducers
from replog._native.log_segment cimport LogSegment
from replog._native.log_state cimport LogState
from replog._native.log_sync cimport LogSync
from replog._native.record_batch cimport BatchHeader
from replog._native.segment_maker cimport SegmentMaker

from replog.errors import FencedLeaderEpochError, LogFailedError, UsageError

CODECS = {"producer": -1, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


cdef class LogWriter:
    """See the module."""

    def __init__(
        self, LogState state not None, SegmentMaker maker not None, EpochFile epoch_file not None,
        LogProducers producers not None, LogSync sync not None, LogCut cut not None,
    ):
        config = state.config
        self.state = state
        self.maker = maker
        self.epoch_file = epoch_file
        self.producers = producers
        self.sync = sync
        self.cut = cut
        self.batches = BatchSet()
        self.filler = BatchSet()
        self.segment_bytes = config.segment_bytes
        self.max_message_bytes = config.max_message_bytes
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.after_max_ms = config.message_timestamp_after_max_ms
        self.decompressed_bytes_max = config.decompressed_bytes_max
        self.log_append_time = config.message_timestamp_type == "LogAppendTime"
        self.target_codec = CODECS[config.compression_type]

    cdef AppendResult append(
        self, object given, object leader_epoch, object now_ms, object coordinator
    ):
        """A client's batches, all of them or none."""
        cdef LogState state = self.state
        cdef Py_buffer buffer
        cdef AppendResult appended = None
        cdef int64_t now = 0
        # As `with state.guard`, which costs a tenth of an append.
        state.guard.lock()
        try:
            take_buffer(given, &buffer, "batches", state.path)
            try:
                now = state.now(now_ms)
                appended = self.append_locked(
                    <const uint8_t*> buffer.buf, buffer.len,
                    int32_of(leader_epoch, "leader_epoch", state.path), now,
                    flag_of(coordinator, "coordinator", state.path),
                )
            finally:
                self.batches.release()
                PyBuffer_Release(&buffer)
        except BaseException as error:
            state.guard.unlock(error)
            raise
        state.guard.unlock(None)
        self.sync.as_configured(appended.last_offset + 1, now)
        return appended

    cdef AppendResult append_parts(self, object parts, int32_t leader_epoch, object now_ms):
        """Buffers of a client's batches, all of them or none, and nobody else's in between."""
        cdef LogState state = self.state
        cdef Py_buffer given
        cdef AppendResult appended = None
        cdef int64_t start_offset, now = 0
        log_append_time_ms = -1
        with state.guard:
            now = state.now(now_ms)
            start_offset = state.unit_start = state.log_end_offset
            epochs = state.epochs.copy()
            try:
                for part in parts:
                    take_buffer(part, &given, "parts", state.path)
                    try:
                        appended = self.append_locked(
                            <const uint8_t*> given.buf, given.len, leader_epoch, now, False
                        )
                    finally:
                        self.batches.release()
                        PyBuffer_Release(&given)
                    log_append_time_ms = appended.log_append_time_ms
            except BaseException as error:
                self.undo_to(start_offset, epochs, error)
                raise
            finally:
                state.unit_start = -1
            appended = result_of(start_offset, state.log_end_offset - 1, log_append_time_ms)
            state.producers.release_below(state.committed_end())
        self.sync.as_configured(appended.last_offset + 1, now)
        return appended

    cdef int undo_to(self, int64_t offset, LeaderEpochCache epochs, object error) except -1:
        """Cut the parts of a unit that went in before one of them met `error`."""
        cdef LogState state = self.state
        if state.log_end_offset > offset and not isinstance(error, LogFailedError):
            state.guard.begin_change()
            self.cut.within(offset)
            self.epoch_file.restore(epochs)
            state.guard.end_change()
        return 0

    cdef AppendResult append_locked(
        self, const uint8_t* bytes, int64_t length, int32_t leader_epoch, int64_t now,
        bint coordinator
    ):
        cdef LogState state = self.state
        cdef BatchSet batches = self.batches
        cdef BatchHeader* first
        cdef int64_t base_offset = state.log_end_offset
        cdef int64_t append_time = now if self.log_append_time else -1
        cdef int32_t floor_epoch = max(state.epochs.latest(), state.written_epoch, 0)
        if leader_epoch < floor_epoch:
            raise FencedLeaderEpochError(
                f"expected a leader epoch of at least {floor_epoch} to append "
                f"to {state.path}, found {leader_epoch}; a newer leader has written here",
                path=state.path, leader_epoch=leader_epoch,
            )
        batches.load_from_client(bytes, length, state.path, self.decompressed_bytes_max)
        batches.check_client(
            state.path, self.max_message_bytes, state.compacted, now, self.before_max_ms,
            self.after_max_ms, self.log_append_time, coordinator,
        )
        first = &batches.batches[0].header
        if self.target_codec >= 0 or first.attributes & CODEC_MASK:
            batches.rewrite(
                self.target_codec, state.config.compression_level, self.decompressed_bytes_max
            )
        batches.check_size(self.segment_bytes, state.path)
        if first.producer_id >= 0:
            self.producers.expire(now)
            if batches.count > 1:
                raise UsageError(
                    f"expected one batch at a time of producer {first.producer_id}, found "
                    f"{batches.count}; append them one by one"
                )
            duplicate = state.producers.duplicate_of(first)
            if duplicate is not None:
                return AppendResult(duplicate[0], duplicate[1], duplicate[2], True)
            state.producers.check(first, not coordinator)
        batches.stamp(base_offset, leader_epoch, append_time)
        self.write(now)
        return result_of(base_offset, state.log_end_offset - 1, append_time)

    cdef int write(self, int64_t now) except -1:
        """Roll if need be, note epochs, then write the loaded set and publish it."""
        cdef LogState state = self.state
        cdef BatchHeader* first = &self.batches.batches[0].header
        cdef BatchHeader* last = &self.batches.batches[self.batches.count - 1].header
        self.sync.sync_tail()
        if state.dense_end != state.log_end_offset:
            self.fill_hole()
        if self.producers.near_snapshot(self.batches.length_bytes):
            self.producers.expire(now)
        self.maybe_roll(first.base_offset, last.last_offset, now)
        cdef LeaderEpochCache before = None
        if self.epoch_file.lacks(last.leader_epoch):
            before = state.epochs.copy()
            self.epoch_file.note(self.batches, before)
        try:
            self.write_set()
        except BaseException:
            if before is not None:  # an entry of its second epoch would lie behind the log's end
                self.epoch_file.restore(before)
            raise
        return 0

    cdef int fill_hole(self) except -1:
        """Put an empty batch where a cut inside a batch left none: offsets then have no hole.

        Compaction leaves such batches, so every reader knows them. It is synced if all before it
        is, for then the recovery point is reported to stand behind it.
        """
        cdef LogState state = self.state
        cdef LogSegment active = state.segments.last()
        cdef int64_t position
        cdef int32_t epoch = max(
            state.epochs.epoch_for_offset(state.log_end_offset - 1), state.written_epoch
        )
        # Only in a compacted log, where holes are legal, can one be wider than a segment.
        if state.log_end_offset - 1 - active.base_offset <= INT_MAX:
            self.filler.load_empty(state.dense_end, state.log_end_offset - 1, epoch)
            active.open_timestamp()
            position = active.file.size_bytes
            active.append(self.filler)
            state.guard.begin_change()
            active.index(self.filler, position)
            if state.recovered_to >= state.dense_end:
                active.flush_records()
                state.recovered_to = state.log_end_offset
            state.written_epoch = epoch
            state.dense_end = state.log_end_offset
            state.guard.end_change()
        state.dense_end = state.log_end_offset
        return 0

    cdef int write_set(self) except -1:
        """Write the set, note what it tells, then let readers see it."""
        cdef LogState state = self.state
        cdef BatchHeader* last = &self.batches.batches[self.batches.count - 1].header
        cdef LogSegment active = state.segments.last()
        cdef int64_t start_offset = state.log_end_offset
        cdef int64_t end_offset = last.last_offset + 1
        cdef int64_t position, number
        active.open_timestamp()
        position = active.file.size_bytes
        # What may fail and need not come after the batch comes before it.
        if self.sync.commit_each and state.names_unsynced:
            state.sync_names()
        for number in range(self.batches.count):
            if self.batches.batches[number].header.control_type == CONTROL_ABORT:
                active.transaction_index.make_file()
                break
        active.append(self.batches)
        state.guard.begin_change()
        active.index(self.batches, position)
        try:
            self.producers.note(self.batches, active, end_offset)
        except LogFailedError:
            raise
        except Exception:
            self.take_back(active, position, start_offset)
            state.guard.end_change()
            raise
        state.dense_end = end_offset
        state.written_epoch = last.leader_epoch
        state.log_end_offset = end_offset
        state.guard.end_change()
        if state.watermark < 0:
            state.producers.release_below(end_offset if state.unit_start < 0 else state.unit_start)
        self.producers.count_bytes(self.batches.length_bytes)
        return 0

    cdef int take_back(self, LogSegment active, int64_t position, int64_t offset) except -1:
        """Cut batches from `offset` on that nobody has seen, and forget what they told.

        Synced: what was refused must not be there after a crash.
        """
        active.cut(position, offset)
        active.flush_records()
        self.producers.replay(offset, self.state.now(None))
        return 0

    cdef int roll(self, int64_t base_offset, int64_t now) except -1:
        """Seal the active segment and open a new one."""
        cdef LogState state = self.state
        cdef LogSegment active = state.segments.last()
        self.sync.sync_tail()  # it is the tail no more behind this
        if state.dense_end != state.log_end_offset:
            self.fill_hole()
        active.seal()
        now = state.clock() if now < 0 else now
        self.producers.expire(now)
        state.segments = state.segments.with_last(self.maker.replace(base_offset, now))
        self.producers.take_snapshot()
        return 0

    cdef int maybe_roll(self, int64_t first_offset, int64_t last_offset, int64_t now) except -1:
        cdef LogState state = self.state
        cdef LogSegment active = state.segments.last()
        # Not with the set's first offset, which a gap may set apart: it may yet be refused.
        cdef int64_t base_offset = state.log_end_offset
        if last_offset - base_offset > INT_MAX:
            base_offset = max(first_offset, base_offset)
        if now < 0 and (self.batches.max_timestamp < 0 or active.first_timestamp < 0):
            now = state.clock()
        if active.base_offset != base_offset and active.must_roll(
            self.batches, last_offset, self.segment_bytes, self.maker.age_max_ms, now,
        ):
            self.roll(base_offset, now)
        return 0
