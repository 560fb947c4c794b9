# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Segments go from the front: log start, then segments renamed from the first one on.

A crash or an error in between: segments below the log start, dropped next time. The rules are those
of Kafka's UnifiedLog.deleteOldSegments.
"""

from libc.stdint cimport int64_t

from replog._native.log_producers cimport LogProducers
from replog._native.log_segment cimport LogSegment
from replog._native.log_start cimport LogStart
from replog._native.log_state cimport LogState
from replog._native.log_writer cimport LogWriter
from replog._native.retired_files cimport RetiredFiles


cdef class LogRetention:
    """See the module."""

    def __init__(
        self, LogState state not None, LogProducers producers not None, LogStart start not None,
        LogWriter writer not None, RetiredFiles retired not None,
    ):
        self.state = state
        self.producers = producers
        self.start = start
        self.writer = writer
        self.retired = retired

    cdef list apply(self, int64_t now):
        """Drop what is due; returns the base offsets of the segments that went."""
        cdef LogState state = self.state
        cdef Py_ssize_t count
        cdef LogSegment segment
        with state.guard:
            self.retired.unlink_due(now)
            self.producers.expire(now)
            count = self.expired_count(now)
            if not count:
                return []
            if count == state.segments.count:
                self.writer.roll(state.log_end_offset, now)
            gone = state.segments[:count]
            self.start.move(state.segments.base(count))
            self.drop_first(gone, now)
            self.producers.files.remove(below=state.segments.base(0))
            return [segment.base_offset for segment in gone]

    cdef Py_ssize_t expired_count(self, int64_t now) except -1:
        """How many of the oldest segments retention drops."""
        cdef LogState state = self.state
        cdef LogSegment segment
        cdef Py_ssize_t place, count = state.segments.count
        cdef int64_t excess, end_offset
        cdef bint by_policy = "delete" in state.config.cleanup_policies
        excess = -1
        if by_policy and state.config.retention_bytes >= 0:
            excess = state.size_bytes() - state.config.retention_bytes
        for place in range(count):
            segment = state.segments.at(place)
            end_offset = state.log_end_offset
            if place + 1 < count:
                end_offset = state.segments.base(place + 1)
            if state.committed_end() < end_offset or (
                place + 1 == count and not segment.size_bytes
            ):
                return place
            if place + 1 < count and end_offset <= state.log_start_offset:
                pass
            elif excess >= 0 and excess >= segment.size_bytes:
                pass
            elif by_policy and 0 <= state.config.retention_ms < now - segment.time_of_roll():
                pass
            else:
                return place
            excess -= segment.size_bytes
        return count

    cdef int drop_first(self, tuple gone, int64_t now) except -1:
        """Rename the oldest segments. One that cannot be stays, with those behind it."""
        cdef LogState state = self.state
        cdef LogSegment segment
        cdef Py_ssize_t count = 0
        try:
            for segment in gone:
                self.retired.retire(segment.prefix, now)
                count += 1
        finally:
            if count:
                state.segments = state.segments.behind(count)
                state.names_unsynced = True
        return 0
