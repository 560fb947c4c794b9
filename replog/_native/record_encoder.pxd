# Columns of records into the bytes of record batches.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from replog._native.input_columns cimport replog_rows

cdef extern from "c/record_encoder.h" nogil:
    ctypedef struct replog_extent:
        int64_t row_count
        int64_t bytes
        int64_t max_timestamp
        int64_t bad_row
    ctypedef struct replog_renumbering:
        int64_t bytes
        int64_t base_shift
        int changed
    int replog_size_records(
        const replog_rows* rows, int64_t start, int64_t bytes_max, replog_extent* extent
    )
    int replog_write_records(
        const replog_rows* rows, int64_t start, int64_t count, uint8_t* out, int64_t length
    )
    int replog_renumber_records(
        const uint8_t* at, int64_t length, int64_t count, uint8_t* out, int64_t out_length,
        replog_renumbering* renumbering
    )

cdef struct BatchFields:
    # What the header of an encoded batch says beside its records.
    int64_t base_offset
    int64_t producer_id
    int32_t leader_epoch
    int32_t base_sequence
    int16_t producer_epoch
    int16_t attributes             # codec, timestamp type, transactional, control
    int64_t append_time_ms         # max_timestamp where LOG_APPEND_TIME_BIT is set
