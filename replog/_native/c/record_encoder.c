#include "record_encoder.h"

#include <string.h>

#define RECORD_BYTES_MAX 0x7fffffff

/* The loops over rows are written once and compiled for each usual shape of the columns, with the
 * choices below known to the compiler; ANY is the shape that fits all. */
#define INTO_EACH_SHAPE static inline __attribute__((always_inline))
#define ANY (-1)

typedef struct shape {
    int values; /* replog_column_kind, or ANY */
    int keys;
    int timed;  /* 0: one timestamp for all rows; or ANY */
    int headed; /* 0: no headers; or ANY */
} shape;

static inline uint64_t zigzag(int64_t number)
{
    return ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
}

static inline int64_t varint_size(int64_t number)
{
    uint64_t coded = zigzag(number);
    if (coded < 0x80)
        return 1;
    if (coded < 0x4000)
        return 2;
    /* seven bits a byte: ceil(bits / 7) for 1 to 64 bits, without dividing */
    int bits = 64 - __builtin_clzll(coded);
    return (bits * 9 + 64) >> 6;
}

static inline uint8_t *put_varint(uint8_t *out, int64_t number)
{
    uint64_t left = zigzag(number);
    while (left >= 0x80) {
        *out++ = (uint8_t)(left | 0x80);
        left >>= 7;
    }
    *out++ = (uint8_t)left;
    return out;
}

static inline int is_null(const replog_column *column, int64_t place)
{
    return column->validity != NULL &&
           !((column->validity[(uint64_t)place >> 3] >> ((uint64_t)place & 7)) & 1);
}

static inline int from_offsets(const replog_column *column, int64_t begin, int64_t end,
                               replog_slice *slice)
{
    if (begin < 0 || end < begin || end > column->bytes_length)
        return REPLOG_BAD_PLACE;
    slice->bytes = column->bytes + begin;
    slice->length = end - begin;
    return 0;
}

static int from_view(const replog_column *column, int64_t place, replog_slice *slice)
{
    const uint8_t *view = (const uint8_t *)column->places + 16 * place;
    int32_t words[4]; /* length, then 12 bytes inline, or prefix, buffer, offset */
    memcpy(words, view, sizeof words);
    if (words[0] < 0)
        return REPLOG_BAD_PLACE;
    slice->length = words[0];
    if (words[0] <= 12) {
        slice->bytes = view + 4;
        return 0;
    }
    if (words[2] < 0 || words[2] >= column->slice_count)
        return REPLOG_BAD_PLACE;
    const replog_slice *buffer = &column->slices[words[2]];
    if (words[3] < 0 || words[3] > buffer->length - words[0])
        return REPLOG_BAD_PLACE;
    slice->bytes = buffer->bytes + words[3];
    return 0;
}

INTO_EACH_SHAPE int column_as(const replog_column *column, int shaped, int64_t row,
                              replog_slice *slice)
{
    int kind = shaped == ANY ? column->kind : shaped;
    int64_t place = column->first + row;
    if (kind == REPLOG_COLUMN_SLICES) {
        *slice = column->slices[row];
        return 0;
    }
    slice->bytes = NULL;
    slice->length = -1;
    if (kind == REPLOG_COLUMN_NULLS || is_null(column, place))
        return 0;
    if (kind == REPLOG_COLUMN_OFFSETS32) {
        const int32_t *offsets = (const int32_t *)column->places + place;
        return from_offsets(column, offsets[0], offsets[1], slice);
    }
    if (kind == REPLOG_COLUMN_OFFSETS64) {
        const int64_t *offsets = (const int64_t *)column->places + place;
        return from_offsets(column, offsets[0], offsets[1], slice);
    }
    if (kind == REPLOG_COLUMN_VIEWS)
        return from_view(column, place, slice);
    slice->bytes = column->bytes + place * column->width;
    slice->length = column->width;
    if (kind == REPLOG_COLUMN_STRIPPED)
        while (slice->length > 0 && slice->bytes[slice->length - 1] == 0)
            slice->length--;
    return 0;
}

static int column_at(const replog_column *column, int64_t row, replog_slice *slice)
{
    return column_as(column, ANY, row, slice);
}

static inline int64_t slice_size(const replog_slice *slice)
{
    return varint_size(slice->length) + (slice->length > 0 ? slice->length : 0);
}

static inline uint8_t *put_slice(uint8_t *out, const replog_slice *slice)
{
    out = put_varint(out, slice->length);
    if (slice->length <= 0)
        return out;
    memcpy(out, slice->bytes, (size_t)slice->length);
    return out + slice->length;
}

static inline int header_range(const replog_rows *rows, int64_t row, int64_t *begin, int64_t *end)
{
    *begin = *end = 0;
    if (rows->header_ranges == NULL)
        return 0;
    *begin = rows->header_ranges[2 * row];
    *end = rows->header_ranges[2 * row + 1];
    if (*begin < 0 || *end < *begin || *end > rows->header_count)
        return REPLOG_BAD_PLACE;
    return 0;
}

