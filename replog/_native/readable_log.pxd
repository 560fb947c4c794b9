# The read side of a log: its segments in order and the offsets that bound what may be read.

from libc.stdint cimport int64_t

from replog._native.leader_epoch_cache cimport LeaderEpochCache
from replog._native.log_guard cimport LogGuard
from replog._native.log_segment cimport LogSegment
from replog._native.log_slice cimport LogSlice
from replog._native.producer_state cimport ProducerState
from replog._native.record_batch cimport BatchHeader
from replog._native.segment_list cimport SegmentList

cdef class ReadableLog:
    cdef readonly str path
    cdef LogGuard guard                     # its locks, and whether it is closed or failed
    cdef readonly SegmentList segments      # replaced whole: a reader keeps the one it took
    # Invariant: log_start_offset <= last stable offset <= high watermark <= log_end_offset.
    cdef readonly int64_t log_start_offset
    cdef readonly int64_t log_end_offset    # moved last in an append, first in a truncation
    cdef int64_t watermark                  # -1: nobody set it, it follows log_end_offset
    cdef int64_t unit_start                 # of a unit that is being appended part by part; -1
    cdef int64_t dense_end                  # of the last batch; lower after a cut inside one
    cdef int64_t truncations                # how often the end has moved back
    cdef bint compacted                     # offsets may have holes
    cdef ProducerState producers
    cdef LeaderEpochCache epochs

    cpdef int check_open(self) except -1
    cdef LogSlice read_range(
        self, int64_t start_offset, int64_t max_bytes, int64_t end_offset, bint min_one_message,
        bint whole_batches
    )
    cdef LogSlice read_once(
        self, int64_t start_offset, int64_t max_bytes, int64_t end_offset, bint min_one_message,
        bint whole_batches
    )
    cdef object first_from(self, int64_t timestamp)
    cdef object first_from_once(self, int64_t timestamp)
    cdef Py_ssize_t first_reaching(self, SegmentList segments, int64_t timestamp) except -1
    cdef LogSlice empty_slice(self, int64_t start_offset)
    cdef int check_aborts(self, LogSegment segment) except -1
    cdef bint aborts_hold(self, LogSegment segment) except -1
    cdef int rebuild_aborts(self, LogSegment segment) except -1

    cdef int check_joined(self, SegmentList segments, Py_ssize_t place) except -1
    cdef int64_t floor_place(self, int64_t offset) except -1
    cdef int64_t next_there(self, int64_t offset) except -1
    cdef int64_t bound_position(
        self, SegmentList segments, Py_ssize_t place, int64_t bound, bint whole
    ) except -1
    cdef object first_at(self, LogSegment segment, BatchHeader* header, int64_t timestamp)
