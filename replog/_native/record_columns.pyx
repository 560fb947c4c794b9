# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Columns of decoded records, grown batch by batch without the GIL in Arrow's own layout.

A column of bytes is what Arrow's binary type is: 32-bit ends, bytes, a validity bitmap. What need
not be written is not: an all-null column has no ends (shared zeros stand in), one without nulls no
bitmap, records without headers no list. Memory comes from recycled blocks
(`c/record_columns_blocks.h`) and goes back when Arrow drops the last column of the batch.

Bounds: `reserve_rows` and the reservations at the head of `append_records` make room for the whole
batch before its first record is read, so the loop over records only ever writes inside them.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from replog._native.batch_format cimport LOG_APPEND_TIME_BIT
from replog._native.record_batch cimport (
    BATCH_BAD_COUNT, BATCH_BAD_RECORD, BATCH_OK, BatchHeader,
)
from replog._native.record_walk cimport (
    HeaderView, RecordView, likely, next_header, next_record,
)

cdef enum:
    RECORD_BYTES_MIN = 7       # seven one-byte fields: nothing in it
    SLACK = 64                 # copies may write this far behind the last byte
    INT32_MAX = 0x7FFFFFFF
    VIEW_BYTES = 16
    VIEW_INLINE_MAX = 12       # shorter values live in the view itself


# ---- growing -------------------------------------------------------------------------------------

cdef bint wants(const Columns* columns, int column) noexcept nogil:
    return (columns.wanted >> column) & 1


