/* The hot loop of append validation: plain records of the usual shape, one after the other.
 *
 * Walks records from *number on while each has no headers and lengths and deltas of one or two
 * varint bytes, which is nearly all there are; stops before the first other one, and the caller
 * goes on with the general code. Returns the position behind the last record walked; `*number`
 * counts them. */
#ifndef REPLOG_RECORD_BATCH_WALK_H
#define REPLOG_RECORD_BATCH_WALK_H

#include <stdint.h>
#include <string.h>

/* Bytes that may be read from a record's start before its length has been held against the end: a
 * word of 8, or the most ahead of a keyless value (2 + 1 + 2 + 2 + 1 + 2). */
#define REPLOG_SHORT_HEAD 16

/* The walk follows a checksum of the bytes: they are in the second cache by now. */
#define REPLOG_FETCH_AHEAD(p)          \
    do {                               \
        __builtin_prefetch((p) + 512); \
        __builtin_prefetch((p) + 576); \
    } while (0)

/* Zigzag varint of one or two bytes at the low end of `word`, which moves on, as does p. Leaves the
 * loop for a longer one. `out` is the varint before zigzag is undone. */
#define REPLOG_TAKE_SHORT(word, p, out)                                   \
    do {                                                                  \
        uint64_t low_ = (word) & 0x7f;                                    \
        if ((word) & 0x80) {                                              \
            if ((word) & 0x8000) goto other_shape;                        \
            low_ |= ((word) >> 1) & 0x3f80;                               \
            (word) >>= 16;                                                \
            (p) += 2;                                                     \
        } else {                                                          \
            (word) >>= 8;                                                 \
            (p) += 1;                                                     \
        }                                                                 \
        (out) = (uint32_t)low_;                                           \
    } while (0)

static inline int32_t replog_unfold(uint32_t folded)
{
    return (int32_t)(folded >> 1) ^ -(int32_t)(folded & 1);
}

typedef struct replog_short_walk {
    int64_t delta_min;        /* least and greatest timestamp delta of the records walked */
    int64_t delta_max;
    int32_t delta_max_number; /* the first record with delta_max */
    int32_t null_keys;
} replog_short_walk;

/* A record's shape: its size, and the bytes that each of its fields takes. Records of one shape
 * differ in the two deltas only, and all the rest is told by two comparisons. */
typedef struct replog_record_shape {
    uint64_t head;           /* the first eight bytes, less both deltas */
    uint64_t head_mask;      /* what is compared: no attributes, and of the timestamp delta its sign
                              * and how many bytes it has */
    uint64_t timestamp_mask; /* of one byte or two */
    int64_t stride;          /* from one record to the next */
    int64_t value_at;        /* the value length's place behind the record's start */
    int timestamp_shift;     /* bits ahead of the timestamp delta in the head */
    int offset_shift;        /* bits ahead of the offset delta */
    int offset_bytes;        /* 1 or 2 */
    uint16_t value_length;   /* as it stands there, under its mask */
    uint16_t value_mask;
} replog_record_shape;

/* The shape of a record that was walked. `head`: bytes of its length varint. */
static inline replog_record_shape replog_shape_of(const uint8_t *record, int64_t head,
                                                  int64_t stride)
{
    replog_record_shape shape;
    int timestamp_at = (int)head + 1;
    int timestamp_bytes = record[timestamp_at] & 0x80 ? 2 : 1;
    int offset_at = timestamp_at + timestamp_bytes;
    int offset_bytes = record[offset_at] & 0x80 ? 2 : 1;
    int key_at = offset_at + offset_bytes;
    uint64_t word, offset_mask = offset_bytes == 2 ? 0xffff : 0xff;
    memcpy(&word, record, 8);
    shape.stride = stride;
    shape.timestamp_shift = 8 * timestamp_at;
    shape.timestamp_mask = timestamp_bytes == 2 ? 0xffff : 0xff;
    shape.offset_shift = 8 * offset_at;
    shape.offset_bytes = offset_bytes;
    /* The length and the key's length whole; of the timestamp delta the lowest bit, which is its
     * sign, and the highest of each byte, which says whether another follows. */
    shape.head_mask = (((uint64_t)1 << 8 * head) - 1) | (uint64_t)0xff << 8 * key_at |
                      (uint64_t)(timestamp_bytes == 2 ? 0x8081 : 0x81) << shape.timestamp_shift;
    shape.head = word & shape.head_mask;
    shape.head_mask |= offset_mask << shape.offset_shift;
    shape.value_at = key_at + 1 + (record[key_at] == 1 ? 0 : record[key_at] >> 1);
    shape.value_mask = record[shape.value_at] & 0x80 ? 0xffff : 0xff;
    memcpy(&shape.value_length, record + shape.value_at, 2);
    shape.value_length &= shape.value_mask;
    return shape;
}

/* Walks records of one shape from bytes[*at] on, the first of them number `place`; returns the
 * number of the one behind them. Their timestamp deltas are not negative. */
