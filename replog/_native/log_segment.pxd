# One data file of the log with its indexes.

from libc.stdint cimport int64_t, uint8_t

from replog._native.batch_set cimport BatchSet
from replog._native.producer_state cimport ProducerState
from replog._native.record_batch cimport BatchHeader
from replog._native.segment_files cimport SegmentFiles

cdef class LogSegment(SegmentFiles):
    cdef int64_t index_interval_bytes
    cdef bint dense                       # offsets have no holes inside the segment (not compacted)
    cdef bint missing_index               # one of the two files is not there, or not filled
    cdef bint indexes_checked
    cdef bint aborts_checked              # the .txnindex was compared with the batches
    cdef bint timestamp_known
    cdef int64_t bytes_since_entry        # of the sparse rule; starts at 0 on every open
    cdef int64_t largest_timestamp        # -1 for none; valid if timestamp_known
    cdef int64_t largest_timestamp_offset
    cdef int64_t first_timestamp          # largest of the first append: the roll clock; -1 unknown
    cdef readonly int64_t created_ms
    cdef int64_t time_ceiling             # largest time_of_roll() up to it in the log, if it is
    cdef int64_t ceiling_as_of            # of the guard's indexes_remade; -1: never looked at
    cdef int64_t joined_end               # the next segment's base, once found to be reached; or -1

    cdef int open_indexes(self) except -1
    cdef bint has_timestamp(self) except -1
    cdef int open_timestamp(self) except -1
    # Largest timestamp; when the file was written where its records have none, as for Kafka.
    cdef int64_t time_of_roll(self) except? -1
    # Write the batches, all or none; then note them, which fails for want of memory only.
    cdef int append(self, BatchSet batches) except -1
    cdef int index(self, BatchSet batches, int64_t position) except -1
    cdef bint must_roll(self, BatchSet batches, int64_t last_offset, int64_t segment_bytes,
                        int64_t segment_ms, int64_t now_ms) except -1
    # First batch with last_offset >= offset, from the indexes and a walk: 1 found, 0 there is none.
    cdef int find(self, int64_t offset, BatchHeader* header) except -1
    cdef int walk(
        self, int64_t offset, int64_t position, int64_t floor, BatchHeader* header
    ) except -1
    cdef int add_entries(
        self, const BatchHeader* headers, int64_t count, int64_t* indexed
    ) except -1
    cdef int replay(
        self, ProducerState producers, int64_t offset, int64_t end_offset
    ) except -1
    cdef int check_last_time(self, int64_t last_offset) except -1
    cdef int64_t time_floor(self, int64_t timestamp) except -2
    cdef int64_t chained(
        self, const BatchHeader* headers, int64_t count, int64_t* last
    ) noexcept
    cdef int cut(self, int64_t position, int64_t offset) except -1
    cdef int scan_timestamp(self) except -1
    cdef int shrink(self, int64_t position) except -1