cdef int reserve_ends(BytesColumn* column, int64_t rows, int64_t used_rows) noexcept nogil:
    """Ends and bitmap for `rows` rows, of which `used_rows` are written."""
    cdef int64_t zeroed = column.validity.capacity
    if replog_block_reserve(&column.ends, 4 * (rows + 1), 4 * (used_rows + 1)):
        return COLUMNS_NO_MEMORY
    if replog_block_reserve(&column.validity, rows // 8 + 8, zeroed):
        return COLUMNS_NO_MEMORY
    if column.nulls == SOME_NULLS and column.validity.capacity > zeroed:
        memset(column.validity.at + zeroed, 0, column.validity.capacity - zeroed)
    return BATCH_OK


cdef int reserve_rows(Columns* columns, int64_t rows) noexcept nogil:
    cdef int64_t used = columns.rows
    cdef bint failed = False
    if rows <= columns.capacity:
        return BATCH_OK
    if columns.capacity > 0 and rows < 2 * columns.capacity:
        rows = 2 * columns.capacity
    if wants(columns, OFFSET):
        failed |= replog_block_reserve(&columns.offsets, 8 * rows, 8 * used) != 0
    if wants(columns, TIMESTAMP):
        failed |= replog_block_reserve(&columns.timestamps, 8 * rows, 8 * used) != 0
    if wants(columns, TIMESTAMP_TYPE):
        failed |= replog_block_reserve(&columns.types, rows, used) != 0
    if wants(columns, LEADER_EPOCH):
        failed |= replog_block_reserve(&columns.epochs, 4 * rows, 4 * used) != 0
    if wants(columns, KEY):
        failed |= reserve_ends(&columns.keys, rows, used) != 0
    if wants(columns, VALUE):
        failed |= reserve_ends(&columns.values, rows, used) != 0
        if columns.views:
            failed |= replog_block_reserve(
                &columns.value_views, VIEW_BYTES * rows, VIEW_BYTES * used
            ) != 0
    if wants(columns, HEADERS):
        failed |= replog_block_reserve(&columns.list_ends, 4 * (rows + 1), 4 * (used + 1)) != 0
    if failed:
        return COLUMNS_NO_MEMORY
    columns.capacity = rows
    return BATCH_OK


cdef int reserve_bytes(BytesColumn* column, int64_t more) noexcept nogil:
    if column.used + more > INT32_MAX:
        return COLUMNS_TOO_LARGE
    if replog_block_reserve(&column.bytes, column.used + more + SLACK, column.used):
        return COLUMNS_NO_MEMORY
    return BATCH_OK


cdef int reserve_value_bytes(Columns* columns, int64_t length) noexcept nogil:
    if wants(columns, VALUE) and length <= INT32_MAX:
        return reserve_bytes(&columns.values, length)
    return BATCH_OK


cdef int reserve_headers(Columns* columns, int64_t count, int64_t length) noexcept nogil:
    """Room for one record's `count` headers, which take `length` bytes in it."""
    cdef int64_t rows = columns.header_rows + count
    cdef int outcome = reserve_bytes(&columns.header_keys, length)
    if outcome == BATCH_OK:
        outcome = reserve_bytes(&columns.header_values, length)
    if outcome != BATCH_OK or rows <= columns.header_capacity:
        return outcome
    if rows < 2 * columns.header_capacity:
        rows = 2 * columns.header_capacity
    outcome = reserve_ends(&columns.header_keys, rows, columns.header_rows)
    if outcome == BATCH_OK:
        outcome = reserve_ends(&columns.header_values, rows, columns.header_rows)
    if outcome == BATCH_OK:
        columns.header_capacity = rows
    return outcome


# ---- writing one record --------------------------------------------------------------------------

cdef void first_value(BytesColumn* column, int64_t row) noexcept nogil:
    """A value in a column that held only nulls."""
    if row == 0:
        column.nulls = NO_NULLS
        (<int32_t*> column.ends.at)[0] = 0
        return
    memset(column.ends.at, 0, 4 * (row + 1))
    memset(column.validity.at, 0, column.validity.capacity)
    column.nulls = SOME_NULLS
    column.null_count = row


cdef void put_null(BytesColumn* column, int64_t row) noexcept nogil:
    cdef int64_t whole = row >> 3
    if column.nulls == ALL_NULL:
        return
    if column.nulls == NO_NULLS:
        memset(column.validity.at, 0xFF, whole)
        memset(column.validity.at + whole, 0, column.validity.capacity - whole)
        column.validity.at[whole] = <uint8_t> ((1 << (row & 7)) - 1)
        column.nulls = SOME_NULLS
    column.null_count += 1
    (<int32_t*> column.ends.at)[row + 1] = <int32_t> column.used


cdef inline void mark_value(BytesColumn* column, int64_t row) noexcept nogil:
    if likely(column.nulls == NO_NULLS):
        return
    if column.nulls == ALL_NULL:
        first_value(column, row)
    if column.nulls == SOME_NULLS:
        column.validity.at[row >> 3] |= <uint8_t> (1 << (row & 7))


cdef inline void copy_bytes(
    uint8_t* to, const uint8_t* source, int64_t length, const uint8_t* source_end
) noexcept nogil:
    """Copy by 32 bytes where both sides have the room to overshoot: no call for a short value."""
    if likely(length <= 512 and source_end - source >= length + 32):
        while length > 0:
            memcpy(to, source, 32)
            to += 32
            source += 32
            length -= 32
    else:
        memcpy(to, source, length)


cdef inline void put_bytes(
    BytesColumn* column, int64_t row, const uint8_t* source, int64_t length,
    const uint8_t* source_end
) noexcept nogil:
    cdef int64_t used = column.used
    if likely(length >= 0):
        mark_value(column, row)
        copy_bytes(column.bytes.at + used, source, length, source_end)
        used += length
        column.used = used
        (<int32_t*> column.ends.at)[row + 1] = <int32_t> used
    else:
        put_null(column, row)


cdef inline void put_view(
    Columns* columns, int64_t row, const uint8_t* value, int64_t length, const uint8_t* payload,
    const uint8_t* payload_end, int64_t view_from
) noexcept nogil:
    cdef uint8_t* view = columns.value_views.at + VIEW_BYTES * row
    cdef int32_t parts[4]
    cdef BytesColumn* values = &columns.values
    if length < 0:
        memset(view, 0, VIEW_BYTES)
        put_null(values, row)
        return
    mark_value(values, row)
    parts[0] = <int32_t> length
    if length <= VIEW_INLINE_MAX:
        parts[1] = parts[2] = parts[3] = 0
        memcpy(&parts[1], value, length)
    else:
        memcpy(&parts[1], value, 4)
        if view_from >= 0:
            parts[2] = 0
            parts[3] = <int32_t> (view_from + (value - payload))
        else:
            parts[2] = 1
            parts[3] = <int32_t> values.used
            copy_bytes(values.bytes.at + values.used, value, length, payload_end)
            values.used += length
    memcpy(view, parts, VIEW_BYTES)


cdef bint is_utf8(const uint8_t* at, int64_t length) noexcept nogil:
    """As Unicode 15 table 3-7 has it: no overlong form, no surrogate, nothing past U+10FFFF."""
    cdef const uint8_t* end = at + length
    cdef int more
    cdef uint8_t low, high
    while at < end:
        if at[0] < 0x80:
            at += 1
            continue
        if at[0] < 0xC2 or at[0] > 0xF4:
            return False
        more = 1 if at[0] < 0xE0 else 2 if at[0] < 0xF0 else 3
        low = 0xA0 if at[0] == 0xE0 else 0x90 if at[0] == 0xF0 else 0x80
        high = 0x9F if at[0] == 0xED else 0x8F if at[0] == 0xF4 else 0xBF
        if end - at <= more or at[1] < low or at[1] > high:
            return False
        at += 2
        while more > 1:
            if (at[0] & 0xC0) != 0x80:
                return False
            at += 1
            more -= 1
    return True


cdef int put_headers(
    Columns* columns, int64_t row, int64_t count, const uint8_t* at, const uint8_t* end,
    const uint8_t* payload_end
) noexcept nogil:
    """The `count` headers at [at, end) of one record."""
    cdef int32_t* ends = <int32_t*> columns.list_ends.at
    cdef HeaderView header
    cdef int64_t _number
    cdef int outcome = reserve_headers(columns, count, end - at)
    if outcome != BATCH_OK:
        return outcome
    if not columns.headers_seen:
        memset(ends, 0, 4 * (row + 1))
        columns.headers_seen = True
    for _number in range(count):
        at = next_header(at, end, &header)
        if at == NULL:
            return BATCH_BAD_RECORD
        if not is_utf8(header.key, header.key_length):
            columns.header_keys_broken = True
        put_bytes(
            &columns.header_keys, columns.header_rows, header.key, header.key_length, payload_end
        )
        put_bytes(
            &columns.header_values, columns.header_rows, header.value, header.value_length,
            payload_end,
        )
        columns.header_rows += 1
    if columns.header_rows > INT32_MAX:
        return COLUMNS_TOO_LARGE
    ends[row + 1] = <int32_t> columns.header_rows
    return BATCH_OK


# ---- one batch -----------------------------------------------------------------------------------

cdef int reserve_batch(
    Columns* columns, int64_t length, const BatchHeader* header, int64_t view_from
) noexcept nogil:
    """Room for all that the batch can hold; refuses a count that its bytes cannot."""
    cdef int64_t content = length - RECORD_BYTES_MIN * <int64_t> header.record_count
    cdef int outcome
    if content < 0:
        return BATCH_BAD_COUNT
    outcome = reserve_rows(columns, columns.rows + header.record_count)
    if outcome == BATCH_OK and wants(columns, KEY):
        outcome = reserve_bytes(&columns.keys, content)
    if outcome == BATCH_OK and wants(columns, VALUE) and not (columns.views and view_from >= 0):
        outcome = reserve_bytes(&columns.values, content)
    if view_from > INT32_MAX - length:
        outcome = COLUMNS_TOO_LARGE
    return outcome


cdef void put_constants(Columns* columns, int64_t first, const BatchHeader* header) noexcept nogil:
    """Leader epoch and timestamp type of the rows from `first` on, all of one batch."""
    cdef int64_t rows = columns.rows
    cdef int32_t* epochs = <int32_t*> columns.epochs.at
    cdef bint append_time = (header.attributes & LOG_APPEND_TIME_BIT) != 0
    cdef int64_t row
    if rows == first:
        return   # maybe before any block is allocated
    if wants(columns, LEADER_EPOCH):
        for row in range(first, rows):
            epochs[row] = header.leader_epoch
    if not wants(columns, TIMESTAMP_TYPE):
        return
    if append_time and not columns.types_seen:
        memset(columns.types.at, 0, first)
        columns.types_seen = True
    if columns.types_seen:
        memset(columns.types.at + first, append_time, rows - first)


cdef int append_records(
    Columns* columns, const uint8_t* payload, int64_t length, const BatchHeader* header,
    int64_t start_offset, int64_t end_offset, int64_t view_from
) noexcept nogil:
    cdef const uint8_t* at = payload
    cdef const uint8_t* end = payload + length
    cdef bint append_time = (header.attributes & LOG_APPEND_TIME_BIT) != 0
    cdef bint wants_value = wants(columns, VALUE)
    cdef bint wants_key = wants(columns, KEY)
    cdef bint wants_headers = wants(columns, HEADERS)
    cdef int64_t span = header.last_offset - header.base_offset
    cdef int64_t previous = -1
    cdef uint64_t base_timestamp = <uint64_t> header.base_timestamp
    cdef int64_t first = columns.rows
    cdef int64_t row = first
    cdef int64_t offset, timestamp
    cdef int64_t* offsets
    cdef int64_t* timestamps
    cdef int32_t _number
    cdef RecordView record
    cdef int outcome = reserve_batch(columns, length, header, view_from)
    if outcome != BATCH_OK:
        return outcome
    offsets = <int64_t*> columns.offsets.at
    timestamps = <int64_t*> columns.timestamps.at
    for _number in range(header.record_count):
        at = next_record(at, end, &record)
        if at == NULL:
            return BATCH_BAD_RECORD
        if record.offset_delta <= previous or record.offset_delta > span:
            return BATCH_BAD_COUNT
        previous = record.offset_delta
        offset = header.base_offset + record.offset_delta
        if offset < start_offset or offset >= end_offset:
            continue
        if offsets != NULL:
            offsets[row] = offset
        if timestamps != NULL:
            # Unsigned: a hostile sum wraps, and is what its bytes say.
            timestamp = <int64_t> (base_timestamp + <uint64_t> record.timestamp_delta)
            timestamps[row] = header.max_timestamp if append_time else timestamp
        if wants_key:
            put_bytes(&columns.keys, row, record.key, record.key_length, end)
        if wants_value:
            if columns.views:
                put_view(
                    columns, row, record.value, record.value_length, payload, end, view_from
                )
            else:
                put_bytes(&columns.values, row, record.value, record.value_length, end)
        if wants_headers:
            if record.header_count:
                outcome = put_headers(
                    columns, row, record.header_count, record.headers, record.end, end
                )
                if outcome != BATCH_OK:
                    return outcome
            elif columns.headers_seen:
                (<int32_t*> columns.list_ends.at)[row + 1] = <int32_t> columns.header_rows
        row += 1
    columns.rows = row
    put_constants(columns, first, header)
    return BATCH_OK if at == end else BATCH_BAD_COUNT


cdef void clear_bytes(BytesColumn* column) noexcept nogil:
    # The big one first: what does not fit on the free list is then the small ones.
    replog_block_release(&column.bytes)
    replog_block_release(&column.ends)
    replog_block_release(&column.validity)


cdef void clear_columns(Columns* columns) noexcept nogil:
    clear_bytes(&columns.values)
    clear_bytes(&columns.keys)
    replog_block_release(&columns.value_views)
    replog_block_release(&columns.offsets)
    replog_block_release(&columns.timestamps)
    replog_block_release(&columns.epochs)
    replog_block_release(&columns.types)
    replog_block_release(&columns.list_ends)
    clear_bytes(&columns.header_keys)
    clear_bytes(&columns.header_values)
    memset(columns, 0, sizeof(Columns))


cdef const void* zeros(replog_block* block, int64_t length) noexcept nogil:
    cdef const void* shared = replog_zeros(length)
    if shared != NULL:
        return shared
    if replog_block_reserve(block, length, 0):
        return NULL
    memset(block.at, 0, length)
    return block.at


def kept_bytes():
    """Bytes of released column memory on the free list: at most 64 MiB; -1 while it is busy."""
    return replog_blocks_kept()


def drop_kept():
    """Free what waits on the free list."""
    replog_blocks_drop()
