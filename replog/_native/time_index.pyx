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

from replog._native.mapped_file cimport FileView, MappedFile

from replog.errors import InvariantViolation

cdef extern from "c/slot_search.h" nogil:
    enum: SEARCH_LANES
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
        cdef int64_t in_tail = self.entry_count - self.written_count
        cdef const uint8_t* slots
        cdef int64_t number = -1
        if in_tail:
            slots = self.tail
            number = search_timestamps(slots, in_tail, target)
        if number < 0 and self.written_count:
            slots = self.slot(0)
            number = search_timestamps(slots, self.written_count, target)
        if number < 0:
            found[0] = NO_TIMESTAMP
            return self.base_offset
        found[0] = slot_key8(slots + number * SLOT_BYTES)
        return self.base_offset + slot_key4(slots + number * SLOT_BYTES + 8)

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
        cdef const int64_t[::1] wanted = np.ascontiguousarray(targets, dtype=np.int64)
        cdef Py_ssize_t count = wanted.shape[0]
        timestamps = np.empty(count, dtype=np.int64)
        offsets = np.empty(count, dtype=np.int64)
        cdef int64_t[::1] into_timestamps = timestamps
        cdef int64_t[::1] into_offsets = offsets
        cdef bytes tail = self.tail_copy()
        cdef const uint8_t* tail_slots = tail
        cdef int64_t tail_count = self.entry_count - self.written_count
        cdef int64_t written_count = self.written_count
        # The view keeps the file from being cut while the GIL is away.
        cdef FileView written
        self.file.map(self.map_capacity())
        written = self.file.view(0, written_count * SLOT_BYTES)
        if count:
            with nogil:
                search_many(
                    written.address, written_count, tail_slots, tail_count, self.base_offset,
                    &wanted[0], count, &into_timestamps[0], &into_offsets[0])
        return timestamps, offsets

    cdef int keep_below(self, int64_t offset) except -1:
        cdef int64_t in_tail = self.entry_count - self.written_count
        cdef int64_t relative_offset = offset - self.base_offset - 1
        cdef int64_t number = -1
        if in_tail:
            number = search_time_offsets(self.tail, in_tail, relative_offset)
            if number >= 0:
                self.keep(self.written_count + number + 1)
                return 0
        if self.written_count:
            number = search_time_offsets(self.slot(0), self.written_count, relative_offset)
        self.keep(number + 1)
        return 0

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


cdef void search_many(
    const uint8_t* written, int64_t written_count, const uint8_t* tail, int64_t tail_count,
    int64_t base_offset, const int64_t* targets, int64_t count,
    int64_t* timestamps, int64_t* offsets,
) noexcept nogil:
    """Look up `count` targets, a group at a time, in the file's slots and then in the tail's."""
    cdef int64_t found[SEARCH_LANES]
    cdef int64_t start = 0
    cdef int64_t number
    cdef int lane, lanes
    cdef const uint8_t* slot
    while start < count:
        lanes = SEARCH_LANES if count - start > SEARCH_LANES else <int>(count - start)
        search_timestamps_lanes(written, written_count, targets + start, found, lanes)
        for lane in range(lanes):
            slot = NULL
            if tail_count:
                number = search_timestamps(tail, tail_count, targets[start + lane])
                if number >= 0:
                    slot = tail + number * SLOT_BYTES
            if slot == NULL and found[lane] >= 0:
                slot = written + found[lane] * SLOT_BYTES
            timestamps[start + lane] = slot_key8(slot) if slot != NULL else NO_TIMESTAMP
            offsets[start + lane] = base_offset + (slot_key4(slot + 8) if slot != NULL else 0)
        start += lanes
