# Sparse map from timestamps to offsets of a segment.

from libc.stdint cimport int64_t

from replog._native.slot_array cimport SlotArray

cdef class TimeIndex(SlotArray):
    cdef readonly int64_t last_timestamp   # ms, of the last entry; -1 if there is none
    cdef readonly int64_t last_offset      # of the last entry; base_offset if there is none

    # Add an entry if its timestamp is greater than the last one's; returns whether it did. A step
    # back in either is an InvariantViolation. A full index leaves it out unless ignore_full is set
    # (for the closing entry).
    cdef int maybe_append(self, int64_t timestamp, int64_t offset, bint ignore_full) except -1
    # Offset of the entry with the greatest timestamp <= target, and that timestamp in *found;
    # (-1, base_offset) if there is none.
    cdef int64_t lookup(self, int64_t target, int64_t* found) except -2
    cdef int keep_below(self, int64_t offset) except -1
