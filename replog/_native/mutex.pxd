# A lock between threads that may wait: the GIL is let go of meanwhile.

from cpython.pythread cimport PyThread_type_lock

cdef class Mutex:
    cdef PyThread_type_lock native
    cdef unsigned long owner               # thread that holds it, if depth > 0
    cdef int depth

    cdef void acquire(self) noexcept
    cdef void release(self) noexcept
