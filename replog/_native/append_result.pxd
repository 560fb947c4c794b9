# The offsets that an append was given.

from libc.stdint cimport int64_t

cdef class AppendResult:
    cdef readonly int64_t base_offset
    cdef readonly int64_t last_offset         # inclusive; base_offset - 1 if nothing was appended
    cdef readonly int64_t log_append_time_ms  # -1 unless the log stamps times itself
    cdef readonly bint duplicate              # a producer's repeat: the first answer again

cdef AppendResult result_of(int64_t base_offset, int64_t last_offset, int64_t append_time_ms)
