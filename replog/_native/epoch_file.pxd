# The leader epochs of a log, and their file.

from libc.stdint cimport int32_t, int64_t

from replog._native.batch_set cimport BatchSet
from replog._native.leader_epoch_cache cimport LeaderEpochCache
from replog._native.log_state cimport LogState

cdef class EpochFile:
    cdef LogState state
    cdef bint owed                     # the file may say more than the cache, or less

    cdef bint lacks(self, int32_t leader_epoch) noexcept
    cdef int note(self, BatchSet batches, LeaderEpochCache before) except -1
    cdef bint assign(self, int32_t leader_epoch, int64_t start_offset) except -1
    cdef int write_or(self, LeaderEpochCache before) except -1
    cdef int write_fewer(self) except -1
    cdef int restore(self, LeaderEpochCache before) except -1
