# Segments go from the front of a log.

from libc.stdint cimport int64_t

from replog._native.log_producers cimport LogProducers
from replog._native.log_start cimport LogStart
from replog._native.log_state cimport LogState
from replog._native.log_writer cimport LogWriter
from replog._native.retired_files cimport RetiredFiles

cdef class LogRetention:
    cdef LogState state
    cdef LogProducers producers
    cdef LogStart start
    cdef LogWriter writer
    cdef RetiredFiles retired

    cdef list apply(self, int64_t now)
    cdef Py_ssize_t expired_count(self, int64_t now) except -1
    cdef int drop_first(self, tuple gone, int64_t now) except -1
