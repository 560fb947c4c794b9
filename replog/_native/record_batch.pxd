# One record batch as bytes: header fields, validity, stamping, and walks over many of them.
# Nothing here allocates per record. All pointers come with a length, and every read is checked
# against it before it is made.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

# Outcome of parsing or checking one batch; anything below 0 is damage.
cdef enum:
    BATCH_OK = 0
    BATCH_PARTIAL = 1          # fewer bytes left than the batch (or its header) needs
    BATCH_BAD_LENGTH = -1      # batch_length cannot be that of a v2 batch
    BATCH_BAD_MAGIC = -2
    BATCH_BAD_CRC = -3
    BATCH_BAD_COUNT = -4       # record_count, last_offset_delta and the records disagree
    BATCH_BAD_RECORD = -5      # a record's lengths or varints do not add up
    BATCH_BAD_OFFSET = -6      # base_offset or last_offset_delta impossible, or against the chain
    BATCH_BAD_CODEC = -7
    BATCH_BAD_EPOCH = -8       # leader_epoch falls along the log
    BATCH_NEW_EPOCH = -9       # leader_epoch is none that was on disk before its first batch

cdef struct BatchHeader:
    int64_t position           # byte place of the batch in its file or buffer
    int64_t base_offset
    int64_t last_offset        # inclusive
    int64_t base_timestamp     # ms; the delete horizon where DELETE_HORIZON_BIT is set
    int64_t max_timestamp      # ms, -1 for none
    int64_t producer_id        # -1 for none
    int32_t size_bytes         # whole batch: LOG_OVERHEAD + batch_length
    int32_t leader_epoch
    uint32_t crc
    int32_t base_sequence      # -1 for none
    int32_t record_count
    int16_t attributes
    int16_t producer_epoch
    int8_t magic
    int8_t control_type        # of the first record of a control batch; -1 otherwise
    int16_t outcome            # BATCH_OK, or why a lenient walk would have stopped here
    int32_t coordinator_epoch  # of an end-of-transaction marker; -1 otherwise

cdef int64_t load_int64(const uint8_t* at) noexcept nogil
cdef int32_t load_int32(const uint8_t* at) noexcept nogil
cdef int16_t load_int16(const uint8_t* at) noexcept nogil
cdef void store_int64(uint8_t* at, int64_t number) noexcept nogil
cdef void store_int32(uint8_t* at, int32_t number) noexcept nogil
cdef void store_int16(uint8_t* at, int16_t number) noexcept nogil

# Header of the batch at bytes[0:length]; position is only copied into it. Does not check the CRC.
cdef int parse_header(
    const uint8_t* bytes, int64_t length, int64_t position, BatchHeader* header
) noexcept nogil

# Zigzag varint at bytes[at:end]; returns the position behind it, or -1 if it is cut or too long.
cdef int64_t read_varint(
    const uint8_t* bytes, int64_t at, int64_t end, int64_t* number
) noexcept nogil

cdef bint crc_matches(const uint8_t* bytes, const BatchHeader* header) noexcept nogil
cdef int32_t last_sequence(const BatchHeader* header) noexcept nogil
cdef str describe(int outcome)

# Place of the first whole batch of bytes[0:length], its CRC right, with base_offset in [least,
# most]; -1 if there is none. Finds batches behind damage, where no length leads to them.
cdef int64_t find_whole(
    const uint8_t* bytes, int64_t length, int64_t least, int64_t most
) noexcept nogil

# What a walk over the records of one batch found.
cdef struct RecordsSummary:
    int64_t min_timestamp      # over records that have one; INT64_MAX if none has
    int64_t max_timestamp      # over all records; -1 if none has one
    int64_t max_timestamp_delta  # offset delta of the first record with max_timestamp
    int32_t null_keys
    bint consecutive           # offset deltas are exactly 0, 1, 2, ...

# Walk `count` plain (decompressed) records at bytes[0:length]; every length is checked.
cdef int walk_records(
    const uint8_t* bytes, int64_t length, int32_t count, int64_t base_timestamp,
    int32_t last_offset_delta, RecordsSummary* summary
) noexcept nogil

# Walk the batches of bytes[0:length], writing at most `limit` headers. Stops before the first batch
# that is partial, damaged or breaks the chain (base offsets grow, epochs do not fall); `lenient`
# only stops where the next batch cannot be found. *end is the place behind the last one written.
# previous_last / previous_epoch: of the batch before, -1 for none.
cdef int scan_batches(
    const uint8_t* bytes, int64_t length, int64_t position, bint check_crc, bint lenient,
    int64_t previous_last, int32_t previous_epoch,
    BatchHeader* headers, int64_t limit, int64_t* count, int64_t* end
) noexcept nogil
