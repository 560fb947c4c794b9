# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Aborted transactions of a log. A segment's index of them is checked against the batches before it
is first believed, and made anew if it says something else.
"""

from libc.stdint cimport int64_t

from replog._native.batch_format cimport CONTROL_ABORT
from replog._native.log_producers cimport LogProducers
from replog._native.log_segment cimport LogSegment
from replog._native.log_state cimport LogState
from replog._native.record_batch cimport BatchHeader
from replog._native.segment_list cimport SegmentList


cdef class AbortedTransactions:
    """See the module. Any thread may ask."""

    def __init__(self, LogState state not None, LogProducers producers not None):
        self.state = state
        self.producers = producers

    cdef list between(self, int64_t start_offset, int64_t end_offset):
        """Those that overlap [start_offset, end_offset)."""
        cdef LogSegment segment
        cdef SegmentList segments = self.state.segments
        cdef Py_ssize_t place
        found = []
        for place in range(segments.floor(start_offset), segments.count):
            segment = segments.at(place)
            if not segment.aborts_checked:
                self.check(segment)
            collected, complete = segment.transaction_index.collect_aborted(
                start_offset, end_offset
            )
            found.extend(collected)
            if complete:
                break
            self.state.check_joined(segments, place)
        return found

    cdef int check(self, LogSegment segment) except -1:
        """See that the segment's transaction index says what the batches say."""
        self.state.guard.lock_any()
        try:
            if not segment.aborts_checked:
                if not self.holds(segment):
                    segment.transaction_index.replace(self.producers.aborted_in(segment))
                segment.aborts_checked = True
        finally:
            self.state.guard.unlock(None)
        return 0

    cdef bint holds(self, LogSegment segment) except -1:
        """Whether each entry of the segment's transaction index names batches that say the same."""
        cdef LogState state = self.state
        cdef BatchHeader header
        cdef LogSegment other
        for entry in segment.transaction_index.entries():
            if not segment.find(entry.last_offset, &header):
                return False
            if segment.dense and (
                header.control_type != CONTROL_ABORT or header.producer_id != entry.producer_id
                or header.base_offset != entry.last_offset
            ):
                return False
            if entry.first_offset <= state.log_start_offset or not segment.dense:
                continue
            other = state.segments.at(state.floor_place(entry.first_offset))
            if (
                not other.find(entry.first_offset, &header)
                or header.base_offset != entry.first_offset
                or header.producer_id != entry.producer_id
            ):
                return False
        return True
