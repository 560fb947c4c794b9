# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Record batches as bytes: header fields, validity, and walks over many batches or many records.

The layout is in `batch_format.pxd`. Nothing here allocates per record or touches a file. Pointers
come with a length, and each read is checked against it first, so that any bytes at all give an
outcome and never a crash.
"""

from libc.limits cimport LLONG_MAX
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from replog._native.batch_format cimport *
from replog._native.crc32c cimport crc32c

import numpy as np

cdef extern from *:
    """
    #define replog_swap16 __builtin_bswap16
    #define replog_swap32 __builtin_bswap32
    #define replog_swap64 __builtin_bswap64
    #define replog_likely(x) __builtin_expect(!!(x), 1)
    """
    uint16_t replog_swap16(uint16_t) noexcept nogil
    uint32_t replog_swap32(uint32_t) noexcept nogil
    uint64_t replog_swap64(uint64_t) noexcept nogil
    bint replog_likely(bint) noexcept nogil

cdef extern from "c/record_batch_walk.h" nogil:
    ctypedef struct replog_short_walk:
        int64_t delta_min
        int64_t delta_max
        int32_t delta_max_number
        int32_t null_keys
    int64_t replog_walk_short(
        const uint8_t* bytes, int64_t at, int64_t length, int32_t count, int32_t* number,
        replog_short_walk* found
    ) noexcept

HEADER_DTYPE = np.dtype(
    [
        ("position", np.int64),
        ("base_offset", np.int64),
        ("last_offset", np.int64),
        ("base_timestamp", np.int64),
        ("max_timestamp", np.int64),
        ("producer_id", np.int64),
        ("size_bytes", np.int32),
        ("leader_epoch", np.int32),
        ("crc", np.uint32),
        ("base_sequence", np.int32),
        ("record_count", np.int32),
        ("attributes", np.int16),
        ("producer_epoch", np.int16),
        ("magic", np.int8),
        ("control_type", np.int8),
        ("outcome", np.int16),
        ("coordinator_epoch", np.int32),
    ],
    align=True,
)
if HEADER_DTYPE.itemsize != sizeof(BatchHeader):
    raise ImportError(
        f"expected a BatchHeader of {HEADER_DTYPE.itemsize} bytes, found {sizeof(BatchHeader)}; "
        f"rebuild the native modules"
    )

cdef int64_t SCAN_CHUNK = 4096

cdef dict PROBLEMS = {
    BATCH_PARTIAL: "the batch runs past the end of the bytes",
    BATCH_BAD_LENGTH: "its length field cannot be that of a v2 batch (at least 49)",
    BATCH_BAD_MAGIC: "its magic byte is not 2",
    BATCH_BAD_CRC: "its CRC-32C does not match its bytes",
    BATCH_BAD_COUNT: "its record count, last offset delta and records disagree",
    BATCH_BAD_RECORD: "a record's lengths do not add up",
    BATCH_BAD_OFFSET: "its offsets are impossible or do not continue those before it",
    BATCH_BAD_CODEC: "its codec is none of none, gzip, snappy, lz4, zstd",
    BATCH_BAD_EPOCH: "its leader epoch is lower than that of the batch before",
    BATCH_NEW_EPOCH: "its leader epoch is higher than any in leader-epoch-checkpoint",
}


cdef int64_t load_int64(const uint8_t* at) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, at, 8)
    return <int64_t> replog_swap64(word)


cdef int32_t load_int32(const uint8_t* at) noexcept nogil:
    cdef uint32_t word
    memcpy(&word, at, 4)
    return <int32_t> replog_swap32(word)


cdef int16_t load_int16(const uint8_t* at) noexcept nogil:
    cdef uint16_t word
    memcpy(&word, at, 2)
    return <int16_t> replog_swap16(word)


cdef void store_int64(uint8_t* at, int64_t number) noexcept nogil:
    cdef uint64_t word = replog_swap64(<uint64_t> number)
    memcpy(at, &word, 8)


cdef void store_int32(uint8_t* at, int32_t number) noexcept nogil:
    cdef uint32_t word = replog_swap32(<uint32_t> number)
    memcpy(at, &word, 4)


cdef void store_int16(uint8_t* at, int16_t number) noexcept nogil:
    cdef uint16_t word = replog_swap16(<uint16_t> number)
    memcpy(at, &word, 2)


cdef inline int64_t take_varint(
    const uint8_t* bytes, int64_t at, int64_t end, int most, int64_t* number
) noexcept nogil:
    cdef uint64_t folded, septet
    cdef int shift, taken
    if replog_likely(at < end and bytes[at] < 0x80):
        folded = bytes[at]
        number[0] = <int64_t> (folded >> 1) ^ -<int64_t> (folded & 1)
        return at + 1
    if replog_likely(at + 1 < end and bytes[at + 1] < 0x80):
        folded = (bytes[at] & 0x7F) | (<uint64_t> bytes[at + 1] << 7)
        number[0] = <int64_t> (folded >> 1) ^ -<int64_t> (folded & 1)
        return at + 2
    folded = 0
    shift = 0
    taken = 0
    while True:
        if at >= end or taken == most:
            return -1
        septet = bytes[at]
        at += 1
        taken += 1
        folded |= (septet & 0x7F) << shift
        shift += 7
        if septet < 0x80:
            break
    number[0] = <int64_t> (folded >> 1) ^ -<int64_t> (folded & 1)
    return at


cdef int64_t read_varint(
    const uint8_t* bytes, int64_t at, int64_t end, int64_t* number
) noexcept nogil:
    return take_varint(bytes, at, end, 10, number)


cdef void read_control_type(const uint8_t* bytes, BatchHeader* header) noexcept nogil:
    cdef int64_t end = header.size_bytes
    cdef int64_t at = RECORDS_AT
    cdef int64_t number = 0
    cdef int64_t length = 0
    header.control_type = -1
    header.coordinator_epoch = -1
    if not header.attributes & CONTROL_BIT or header.attributes & CODEC_MASK:
        return
    at = take_varint(bytes, at, end, 5, &number)
    if at < 0 or at >= end:
        return
    at = take_varint(bytes, at + 1, end, 10, &number)
    if at < 0:
        return
    at = take_varint(bytes, at, end, 5, &number)
    if at < 0:
        return
    at = take_varint(bytes, at, end, 5, &length)
    if at < 0 or length < 4 or length > end - at:
        return
    header.control_type = <int8_t> load_int16(bytes + at + 2)
    at += length
    at = take_varint(bytes, at, end, 5, &length)
    if at < 0 or length < 6 or length > end - at:
        return
    if header.control_type == CONTROL_ABORT or header.control_type == CONTROL_COMMIT:
        header.coordinator_epoch = load_int32(bytes + at + 2)


cdef int parse_header(
    const uint8_t* bytes, int64_t length, int64_t position, BatchHeader* header
) noexcept nogil:
    cdef int32_t batch_length, last_offset_delta
    if length < LOG_OVERHEAD:
        return BATCH_PARTIAL
    batch_length = load_int32(bytes + BATCH_LENGTH_AT)
    if batch_length < HEADER_BYTES - LOG_OVERHEAD or batch_length > 0x7FFFFFFF - LOG_OVERHEAD:
        return BATCH_BAD_LENGTH
    if length - LOG_OVERHEAD < batch_length:
        return BATCH_PARTIAL
    header.position = position
    header.size_bytes = LOG_OVERHEAD + batch_length
    header.base_offset = load_int64(bytes + BASE_OFFSET_AT)
    header.leader_epoch = load_int32(bytes + LEADER_EPOCH_AT)
    header.magic = <int8_t> bytes[MAGIC_AT]
    header.crc = <uint32_t> load_int32(bytes + CRC_AT)
    header.attributes = load_int16(bytes + ATTRIBUTES_AT)
    last_offset_delta = load_int32(bytes + LAST_OFFSET_DELTA_AT)
    header.base_timestamp = load_int64(bytes + BASE_TIMESTAMP_AT)
    header.max_timestamp = load_int64(bytes + MAX_TIMESTAMP_AT)
    header.producer_id = load_int64(bytes + PRODUCER_ID_AT)
    header.producer_epoch = load_int16(bytes + PRODUCER_EPOCH_AT)
    header.base_sequence = load_int32(bytes + BASE_SEQUENCE_AT)
    header.record_count = load_int32(bytes + RECORD_COUNT_AT)
    header.outcome = BATCH_OK
    # The sum is taken unsigned: base_offset is outside the CRC and may be anything at all.
    header.last_offset = <int64_t> (<uint64_t> header.base_offset + <uint64_t> last_offset_delta)
    read_control_type(bytes, header)
    if header.magic != CURRENT_MAGIC:
        return BATCH_BAD_MAGIC
    if header.base_offset < 0 or last_offset_delta < 0 or header.last_offset < 0:
        return BATCH_BAD_OFFSET
    if header.record_count < 0:
        return BATCH_BAD_COUNT
    return BATCH_OK


cdef bint crc_matches(const uint8_t* bytes, const BatchHeader* header) noexcept nogil:
    return crc32c(0, bytes + ATTRIBUTES_AT, header.size_bytes - ATTRIBUTES_AT) == header.crc


cdef int32_t last_sequence(const BatchHeader* header) noexcept nogil:
    cdef int64_t number
    if header.base_sequence == -1:
        return -1
    number = <int64_t> header.base_sequence + (header.last_offset - header.base_offset)
    return <int32_t> (number & 0x7FFFFFFF)


cdef str describe(int outcome):
    return PROBLEMS.get(outcome)


cdef inline int64_t skip_headers(
    const uint8_t* bytes, int64_t at, int64_t end, int64_t count
) noexcept nogil:
    cdef int64_t length = 0
    cdef int64_t _number
    if count > end - at:
        return -1
    for _number in range(count):
        at = take_varint(bytes, at, end, 5, &length)
        if at < 0 or length < 0 or length > end - at:
            return -1
        at = take_varint(bytes, at + length, end, 5, &length)
        if at < 0 or length > end - at:
            return -1
        if length > 0:
            at += length
    return at


cdef int walk_one(
    const uint8_t* bytes, int64_t length, int64_t* at, int64_t* timestamp_delta,
    int64_t* offset_delta, bint* null_key
) noexcept nogil:
    """The record at bytes[*at:length]; *at moves behind it."""
    cdef int64_t place, end, size = 0, key_length = 0, value_length = 0, header_count = 0
    place = take_varint(bytes, at[0], length, 5, &size)
    if place < 0 or size <= 0 or size > length - place:
        return BATCH_BAD_RECORD
    end = place + size
    place = take_varint(bytes, place + 1, end, 10, timestamp_delta)
    if place < 0:
        return BATCH_BAD_RECORD
    place = take_varint(bytes, place, end, 5, offset_delta)
    if place < 0:
        return BATCH_BAD_RECORD
    place = take_varint(bytes, place, end, 5, &key_length)
    if place < 0 or key_length > end - place:
        return BATCH_BAD_RECORD
    null_key[0] = key_length < 0
    place += max(key_length, 0)
    place = take_varint(bytes, place, end, 5, &value_length)
    if place < 0 or value_length > end - place:
        return BATCH_BAD_RECORD
    place += max(value_length, 0)
    place = take_varint(bytes, place, end, 5, &header_count)
    if place < 0 or header_count < 0:
        return BATCH_BAD_RECORD
    if skip_headers(bytes, place, end, header_count) != end:
        return BATCH_BAD_RECORD
    at[0] = end
    return BATCH_OK


cdef int32_t walk_usual(
    const uint8_t* bytes, int64_t length, int32_t count, int64_t base_timestamp, int64_t* at,
    RecordsSummary* summary
) noexcept nogil:
    """Records of the usual shape at the start; how many there were, 0 to take the general way."""
    cdef replog_short_walk walked
    cdef int32_t number = 0
    # Near the ends of int64 the sums below may wrap.
    if not -LLONG_MAX // 2 < base_timestamp < LLONG_MAX // 2:
        return 0
    at[0] = replog_walk_short(bytes, 0, length, count, &number, &walked)
    # -1 is "no timestamp" and not the least of them; that it is here at all is rare enough.
    if number == 0 or (
        base_timestamp + walked.delta_min <= -1 <= base_timestamp + walked.delta_max
    ):
        at[0] = 0
        return 0
    summary.null_keys = walked.null_keys
    if base_timestamp + walked.delta_max > summary.max_timestamp:
        summary.max_timestamp = base_timestamp + walked.delta_max
        summary.max_timestamp_delta = walked.delta_max_number
    summary.min_timestamp = base_timestamp + walked.delta_min
    return number


cdef int walk_records(
    const uint8_t* bytes, int64_t length, int32_t count, int64_t base_timestamp,
    int32_t last_offset_delta, RecordsSummary* summary
) noexcept nogil:
    cdef int64_t at = 0, timestamp_delta = 0, offset_delta = 0, timestamp, previous
    cdef bint null_key = False
    cdef int32_t number
    summary.max_timestamp = -1
    summary.min_timestamp = LLONG_MAX
    summary.max_timestamp_delta = last_offset_delta
    summary.null_keys = 0
    summary.consecutive = True
    number = walk_usual(bytes, length, count, base_timestamp, &at, summary)
    previous = number - 1
    if previous > last_offset_delta:
        return BATCH_BAD_COUNT
    while number < count:
        if walk_one(
            bytes, length, &at, &timestamp_delta, &offset_delta, &null_key
        ) != BATCH_OK:
            return BATCH_BAD_RECORD
        if offset_delta <= previous or offset_delta > last_offset_delta:
            return BATCH_BAD_COUNT
        summary.null_keys += null_key
        if offset_delta != number:
            summary.consecutive = False
        previous = offset_delta
        timestamp = <int64_t> (<uint64_t> base_timestamp + <uint64_t> timestamp_delta)
        if timestamp > summary.max_timestamp:
            summary.max_timestamp = timestamp
            summary.max_timestamp_delta = offset_delta
        if timestamp < summary.min_timestamp and timestamp != -1:
            summary.min_timestamp = timestamp
        number += 1
    return BATCH_OK if at == length else BATCH_BAD_COUNT


cdef int scan_batches(
    const uint8_t* bytes, int64_t length, int64_t position, bint check_crc, bint lenient,
    int64_t previous_last, int32_t previous_epoch,
    BatchHeader* headers, int64_t limit, int64_t* count, int64_t* end
) noexcept nogil:
    cdef int64_t at = 0
    cdef int64_t found = 0
    cdef int outcome = BATCH_OK
    cdef BatchHeader* header
    while at < length and found < limit:
        header = headers + found
        outcome = parse_header(bytes + at, length - at, position + at, header)
        if outcome == BATCH_PARTIAL or outcome == BATCH_BAD_LENGTH:
            break
        if outcome == BATCH_OK:
            if header.base_offset <= previous_last:
                outcome = BATCH_BAD_OFFSET
            elif header.leader_epoch < previous_epoch:
                outcome = BATCH_BAD_EPOCH
            elif check_crc and not crc_matches(bytes + at, header):
                outcome = BATCH_BAD_CRC
        if outcome != BATCH_OK:
            if not lenient or 0 <= header.magic < CURRENT_MAGIC:
                break
            header.outcome = <int16_t> outcome
            outcome = BATCH_OK
        previous_last = header.last_offset
        previous_epoch = header.leader_epoch
        at += header.size_bytes
        found += 1
    count[0] = found
    end[0] = at
    return outcome


cdef int64_t find_whole(
    const uint8_t* bytes, int64_t length, int64_t least, int64_t most
) noexcept nogil:
    cdef int64_t at
    # What is summed for nothing is bounded: crafted bytes may look like a header everywhere.
    cdef int64_t patience = 16 * length
    cdef BatchHeader header
    for at in range(length - HEADER_BYTES + 1):
        if bytes[at + MAGIC_AT] != CURRENT_MAGIC or parse_header(
            bytes + at, length - at, at, &header
        ) != BATCH_OK or header.base_offset < least or header.base_offset > most:
            continue
        patience -= header.size_bytes
        if patience < 0 or crc_matches(bytes + at, &header):
            return at
    return -1


class Scan:
    """Outcome of `scan`: the batches found and why the walk ended.

    headers: ndarray of HEADER_DTYPE, shape (batches,). end: place in the buffer behind the last
    one.
    outcome: 0 all walked (or limit reached), 1 a partial batch follows, < 0 damage follows.
    problem: the damage as a clause, None if outcome is 0.
    """

    __slots__ = ("end", "headers", "outcome", "problem")

    def __init__(self, headers, end, outcome):
        self.headers = headers
        self.end = end
        self.outcome = outcome
        self.problem = PROBLEMS.get(outcome)


def scan(
    buffer not None, *, int64_t start=0, stop=None, bint check_crc=True,
    int64_t position=0, int64_t limit=1_000_000, bint lenient=False,
):
    """Walk the batches of buffer[start:stop) and return their headers.

    The `position` of a header is `position` plus its place in the buffer. Damage ends the walk and
    is told in the Scan, not raised. `lenient` goes on past anything but an impossible length, as
    Kafka's own file walk does, and leaves the damage in the header's `outcome`.
    """
    # Cast, for a buffer of signed bytes (pyarrow's) is as good as one of unsigned ones.
    cdef const uint8_t[::1] content = memoryview(buffer).cast("B")
    cdef int64_t size_bytes = content.shape[0]
    cdef int64_t length = size_bytes if stop is None else min(<int64_t> stop, size_bytes)
    cdef int64_t at = start
    cdef int64_t found, end, room, total = 0
    cdef int outcome = BATCH_OK
    cdef const uint8_t* bytes
    cdef BatchHeader[::1] headers
    cdef int64_t previous_last = -1
    cdef int32_t previous_epoch = -1
    chunks = []
    while at < length and total < limit and start >= 0:
        room = min(SCAN_CHUNK, limit - total)
        chunk = np.empty(room, dtype=HEADER_DTYPE)
        headers = chunk
        bytes = &content[at]
        with nogil:
            outcome = scan_batches(
                bytes, length - at, position + at, check_crc, lenient, previous_last,
                previous_epoch, &headers[0], room, &found, &end,
            )
        chunks.append(chunk[:found])
        at += end
        total += found
        if found:
            previous_last = headers[found - 1].last_offset
            previous_epoch = headers[found - 1].leader_epoch
        if outcome != BATCH_OK or found < room:
            break
    if len(chunks) == 1:
        found_headers = chunks[0]
    else:
        found_headers = np.concatenate(chunks) if chunks else np.empty(0, dtype=HEADER_DTYPE)
    return Scan(found_headers, at, outcome)
