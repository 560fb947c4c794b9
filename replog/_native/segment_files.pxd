# The files of one segment.

from libc.stdint cimport int64_t

from replog._native.log_guard cimport LogGuard
from replog._native.mapped_file cimport MappedFile
from replog._native.offset_index cimport OffsetIndex
from replog._native.time_index cimport TimeIndex
from replog._native.transaction_index cimport TransactionIndex

cdef class SegmentFiles:
    cdef readonly int64_t base_offset
    cdef readonly str prefix              # path of the files less their suffix
    cdef LogGuard guard                   # of the log that it belongs to; None before that
    cdef int64_t index_bytes_max
    cdef int64_t map_bytes                # how much of the file to map at once
    cdef MappedFile file                  # None until first use
    cdef OffsetIndex offsets              # None until first use
    cdef TimeIndex times                  # None until first use
    cdef TransactionIndex aborts          # None until first use

    cdef int hold(self) except -1
    cdef int let_go(self) except -1
    cdef int open(self) except -1
    cdef int open_file(self) except -1
    # The files to sync, once what their indexes hold in memory is written out.
    cdef list written_files(self, bint records_only)
