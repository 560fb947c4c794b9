# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""A file of fixed-size slots that only grows at its end: what both indexes are made of.

    | slot 0 | slot 1 | ... | slot written_count - 1 |  tail in memory: up to 512 slots  |

Appended slots gather in memory, so that an append of a batch costs no write of its own. A segment
owns its indexes; one thread appends at a time. Nothing here is durable before flush(), and after a
crash the file may hold anything: an index is derived, and its owner rebuilds it from the log.
A file that another program preallocated ends in zero slots; they are no entries.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

import numpy as np

from replog._native.file_cut cimport cut_file
from replog._native.mapped_file cimport FileView, Mapping, iovec

from replog._native import mapped_file
from replog.errors import InvariantViolation, NoSpaceError, OutOfDescriptorsError

cdef extern from "c/slot_search.h" nogil:
    enum: SEARCH_LANES

cdef enum:
    TAIL_SLOTS = 512
    MIB = 1 << 20


cdef class SlotArray:
    def __dealloc__(self):
        free(self.tail)

    cdef int load(self) except -1:
        """Find out how many entries the file holds; zero slots at its end are none."""
        cdef Mapping held
        cdef const uint8_t* slots
        cdef int64_t count = self.file.size_bytes // self.slot_bytes
        self.whole = self.file.size_bytes % self.slot_bytes == 0
        if count > 1:
            held = self.file.map(self.file.size_bytes)
            slots = held.address
            while count > 1 and self.is_zero(slots + (count - 1) * self.slot_bytes):
                count -= 1
            # A slot of zeros alone is an entry (timestamp 0 at the base), the first of many not.
            if count == 1 and self.file.size_bytes > self.slot_bytes and self.is_zero(slots):
                count = 0
        self.written_count = count
        self.entry_count = count
        self.full = count >= self.capacity_slots
        self.remember_last()
        return 0

    cdef bint is_zero(self, const uint8_t* slot) noexcept:
        cdef int64_t place
        for place in range(self.slot_bytes):
            if slot[place] != 0:
                return False
        return True

    cdef uint8_t* room(self) except NULL:
        cdef int64_t gathered = self.entry_count - self.written_count
        cdef int64_t wanted
        cdef uint8_t* grown
        if gathered == self.tail_room:
            if gathered > 0:
                try:
                    self.write_tail()
                except (NoSpaceError, OutOfDescriptorsError):
                    # The log has taken the batch already, and an index may lag behind it.
                    pass
            gathered = self.entry_count - self.written_count
            if gathered == self.tail_room:
                wanted = 2 * gathered if gathered else TAIL_SLOTS
                grown = <uint8_t*>realloc(self.tail, wanted * self.slot_bytes)
                if grown == NULL:
                    raise MemoryError(f"expected room for {wanted} slots of {self.path!r}")
                self.tail = grown
                self.tail_room = wanted
        return self.tail + gathered * self.slot_bytes

    cdef void added(self) noexcept:
        self.entry_count += 1
        self.full = self.entry_count >= self.capacity_slots

    cdef const uint8_t* slot(self, int64_t number) except NULL:
        """Address of a slot; good until the next append, write, cut, close or call of a file."""
        if not 0 <= number < self.entry_count:
            raise InvariantViolation(
                f"expected an entry number in [0, {self.entry_count}) of {self.path!r};"
                f" found {number}. This is a bug in replog.")
        if number >= self.written_count:
            return self.tail + (number - self.written_count) * self.slot_bytes
        return (<Mapping>self.file.map(self.map_capacity())).address + number * self.slot_bytes

    cdef int64_t last_up_to(self, slot_search search, int64_t key) except -2:
        cdef int64_t in_tail = self.entry_count - self.written_count
        cdef int64_t number = -1
        if in_tail:
            number = search(self.tail, in_tail, key)
        if number >= 0:
            return self.written_count + number
        if self.written_count:
            return search(self.slot(0), self.written_count, key)
        return -1

    cdef object slots_up_to(
        self, slot_search search, lanes_search search_lanes, const int64_t[::1] keys,
        const uint8_t* missing,
    ):
        cdef int64_t slot_bytes = self.slot_bytes
        cdef Py_ssize_t count = keys.shape[0]
        found = np.empty(count, dtype=np.dtype((np.void, slot_bytes)))
        cdef uint8_t[::1] into = found.view(np.uint8)
        cdef bytes tail = self.tail_copy()
        cdef const uint8_t* tail_slots = tail
        cdef int64_t tail_count = self.entry_count - self.written_count
        cdef int64_t written_count = self.written_count
        # The view keeps the file from being cut while the GIL is away.
        cdef FileView written
        self.file.map(self.map_capacity())
        written = self.file.view(0, written_count * slot_bytes)
        if count:
            with nogil:
                copy_slots(
                    written.address, written_count, tail_slots, tail_count, slot_bytes,
                    search, search_lanes, missing, &keys[0], count, &into[0])
        return found

    cdef int64_t map_capacity(self) noexcept:
        """Bytes to map at once: more than there are, so that growth needs no new mapping."""
        return (self.written_count * self.slot_bytes // MIB + 1) * MIB

    cdef int write_tail(self) except -1:
        """Move the tail into the file. Raises NoSpaceError (tail kept), LogFailedError."""
        cdef iovec part
        cdef int64_t count = self.entry_count - self.written_count
        cdef int64_t same = 0
        if self.file.size_bytes != self.written_count * self.slot_bytes:
            same = self.slots_in_place(count)
            if self.file.size_bytes != (self.written_count + same) * self.slot_bytes and (
                same < count or count == 0
            ):
                same = 0
                self.cut_slots(self.written_count)
        if count > same:
            part.iov_base = self.tail + same * self.slot_bytes
            part.iov_len = (count - same) * self.slot_bytes
            self.file.append(&part, 1, (count - same) * self.slot_bytes)
        self.written_count += count
        return 0

    cdef int64_t slots_in_place(self, int64_t count) except -1:
        """How many slots of the tail the file holds where they belong; all that it can, or none.

        An index that is made anew mostly says what it said before. Its file is then left alone:
        emptying one makes some file systems write it back at once (ext4's auto_da_alloc).
        """
        cdef int64_t start = self.written_count * self.slot_bytes
        cdef int64_t there = (self.file.size_bytes - start) // self.slot_bytes
        cdef Mapping held
        if there > count:
            there = count
        if there <= 0:
            return 0
        held = self.file.map(self.file.size_bytes)
        return 0 if memcmp(held.address + start, self.tail, there * self.slot_bytes) else there

    cdef int finish_tail(self) except -1:
        """Move the tail into the file and cut what a reset left behind it."""
        self.write_tail()
        if self.file.size_bytes != self.written_count * self.slot_bytes:
            self.cut_slots(self.written_count)
        return 0

    cdef int cut_slots(self, int64_t count) except -1:
        """Cut the file to `count` slots."""
        self.file = cut_file(self.file, count * self.slot_bytes, ".tmp", False)
        return 0

    cdef int keep(self, int64_t count) except -1:
        """Drop all entries but the first `count`."""
        if count >= self.entry_count:
            return 0
        cut = count < self.written_count
        # The counts fall first: cutting lets go of the GIL, and no reader may look behind the cut.
        self.entry_count = count
        self.full = count >= self.capacity_slots
        if cut:
            self.written_count = count
            self.cut_slots(count)
        self.whole = True
        self.remember_last()
        return 0

    cdef int remember_last(self) except -1:
        """Take over the facts of the last entry; each index overrides it."""
        raise NotImplementedError

    cdef bytes tail_copy(self):
        """The slots that are not in the file, for a search without the GIL."""
        cdef int64_t length_bytes = (self.entry_count - self.written_count) * self.slot_bytes
        return (<char*>self.tail)[:length_bytes] if length_bytes else b""

    def content(self) -> bytes:
        """All entries as the bytes that they are on disk."""
        cdef int64_t length_bytes = self.written_count * self.slot_bytes
        written = bytes(self.file.view(0, length_bytes)) if length_bytes else b""
        return written + self.tail_copy()

    def reset(self) -> None:
        """Drop every entry; the file follows when it is next written, flushed or closed."""
        self.entry_count = 0
        self.written_count = 0
        self.full = self.capacity_slots <= 0
        self.whole = True
        self.remember_last()

    def write_out(self) -> None:
        """Move what is in memory to the file; not durable. Raises NoSpaceError, LogFailedError."""
        self.finish_tail()

    cdef int seal(self) except -1:
        """Move what is in memory to the file, and give the memory back: little is to come."""
        self.finish_tail()
        free(self.tail)
        self.tail = NULL
        self.tail_room = 0
        return 0

    def flush(self) -> None:
        """Write out and sync; durable on return. Raises NoSpaceError, LogFailedError (for good)."""
        self.finish_tail()
        self.file.flush()

    def rename_to(self, path: str) -> None:
        """Give the file another name, with its descriptor and entries kept."""
        self.file.rename_to(path)
        self.path = path

    def close(self) -> None:
        """Write out and give the file back; a second close does nothing."""
        if self.file.closed:
            return
        try:
            if self.file.writable and not self.file.failed:
                self.finish_tail()
        finally:
            self.file.close()

    def delete(self) -> None:
        """Close and unlink; a file that is gone already is no error."""
        self.file.close()
        try:
            mapped_file.remove(self.path)
        except FileNotFoundError:
            pass


cdef void copy_slots(
    const uint8_t* written, int64_t written_count, const uint8_t* tail, int64_t tail_count,
    int64_t slot_bytes, slot_search search, lanes_search search_lanes, const uint8_t* missing,
    const int64_t* keys, int64_t count, uint8_t* into,
) noexcept nogil:
    """Look up `count` keys, a group at a time, in the file's slots and then in the tail's."""
    cdef int64_t found[SEARCH_LANES]
    cdef int64_t start = 0
    cdef int64_t number
    cdef int lane, lanes
    cdef const uint8_t* slot
    while start < count:
        lanes = SEARCH_LANES if count - start > SEARCH_LANES else <int>(count - start)
        search_lanes(written, written_count, keys + start, found, lanes)
        for lane in range(lanes):
            slot = missing
            number = search(tail, tail_count, keys[start + lane]) if tail_count else -1
            if number >= 0:
                slot = tail + number * slot_bytes
            elif found[lane] >= 0:
                slot = written + found[lane] * slot_bytes
            memcpy(into + (start + lane) * slot_bytes, slot, slot_bytes)
        start += lanes
