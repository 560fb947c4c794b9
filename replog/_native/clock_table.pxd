# What a bounded number of holders may have at a time: the least used one gives its own back first.

from cpython.ref cimport PyObject

ctypedef struct ClockEntry:
    PyObject* holder      # borrowed: it leaves the table before it dies
    int* place            # where the holder keeps its place here; -1 while it has none
    const int* busy       # above 0: it cannot give it back now; NULL: it always can
    bint used             # since the last sweep

cdef class ClockTable:
    cdef ClockEntry* entries
    cdef readonly int count
    cdef readonly int capacity
    cdef readonly int limit       # how many there may be, at most the capacity
    cdef int hand

    # Enter a holder that has none; the caller has made sure that count < capacity.
    cdef void add(self, PyObject* holder, int* place, const int* busy) noexcept
    cdef void drop(self, int* place) noexcept
    # One that was not used since the last sweep and is not busy, to be dropped; NULL: all are busy.
    cdef PyObject* idle(self) noexcept
    cdef void bound(self, int limit) noexcept
