# Who may work on a log now, and whether it may be worked on at all.

from libc.stdint cimport int64_t

from replog._native.mutex cimport Mutex

cdef class LogGuard:
    cdef readonly str path
    cdef Mutex write_lock
    cdef Mutex sync_lock
    cdef int fork_generation           # of the process that opened the log
    cdef int changing                  # changes that have begun and not ended
    cdef int64_t indexes_remade        # of any segment: what others went by is to be asked again
    cdef readonly bint failed
    cdef readonly bint closed

    # Take the writer's lock. Raises LogClosedError, LogFailedError.
    cdef int lock(self) except -1
    # Take it of a failed or closed log, too. Raises LogClosedError in a forked child.
    cdef int lock_any(self) except -1
    # Let go of it; `error` is what ends the call, None if nothing does.
    cdef int unlock(self, object error) except -1
    cdef void begin_change(self) noexcept
    cdef void end_change(self) noexcept
    cdef bint forked(self) noexcept
    cdef int check(self) except -1
    # For good. Readers go on.
    cdef void fail(self) noexcept
    cdef void close(self) noexcept
