# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The one place that says who may work on a log, and what an operation that fails does to it.

Locks. `write_lock` guards everything of a log that changes: offsets, segments and their indexes,
epochs, producers, known-synced ends. Every verb that changes one of them holds it from its first
check to its end, also while the GIL is away in a system call. Readers do not take it, but to open a
file or make an index anew: what they read is replaced whole, with the GIL held. `sync_lock` lets
one thread at a time wait for the disk in a flush or commit; it is taken before `write_lock`, which
is let go of while the disk works, so that appends go on. A checkpoint file's own lock comes last.

Failures. An operation that fails leaves the log as it was, or fails it for good. What can be undone
is undone where it happens. The stretch that cannot be undone stands between begin_change() and
end_change(): an error that leaves the lock in between fails the log. So does a LogFailedError from
wherever it comes: after it, nobody knows what is on the disk. A failed log can be read and closed.
"""

from replog._native.file_system cimport fork_count
from replog._native.mutex cimport Mutex

from replog.errors import LogClosedError, LogFailedError, StorageError


cdef class LogGuard:
    """See the module. `with guard:` holds the writer's lock; it may be taken again inside."""

    def __init__(self, str path not None):
        self.path = path
        self.write_lock = Mutex()
        self.sync_lock = Mutex()
        self.fork_generation = fork_count[0]

    cdef bint forked(self) noexcept:
        """Whether this is another process than the one that opened the log."""
        return self.fork_generation != fork_count[0]

    cdef int check(self) except -1:
        if self.fork_generation != fork_count[0] or self.closed or self.failed:
            self.refuse()
        return 0

    def refuse(self):
        """Raise for a log that takes no more work."""
        if self.fork_generation != fork_count[0]:
            raise LogClosedError(
                f"expected the process that opened {self.path}, found a child forked from it; open "
                f"another log in the child, or start it by spawn",
                path=self.path,
            )
        if self.closed:
            raise LogClosedError(
                f"expected an open log, found {self.path} closed; open it again", path=self.path
            )
        raise LogFailedError(
            f"expected a healthy log, found {self.path} failed by an earlier I/O error; check the "
            f"disk and open it again, which recovers what is whole",
            path=self.path,
        )

    cdef int lock(self) except -1:
        self.lock_any()
        if self.closed or self.failed:
            self.write_lock.release()
            self.refuse()
        return 0

    cdef int lock_any(self) except -1:
        # First of all: another thread may have held the lock when this process was forked.
        if self.fork_generation != fork_count[0]:
            self.refuse()
        self.write_lock.acquire()
        return 0

    cdef int unlock(self, object error) except -1:
        # A change that has not ended without an error is a bug of replog: the log is unknown, too.
        if isinstance(error, LogFailedError):
            self.failed = True
        cdef bint cut_short = self.write_lock.depth == 1 and self.changing
        if cut_short:
            self.changing = 0
            self.failed = True
        self.write_lock.release()
        if cut_short and isinstance(error, (StorageError, OSError)):
            # Nobody is to try again what its own type may invite to.
            raise LogFailedError(
                f"expected a change of {self.path} to end or to be undone, found it cut short "
                f"({error}); open the log again, which recovers what is whole",
                path=self.path,
            ) from error
        return 0

    cdef void begin_change(self) noexcept:
        self.changing += 1

    cdef void end_change(self) noexcept:
        self.changing -= 1

    cdef void fail(self) noexcept:
        self.failed = True

    cdef void close(self) noexcept:
        self.closed = True

    def __enter__(self):
        self.lock()
        return self

    def __exit__(self, kind, error, trace):
        self.unlock(error)
