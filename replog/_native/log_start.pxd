# Where a log begins.

from libc.stdint cimport int64_t

from replog._native.epoch_file cimport EpochFile
from replog._native.log_state cimport LogState

cdef class LogStart:
    cdef LogState state
    cdef EpochFile epoch_file
    cdef int64_t tried                 # the last log start that was to be written, or was

    cdef bint move(self, int64_t offset) except -1
    cdef int settle(self) except -1
