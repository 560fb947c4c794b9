# The segments of a log in the order of their offsets: a list that never changes.

from libc.stdint cimport int64_t

from replog._native.log_segment cimport LogSegment

cdef class SegmentList:
    # Tuples of segments: each full but the last, and but for `skipped` places of the first.
    # Invariant: base offsets strictly increase; the last segment is the active one.
    cdef tuple chunks
    cdef Py_ssize_t skipped
    cdef readonly Py_ssize_t count

    cdef LogSegment at(self, Py_ssize_t place)
    cdef int64_t base(self, Py_ssize_t place) except? -1
    cdef LogSegment last(self)
    # Place of the last segment with base_offset <= offset; 0 if there is none.
    cdef Py_ssize_t floor(self, int64_t offset) except -1
    # Other lists: with one more behind the last; of the first `count`; without the first `count`.
    cdef SegmentList with_last(self, LogSegment segment)
    cdef SegmentList first(self, Py_ssize_t count)
    cdef SegmentList behind(self, Py_ssize_t count)
