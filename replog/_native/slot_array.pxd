# A file of fixed-size slots that only grows at its end: what both indexes are made of.

from libc.stdint cimport int64_t, uint8_t

from replog._native.mapped_file cimport MappedFile

# Number of the last of `count` slots whose key is <= the target; -1: none.
ctypedef int64_t (*slot_search)(const uint8_t* slots, int64_t count, int64_t target) noexcept nogil
# The same for `lanes` targets at a time.
ctypedef void (*lanes_search)(
    const uint8_t* slots, int64_t count, const int64_t* targets, int64_t* found, int lanes
) noexcept nogil

cdef class SlotArray:
    cdef readonly str path
    cdef readonly int64_t base_offset
    cdef readonly int64_t entry_count      # slots in the file and in memory
    cdef readonly bint full                # no more entries by the cap on the file's size
    cdef int64_t capacity_slots            # entries at which it is full
    cdef int64_t slot_bytes
    cdef MappedFile file
    cdef int64_t written_count             # slots in the file; a foreign tail may follow them
    cdef bint whole                        # the file's size was a multiple of the slot
    cdef uint8_t* tail                     # slots [written_count, entry_count), not yet in the file
    cdef int64_t tail_room                 # slots that tail can hold

    # Invariant: 0 <= written_count <= entry_count; entry_count - written_count <= tail_room.

    cdef int load(self) except -1
    cdef bint is_zero(self, const uint8_t* slot) noexcept
    # Room for one more slot at the end; the caller fills it, then calls added().
    cdef uint8_t* room(self) except NULL
    cdef void added(self) noexcept
    cdef const uint8_t* slot(self, int64_t number) except NULL
    # Number of the last entry whose key is <= `key`, wherever it is; -1: none.
    cdef int64_t last_up_to(self, slot_search search, int64_t key) except -2
    # For each of the int64 `keys` a copy of that entry's slot, or of `missing`. Drops the GIL.
    cdef object slots_up_to(
        self, slot_search search, lanes_search search_lanes, const int64_t[::1] keys,
        const uint8_t* missing)
    cdef int64_t map_capacity(self) noexcept
    cdef int write_tail(self) except -1
    cdef int finish_tail(self) except -1
    cdef int seal(self) except -1
    cdef int64_t slots_in_place(self, int64_t count) except -1
    cdef int keep(self, int64_t count) except -1
    cdef int cut_slots(self, int64_t count) except -1
    cdef int remember_last(self) except -1
    cdef bytes tail_copy(self)
