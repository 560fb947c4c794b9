# The `.txnindex` of one segment: transactions whose abort marker stands in that segment.

from libc.stdint cimport int64_t

from replog._native.mapped_file cimport MappedFile

cdef class TransactionIndex:
    cdef readonly str path
    cdef readonly int64_t base_offset
    cdef MappedFile file           # None until the first append, or the first look at a file
    cdef bint looked               # whether the file has been looked for
    cdef readonly bint created     # made since it was opened: its directory is still to be synced
    cdef readonly bint closed
    cdef int64_t last_offset       # of the last entry appended here, -1 for none

    cdef int append_fields(
        self,
        int64_t producer_id,
        int64_t first_offset,
        int64_t last_offset,
        int64_t last_stable_offset,
    ) except -1
    cdef int open_file(self, bint create) except -1
    cdef Py_ssize_t whole_entries(self) except -1
