# Every byte position of a RecordBatch v2 (magic 2), big-endian. Constants only.
#
#   0        8      12     16 17   21 23   27        35        43        51 53   57   61
#   +--------+------+------+--+----+--+----+---------+---------+---------+--+----+----+---------
#   | base   |batch |leader|m |crc |at|last| base    | max     |producer |pe|base|rec.| records
#   | offset |length|epoch |ag|32c |tr|offs| time-   | time-   |id       |po|seq.|co- | plain or
#   | i64    |i32   |i32   |i8|u32 |16|d32 | stamp   | stamp   |i64      |16|i32 |unt | one blob
#   +--------+------+------+--+----+--+----+---------+---------+---------+--+----+----+---------
#                                  |<--------------- covered by the CRC ----------------------->
#
# batch_length counts the bytes behind itself: the whole batch is LOG_OVERHEAD + batch_length long.
# base_offset and leader_epoch lie outside the CRC, so a leader stamps them without re-checksumming.

cdef enum:
    BASE_OFFSET_AT = 0
    BATCH_LENGTH_AT = 8
    LEADER_EPOCH_AT = 12
    MAGIC_AT = 16
    CRC_AT = 17
    ATTRIBUTES_AT = 21
    LAST_OFFSET_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    PRODUCER_ID_AT = 43
    PRODUCER_EPOCH_AT = 51
    BASE_SEQUENCE_AT = 53
    RECORD_COUNT_AT = 57
    RECORDS_AT = 61

    LOG_OVERHEAD = 12          # base_offset and batch_length
    HEADER_BYTES = 61          # smallest whole batch
    RECORD_OVERHEAD_MAX = 21   # most bytes a record adds to its key, value and headers

    CURRENT_MAGIC = 2

    CODEC_MASK = 0x07
    CODEC_NONE = 0
    CODEC_GZIP = 1
    CODEC_SNAPPY = 2
    CODEC_LZ4 = 3
    CODEC_ZSTD = 4
    LOG_APPEND_TIME_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20
    DELETE_HORIZON_BIT = 0x40

    CONTROL_ABORT = 0
    CONTROL_COMMIT = 1
