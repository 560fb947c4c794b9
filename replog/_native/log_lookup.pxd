# Where an offset or a timestamp is in a log, and views of the bytes there.

from libc.stdint cimport int64_t

from replog._native.log_segment cimport LogSegment
from replog._native.log_slice cimport LogSlice
from replog._native.log_state cimport LogState
from replog._native.record_batch cimport BatchHeader
from replog._native.segment_list cimport SegmentList

cdef class LogLookup:
    cdef LogState state

    cdef int64_t stable_end(self) except -1
    cdef int64_t next_there(self, int64_t offset) except -1
    cdef LogSlice read(
        self, int64_t start_offset, int64_t max_bytes, int64_t end_offset, bint min_one_message,
        bint whole_batches
    )
    cdef LogSlice read_once(
        self, int64_t start_offset, int64_t max_bytes, int64_t end_offset, bint min_one_message,
        bint whole_batches
    )
    cdef LogSlice empty_slice(self, int64_t start_offset)
    cdef int64_t bound_position(
        self, SegmentList segments, Py_ssize_t place, int64_t bound, bint whole
    ) except -1
    cdef object first_from(self, int64_t timestamp)
    cdef object first_from_once(self, int64_t timestamp)
    cdef Py_ssize_t first_reaching(self, SegmentList segments, int64_t timestamp) except -1
    cdef object first_at(self, LogSegment segment, BatchHeader* header, int64_t timestamp)
    cdef object first_of_largest(self)
