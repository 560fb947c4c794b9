# One record of a batch as places in its bytes. Inline, so that a caller's loop stays free of calls.
#
#   length varint | attributes i8 | timestamp delta varlong | offset delta varint |
#   key length varint, key | value length varint, value | header count varint, headers
#
# All pointers are checked against `end` before a byte is read; a length is compared with what is
# left, never added first, so that no length can overflow. A negative key or value length is null.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from *:
    """
    #define replog_walk_likely(x) __builtin_expect(!!(x), 1)
    """
    bint likely "replog_walk_likely" (bint) noexcept nogil

cdef struct RecordView:
    int64_t timestamp_delta
    int64_t offset_delta
    const uint8_t* key
    int64_t key_length         # negative: null
    const uint8_t* value
    int64_t value_length       # negative: null
    const uint8_t* headers     # first byte of the first header
    int64_t header_count
    const uint8_t* end         # first byte behind the record

cdef struct HeaderView:
    const uint8_t* key
    int64_t key_length         # never negative
    const uint8_t* value
    int64_t value_length       # negative: null


# Zigzag varint of at most `most` bytes at [at, end): the byte behind it, or NULL. Five bytes that
# carry more than 32 bits lose the surplus, as in Kafka's reader.
cdef inline const uint8_t* long_varint(
    const uint8_t* at, const uint8_t* end, int most, int64_t* number
) noexcept nogil:
    cdef uint64_t folded = 0
    cdef int taken = 0
    while True:
        if at >= end or taken == most:
            return NULL
        folded |= <uint64_t> (at[0] & 0x7F) << (7 * taken)
        taken += 1
        at += 1
        if at[-1] < 0x80:
            break
    if most == 5:
        folded = <uint32_t> folded
    number[0] = <int64_t> (folded >> 1) ^ -<int64_t> (folded & 1)
    return at


cdef inline const uint8_t* next_varint(
    const uint8_t* at, const uint8_t* end, int most, int64_t* number
) noexcept nogil:
    cdef uint32_t folded
    if likely(end - at >= 2):
        folded = at[0]
        if likely(folded < 0x80):
            number[0] = <int64_t> (folded >> 1) ^ -<int64_t> (folded & 1)
            return at + 1
        if likely(at[1] < 0x80):
            folded = (folded & 0x7F) | (<uint32_t> at[1] << 7)
            number[0] = <int64_t> (folded >> 1) ^ -<int64_t> (folded & 1)
            return at + 2
    return long_varint(at, end, most, number)


# The header at [at, end): the byte behind it, or NULL where its lengths do not add up.
cdef inline const uint8_t* next_header(
    const uint8_t* at, const uint8_t* end, HeaderView* header
) noexcept nogil:
    at = next_varint(at, end, 5, &header.key_length)
    if at == NULL or header.key_length < 0 or header.key_length > end - at:
        return NULL
    header.key = at
    at = next_varint(at + header.key_length, end, 5, &header.value_length)
    if at == NULL or header.value_length > end - at:
        return NULL
    header.value = at
    return at + header.value_length if header.value_length > 0 else at


cdef inline const uint8_t* any_record(
    const uint8_t* at, const uint8_t* end, RecordView* record
) noexcept nogil:
    cdef int64_t size = 0
    cdef int64_t _number
    cdef HeaderView header
    at = next_varint(at, end, 5, &size)
    if at == NULL or size < 1 or size > end - at:
        return NULL
    end = at + size
    record.end = end
    at = next_varint(at + 1, end, 10, &record.timestamp_delta)
    if at == NULL:
        return NULL
    at = next_varint(at, end, 5, &record.offset_delta)
    if at == NULL:
        return NULL
    at = next_varint(at, end, 5, &record.key_length)
    if at == NULL or record.key_length > end - at:
        return NULL
    record.key = at
    if record.key_length > 0:
        at += record.key_length
    at = next_varint(at, end, 5, &record.value_length)
    if at == NULL or record.value_length > end - at:
        return NULL
    record.value = at
    if record.value_length > 0:
        at += record.value_length
    at = next_varint(at, end, 5, &record.header_count)
    if at == NULL or record.header_count < 0 or record.header_count > end - at:
        return NULL
    record.headers = at
    for _number in range(record.header_count):
        at = next_header(at, end, &header)
        if at == NULL:
            return NULL
    return end if at == end else NULL


# Unsigned varint of one or two bytes, both of which the caller may read: how many; 0 for longer.
cdef inline int short_varint(const uint8_t* at, uint32_t* folded) noexcept nogil:
    cdef uint32_t first = at[0]
    if likely(first < 0x80):
        folded[0] = first
        return 1
    folded[0] = (first & 0x7F) | (<uint32_t> at[1] << 7)
    return 2 if likely(at[1] < 0x80) else 0


# A record of the usual shape: no field before the value longer than two bytes, no headers, not at
# the end of the batch. NULL for any other, sound or not; nothing is read past `end`.
cdef inline const uint8_t* usual_record(
    const uint8_t* at, const uint8_t* end, RecordView* record
) noexcept nogil:
    cdef uint32_t folded
    cdef const uint8_t* record_end
    cdef int taken
    # Length, attributes, both deltas and the key's length: nine bytes at most.
    if not likely(end - at >= 16):
        return NULL
    taken = short_varint(at, &folded)
    at += taken
    if not likely(taken and not folded & 1 and folded >> 1 <= end - at):
        return NULL
    record_end = at + (folded >> 1)
    at += 1
    taken = short_varint(at, &folded)
    if not likely(taken):
        return NULL
    record.timestamp_delta = <int64_t> (folded >> 1) ^ -<int64_t> (folded & 1)
    at += taken
    taken = short_varint(at, &folded)
    if not likely(taken and not folded & 1):
        return NULL
    record.offset_delta = folded >> 1
    at += taken
    taken = short_varint(at, &folded)
    if not likely(taken):
        return NULL
    at += taken
    record.key = at
    record.key_length = -1
    if not folded & 1:
        record.key_length = folded >> 1
        at += folded >> 1
    # The value's length and the header count follow: two bytes at least, so two can be read.
    if not likely(record_end - at >= 2):
        return NULL
    taken = short_varint(at, &folded)
    if not likely(taken):
        return NULL
    at += taken
    record.value = at
    record.value_length = -1
    if not folded & 1:
        record.value_length = folded >> 1
        at += folded >> 1
    if not likely(at == record_end - 1 and at[0] == 0):
        return NULL
    record.header_count = 0
    record.headers = record_end
    record.end = record_end
    return record_end


# The record at [at, end): the byte behind it, or NULL where its lengths do not add up. Headers are
# walked here once, so that next_header() on them cannot fail later.
cdef inline const uint8_t* next_record(
    const uint8_t* at, const uint8_t* end, RecordView* record
) noexcept nogil:
    cdef RecordView view       # its address stays here, so that the caller's can live in registers
    cdef const uint8_t* behind = usual_record(at, end, record)
    if likely(behind != NULL):
        return behind
    behind = any_record(at, end, &view)
    if behind != NULL:
        record[0] = view
    return behind
