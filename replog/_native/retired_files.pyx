# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Files of segments that left the log: renamed at once, unlinked after a delay.

A reader that has a segment's name may so open it a while longer. The data file is renamed first:
once it has another name the segment is gone, and what is left of its side files is for the next
open, or the next segment of that name, to remove. The log's guard is held by whoever calls.
"""

from libc.stdint cimport int64_t

from replog._native import mapped_file
from replog._native.segment_files import SEGMENT_SUFFIXES
from replog.errors import LogFailedError, StorageError


cdef int64_t TIME_MAX = 0x7FFFFFFFFFFFFFFF


cdef class RetiredFiles:
    def __init__(self, int64_t delay_ms):
        self.delay_ms = delay_ms
        self.waiting = []

    cdef int retire(self, str prefix, int64_t now) except -1:
        """Rename the files of a segment. On an error but a LogFailedError none has been."""
        for suffix in SEGMENT_SUFFIXES:
            path = prefix + suffix
            try:
                mapped_file.rename(path, path + ".deleted")
            except FileNotFoundError:
                continue
            except LogFailedError:
                raise
            except StorageError:
                if suffix == ".log":
                    raise
                continue
            self.waiting.append((now + self.delay_ms, path + ".deleted"))
        return 0

    def unlink_all(self):
        """Unlink all of them."""
        self.unlink_due(TIME_MAX)

    def unlink_due(self, int64_t now_ms):
        """Unlink what has waited long enough; mappings stay readable.

        Raises StorageError: what is still there is tried again by the next call.
        """
        due = [entry for entry in self.waiting if entry[0] <= now_ms]
        if not due:
            return
        self.waiting = [entry for entry in self.waiting if entry[0] > now_ms]
        gone = 0
        try:
            for entry in due:
                try:
                    mapped_file.remove(entry[1])
                except FileNotFoundError:
                    pass
                gone += 1
        finally:
            self.waiting = due[gone:] + self.waiting
