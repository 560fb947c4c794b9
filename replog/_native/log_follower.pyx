# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""What a log takes from its leader: batches as they are, with their offsets, epochs and bytes."""

from cpython.buffer cimport PyBuffer_Release
from libc.stdint cimport int64_t, uint8_t

from replog._native.append_result cimport AppendResult, result_of
from replog._native.arguments cimport take_buffer
from replog._native.batch_set cimport BatchSet
from replog._native.log_cut cimport LogCut
from replog._native.log_segment cimport LogSegment
from replog._native.log_state cimport LogState
from replog._native.log_writer cimport LogWriter
from replog._native.record_batch cimport BatchHeader

from replog.errors import LogFailedError, OutOfOrderOffsetError

cdef int64_t OFFSET_MAX = 0x7FFFFFFFFFFFFFFF


cdef class LogFollower:
    """See the module."""

    def __init__(self, LogState state not None, LogCut cut not None, LogWriter writer not None):
        self.state = state
        self.cut = cut
        self.writer = writer

    cdef AppendResult append(self, object given, object now_ms):
        """Batches of the leader, all of them or none; a partial one at the end is ignored."""
        cdef LogState state = self.state
        cdef BatchSet batches = self.writer.batches
        cdef Py_buffer buffer
        cdef int64_t base_offset = 0, end_offset = 0, now = 0
        # As `with state.guard`, which costs a tenth of an append.
        state.guard.lock()
        try:
            take_buffer(given, &buffer, "batches", state.path)
            try:
                # The wall clock is read only where something asks for it.
                now = -1
                if now_ms is not None or self.writer.sync.asks_for_time():
                    now = state.now(now_ms)
                # All of it is checked before any of it is written.
                batches.load_from_leader(
                    <const uint8_t*> buffer.buf, buffer.len, OFFSET_MAX, state.path,
                    not state.compacted,
                )
                base_offset = state.log_end_offset
                if batches.count:
                    base_offset = batches.batches[0].header.base_offset
                    self.append_locked(<const uint8_t*> buffer.buf, buffer.len, now)
                else:
                    batches.refuse_cut(buffer.len, state.path)
                end_offset = state.log_end_offset
            finally:
                batches.release()
                PyBuffer_Release(&buffer)
        except BaseException as error:
            state.guard.unlock(error)
            raise
        state.guard.unlock(None)
        self.writer.sync.as_configured(end_offset, now)
        return result_of(base_offset, end_offset - 1, -1)

    cdef int append_locked(self, const uint8_t* bytes, int64_t length, int64_t now) except -1:
        """Append the loaded set, or (where no segment holds it) the bytes part by part, or none."""
        cdef LogState state = self.state
        cdef BatchSet batches = self.writer.batches
        cdef int64_t done = 0, start_offset
        self.check_continues()
        if batches.fits(self.writer.segment_bytes):
            self.write_part(now)
            return 0
        start_offset = state.log_end_offset
        epochs = state.epochs.copy()
        try:
            while done < length:
                batches.load_from_leader(
                    bytes + done, length - done, self.writer.segment_bytes, state.path,
                    not state.compacted,
                )
                if not batches.count:
                    break
                batches.check_size(self.writer.segment_bytes, state.path)
                done += batches.length_bytes
                self.write_part(now)
        except BaseException as error:
            self.writer.undo_to(start_offset, epochs, error)
            raise
        return 0

    cdef int write_part(self, int64_t now) except -1:
        """write(); a segment made for a set behind a wide gap goes if that is refused: what is
        appended next may begin at the log's end.
        """
        cdef LogState state = self.state
        cdef LogSegment active
        try:
            self.writer.write(now)
        except LogFailedError:
            raise
        except BaseException:
            active = state.segments.last()
            if active.base_offset > state.log_end_offset:
                state.segments = state.segments.first(state.segments.count - 1)
                active.discard()
            raise
        return 0

    cdef int check_continues(self) except -1:
        """Refuse a leader's batches that do not continue this log."""
        cdef LogState state = self.state
        cdef BatchHeader* first = &self.writer.batches.batches[0].header
        cdef bint inside = first.base_offset < state.log_end_offset <= first.last_offset
        cdef bint behind = first.base_offset > state.log_end_offset and not state.compacted
        if state.log_end_offset == state.log_start_offset and (inside or behind):
            # The leader's start lies inside this batch, or behind what this log was
            # told: an empty log may begin anywhere, but a segment begins with its first batch.
            self.cut.restart(first.base_offset, first.base_offset)
        if first.leader_epoch < state.written_epoch or first.base_offset < state.log_end_offset or (
            behind and state.log_end_offset > state.log_start_offset
        ):
            raise OutOfOrderOffsetError(
                f"expected batches from offset {state.log_end_offset} and leader epoch "
                f"{state.written_epoch} on to append to {state.path}, found {first.base_offset} of "
                f"epoch {first.leader_epoch}; fetch from the log's end, or cut where the two part",
                path=state.path, offset=first.base_offset,
            )
        return 0
