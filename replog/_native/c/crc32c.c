#include "crc32c.h"

#include <string.h>

#define REFLECTED_POLYNOMIAL 0x82f63b78u

typedef uint32_t (*crc32c_way)(uint32_t crc, const uint8_t *bytes, size_t length);

static uint32_t slices[8][256];

static void fill_slices(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ ((crc & 1) ? REFLECTED_POLYNOMIAL : 0);
        slices[0][byte] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = slices[slice - 1][byte];
            slices[slice][byte] = (crc >> 8) ^ slices[0][crc & 0xff];
        }
}

/* Eight table look-ups for eight bytes, named one by one, so that byte order does not matter. */
static uint32_t crc32c_portable(uint32_t crc, const uint8_t *bytes, size_t length)
{
    crc = ~crc;
    for (; length >= 8; bytes += 8, length -= 8) {
        crc ^= (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
               (uint32_t)bytes[3] << 24;
        crc = slices[7][crc & 0xff] ^ slices[6][(crc >> 8) & 0xff] ^ slices[5][(crc >> 16) & 0xff] ^
              slices[4][crc >> 24] ^ slices[3][bytes[4]] ^ slices[2][bytes[5]] ^
              slices[1][bytes[6]] ^ slices[0][bytes[7]];
    }
    for (; length > 0; bytes++, length--)
        crc = (crc >> 8) ^ slices[0][(crc ^ *bytes) & 0xff];
    return ~crc;
}

#if defined(__x86_64__)

#include <immintrin.h>

#define SSE42 __attribute__((target("sse4.2,pclmul")))
#define AVX512 \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,vpclmulqdq,pclmul,sse4.2")))

/* Carry-less multiplication of reflected numbers comes out one bit short, and the crc32 instruction
 * multiplies by x^32 on its own. So "shift by n bits, then crc32" takes the constant x^(n - 33)
 * mod P, and folding 128 bits over a distance of n bits takes x^(n + 31) for the low half (64 bits
 * further from the end) and x^(n - 33) for the high half. (Gopal et al., "Fast CRC Computation for
 * Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009, in reflected form.) */
static uint32_t power_of_x(unsigned exponent)
{
    uint32_t power = 0x80000000u; /* x^0: the reflected number's top bit */
    for (; exponent > 0; exponent--)
        power = (power >> 1) ^ ((power & 1) ? REFLECTED_POLYNOMIAL : 0);
    return power;
}

#define LONG_STREAM 4096 /* bytes of each of the three streams; a multiple of 8 */
#define SHORT_STREAM 168

struct stream_joint {
    uint32_t two_streams; /* shifts the first stream's crc over the second and third */
    uint32_t one_stream;
};
static struct stream_joint long_joint, short_joint;

/* fold_*[0] for the low halves of the lanes, [1] for the high ones */
static uint64_t fold_2048[2], fold_1536[2], fold_1024[2], fold_512[2];
static uint64_t fold_384[2], fold_256[2], fold_128[2];

static void fill_joint(struct stream_joint *joint, unsigned stream_bytes)
{
    joint->two_streams = power_of_x(2 * 8 * stream_bytes - 33);
    joint->one_stream = power_of_x(8 * stream_bytes - 33);
}

static void fill_fold(uint64_t fold[2], unsigned bits)
{
    fold[0] = power_of_x(bits + 31);
    fold[1] = power_of_x(bits - 33);
}

static void fill_constants(void)
{
    fill_joint(&long_joint, LONG_STREAM);
    fill_joint(&short_joint, SHORT_STREAM);
    fill_fold(fold_2048, 2048);
    fill_fold(fold_1536, 1536);
    fill_fold(fold_1024, 1024);
    fill_fold(fold_512, 512);
    fill_fold(fold_384, 384);
    fill_fold(fold_256, 256);
    fill_fold(fold_128, 128);
}

static inline uint64_t load_word(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

/* One stream; `crc` is in the instruction's own form (not inverted), here and in what calls it. */
SSE42 static inline uint32_t serial(uint32_t crc, const uint8_t *bytes, size_t length)
{
    uint64_t wide = crc;
    for (; length >= 8; bytes += 8, length -= 8)
        wide = _mm_crc32_u64(wide, load_word(bytes));
    crc = (uint32_t)wide;
    if (length & 4) {
        uint32_t word;
        memcpy(&word, bytes, sizeof word);
        crc = _mm_crc32_u32(crc, word);
        bytes += 4;
    }
    if (length & 2) {
        uint16_t word;
        memcpy(&word, bytes, sizeof word);
        crc = _mm_crc32_u16(crc, word);
        bytes += 2;
    }
    if (length & 1)
        crc = _mm_crc32_u8(crc, *bytes);
    return crc;
}

/* The instruction takes a word a cycle but answers after three: three streams keep it busy. */
SSE42 static inline uint32_t three_streams(
    uint32_t crc, const uint8_t *bytes, size_t stream_bytes, const struct stream_joint *joint)
{
    uint64_t first = crc, second = 0, third = 0;
    const uint8_t *end = bytes + stream_bytes - 8;
    const uint8_t *at = bytes;
    for (; at < end; at += 8) {
        first = _mm_crc32_u64(first, load_word(at));
        second = _mm_crc32_u64(second, load_word(at + stream_bytes));
        third = _mm_crc32_u64(third, load_word(at + 2 * stream_bytes));
    }
    first = _mm_crc32_u64(first, load_word(at));
    second = _mm_crc32_u64(second, load_word(at + stream_bytes));
    __m128i shifted = _mm_xor_si128(
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)first),
                             _mm_cvtsi32_si128((int)joint->two_streams), 0),
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)second),
                             _mm_cvtsi32_si128((int)joint->one_stream), 0));
    uint64_t last = load_word(at + 2 * stream_bytes) ^ (uint64_t)_mm_cvtsi128_si64(shifted);
    return (uint32_t)_mm_crc32_u64(third, last);
}

