# What a log takes from its leader.

from libc.stdint cimport int64_t, uint8_t

from replog._native.append_result cimport AppendResult
from replog._native.log_cut cimport LogCut
from replog._native.log_state cimport LogState
from replog._native.log_writer cimport LogWriter

cdef class LogFollower:
    cdef LogState state
    cdef LogCut cut
    cdef LogWriter writer

    cdef AppendResult append(self, object given, object now_ms)
    cdef int append_locked(self, const uint8_t* bytes, int64_t length, int64_t now) except -1
    cdef int write_part(self, int64_t now) except -1
    cdef int check_continues(self) except -1
