# What a log takes from its leader.

from libc.stdint cimport int64_t, uint8_t

from replog._native.appendable_log cimport AppendableLog

cdef class FollowerLog(AppendableLog):
    cdef int follow_locked(self, const uint8_t* bytes, int64_t length, int64_t now) except -1
    cdef int write_part(self, int64_t now) except -1
    cdef int check_continues(self) except -1
