# The end of a log moves back.

from libc.stdint cimport int64_t

from replog._native.epoch_file cimport EpochFile
from replog._native.log_producers cimport LogProducers
from replog._native.log_start cimport LogStart
from replog._native.log_state cimport LogState
from replog._native.log_sync cimport LogSync
from replog._native.retired_files cimport RetiredFiles
from replog._native.segment_maker cimport SegmentMaker

cdef class LogCut:
    cdef LogState state
    cdef SegmentMaker maker
    cdef EpochFile epoch_file
    cdef LogProducers producers
    cdef LogSync sync
    cdef LogStart start
    cdef RetiredFiles retired

    cdef bint to(self, int64_t offset) except -1
    cdef int within(self, int64_t offset) except -1
    # Drop everything and go on, empty, at `offset`.
    cdef int restart(self, int64_t offset, int64_t log_start_offset) except -1
    cdef int drop_from(self, Py_ssize_t place, int64_t now) except -1
    cdef int find_written_epoch(self) except -1
