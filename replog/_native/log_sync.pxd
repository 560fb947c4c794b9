# What of a log is synced.

from libc.stdint cimport int64_t

from replog._native.log_segment cimport LogSegment
from replog._native.log_state cimport LogState
from replog._native.mapped_file cimport MappedFile

cdef class LogSync:
    cdef LogState state
    cdef int64_t flush_messages
    cdef int64_t flush_ms
    cdef int64_t flushed_at_ms
    cdef bint commit_each

    cdef int commit(self, int64_t end_offset) except -1
    cdef int flush(self) except -1
    cdef int checkpoint(self) except -1
    cdef int as_configured(self, int64_t end_offset, int64_t now) except -1
    cdef bint asks_for_time(self) noexcept
    cdef int sync_tail(self) except -1
    cdef bint sync_once(self, bint records_only) except -1
    cdef int sync_file(self, LogSegment segment, MappedFile file, int64_t truncations) except -1