static inline uint32_t replog_walk_alike(const uint8_t *bytes, int64_t *at, int64_t length,
                                         uint32_t place, uint32_t count,
                                         const replog_record_shape *shape,
                                         replog_short_walk *found)
{
    /* The offset delta as it stands in the head. Adding to its low seven bits carries through the
     * bit that says "one more byte follows" into the high ones; that bit is then set again. */
    int wide = shape->offset_bytes == 2;
    uint64_t folded = (uint64_t)place << 1;
    uint64_t varint = wide ? (folded & 0x7f) | 0x80 | (folded << 1 & 0x7f00) : folded;
    uint64_t expected = shape->head | varint << shape->offset_shift;
    uint64_t step = (uint64_t)2 << shape->offset_shift;
    uint64_t more = wide ? (uint64_t)0x80 << shape->offset_shift : 0;
    uint32_t last = wide ? 8192 : 64; /* the first whose delta takes a byte more */
    int64_t reach = shape->stride > REPLOG_SHORT_HEAD ? shape->stride : REPLOG_SHORT_HEAD;
    int64_t from = *at;
    uint64_t seen = UINT64_MAX;
    if (last > count) last = count;
    while (place < last && length - from >= reach) {
        const uint8_t *p = bytes + from;
        uint64_t head, stamp;
        uint16_t value_length;
        REPLOG_FETCH_AHEAD(p);
        memcpy(&head, p, 8);
        memcpy(&value_length, p + shape->value_at, 2);
        if ((head ^ expected) & shape->head_mask) break;
        if ((value_length & shape->value_mask) != shape->value_length) break;
        /* The header count. */
        if (p[shape->stride - 1] != 0) break;
        stamp = head >> shape->timestamp_shift & shape->timestamp_mask;
        if (stamp != seen) {
            int64_t delta = (int64_t)((stamp & 0x7f) | (stamp >> 1 & 0x3f80)) >> 1;
            seen = stamp;
            if (delta > found->delta_max) {
                found->delta_max = delta;
                found->delta_max_number = (int32_t)place;
            }
            if (delta < found->delta_min) found->delta_min = delta;
        }
        expected = (expected + step) | more;
        from += shape->stride;
        place += 1;
    }
    *at = from;
    return place;
}

static inline int64_t replog_walk_short(const uint8_t *bytes, int64_t at, int64_t length,
                                        int32_t count, int32_t *number, replog_short_walk *found)
{
    uint32_t place = (uint32_t)*number;
    uint32_t keys = 0;
    int64_t usual_stride = 0;
    replog_short_walk walked = {INT64_MAX, INT64_MIN, *number, 0};
    while (place < (uint32_t)count && length - at > REPLOG_SHORT_HEAD) {
        const uint8_t *p = bytes + at;
        const uint8_t *end;
        uint64_t word;
        uint32_t size, timestamp_delta, offset_delta, key_length, value_length;
        int64_t head, stride, delta;
        REPLOG_FETCH_AHEAD(p);
        memcpy(&word, p, 8);
        REPLOG_TAKE_SHORT(word, p, size);
        if (size & 1) goto other_shape;
        head = p - (bytes + at);
        stride = head + (int64_t)(size >> 1);
        if (stride > length - at) goto other_shape;
        end = bytes + at + stride;
        word >>= 8;
        p += 1;
        REPLOG_TAKE_SHORT(word, p, timestamp_delta);
        REPLOG_TAKE_SHORT(word, p, offset_delta);
        if (offset_delta != place << 1) goto other_shape;
        key_length = word & 0xff;
        p += 1;
        if (key_length != 1) {
            if (key_length & 0x81 || (int64_t)(key_length >> 1) > end - p - 3) goto other_shape;
            p += key_length >> 1;
        }
        word = (uint64_t)p[0] | (uint64_t)p[1] << 8;
        REPLOG_TAKE_SHORT(word, p, value_length);
        /* A null value has no bytes. What is left must be one byte: a header count of 0. */
        if (value_length & 1) value_length = value_length == 1 ? 0 : UINT32_MAX;
        if ((int64_t)(value_length >> 1) != end - p - 1 || end[-1] != 0) goto other_shape;
        delta = replog_unfold(timestamp_delta);
        if (delta > walked.delta_max) {
            walked.delta_max = delta;
            walked.delta_max_number = (int32_t)place;
        }
        if (delta < walked.delta_min) walked.delta_min = delta;
        keys += key_length != 1;
        place += 1;
        at += stride;
        /* Two of one size: more like the second will follow. */
        if (stride == usual_stride && delta >= 0) {
            replog_record_shape shape = replog_shape_of(end - stride, head, stride);
            uint32_t before = place;
            place = replog_walk_alike(bytes, &at, length, place, (uint32_t)count, &shape, &walked);
            if (key_length != 1) keys += place - before;
        }
        usual_stride = stride;
    }
other_shape:
    walked.null_keys = (int32_t)(place - (uint32_t)*number - keys);
    *found = walked;
    *number = (int32_t)place;
    return at;
}

#endif
