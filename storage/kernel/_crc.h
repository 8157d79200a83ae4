/* CRC-32C and CRC-32, with the processor's instruction where it has one, otherwise by tables.

   No Python here. Every function takes and returns the finished checksum, as zlib does: 0 for no bytes, and the sum of
   the bytes before to go on. Call crc_init once before anything else. */

#ifndef LOGMEND_CRC_H
#define LOGMEND_CRC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define CRC_X86 1
#include <nmmintrin.h>
#include <wmmintrin.h>
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#define CRC_ARM 1
#include <arm_acle.h>
#endif

#define CRC32C_POLYNOMIAL 0x82F63B78u
#define CRC32_POLYNOMIAL 0xEDB88320u

typedef uint32_t (*crc_function)(uint32_t value, const uint8_t *data, size_t size);

static uint32_t crc32c_tables[8][256];
static uint32_t crc32_tables[8][256];

static inline uint64_t
load_le64(const uint8_t *p)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
#else
    uint64_t word = 0;
    for (int i = 7; i >= 0; i--)
        word = word << 8 | p[i];
    return word;
#endif
}

/* Table n moves a byte's remainder on by n further bytes, so that eight look-ups take in eight bytes at once. */
static void
crc_fill_tables(uint32_t tables[8][256], uint32_t polynomial)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t rest = byte;
        for (int bit = 0; bit < 8; bit++)
            rest = rest >> 1 ^ (rest & 1 ? polynomial : 0);
        tables[0][byte] = rest;
    }
    for (int n = 1; n < 8; n++)
        for (int byte = 0; byte < 256; byte++)
            tables[n][byte] = tables[n - 1][byte] >> 8 ^ tables[0][tables[n - 1][byte] & 0xFF];
}

static inline uint32_t
crc_by_tables(const uint32_t t[8][256], uint32_t value, const uint8_t *data, size_t size)
{
    uint32_t state = ~value;
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t w = load_le64(data) ^ state;
        state = t[7][w & 0xFF] ^ t[6][w >> 8 & 0xFF] ^ t[5][w >> 16 & 0xFF] ^ t[4][w >> 24 & 0xFF]
              ^ t[3][w >> 32 & 0xFF] ^ t[2][w >> 40 & 0xFF] ^ t[1][w >> 48 & 0xFF] ^ t[0][w >> 56];
    }
    for (; size > 0; data++, size--)
        state = state >> 8 ^ t[0][(state ^ *data) & 0xFF];
    return ~state;
}

static uint32_t
crc32c_table(uint32_t value, const uint8_t *data, size_t size)
{
    return crc_by_tables(crc32c_tables, value, data, size);
}

static uint32_t
crc32_table(uint32_t value, const uint8_t *data, size_t size)
{
    return crc_by_tables(crc32_tables, value, data, size);
}

#ifdef CRC_X86

/* The instruction takes three cycles but a new one may begin in each: three parts of the data are summed side by side
   and joined by a multiplication without carries. Below the least size joining costs more than it saves. Longer parts
   gain nothing on cached bytes; on others parts of 512 or 1024 bytes halved the speed, where 384 do not. The prefetch
   is for the same reason: the processor sees three short streams and foresees none of them. */
#define CRC_PARTS_LEAST 150
#define CRC_PART_WORDS 48
#define CRC_AHEAD 4096

/* crc32c_factors[n] is x to the power 64 n - 33 modulo the polynomial. Multiplying a sum by it, and taking the product
   in as eight bytes of data (which multiplies by x to the 33rd), moves the sum on by n words of zeroes. */
static uint32_t crc32c_factors[2 * CRC_PART_WORDS + 2];

static void
crc32c_fill_factors(void)
{
    uint32_t power = 1; /* x to the 31st, bits reflected */
    for (size_t n = 1; n < sizeof crc32c_factors / sizeof crc32c_factors[0]; n++) {
        crc32c_factors[n] = power;
        for (int bit = 0; bit < 64; bit++)
            power = power >> 1 ^ (power & 1 ? CRC32C_POLYNOMIAL : 0);
    }
}

__attribute__((target("sse4.2,pclmul"))) static inline uint64_t
crc32c_moved(uint64_t sum, size_t words)
{
    const __m128i factor = _mm_cvtsi32_si128((int)crc32c_factors[words]);
    return (uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)sum), factor, 0));
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t
crc32c_sse42(uint32_t value, const uint8_t *data, size_t size)
{
    uint64_t a = (uint32_t)~value;
    while (size >= CRC_PARTS_LEAST) {
        size_t words = (size - 8) / 24;
        if (words > CRC_PART_WORDS)
            words = CRC_PART_WORDS;
        const size_t part = words * 8;
        const uint8_t *const end = data + part;
        uint64_t b = 0, c = 0;
        for (; end - data >= 64; data += 64) {
            for (int n = 0; n < 3; n++)
                __builtin_prefetch((const void *)((uintptr_t)data + (uintptr_t)n * part + CRC_AHEAD));
            for (int n = 0; n < 64; n += 8) {
                a = _mm_crc32_u64(a, load_le64(data + n));
                b = _mm_crc32_u64(b, load_le64(data + part + n));
                c = _mm_crc32_u64(c, load_le64(data + 2 * part + n));
            }
        }
        for (; data < end; data += 8) {
            a = _mm_crc32_u64(a, load_le64(data));
            b = _mm_crc32_u64(b, load_le64(data + part));
            c = _mm_crc32_u64(c, load_le64(data + 2 * part));
        }
        data += 2 * part;
        a = _mm_crc32_u64(c, load_le64(data) ^ crc32c_moved(a, 2 * words + 1) ^ crc32c_moved(b, words + 1));
        data += 8;
        size -= 3 * part + 8;
    }
    for (; size >= 8; data += 8, size -= 8)
        a = _mm_crc32_u64(a, load_le64(data));
    uint32_t state = (uint32_t)a;
    if (size & 4) {
        uint32_t word;
        memcpy(&word, data, 4);
        state = _mm_crc32_u32(state, word);
        data += 4;
    }
    if (size & 2) {
        uint16_t word;
        memcpy(&word, data, 2);
        state = _mm_crc32_u16(state, word);
        data += 2;
    }
    if (size & 1)
        state = _mm_crc32_u8(state, *data);
    return ~state;
}