SSE42 static uint32_t crc32c_sse42(uint32_t crc, const uint8_t *bytes, size_t length)
{
    crc = ~crc;
    for (; length >= 3 * LONG_STREAM; bytes += 3 * LONG_STREAM, length -= 3 * LONG_STREAM)
        crc = three_streams(crc, bytes, LONG_STREAM, &long_joint);
    for (; length >= 3 * SHORT_STREAM; bytes += 3 * SHORT_STREAM, length -= 3 * SHORT_STREAM)
        crc = three_streams(crc, bytes, SHORT_STREAM, &short_joint);
    return ~serial(crc, bytes, length);
}

AVX512 static inline __m512i fold_over(__m512i lanes, __m512i constants, __m512i next)
{
    __m512i low = _mm512_clmulepi64_epi128(lanes, constants, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(lanes, constants, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96); /* xor of the three */
}

AVX512 static inline __m512i spread(const uint64_t fold[2])
{
    return _mm512_broadcast_i64x2(_mm_loadu_si128((const __m128i *)fold));
}

/* The four 128-bit lanes folded into the last one, and that one through the crc32 instruction. */
AVX512 static inline uint32_t reduce(__m512i lanes)
{
    __m512i constants = _mm512_inserti64x2(
        _mm512_inserti64x2(
            _mm512_inserti64x2(
                _mm512_setzero_si512(), _mm_loadu_si128((const __m128i *)fold_384), 0),
            _mm_loadu_si128((const __m128i *)fold_256), 1),
        _mm_loadu_si128((const __m128i *)fold_128), 2);
    __m512i folded = _mm512_xor_si512(_mm512_clmulepi64_epi128(lanes, constants, 0x00),
                                      _mm512_clmulepi64_epi128(lanes, constants, 0x11));
    __m256i half =
        _mm256_xor_si256(_mm512_castsi512_si256(folded), _mm512_extracti64x4_epi64(folded, 1));
    __m128i last = _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti64x2_epi64(half, 1));
    last = _mm_xor_si128(last, _mm512_extracti64x2_epi64(lanes, 3));
    uint64_t crc = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(last));
    return (uint32_t)_mm_crc32_u64(crc, (uint64_t)_mm_extract_epi64(last, 1));
}

#define FOLDING_PAYS 192 /* bytes; below it one stream of crc32 instructions is as fast */

AVX512 static uint32_t crc32c_vpclmulqdq(uint32_t crc, const uint8_t *bytes, size_t length)
{
    crc = ~crc;
    if (length < FOLDING_PAYS)
        return ~serial(crc, bytes, length);
    if (length >= 2048) {
        size_t head = -(uintptr_t)bytes & 63; /* loads that straddle no cache line */
        crc = serial(crc, bytes, head);
        bytes += head;
        length -= head;
    }
    __m512i first = _mm512_xor_si512(_mm512_loadu_si512(bytes),
                                     _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    __m512i over_512 = spread(fold_512);
    bytes += 64;
    length -= 64;
    if (length >= 3 * 64) {
        __m512i second = _mm512_loadu_si512(bytes);
        __m512i third = _mm512_loadu_si512(bytes + 64);
        __m512i fourth = _mm512_loadu_si512(bytes + 128);
        __m512i over_2048 = spread(fold_2048);
        bytes += 3 * 64;
        length -= 3 * 64;
        for (; length >= 256; bytes += 256, length -= 256) {
            first = fold_over(first, over_2048, _mm512_loadu_si512(bytes));
            second = fold_over(second, over_2048, _mm512_loadu_si512(bytes + 64));
            third = fold_over(third, over_2048, _mm512_loadu_si512(bytes + 128));
            fourth = fold_over(fourth, over_2048, _mm512_loadu_si512(bytes + 192));
        }
        fourth = fold_over(first, spread(fold_1536), fourth);
        fourth = fold_over(second, spread(fold_1024), fourth);
        first = fold_over(third, over_512, fourth);
    }
    for (; length >= 64; bytes += 64, length -= 64)
        first = fold_over(first, over_512, _mm512_loadu_si512(bytes));
    return ~serial(reduce(first), bytes, length);
}

static crc32c_way find_way(replog_crc32c_way way)
{
    if (way == REPLOG_CRC32C_PORTABLE)
        return crc32c_portable;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul"))
        return NULL;
    if (way == REPLOG_CRC32C_SSE42)
        return crc32c_sse42;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("vpclmulqdq"))
        return crc32c_vpclmulqdq;
    return NULL;
}

#else

static void fill_constants(void) {}

static crc32c_way find_way(replog_crc32c_way way)
{
    return way == REPLOG_CRC32C_PORTABLE ? crc32c_portable : NULL;
}

#endif

static replog_crc32c_way used_way = REPLOG_CRC32C_PORTABLE;
static crc32c_way used = crc32c_portable;

void replog_crc32c_start(void)
{
    fill_slices();
    fill_constants();
    for (int way = REPLOG_CRC32C_VPCLMULQDQ; way >= REPLOG_CRC32C_PORTABLE; way--)
        if (replog_crc32c_has((replog_crc32c_way)way)) {
            replog_crc32c_use((replog_crc32c_way)way);
            return;
        }
}

uint32_t replog_crc32c(uint32_t crc, const uint8_t *bytes, size_t length)
{
    return used(crc, bytes, length);
}

int replog_crc32c_has(replog_crc32c_way way) { return find_way(way) != NULL; }

void replog_crc32c_use(replog_crc32c_way way)
{
    used = find_way(way);
    used_way = way;
}

replog_crc32c_way replog_crc32c_used(void) { return used_way; }
