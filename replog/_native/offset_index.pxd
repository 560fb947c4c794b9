# Sparse map from offsets to byte positions in a segment's data file.

from libc.stdint cimport int64_t

from replog._native.slot_array cimport SlotArray

cdef class OffsetIndex(SlotArray):
    cdef readonly int64_t last_offset      # of the last entry; base_offset if there is none
    cdef readonly int64_t last_position    # of the last entry; 0 if there is none

    # Add an entry. Both must be greater than the last ones and fit 31 bits (the offset less the
    # base offset), else InvariantViolation. A full index leaves it out: it is sparse anyway.
    cdef int append(self, int64_t offset, int64_t position) except -1
    # Position of the entry with the greatest offset <= target, and that offset in *found;
    # (base_offset, 0) if there is none.
    cdef int64_t lookup(self, int64_t target, int64_t* found) except -2
    cdef int keep_below(self, int64_t offset) except -1
