/* Binary search over the fixed-size slots of an index file: the last slot with key <= target.
 *
 * Keys are big-endian signed integers at a fixed place of each slot. The search has no branch that
 * depends on a key, and each halving takes the same steps for every target, so that many searches
 * run side by side and their cache misses overlap. */
#ifndef REPLOG_SLOT_SEARCH_H
#define REPLOG_SLOT_SEARCH_H

#include <stdint.h>
#include <string.h>

enum { SEARCH_LANES = 32 };

static inline int64_t slot_key4(const uint8_t *at) {
    uint32_t raw;
    memcpy(&raw, at, sizeof raw);
    return (int32_t)__builtin_bswap32(raw);
}

static inline int64_t slot_key8(const uint8_t *at) {
    uint64_t raw;
    memcpy(&raw, at, sizeof raw);
    return (int64_t)__builtin_bswap64(raw);
}

static inline void put_key4(uint8_t *at, int64_t key) {
    uint32_t raw = __builtin_bswap32((uint32_t)key);
    memcpy(at, &raw, sizeof raw);
}

static inline void put_key8(uint8_t *at, int64_t key) {
    uint64_t raw = __builtin_bswap64((uint64_t)key);
    memcpy(at, &raw, sizeof raw);
}

/* Defines, for one shape of slot, a search for one target and one for many.
 * Both answer with the number of the slot, or -1 if the first key is already greater. */
#define DEFINE_SLOT_SEARCH(NAME, SLOT_BYTES, KEY_AT, KEY)                                          \
    static inline int64_t NAME(const uint8_t *slots, int64_t count, int64_t target) {              \
        int64_t first = 0;                                                                         \
        int64_t rest = count;                                                                      \
        if (count == 0 || KEY(slots + KEY_AT) > target) {                                          \
            return -1;                                                                             \
        }                                                                                          \
        while (rest > 1) {                                                                         \
            int64_t half = rest >> 1;                                                              \
            int64_t next_half = (rest - half) >> 1;                                                \
            __builtin_prefetch(slots + (first + next_half) * SLOT_BYTES + KEY_AT);                 \
            __builtin_prefetch(slots + (first + half + next_half) * SLOT_BYTES + KEY_AT);          \
            first += KEY(slots + (first + half) * SLOT_BYTES + KEY_AT) <= target ? half : 0;       \
            rest -= half;                                                                          \
        }                                                                                          \
        return first;                                                                              \
    }                                                                                              \
    static inline void NAME##_lanes(const uint8_t *slots, int64_t count, const int64_t *targets,   \
                                    int64_t *found, int lanes) {                                   \
        int64_t first[SEARCH_LANES] = {0};                                                         \
        int64_t rest = count;                                                                      \
        while (rest > 1) {                                                                         \
            int64_t half = rest >> 1;                                                              \
            int64_t next_half = (rest - half) >> 1;                                                \
            for (int lane = 0; lane < lanes; lane++) {                                             \
                const uint8_t *at = slots + (first[lane] + half) * SLOT_BYTES + KEY_AT;            \
                int64_t step = -(int64_t)(KEY(at) <= targets[lane]) & half;                        \
                first[lane] += step;                                                               \
                __builtin_prefetch(slots + (first[lane] + next_half) * SLOT_BYTES + KEY_AT);       \
            }                                                                                      \
            rest -= half;                                                                          \
        }                                                                                          \
        for (int lane = 0; lane < lanes; lane++) {                                                 \
            const uint8_t *at = slots + first[lane] * SLOT_BYTES + KEY_AT;                         \
            found[lane] = count > 0 && KEY(at) <= targets[lane]                                    \
                              ? first[lane]                                                        \
                              : -1;                                                                \
        }                                                                                          \
    }

DEFINE_SLOT_SEARCH(search_offsets, 8, 0, slot_key4)    /* .index by relative offset */
DEFINE_SLOT_SEARCH(search_timestamps, 12, 0, slot_key8) /* .timeindex by timestamp */
DEFINE_SLOT_SEARCH(search_time_offsets, 12, 8, slot_key4) /* .timeindex by relative offset */

#endif
