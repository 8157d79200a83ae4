/* MD5 (RFC 1321): a key is known by it, as in a broker; nothing is kept secret by it. No Python here. */

#ifndef LOGMEND_MD5_H
#define LOGMEND_MD5_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static const uint32_t SINES[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};
static const uint8_t TURNS[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

static uint32_t
turn(uint32_t value, unsigned by)
{
    return value << by | value >> (32 - by);
}

static uint32_t
read_little(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void
md5_block(uint32_t state[4], const uint8_t *block)
{
    uint32_t words[16], a = state[0], b = state[1], c = state[2], d = state[3];
    for (unsigned i = 0; i < 16; i++)
        words[i] = read_little(block + 4 * i);
#define STEP(mix, word, i, round)                                       \
    do {                                                                \
        const uint32_t sum = a + (mix) + SINES[i] + words[word];        \
        a = d; d = c; c = b;                                            \
        b += turn(sum, TURNS[round][(i) & 3]);                          \
    } while (0)
    for (unsigned i = 0; i < 16; i++)
        STEP((b & c) | (~b & d), i, i, 0);
    for (unsigned i = 16; i < 32; i++)
        STEP((d & b) | (~d & c), (5 * i + 1) & 15, i, 1);
    for (unsigned i = 32; i < 48; i++)
        STEP(b ^ c ^ d, (3 * i + 5) & 15, i, 2);
    for (unsigned i = 48; i < 64; i++)
        STEP(c ^ (b | ~d), (7 * i) & 15, i, 3);
#undef STEP
    state[0] += a; state[1] += b; state[2] += c; state[3] += d;
}

/* Put the digest into two words, its bytes in the order of memory. */
static void
md5(const uint8_t *data, size_t size, uint64_t words[2])
{
    uint32_t state[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
    uint8_t tail[128] = {0}, digest[16];
    const uint64_t bits = (uint64_t)size * 8;
    size_t left = size;
    for (; left >= 64; left -= 64, data += 64)
        md5_block(state, data);
    if (left)
        memcpy(tail, data, left);
    tail[left] = 0x80;
    const size_t end = left < 56 ? 64 : 128;
    for (unsigned i = 0; i < 8; i++)
        tail[end - 8 + i] = (uint8_t)(bits >> 8 * i);
    for (size_t at = 0; at < end; at += 64)
        md5_block(state, tail + at);
    for (unsigned i = 0; i < 16; i++)
        digest[i] = (uint8_t)(state[i / 4] >> 8 * (i % 4));
    memcpy(words, digest, sizeof digest);
}

/* The steps of a digest wait for each other; those of other keys fill the time. */
#define LANES 8

#if defined(__GNUC__)
#define MD5_LANES 1

typedef uint32_t lanes __attribute__((vector_size(4 * LANES)));

/* Put the digests of `LANES` blocks, words first, into `states`: what md5_block does, for all of them at once. */
static void
md5_blocks(uint32_t states[4][LANES], const uint32_t blocks[16][LANES])
{
    static const uint32_t first[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
    lanes words[16], a, b, c, d;
    memcpy(words, blocks, sizeof words);
    a = first[0] + (lanes){0};
    b = first[1] + (lanes){0};
    c = first[2] + (lanes){0};
    d = first[3] + (lanes){0};
#define STEP(mix, word, i, round)                                                                      \
    do {                                                                                               \
        const lanes sum = a + (mix) + SINES[i] + words[word];                                          \
        a = d; d = c; c = b;                                                                           \
        b += sum << TURNS[round][(i) & 3] | sum >> (32 - TURNS[round][(i) & 3]);                       \
    } while (0)
    for (unsigned i = 0; i < 16; i++)
        STEP((b & c) | (~b & d), i, i, 0);
    for (unsigned i = 16; i < 32; i++)
        STEP((d & b) | (~d & c), (5 * i + 1) & 15, i, 1);
    for (unsigned i = 32; i < 48; i++)
        STEP(b ^ c ^ d, (3 * i + 5) & 15, i, 2);
    for (unsigned i = 48; i < 64; i++)
        STEP(c ^ (b | ~d), (7 * i) & 15, i, 3);
#undef STEP
    a += first[0];
    b += first[1];
    c += first[2];
    d += first[3];
    memcpy(states[0], &a, sizeof a);
    memcpy(states[1], &b, sizeof b);
    memcpy(states[2], &c, sizeof c);
    memcpy(states[3], &d, sizeof d);
}

#endif

#endif
