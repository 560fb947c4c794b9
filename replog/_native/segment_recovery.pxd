# What recovery makes of one segment, and by which rules.

from libc.stdint cimport int32_t, int64_t

from replog._native.log_segment cimport LogSegment
from replog._native.log_state cimport LogState

cdef class Rules:
    cdef int64_t recovery_point   # below it all is synced
    cdef bint keeps_whole         # a batch that is whole was meant to be there
    cdef bint holes               # offsets may be missing: compaction took them
    cdef bint adopts              # another program wrote it, by other rules
    cdef int32_t highest_epoch    # on disk before its first batch was

    cdef bint passes_over(self, int64_t end_offset, int64_t base_offset) noexcept

cdef int64_t recover_segment(
    LogState state, Py_ssize_t place, object report, Rules rules, bint writing
) except -1
cdef int refuse_cut(
    LogState state, LogSegment segment, int64_t position, int64_t offset, str found
) except -1
