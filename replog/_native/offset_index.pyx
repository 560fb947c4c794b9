# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The `.index` file of a segment: from an offset to where the batch that holds it begins.

    | relative offset: int32 | position: int32 |    8 bytes, big-endian, both strictly growing

`relative offset` is the last offset of a batch less the segment's base offset; `position` is the
byte where that batch begins. Sparse: how often an entry is made is the segment's affair. A look-up
answers with the greatest entry <= the target, and the reader walks batch headers on from there.
The file has no checksum and is not trusted after a crash: the segment rebuilds it from its batches.
"""

from libc.stdint cimport INT32_MAX, int64_t, uint8_t

import numpy as np

from replog._native.mapped_file cimport MappedFile

from replog.errors import InvariantViolation

cdef extern from "c/slot_search.h" nogil:
    int64_t slot_key4(const uint8_t* at)
    void put_key4(uint8_t* at, int64_t key)
    int64_t search_offsets(const uint8_t* slots, int64_t count, int64_t target)
    void search_offsets_lanes(
        const uint8_t* slots, int64_t count, const int64_t* targets, int64_t* found, int lanes)

cdef enum:
    SLOT_BYTES = 8

SLOT_DTYPE = np.dtype([("offset", ">i4"), ("position", ">i4")])
ENTRY_DTYPE = np.dtype([("offset", "<i8"), ("position", "<i8")])


cdef class OffsetIndex(SlotArray):
    def __init__(
        self, path: str, int64_t base_offset, int64_t max_bytes, *, bint writable=True
    ) -> None:
        """Open the index, made empty if it is missing; `max_bytes` caps its entries.

        Raises FileNotFoundError if it is missing and not writable, NoSpaceError, StorageError.
        """
        self.path = path
        self.base_offset = base_offset
        self.slot_bytes = SLOT_BYTES
        self.capacity_slots = max_bytes // SLOT_BYTES
        self.file = MappedFile(path, writable=writable, create=writable)
        self.load()

    cdef int remember_last(self) except -1:
        cdef const uint8_t* slot
        self.last_offset = self.base_offset
        self.last_position = 0
        if self.entry_count:
            slot = self.slot(self.entry_count - 1)
            self.last_offset = self.base_offset + slot_key4(slot)
            self.last_position = slot_key4(slot + 4)
        return 0

    cdef int append(self, int64_t offset, int64_t position) except -1:
        cdef uint8_t* slot
        if (
            offset - self.base_offset > INT32_MAX or position > INT32_MAX or position < 0
            or offset < self.base_offset
            or (self.entry_count and (offset <= self.last_offset or position <= self.last_position))
        ):
            raise InvariantViolation(
                f"expected an entry behind ({self.last_offset}, {self.last_position}) of"
                f" {self.path!r} that fits 31 bits; found ({offset}, {position}). This is a bug"
                " in replog.")
        if self.full:
            return 0
        slot = self.room()
        put_key4(slot, offset - self.base_offset)
        put_key4(slot + 4, position)
        self.added()
        self.last_offset = offset
        self.last_position = position
        return 0

    cdef int64_t lookup(self, int64_t target, int64_t* found) except -2:
        cdef int64_t number = self.last_up_to(search_offsets, target - self.base_offset)
        cdef const uint8_t* slot
        if number < 0:
            found[0] = self.base_offset
            return 0
        slot = self.slot(number)
        found[0] = self.base_offset + slot_key4(slot)
        return slot_key4(slot + 4)

    def add(self, int64_t offset, int64_t position) -> None:
        """append for callers in Python: the last offset of a batch, and where the batch begins."""
        self.append(offset, position)

    def find(self, int64_t target) -> tuple[int, int]:
        """(offset, position) of the entry with the greatest offset <= target; (base_offset, 0)."""
        cdef int64_t found = 0
        position = self.lookup(target, &found)
        return found, position

    def lookup_many(self, targets) -> tuple:
        """find() for each of an int64 array: int64 arrays (offsets, positions). Drops the GIL."""
        cdef uint8_t missing[SLOT_BYTES]
        put_key4(missing, 0)
        put_key4(missing + 4, 0)
        keys = np.ascontiguousarray(targets, dtype=np.int64) - self.base_offset
        slots = self.slots_up_to(search_offsets, search_offsets_lanes, keys, missing)
        entries = slots.view(SLOT_DTYPE)
        offsets = entries["offset"].astype(np.int64)
        offsets += self.base_offset
        return offsets, entries["position"].astype(np.int64)

    cdef int keep_below(self, int64_t offset) except -1:
        return self.keep(self.last_up_to(search_offsets, offset - self.base_offset - 1) + 1)

    def truncate_to(self, int64_t offset) -> None:
        """Drop the entries with offset >= `offset`. Not durable until flush()."""
        self.keep_below(offset)

    def entries(self):
        """Every entry as a structured array (offset, position), both int64."""
        entries = np.frombuffer(self.content(), dtype=SLOT_DTYPE).astype(ENTRY_DTYPE)
        entries["offset"] += self.base_offset
        return entries

    def check(self, bint whole=False) -> bool:
        """Whether the file can be an index of this segment: whole slots, its ends in order.

        With `whole` every entry is looked at. A false index is to be rebuilt, never to be used.
        """
        if not self.whole:
            return False
        if self.entry_count == 0:
            return True
        first = self.slot(0)
        cdef int64_t first_offset = slot_key4(first)
        cdef int64_t first_position = slot_key4(first + 4)
        cdef int64_t rise_max = self.entry_count - 1
        if (
            first_offset < 0 or first_position < 0
            or self.last_offset - self.base_offset - first_offset < rise_max
            or self.last_position - first_position < rise_max
        ):
            return False
        if not whole:
            return True
        entries = self.entries()
        return bool(
            (np.diff(entries["offset"]) > 0).all() and (np.diff(entries["position"]) > 0).all())
