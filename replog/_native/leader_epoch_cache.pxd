# Sorted (leader_epoch, start_offset) of one log, in memory only.

from libc.stdint cimport int32_t, int64_t

cdef class LeaderEpochCache:
    # Two arrays of entry_count used and capacity allocated places: one struct per entry would put
    # half as many epochs into a cache line of the look-up.
    # Invariant: epochs and start_offsets are each strictly increasing and never negative.
    cdef int32_t* epochs
    cdef int64_t* start_offsets
    cdef Py_ssize_t entry_count
    cdef Py_ssize_t capacity
    cdef bytes text                # what the checkpoint file is to hold; None until asked for

    # Kafka's assign; True if the cache changed, so that the caller writes the checkpoint file.
    cdef bint maybe_assign(self, int32_t epoch, int64_t start_offset) except -1
    # Kafka's endOffsetFor. Returns the found epoch, or -1 with *end_offset = -1.
    cdef int32_t find_end_offset(
        self, int32_t epoch, int64_t log_end_offset, int64_t* end_offset
    ) noexcept nogil
    # The same entries, for restore(), which cannot fail.
    cdef LeaderEpochCache copy(self)
    cdef void restore(self, LeaderEpochCache before) noexcept
    cdef int reserve(self, Py_ssize_t entry_count) except -1
    cdef int32_t latest(self) noexcept nogil
