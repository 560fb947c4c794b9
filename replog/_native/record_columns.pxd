# Columns of records that grow batch by batch, in Arrow's layout.

from libc.stdint cimport int32_t, int64_t, uint8_t

from replog._native.record_batch cimport BatchHeader

cdef extern from "c/record_columns_blocks.h" nogil:
    ctypedef struct replog_block:
        uint8_t* at
        int64_t capacity
    int replog_block_reserve(replog_block* block, int64_t wanted, int64_t used)
    void replog_block_release(replog_block* block)
    int64_t replog_blocks_kept()
    void replog_blocks_drop()
    const void* replog_zeros(int64_t length)
    enum:
        REPLOG_BLOCKS_KEPT_BYTES

# Columns in the order in which they stand unless the caller asks for another.
cdef enum:
    KEY = 0
    VALUE = 1
    OFFSET = 2
    TIMESTAMP = 3
    TIMESTAMP_TYPE = 4
    LEADER_EPOCH = 5
    HEADERS = 6
    COLUMN_COUNT = 7

# Outcomes of append_records beside those of record_batch.
cdef enum:
    COLUMNS_NO_MEMORY = -100
    COLUMNS_TOO_LARGE = -101   # a column of bytes would pass 2 GiB, beyond its 32-bit offsets

# What a column knows of its nulls. The first two need no bitmap, and all null no offsets either.
cdef enum:
    ALL_NULL = 0
    NO_NULLS = 1
    SOME_NULLS = 2

cdef struct BytesColumn:
    replog_block ends          # int32 each: ends[row + 1] is where the bytes of the row end
    replog_block bytes
    replog_block validity      # one bit a row, set = not null; written once nulls are SOME_NULLS
    int64_t used               # bytes
    int64_t null_count         # counted while nulls are SOME_NULLS
    int nulls

cdef struct Columns:
    int wanted                 # bit per column
    bint views                 # values are 16-byte views, not copies
    bint headers_seen          # list ends are written from the first record with headers on
    bint types_seen            # types are written from the first LogAppendTime batch on
    bint header_keys_broken    # one of them is not UTF-8
    int64_t rows
    int64_t capacity           # rows that every fixed-width block has room for
    replog_block offsets
    replog_block timestamps
    replog_block types
    replog_block epochs
    replog_block list_ends     # int32 each
    replog_block value_views
    BytesColumn keys
    BytesColumn values
    int64_t header_rows
    int64_t header_capacity
    BytesColumn header_keys
    BytesColumn header_values

# Room for `rows` rows in all. 0 or COLUMNS_NO_MEMORY.
cdef int reserve_rows(Columns* columns, int64_t rows) noexcept nogil

# Room for value bytes in all; a hint that spares growing. 0 or COLUMNS_NO_MEMORY.
cdef int reserve_value_bytes(Columns* columns, int64_t length) noexcept nogil

# Append the records at payload[0:length) whose offset lies in [start_offset, end_offset). With
# views, values point `view_from` bytes behind the start of the source if that is not negative;
# else, and without views, they are copied. BATCH_OK, damage, or an outcome from above; after a
# failure the columns are fit for clear_columns only.
cdef int append_records(
    Columns* columns, const uint8_t* payload, int64_t length, const BatchHeader* header,
    int64_t start_offset, int64_t end_offset, int64_t view_from
) noexcept nogil

cdef void clear_columns(Columns* columns) noexcept nogil

# Zeros that nobody wrote: shared ones, or the block's where those do not reach; NULL if there is no
# memory.
cdef const void* zeros(replog_block* block, int64_t length) noexcept nogil