static int64_t headers_size(const replog_rows *rows, int64_t row)
{
    int64_t begin, end, size;
    if (header_range(rows, row, &begin, &end) != 0)
        return REPLOG_BAD_PLACE;
    size = varint_size(end - begin);
    for (int64_t at = begin; at < end; at++) {
        replog_slice key, value;
        if (column_at(&rows->header_keys, at, &key) != 0 ||
            column_at(&rows->header_values, at, &value) != 0)
            return REPLOG_BAD_PLACE;
        if (key.length < 0)
            return REPLOG_BAD_HEADER_KEY;
        size += slice_size(&key) + slice_size(&value);
        if (size > RECORD_BYTES_MAX)
            return REPLOG_BAD_LENGTH;
    }
    return size;
}

/* Bytes of a record behind its length, or REPLOG_BAD_*; key and value come out as well. */
INTO_EACH_SHAPE int64_t body_size(const replog_rows *rows, shape shaped, int64_t row,
                                  int64_t timestamp_delta, int64_t offset_delta, replog_slice *key,
                                  replog_slice *value)
{
    int64_t headers = 1;
    if (column_as(&rows->keys, shaped.keys, row, key) != 0 ||
        column_as(&rows->values, shaped.values, row, value) != 0)
        return REPLOG_BAD_PLACE;
    if (shaped.headed != 0 && rows->header_ranges != NULL)
        headers = headers_size(rows, row);
    if (headers < 0)
        return headers;
    return 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + slice_size(key) +
           slice_size(value) + headers;
}

static inline int64_t delta(int64_t number, int64_t base)
{
    return (int64_t)((uint64_t)number - (uint64_t)base); /* wraps as a reader's addition does */
}

INTO_EACH_SHAPE int size_rows(const replog_rows *rows, shape shaped, int64_t start,
                              int64_t bytes_max, replog_extent *extent)
{
    const int64_t *timestamps = shaped.timed == 0 ? NULL : rows->timestamps;
    int64_t base = timestamps == NULL ? rows->timestamp : timestamps[start];
    int64_t bytes = 0, row = start, size = 0, max_timestamp = base;
    for (; row < rows->count && row - start < RECORD_BYTES_MAX; row++) {
        replog_slice key, value;
        int64_t timestamp = timestamps == NULL ? base : timestamps[row];
        if (timestamp < -1) {
            size = REPLOG_BAD_TIMESTAMP;
            break;
        }
        size = body_size(rows, shaped, row, delta(timestamp, base), row - start, &key, &value);
        if (size > RECORD_BYTES_MAX)
            size = REPLOG_BAD_LENGTH;
        if (size < 0)
            break;
        size += varint_size(size);
        if (bytes + size > bytes_max && row > start)
            break;
        bytes += size;
        max_timestamp = timestamp > max_timestamp ? timestamp : max_timestamp;
    }
    extent->row_count = row - start;
    extent->bytes = bytes;
    extent->max_timestamp = max_timestamp;
    extent->bad_row = row;
    return size < 0 ? (int)size : 0;
}

/* NULL if they do not fit before `end`: the columns have changed since they were sized. */
static uint8_t *put_headers(const replog_rows *rows, int64_t row, uint8_t *out, const uint8_t *end)
{
    int64_t begin, stop;
    if (header_range(rows, row, &begin, &stop) != 0 || varint_size(stop - begin) > end - out)
        return NULL;
    out = put_varint(out, stop - begin);
    for (int64_t at = begin; at < stop; at++) {
        replog_slice key, value;
        if (column_at(&rows->header_keys, at, &key) != 0 || key.length < 0 ||
            column_at(&rows->header_values, at, &value) != 0 ||
            slice_size(&key) + slice_size(&value) > end - out)
            return NULL;
        out = put_slice(out, &key);
        out = put_slice(out, &value);
    }
    return out;
}

INTO_EACH_SHAPE int write_rows(const replog_rows *rows, shape shaped, int64_t start, int64_t count,
                               uint8_t *out, int64_t length)
{
    const int64_t *timestamps = shaped.timed == 0 ? NULL : rows->timestamps;
    uint8_t *end = out + length;
    int64_t base = timestamps == NULL ? rows->timestamp : timestamps[start];
    for (int64_t row = start; row < start + count; row++) {
        replog_slice key, value;
        int64_t timestamp_delta = delta(timestamps == NULL ? base : timestamps[row], base);
        int64_t size = body_size(rows, shaped, row, timestamp_delta, row - start, &key, &value);
        if (size < 0 || size > end - out - varint_size(size))
            return REPLOG_BAD_PLACE;
        out = put_varint(out, size);
        uint8_t *record_end = out + size;
        *out++ = 0; /* attributes */
        out = put_varint(out, timestamp_delta);
        out = put_varint(out, row - start);
        out = put_slice(out, &key);
        out = put_slice(out, &value);
        if (shaped.headed == 0 || rows->header_ranges == NULL)
            *out++ = 0;
        else
            out = put_headers(rows, row, out, record_end);
        if (out != record_end)
            return REPLOG_BAD_PLACE;
    }
    return out == end ? 0 : REPLOG_BAD_PLACE;
}

