# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""What an append answers."""

cimport cython
from libc.stdint cimport int64_t


@cython.final
@cython.freelist(8)
cdef class AppendResult:
    """Offsets [base_offset, last_offset] (inclusive) that an append was given."""

    def __init__(self, int64_t base_offset, int64_t last_offset, int64_t log_append_time_ms=-1,
                 bint duplicate=False):
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.duplicate = duplicate

    def __repr__(self):
        return (
            f"AppendResult(base_offset={self.base_offset}, last_offset={self.last_offset}, "
            f"log_append_time_ms={self.log_append_time_ms}, duplicate={self.duplicate})"
        )


cdef AppendResult result_of(int64_t base_offset, int64_t last_offset, int64_t append_time_ms):
    # As AppendResult(...), without Python's way of passing arguments.
    cdef AppendResult appended = AppendResult.__new__(AppendResult)
    appended.base_offset = base_offset
    appended.last_offset = last_offset
    appended.log_append_time_ms = append_time_ms
    return appended
