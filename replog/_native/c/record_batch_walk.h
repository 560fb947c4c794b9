/* The hot loop of append validation: plain records of the usual shape, one after the other.
 *
 * Walks records from *number on while each has no headers and lengths and deltas of one or two
 * varint bytes, which is nearly all there are; stops before the first other one, and the caller
 * goes on with the general code. Returns the position behind the last record walked; `*number`
 * counts them. */
#ifndef REPLOG_RECORD_BATCH_WALK_H
#define REPLOG_RECORD_BATCH_WALK_H

#include <stdint.h>

/* Most bytes ahead of a record's value in the shape walked here: 2 + 1 + 2 + 2 + 2 + 2. */
#define REPLOG_SHORT_HEAD 12

/* Zigzag varint of one or two bytes at p; p moves behind it. Leaves the loop for a longer one. */
#define REPLOG_TAKE_SHORT(p, out)                                     \
    do {                                                              \
        uint32_t word_ = (p)[0];                                      \
        (p) += 1;                                                     \
        if (word_ >= 0x80) {                                          \
            uint32_t high_ = (p)[0];                                  \
            if (high_ >= 0x80) goto other_shape;                      \
            word_ = (word_ & 0x7f) | (high_ << 7);                    \
            (p) += 1;                                                 \
        }                                                             \
        (out) = (int32_t)(word_ >> 1) ^ -(int32_t)(word_ & 1);        \
    } while (0)

typedef struct replog_short_walk {
    int64_t delta_min;        /* least and greatest timestamp delta of the records walked */
    int64_t delta_max;
    int32_t delta_max_number; /* the first record with delta_max */
    int32_t null_keys;
} replog_short_walk;

static inline int64_t replog_walk_short(const uint8_t *bytes, int64_t at, int64_t length,
                                        int32_t count, int32_t *number, replog_short_walk *found)
{
    int32_t place = *number;
    int64_t delta_min = INT32_MAX, delta_max = INT32_MIN;
    int32_t delta_max_number = place, null_keys = 0;
    while (place < count && length - at > REPLOG_SHORT_HEAD) {
        const uint8_t *p = bytes + at;
        const uint8_t *end;
        int32_t size, timestamp_delta, offset_delta, key_length, value_length;
        REPLOG_TAKE_SHORT(p, size);
        /* In this order: the next record's place is known before this one is checked. */
        if (size < 0 || size > length - (p - bytes)) goto other_shape;
        end = p + size;
        p += 1;
        REPLOG_TAKE_SHORT(p, timestamp_delta);
        REPLOG_TAKE_SHORT(p, offset_delta);
        REPLOG_TAKE_SHORT(p, key_length);
        if (key_length > 0) {
            if (key_length > end - p) goto other_shape;
            p += key_length;
            if (end - p < 3) goto other_shape;
        }
        REPLOG_TAKE_SHORT(p, value_length);
        if (value_length > 0) {
            if (value_length > end - p) goto other_shape;
            p += value_length;
        }
        /* What is left must be one byte: a header count of 0. */
        if (p + 1 != end || *p != 0 || offset_delta != place) goto other_shape;
        null_keys += key_length < 0;
        if (timestamp_delta > delta_max) {
            delta_max = timestamp_delta;
            delta_max_number = place;
        }
        if (timestamp_delta < delta_min) delta_min = timestamp_delta;
        at = end - bytes;
        place += 1;
    }
other_shape:
    found->delta_min = delta_min;
    found->delta_max = delta_max;
    found->delta_max_number = delta_max_number;
    found->null_keys = null_keys;
    *number = place;
    return at;
}

#endif
