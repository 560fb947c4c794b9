# The batches of one append, checked and ready to be written: Kafka's "record set".

from libc.stdint cimport int32_t, int64_t, uint8_t

from replog._native.mapped_file cimport iovec
from replog._native.record_batch cimport BatchHeader, RecordsSummary

cdef struct PendingBatch:
    BatchHeader header
    RecordsSummary summary
    const uint8_t* source      # the batch as it was given, or as it was encoded anew
    uint8_t stamp[64]          # its first HEADER_BYTES as they will be written

cdef class BatchSet:
    cdef PendingBatch* batches
    cdef iovec* parts          # what to write, in order
    cdef int part_count
    cdef int64_t capacity
    cdef readonly int64_t count
    cdef readonly int64_t length_bytes   # of all batches; a partial tail is not counted
    cdef readonly int64_t max_timestamp  # over all batches
    cdef list rewritten        # owners of batches that were encoded anew

    cdef int reserve(self, int64_t count) except -1
    # Batches of a client: each whole, its CRC right, its records walked. They outlive the append.
    cdef int load_from_client(
        self, const uint8_t* bytes, int64_t length, str path, int64_t decompressed_bytes_max
    ) except -1
    # What a client may send, by Kafka's LogValidator. coordinator: end markers are allowed.
    cdef int check_client(
        self, str path, int64_t max_message_bytes, bint compacted, int64_t now_ms,
        int64_t before_max_ms, int64_t after_max_ms, bint log_append_time, bint coordinator
    ) except -1
    # Encode anew what the topic wants otherwise: another codec, or offset deltas with holes.
    cdef int rewrite(self, int codec, object level, int64_t decompressed_bytes_max) except -1
    # Offsets from base_offset on, epoch, and time: append_time_ms is -1 for CreateTime.
    cdef int stamp(
        self, int64_t base_offset, int32_t leader_epoch, int64_t append_time_ms
    ) except -1
    cdef bint stamp_all(
        self, int64_t base_offset, int32_t leader_epoch, int64_t append_time_ms
    ) noexcept
    cdef void sum_anew(self) noexcept nogil
    cdef bint sum_matches(self, PendingBatch* pending) noexcept
    cdef int64_t span_of(self, const PendingBatch* last) noexcept
    # Batches from a leader's log: kept as they are; CRC and chain checked, a partial tail ignored.
    # Stops before a batch that would pass `limit` bytes, or what one segment can number where there
    # is a limit, but takes one at least.
    cdef int load_from_leader(
        self, const uint8_t* bytes, int64_t length, int64_t limit, str path, bint dense
    ) except -1
    # One batch without records over [base_offset, last_offset], as compaction leaves them.
    cdef int load_empty(
        self, int64_t base_offset, int64_t last_offset, int32_t leader_epoch
    ) except -1
    # Whether one segment of so many bytes can hold all of them.
    cdef bint fits(self, int64_t segment_bytes) noexcept
    cdef void release(self) noexcept
    cdef int check_size(self, int64_t segment_bytes, str path) except -1
    cdef int refuse_cut(self, int64_t length, str path) except -1
    cdef int refuse(self, int outcome, PendingBatch* pending, str path, int64_t at) except -1
    cdef int walk_compressed(
        self, PendingBatch* pending, str path, int64_t decompressed_bytes_max
    ) except -1
    cdef int check_timestamps(
        self, PendingBatch* pending, str path, int64_t now_ms, int64_t before_max_ms,
        int64_t after_max_ms
    ) except -1
