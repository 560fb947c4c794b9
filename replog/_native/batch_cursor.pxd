# The batches of a buffer that a read wants, one after the other, each checked.

from libc.stdint cimport int32_t, int64_t, uint8_t

from replog._native.record_batch cimport BatchHeader

# Outcomes of BatchCursor.advance beside damage (below 0, as in record_batch).
cdef enum:
    CURSOR_END = 0             # no batch left, or only a partial one, or those behind end_offset
    CURSOR_BATCH = 2           # `header` and `place` tell of a wanted batch

# An aborted transaction: [first_offset, last_offset] of one producer.
cdef struct AbortedRange:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset        # of the ABORT marker; INT64_MAX until it is known

cdef class BatchCursor:
    cdef Py_buffer view
    cdef readonly object source          # what the caller gave
    cdef readonly object path            # named in errors, may be None
    cdef int64_t position                # byte of the file at which the buffer starts
    cdef const uint8_t* bytes
    cdef int64_t length
    cdef int64_t at                      # byte behind the batch in `header`
    cdef int64_t place                   # its first byte in the buffer
    cdef int64_t start_offset            # inclusive
    cdef int64_t end_offset              # exclusive
    cdef int64_t output_bytes_max        # of one decompressed batch
    cdef int64_t previous_last           # chain: each base_offset is above it
    cdef int32_t previous_epoch          # chain: leader epochs do not fall
    cdef bint check_crc
    cdef bint include_control
    cdef AbortedRange* aborted           # sorted by producer_id, then first_offset
    cdef int64_t aborted_count
    cdef BatchHeader header

    cdef int advance(self) noexcept nogil
    cdef bint passes_isolation(self) noexcept nogil
    cdef AbortedRange* transaction_of(self, int64_t producer_id, int64_t offset) noexcept nogil
    cdef int set_aborted(self, aborted) except -1
    # Bytes of the records of the current batch, decompressed if need be; `payload[0]` and
    # `length[0]` point into the object returned.
    cdef object records(self, const uint8_t** payload, int64_t* length)
    cdef str where(self)
    cdef int raise_damage(self, int outcome) except -1
