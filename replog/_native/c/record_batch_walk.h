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

static inline int64_t replog_walk_short(const uint8_t *bytes, int64_t at, int64_t length,
                                        int32_t count, int32_t *number, replog_short_walk *found)
{
    uint32_t place = (uint32_t)*number;
    int32_t delta_min = INT32_MAX, delta_max = INT32_MIN;
    uint32_t delta_max_number = place, keys = 0;
    const uint8_t *p = bytes + at;
    const uint8_t *limit = bytes + length;
    const uint8_t *start = p;
    uint32_t usual_size = 1;
    int64_t head = 0, stride = 0;
    while (place < (uint32_t)count && limit - p > REPLOG_SHORT_HEAD) {
        const uint8_t *end;
        uint64_t word;
        uint32_t size, timestamp_delta, offset_delta, key_length, value_length;
        int32_t delta;
        start = p;
        /* The walk follows a checksum of the bytes: they are in the second cache by now. */
        __builtin_prefetch(p + 512);
        __builtin_prefetch(p + 576);
        memcpy(&word, p, 8);
        REPLOG_TAKE_SHORT(word, p, size);
        /* In this order: the next record's place is known before this one is checked. */
        if (size != usual_size || p - start != head) {
            /* The barrier keeps this a branch: a predicted one lets the next record's load start
             * before this one's has come, a conditional move would not. An overlong varint of
             * the same size has another head. */
            __asm__ volatile("" : "+r"(size));
            if (size & 1) goto other_shape;
            usual_size = size;
            head = p - start;
            stride = head + (int64_t)(size >> 1);
        }
        if (stride > limit - start) goto other_shape;
        end = start + stride;
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
            keys += 1;
        }
        word = (uint64_t)p[0] | (uint64_t)p[1] << 8;
        REPLOG_TAKE_SHORT(word, p, value_length);
        /* A null value has no bytes. What is left must be one byte: a header count of 0. */
        if (value_length & 1) value_length = value_length == 1 ? 0 : UINT32_MAX;
        if ((int64_t)(value_length >> 1) != end - p - 1 || end[-1] != 0) goto other_shape;
        delta = replog_unfold(timestamp_delta);
        if (delta > delta_max) {
            delta_max = delta;
            delta_max_number = place;
        }
        if (delta < delta_min) delta_min = delta;
        p = end;
        place += 1;
    }
    start = p;
other_shape:
    found->delta_min = delta_min;
    found->delta_max = delta_max;
    found->delta_max_number = (int32_t)delta_max_number;
    found->null_keys = (int32_t)(place - (uint32_t)*number - keys);
    *number = (int32_t)place;
    return start - bytes;
}

#endif
