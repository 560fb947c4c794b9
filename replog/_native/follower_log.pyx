# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""What a log takes from its leader: batches as they are, with their offsets, epochs and bytes."""

from cpython.buffer cimport PyBuffer_Release
from libc.stdint cimport int64_t, uint8_t

from replog._native.append_result cimport result_of
from replog._native.appendable_log cimport AppendableLog
from replog._native.arguments cimport take_buffer
from replog._native.log_segment cimport LogSegment
from replog._native.record_batch cimport BatchHeader

from replog.errors import LogFailedError, OutOfOrderOffsetError

cdef int64_t OFFSET_MAX = 0x7FFFFFFFFFFFFFFF


cdef class FollowerLog(AppendableLog):
    """See the module."""

    def append_as_follower(self, batches, *, now_ms=None):
        """Append batches of a leader's log as they are: offsets, epochs and bytes are kept.

        batches: a buffer of whole v2 batches; a partial one at its end is ignored, as a fetch may
        end in one. The first must continue the log. Returns an AppendResult. Durability as in
        append_as_leader. Raises UsageError for no whole batch or no contiguous bytes,
        CorruptBatchError, OutOfOrderOffsetError, RecordBatchTooLargeError, NoSpaceError,
        LogFailedError, LogClosedError. Source: Kafka's appendAsFollower.
        """
        cdef Py_buffer given
        cdef int64_t base_offset = 0, end_offset = 0, now = 0
        # As `with self.guard`, which costs a tenth of an append.
        self.guard.lock()
        try:
            take_buffer(batches, &given, "batches", self.path)
            try:
                # The wall clock is read only where something asks for it.
                now = -1
                if now_ms is not None or self.flush_ms < OFFSET_MAX:
                    now = self.now(now_ms)
                # All of it is checked before any of it is written.
                self.batches.load_from_leader(
                    <const uint8_t*> given.buf, given.len, OFFSET_MAX, self.path,
                    not self.compacted,
                )
                base_offset = self.log_end_offset
                if self.batches.count:
                    base_offset = self.batches.batches[0].header.base_offset
                    self.follow_locked(<const uint8_t*> given.buf, given.len, now)
                else:
                    self.batches.refuse_cut(given.len, self.path)
                end_offset = self.log_end_offset
            finally:
                self.batches.release()
                PyBuffer_Release(&given)
        except BaseException as error:
            self.guard.unlock(error)
            raise
        self.guard.unlock(None)
        self.sync_as_configured(end_offset, now)
        return result_of(base_offset, end_offset - 1, -1)

    cdef int follow_locked(self, const uint8_t* bytes, int64_t length, int64_t now) except -1:
        """Append the loaded set, or (where no segment holds it) the bytes part by part, or none."""
        cdef int64_t done = 0, start_offset
        self.check_continues()
        if self.batches.fits(self.segment_bytes):
            self.write_part(now)
            return 0
        start_offset = self.log_end_offset
        epochs = self.epochs.copy()
        try:
            while done < length:
                self.batches.load_from_leader(
                    bytes + done, length - done, self.segment_bytes, self.path, not self.compacted
                )
                if not self.batches.count:
                    break
                self.batches.check_size(self.segment_bytes, self.path)
                done += self.batches.length_bytes
                self.write_part(now)
        except BaseException as error:
            self.undo_to(start_offset, epochs, error)
            raise
        return 0

    cdef int write_part(self, int64_t now) except -1:
        """write(); a segment made for a set behind a wide gap goes if that is refused: what is
        appended next may begin at the log's end.
        """
        cdef LogSegment active
        try:
            self.write(now)
        except LogFailedError:
            raise
        except BaseException:
            active = self.segments.last()
            if active.base_offset > self.log_end_offset:
                self.segments = self.segments.first(self.segments.count - 1)
                active.discard()
            raise
        return 0

    cdef int check_continues(self) except -1:
        """Refuse a leader's batches that do not continue this log."""
        cdef BatchHeader* first = &self.batches.batches[0].header
        cdef bint inside = first.base_offset < self.log_end_offset <= first.last_offset
        cdef bint behind = first.base_offset > self.log_end_offset and not self.compacted
        if self.log_end_offset == self.log_start_offset and (inside or behind):
            # The leader's start lies inside this batch, or behind what this log was
            # told: an empty log may begin anywhere, but a segment begins with its first batch.
            self.restart_locked(first.base_offset, first.base_offset)
        if first.leader_epoch < self.written_epoch or first.base_offset < self.log_end_offset or (
            behind and self.log_end_offset > self.log_start_offset
        ):
            raise OutOfOrderOffsetError(
                f"expected batches from offset {self.log_end_offset} and leader epoch "
                f"{self.written_epoch} on to append to {self.path}, found {first.base_offset} of "
                f"epoch {first.leader_epoch}; fetch from the log's end, or cut where the two part",
                path=self.path, offset=first.base_offset,
            )
        return 0
