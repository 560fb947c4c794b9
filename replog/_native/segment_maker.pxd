# Makes the files of new segments.

from libc.stdint cimport int64_t

from replog._native.log_segment cimport LogSegment
from replog._native.log_state cimport LogState

cdef class SegmentMaker:
    cdef LogState state
    cdef object jitter                 # (segment_jitter_ms) -> ms, drawn once a segment
    cdef int64_t segment_ms
    cdef int64_t age_max_ms            # of the newest segment: segment_ms less its jitter

    # Create the files of a segment; leftovers of the same name go first.
    cdef LogSegment replace(self, int64_t base_offset, int64_t now)
    # Likewise, where no leftover can be.
    cdef LogSegment make(self, int64_t base_offset, int64_t now)
