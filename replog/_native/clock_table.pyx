# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Who holds one of a bounded number of things, and who is to give his own back for the next.

A clock: the hand goes round, takes the mark of use away from whoever has one, and stops at the
first that has none. The GIL is held by whoever calls.
"""

from cpython.ref cimport PyObject
from libc.stdlib cimport calloc, free


cdef class ClockTable:
    """See the module."""

    def __cinit__(self, int capacity):
        self.entries = <ClockEntry*>calloc(<size_t>capacity, sizeof(ClockEntry))
        if self.entries == NULL:
            raise MemoryError()
        self.capacity = capacity
        self.limit = capacity

    def __dealloc__(self):
        free(self.entries)

    cdef void add(self, PyObject* holder, int* place, const int* busy) noexcept:
        cdef ClockEntry* entry = &self.entries[self.count]
        entry.holder = holder
        entry.place = place
        entry.busy = busy
        entry.used = True
        place[0] = self.count
        self.count += 1

    cdef void drop(self, int* place) noexcept:
        cdef int gone = place[0]
        if gone < 0:
            return
        self.count -= 1
        if gone != self.count:
            self.entries[gone] = self.entries[self.count]
            self.entries[gone].place[0] = gone
        place[0] = -1

    cdef PyObject* idle(self) noexcept:
        cdef ClockEntry* entry
        cdef int _step
        # Two rounds: the first one may only take away the marks.
        for _step in range(2 * self.count):
            self.hand = self.hand + 1 if self.hand + 1 < self.count else 0
            entry = &self.entries[self.hand]
            if entry.busy != NULL and entry.busy[0] > 0:
                continue
            if not entry.used:
                return entry.holder
            entry.used = False
        return NULL

    cdef void bound(self, int limit) noexcept:
        self.limit = limit
        self.hand = 0
