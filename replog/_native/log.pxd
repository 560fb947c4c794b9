# The whole log: what FollowerLog writes can be flushed, cut, trimmed and closed.

from libc.stdint cimport int64_t

from replog._native.follower_log cimport FollowerLog
from replog._native.log_segment cimport LogSegment
from replog._native.mapped_file cimport MappedFile

cdef class Log(FollowerLog):
    cdef int64_t start_tried           # the last log start that was to be written, or was
    cdef int write(self, int64_t now) except -1
    cdef int roll_locked(self, int64_t base_offset, int64_t now) except -1
    cdef int sync_tail(self) except -1
    cdef int write_fewer_epochs(self) except -1
    cdef bint sync_once(self, bint records_only) except -1
    cdef int sync_file(self, LogSegment segment, MappedFile file, int64_t truncations) except -1
    cdef bint move_log_start(self, int64_t offset) except -1
    cdef int drop_from(self, Py_ssize_t place, int64_t now) except -1
    cdef int drop_first(self, tuple gone, int64_t now) except -1
    cdef int drop_snapshots(self, int64_t above, object keep=*) except -1
    cdef Py_ssize_t expired_count(self, int64_t now) except -1
    cdef int find_written_epoch(self) except -1
    cdef int finish(self) except -1
