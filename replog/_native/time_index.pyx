# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The `.timeindex` file of a segment: from a timestamp to an offset.

    | timestamp: int64 ms | relative offset: int32 |    12 bytes, big-endian

An entry (T, O) says: T is the largest timestamp of the records up to O. Timestamps strictly grow,
offsets never fall. One slot is kept for the closing entry of a roll, so the index is full one entry
before its cap. No checksum, not trusted after a crash: the segment rebuilds it from its batches.
"""

from libc.stdint cimport INT32_MAX, int64_t, uint8_t

import numpy as np

from replog._native.mapped_file cimport MappedFile

from replog.errors import InvariantViolation

cdef extern from "c/slot_search.h" nogil:
    int64_t slot_key4(const uint8_t* at)
    int64_t slot_key8(const uint8_t* at)
    void put_key4(uint8_t* at, int64_t key)
    void put_key8(uint8_t* at, int64_t key)
    int64_t search_timestamps(const uint8_t* slots, int64_t count, int64_t target)
    int64_t search_time_offsets(const uint8_t* slots, int64_t count, int64_t target)
    void search_timestamps_lanes(
        const uint8_t* slots, int64_t count, const int64_t* targets, int64_t* found, int lanes)

cdef enum:
    SLOT_BYTES = 12
    NO_TIMESTAMP = -1

SLOT_DTYPE = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
ENTRY_DTYPE = np.dtype([("timestamp", "<i8"), ("offset", "<i8")])


cdef class TimeIndex(SlotArray):
    def __init__(
        self, path: str, int64_t base_offset, int64_t max_bytes, *, bint writable=True
    ) -> None:
        """Open the index, made empty if it is missing; `max_bytes` caps its entries.

        Raises FileNotFoundError if it is missing and not writable, NoSpaceError, StorageError.
        """
        self.path = path
        self.base_offset = base_offset
        self.slot_bytes = SLOT_BYTES
        self.capacity_slots = max_bytes // SLOT_BYTES - 1
        self.file = MappedFile(path, writable=writable, create=writable)
        self.load()

    cdef int remember_last(self) except -1:
        cdef const uint8_t* slot
        self.last_timestamp = NO_TIMESTAMP
        self.last_offset = self.base_offset
        if self.entry_count:
            slot = self.slot(self.entry_count - 1)
            self.last_timestamp = slot_key8(slot)
            self.last_offset = self.base_offset + slot_key4(slot + 8)
        return 0

    cdef int maybe_append(self, int64_t timestamp, int64_t offset, bint ignore_full) except -1:
        cdef uint8_t* slot
        if self.full and not ignore_full:
            return 0
        if timestamp == NO_TIMESTAMP and self.entry_count == 0:
            return 0   # no record had one yet
        if (
            offset - self.base_offset > INT32_MAX or offset < self.base_offset
            or (self.entry_count and (offset < self.last_offset or timestamp < self.last_timestamp))
        ):
            raise InvariantViolation(
                f"expected an entry at or behind ({self.last_timestamp}, {self.last_offset}) of"
                f" {self.path!r} that fits 31 bits; found ({timestamp}, {offset}). This is a bug in"
                " replog.")
        if timestamp <= self.last_timestamp:
            return 0
        slot = self.room()
        put_key8(slot, timestamp)
        put_key4(slot + 8, offset - self.base_offset)
        self.added()
        self.last_timestamp = timestamp
        self.last_offset = offset
        return 1

    cdef int64_t lookup(self, int64_t target, int64_t* found) except -2:
        cdef int64_t number = self.last_up_to(search_timestamps, target)
        cdef const uint8_t* slot
        if number < 0:
            found[0] = NO_TIMESTAMP
            return self.base_offset
        slot = self.slot(number)
        found[0] = slot_key8(slot)
        return self.base_offset + slot_key4(slot + 8)

    def maybe_add(self, int64_t timestamp, int64_t offset, *, bint ignore_full=False) -> bool:
        """maybe_append for callers in Python: largest timestamp (ms) of what is up to `offset`."""
        return self.maybe_append(timestamp, offset, ignore_full) == 1

    def find(self, int64_t target) -> tuple[int, int]:
        """(timestamp, offset) of the greatest timestamp <= target, or (-1, base_offset)."""
        cdef int64_t found = 0
        offset = self.lookup(target, &found)
        return found, offset

    def lookup_many(self, targets) -> tuple:
        """find() for each of an int64 array: int64 arrays (timestamps, offsets). Drops the GIL."""
        cdef uint8_t missing[SLOT_BYTES]
        put_key8(missing, NO_TIMESTAMP)
        put_key4(missing + 8, 0)
        keys = np.ascontiguousarray(targets, dtype=np.int64)
        slots = self.slots_up_to(search_timestamps, search_timestamps_lanes, keys, missing)
        entries = slots.view(SLOT_DTYPE)
        offsets = entries["offset"].astype(np.int64)
        offsets += self.base_offset
        return entries["timestamp"].astype(np.int64), offsets

    cdef int keep_below(self, int64_t offset) except -1:
        cdef int64_t relative_offset = offset - self.base_offset - 1
        return self.keep(self.last_up_to(search_time_offsets, relative_offset) + 1)

    def truncate_to(self, int64_t offset) -> None:
        """Drop the entries with offset >= `offset`. Not durable until flush()."""
        self.keep_below(offset)

    def entries(self):
        """Every entry as a structured array (timestamp, offset), both int64."""
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
        cdef int64_t first_timestamp = slot_key8(first)
        cdef int64_t first_offset = self.base_offset + slot_key4(first + 8)
        if (
            first_timestamp < 0 or first_offset < self.base_offset
            or self.last_offset < first_offset
            or self.last_timestamp - first_timestamp < self.entry_count - 1
        ):
            return False
        if not whole:
            return True
        entries = self.entries()
        return bool(
            (np.diff(entries["timestamp"]) > 0).all() and (np.diff(entries["offset"]) >= 0).all())
