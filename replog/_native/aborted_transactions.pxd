# Aborted transactions of a log, as its transaction indexes tell.

from libc.stdint cimport int64_t

from replog._native.log_producers cimport LogProducers
from replog._native.log_segment cimport LogSegment
from replog._native.log_state cimport LogState

cdef class AbortedTransactions:
    cdef LogState state
    cdef LogProducers producers

    cdef list between(self, int64_t start_offset, int64_t end_offset)
    cdef int check(self, LogSegment segment) except -1
    cdef bint holds(self, LogSegment segment) except -1