/* CRC-32 has no instruction. Sixteen bytes are moved on by 128 or 512 bits with two multiplications, four of them side
   by side, until sixteen bytes are left that have the same remainder as all; the tables take those in. */
static uint64_t crc32_by_512[2], crc32_by_128[2];

/* Return x to the power `exponent` modulo the polynomial of CRC-32, as 64 bits reflected. */
static uint64_t
crc32_power(int exponent)
{
    uint32_t power = 0x80000000u;
    for (; exponent > 0; exponent--)
        power = power >> 1 ^ (power & 1 ? CRC32_POLYNOMIAL : 0);
    return (uint64_t)power << 32;
}

/* The product of two reflected numbers comes out one bit low: hence the 1 less. The lower half of the sixteen bytes has
   the higher powers. */
static void
crc32_fill_factors(void)
{
    crc32_by_512[0] = crc32_power(512 + 64 - 1);
    crc32_by_512[1] = crc32_power(512 - 1);
    crc32_by_128[0] = crc32_power(128 + 64 - 1);
    crc32_by_128[1] = crc32_power(128 - 1);
}

__attribute__((target("sse4.2,pclmul"))) static inline __m128i
crc32_moved(__m128i bytes, __m128i factors, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(bytes, factors, 0x00), high = _mm_clmulepi64_si128(bytes, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t
crc32_pclmul(uint32_t value, const uint8_t *data, size_t size)
{
    if (size < 128)
        return crc32_table(value, data, size);
    const __m128i far = _mm_loadu_si128((const __m128i *)(const void *)crc32_by_512);
    const __m128i near = _mm_loadu_si128((const __m128i *)(const void *)crc32_by_128);
    const __m128i *next = (const __m128i *)(const void *)data;
    __m128i x[4];
    for (int n = 0; n < 4; n++)
        x[n] = _mm_loadu_si128(next++);
    x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)~value));
    for (data += 64, size -= 64; size >= 64; data += 64, size -= 64)
        for (int n = 0; n < 4; n++)
            x[n] = crc32_moved(x[n], far, _mm_loadu_si128(next++));
    for (int n = 1; n < 4; n++)
        x[n] = crc32_moved(x[n - 1], near, x[n]);
    uint8_t left[16];
    _mm_storeu_si128((__m128i *)(void *)left, x[3]);
    return crc32_table(crc32_table(~0u, left, sizeof left), data, size); /* ~0: the state it begins with is 0 */
}

#endif

#ifdef CRC_ARM

static uint32_t
crc32c_arm(uint32_t value, const uint8_t *data, size_t size)
{
    uint32_t state = ~value;
    for (; size >= 8; data += 8, size -= 8)
        state = __crc32cd(state, load_le64(data));
    for (; size > 0; data++, size--)
        state = __crc32cb(state, *data);
    return ~state;
}

static uint32_t
crc32_arm(uint32_t value, const uint8_t *data, size_t size)
{
    uint32_t state = ~value;
    for (; size >= 8; data += 8, size -= 8)
        state = __crc32d(state, load_le64(data));
    for (; size > 0; data++, size--)
        state = __crc32b(state, *data);
    return ~state;
}

#endif

static crc_function crc32c = crc32c_table;
static crc_function crc32_ieee = crc32_table;
static const char *crc_chosen = "table";

/* Choose the fastest way this processor has, or the tables if `portable`. */
static void
crc_choose(int portable)
{
    crc32c = crc32c_table;
    crc32_ieee = crc32_table;
    crc_chosen = "table";
    if (portable)
        return;
#if defined(CRC_X86)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) {
        crc32c = crc32c_sse42;
        crc32_ieee = crc32_pclmul;
        crc_chosen = "sse4.2";
    }
#elif defined(CRC_ARM)
    crc32c = crc32c_arm;
    crc32_ieee = crc32_arm;
    crc_chosen = "arm";
#endif
}

static void
crc_init(void)
{
    crc_fill_tables(crc32c_tables, CRC32C_POLYNOMIAL);
    crc_fill_tables(crc32_tables, CRC32_POLYNOMIAL);
#ifdef CRC_X86
    crc32c_fill_factors();
    crc32_fill_factors();
#endif
    crc_choose(0);
}

#endif
