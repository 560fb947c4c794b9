# Files of segments that left the log, until they are unlinked.

from libc.stdint cimport int64_t

cdef class RetiredFiles:
    cdef int64_t delay_ms
    cdef list waiting                  # (deadline_ms, path) of renamed files

    cdef int retire(self, str prefix, int64_t now) except -1
