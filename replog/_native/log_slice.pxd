# What a read of a log answers.

from libc.stdint cimport int64_t

from replog._native.mapped_file cimport FileView

cdef class LogSlice:
    cdef FileView bytes_view             # None for an empty slice
    cdef readonly int64_t start_offset   # as asked for; the first batch may begin below it
    cdef readonly int64_t segment_base_offset
    cdef readonly int64_t position       # byte place in the segment's data file
    cdef readonly int64_t size_bytes     # the last batch may be cut
    cdef readonly bint first_batch_incomplete
    cdef readonly str path
