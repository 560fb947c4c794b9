# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""A lock between threads, for native code: taking a free one costs no call into the interpreter.

Reentrant. Not made for a child of fork(): whoever owns one tells forks apart first, since
another thread may have held it when the process was copied.
"""

from cpython.pythread cimport (
    NOWAIT_LOCK, WAIT_LOCK, PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock,
    PyThread_get_thread_ident, PyThread_release_lock,
)


cdef class Mutex:
    def __cinit__(self):
        self.native = PyThread_allocate_lock()
        if self.native == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.native != NULL:
            PyThread_free_lock(self.native)

    cdef void acquire(self) noexcept:
        cdef unsigned long me = PyThread_get_thread_ident()
        # Both are read and written with the GIL held.
        if self.depth > 0 and self.owner == me:
            self.depth += 1
            return
        if not PyThread_acquire_lock(self.native, NOWAIT_LOCK):
            with nogil:
                PyThread_acquire_lock(self.native, WAIT_LOCK)
        self.owner = me
        self.depth = 1

    cdef void release(self) noexcept:
        self.depth -= 1
        if self.depth == 0:
            PyThread_release_lock(self.native)