static const shape values_arrow = {REPLOG_COLUMN_OFFSETS32, REPLOG_COLUMN_NULLS, 0, 0};
static const shape values_listed = {REPLOG_COLUMN_SLICES, REPLOG_COLUMN_NULLS, 0, 0};
static const shape timed_arrow = {REPLOG_COLUMN_OFFSETS32, REPLOG_COLUMN_NULLS, ANY, 0};
static const shape timed_listed = {REPLOG_COLUMN_SLICES, REPLOG_COLUMN_NULLS, ANY, 0};
static const shape keyed_arrow = {REPLOG_COLUMN_OFFSETS32, REPLOG_COLUMN_OFFSETS32, ANY, 0};
static const shape keyed_listed = {REPLOG_COLUMN_SLICES, REPLOG_COLUMN_SLICES, ANY, 0};
static const shape any_shape = {ANY, ANY, ANY, ANY};

static int fits(const replog_rows *rows, shape shaped)
{
    return rows->values.kind == shaped.values && rows->keys.kind == shaped.keys &&
           (shaped.timed != 0 || rows->timestamps == NULL) && rows->header_ranges == NULL;
}

int replog_size_records(const replog_rows *rows, int64_t start, int64_t bytes_max,
                        replog_extent *extent)
{
    if (fits(rows, values_arrow))
        return size_rows(rows, values_arrow, start, bytes_max, extent);
    if (fits(rows, values_listed))
        return size_rows(rows, values_listed, start, bytes_max, extent);
    if (fits(rows, timed_arrow))
        return size_rows(rows, timed_arrow, start, bytes_max, extent);
    if (fits(rows, timed_listed))
        return size_rows(rows, timed_listed, start, bytes_max, extent);
    if (fits(rows, keyed_arrow))
        return size_rows(rows, keyed_arrow, start, bytes_max, extent);
    if (fits(rows, keyed_listed))
        return size_rows(rows, keyed_listed, start, bytes_max, extent);
    return size_rows(rows, any_shape, start, bytes_max, extent);
}

int replog_write_records(const replog_rows *rows, int64_t start, int64_t count, uint8_t *out,
                         int64_t length)
{
    if (fits(rows, values_arrow))
        return write_rows(rows, values_arrow, start, count, out, length);
    if (fits(rows, values_listed))
        return write_rows(rows, values_listed, start, count, out, length);
    if (fits(rows, timed_arrow))
        return write_rows(rows, timed_arrow, start, count, out, length);
    if (fits(rows, timed_listed))
        return write_rows(rows, timed_listed, start, count, out, length);
    if (fits(rows, keyed_arrow))
        return write_rows(rows, keyed_arrow, start, count, out, length);
    if (fits(rows, keyed_listed))
        return write_rows(rows, keyed_listed, start, count, out, length);
    return write_rows(rows, any_shape, start, count, out, length);
}

/* Reads a varint of at most `bytes_max` bytes; NULL if it is cut or too long. */
static const uint8_t *take_varint(const uint8_t *at, const uint8_t *end, int bytes_max,
                                  int64_t *number)
{
    uint64_t read = 0;
    for (int byte = 0; byte < bytes_max && at < end; byte++) {
        read |= (uint64_t)(*at & 0x7f) << (7 * byte);
        if (*at++ < 0x80) {
            *number = (int64_t)(read >> 1) ^ -(int64_t)(read & 1);
            return at;
        }
    }
    return NULL;
}

int replog_renumber_records(const uint8_t *at, int64_t length, int64_t count, uint8_t *out,
                            int64_t out_length, replog_renumbering *renumbering)
{
    const uint8_t *end = at + length;
    uint8_t *out_end = out == NULL ? NULL : out + out_length;
    memset(renumbering, 0, sizeof *renumbering);
    for (int64_t row = 0; row < count; row++) {
        int64_t size, old_timestamp, old_offset;
        at = take_varint(at, end, 5, &size);
        if (at == NULL || size < 1 || size > end - at)
            return REPLOG_BAD_PLACE;
        const uint8_t *record = at, *record_end = at + size;
        at = take_varint(at + 1, record_end, 10, &old_timestamp);
        if (at == NULL || (at = take_varint(at, record_end, 5, &old_offset)) == NULL)
            return REPLOG_BAD_PLACE;
        if (row == 0)
            renumbering->base_shift = old_timestamp;
        int64_t timestamp_delta = delta(old_timestamp, renumbering->base_shift);
        int64_t rest = record_end - at;
        size = 1 + varint_size(timestamp_delta) + varint_size(row) + rest;
        renumbering->bytes += varint_size(size) + size;
        if (timestamp_delta != old_timestamp || row != old_offset)
            renumbering->changed = 1;
        if (out != NULL) {
            if (varint_size(size) + size > out_end - out)
                return REPLOG_BAD_PLACE;
            out = put_varint(out, size);
            *out++ = record[0];
            out = put_varint(out, timestamp_delta);
            out = put_varint(out, row);
            memcpy(out, at, (size_t)rest);
            out += rest;
        }
        at = record_end;
    }
    return at == end && out == out_end ? 0 : REPLOG_BAD_PLACE;
}
