# The whole log: what AppendableLog writes can be flushed, cut, trimmed and closed.

from libc.stdint cimport int64_t

from replog._native.appendable_log cimport AppendableLog
from replog._native.log_segment cimport LogSegment

cdef class Log(AppendableLog):
    cdef int sync_up_to(self, int64_t start_offset, bint records_only) except -1
    cdef int truncate_locked(self, int64_t offset) except -1
    cdef int retire(self, LogSegment segment, int64_t now) except -1
    cdef int drop_from(self, Py_ssize_t place, int64_t now) except -1
    cdef int drop_snapshots(self, int64_t above, object keep=*) except -1
    cdef int replay_producers(self, int64_t end_offset, int64_t now) except -1
    cdef Py_ssize_t expired_count(self, int64_t now) except -1
    cdef int find_written_epoch(self) except -1
