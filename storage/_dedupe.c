/* The module `storage._dedupe`: the C kernel behind storage/dedupe_native.py.

   Three passes over the records of one batch of magic 2: their keys into the offset map, which of them stay, and those
   that stay moved to another base timestamp. The map is the block of storage/offset_map.py, word for word. No byte is
   read that was not bounded before, whatever the records claim. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

/* ---- MD5 (RFC 1321): a key is known by it, as in a broker; nothing is kept secret by it ---- */

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

/* ---- records ---- */

struct record {
    int64_t timestamp_delta, offset_delta;
    const uint8_t *rest; /* where the offset delta begins: what stays the same wherever the record goes */
    const uint8_t *end;
    const uint8_t *key; /* NULL: none */
    size_t key_size;
    int has_value;
};

/* Return the byte behind a zig-zag varint of `bits` bits, NULL if it does not end before `end` or takes too many. */
static const uint8_t *
read_varint(const uint8_t *at, const uint8_t *end, unsigned bits, int64_t *value)
{
    uint64_t number = 0;
    for (unsigned shift = 0; shift < bits; shift += 7) {
        if (at >= end)
            return NULL;
        const uint8_t byte = *at++;
        number |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            if (bits == 32) {
                const uint32_t half = (uint32_t)number;
                *value = (int32_t)(half >> 1 ^ (0 - (half & 1)));
            } else
                *value = (int64_t)(number >> 1 ^ (0 - (number & 1)));
            return at;
        }
    }
    return NULL;
}

/* Read the record at `at` and return the byte behind it, NULL if it is none. Headers are not looked at. */
static const uint8_t *
read_record(const uint8_t *at, const uint8_t *end, struct record *record)
{
    int64_t size;
    at = read_varint(at, end, 32, &size);
    if (at == NULL || size < 1 || size > end - at)
        return NULL;
    record->end = at + size;
    record->rest = read_varint(at + 1, record->end, 64, &record->timestamp_delta);
    if (record->rest == NULL)
        return NULL;
    at = read_varint(record->rest, record->end, 32, &record->offset_delta);
    if (at == NULL || (at = read_varint(at, record->end, 32, &size)) == NULL || size > record->end - at)
        return NULL;
    record->key = size < 0 ? NULL : at;
    record->key_size = size < 0 ? 0 : (size_t)size;
    at = read_varint(at + record->key_size, record->end, 32, &size);
    if (at == NULL || size > record->end - at)
        return NULL;
    record->has_value = size >= 0;
    return record->end;
}

static int64_t
sum_of(int64_t one, int64_t other)
{
    return (int64_t)((uint64_t)one + (uint64_t)other);
}

/* ---- the map ---- */

/* Return the slot of the key, or the free one where it belongs. There is a free one always. */
static uint64_t *
find_slot(uint64_t *words, uint64_t table, const struct record *record, uint64_t digest[2])
{
    md5(record->key, record->key_size, digest);
    uint64_t slot = digest[0] % table, step = 0, *place = words + slot * 3;
    while (place[2] && (place[0] != digest[0] || place[1] != digest[1])) {
        if (!step)
            step = digest[1] % (table - 1) + 1;
        slot += step;
        if (slot >= table)
            slot -= table;
        place = words + slot * 3;
    }
    return place;
}

static int
check_map(const Py_buffer *block, Py_ssize_t table)
{
    if (table < 2 || block->len % 24 || block->len / 24 != table || (uintptr_t)block->buf % sizeof(uint64_t) != 0) {
        PyErr_SetString(PyExc_ValueError, "the block is no map of so many slots");
        return 0;
    }
    return 1;
}

static PyObject *
refuse_records(void)
{
    PyErr_SetString(PyExc_ValueError, "the payload is not what the records should be");
    return NULL;
}

static PyObject *
module_put_keys(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer block, payload;
    Py_ssize_t table, count, size, limit;
    long long base, start, latest = -1;
    int is_full = 0, is_sound = 1;
    if (!PyArg_ParseTuple(args, "w*ny*nLLnn", &block, &table, &payload, &count, &base, &start, &size, &limit))
        return NULL;
    PyObject *result = NULL;
    if (limit > table - 1)
        PyErr_SetString(PyExc_ValueError, "the limit leaves no slot free");
    else if (check_map(&block, table)) {
        Py_BEGIN_ALLOW_THREADS
        const uint8_t *at = payload.buf, *end = at + payload.len;
        struct record record;
        uint64_t digest[2];
        for (Py_ssize_t n = 0; n < count; n++) {
            if ((at = read_record(at, end, &record)) == NULL) {
                is_sound = 0;
                break;
            }
            const int64_t offset = sum_of(base, record.offset_delta);
            if (record.key == NULL || offset < start)
                continue;
            if (size >= limit) {
                is_full = 1;
                break;
            }
            uint64_t *const slot = find_slot(block.buf, (uint64_t)table, &record, digest);
            if (!slot[2]) {
                memcpy(slot, digest, sizeof digest);
                size++;
            }
            slot[2] = (uint64_t)offset + 1;
            latest = offset;
        }
        Py_END_ALLOW_THREADS
        result = is_sound ? Py_BuildValue("nLO", size, latest, is_full ? Py_True : Py_False) : refuse_records();
    }
    PyBuffer_Release(&block);
    PyBuffer_Release(&payload);
    return result;
}

static PyObject *
module_mark_kept(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer block, payload, flags;
    Py_ssize_t table, count, kept = 0, tombstones = 0, unkeyed = 0;
    long long base, latest;
    int tombstones_stay, is_sound = 1;
    if (!PyArg_ParseTuple(args, "y*ny*nLLpw*", &block, &table, &payload, &count, &base, &latest, &tombstones_stay, &flags))
        return NULL;
    PyObject *result = NULL;
    if (count > flags.len)
        PyErr_SetString(PyExc_ValueError, "fewer flags than records");
    else if (check_map(&block, table)) {
        Py_BEGIN_ALLOW_THREADS
        const uint8_t *at = payload.buf, *end = at + payload.len;
        uint8_t *const stays = flags.buf;
        struct record record;
        uint64_t digest[2];
        for (Py_ssize_t n = 0; n < count; n++) {
            if ((at = read_record(at, end, &record)) == NULL) {
                is_sound = 0;
                break;
            }
            const int64_t offset = sum_of(base, record.offset_delta);
            if (offset > latest)
                stays[n] = 1;
            else if (record.key == NULL) {
                stays[n] = 0;
                unkeyed++;
            } else
                stays[n] = (record.has_value || tombstones_stay)
                    && offset >= (int64_t)(find_slot(block.buf, (uint64_t)table, &record, digest)[2] - 1);
            kept += stays[n];
            tombstones += stays[n] && !record.has_value;
        }
        Py_END_ALLOW_THREADS
        result = is_sound ? Py_BuildValue("nnn", kept, tombstones, unkeyed) : refuse_records();
    }
    PyBuffer_Release(&block);
    PyBuffer_Release(&payload);
    PyBuffer_Release(&flags);
    return result;
}

/* ---- moving records ---- */

static uint8_t *
write_varint(uint8_t *at, int64_t value)
{
    uint64_t left = (uint64_t)value << 1 ^ (0 - ((uint64_t)value >> 63));
    for (; left > 0x7f; left >>= 7)
        *at++ = (uint8_t)(left | 0x80);
    *at++ = (uint8_t)left;
    return at;
}

static uint8_t *
write_moved(uint8_t *out, const struct record *record, int64_t timestamp_delta)
{
    uint8_t delta[10];
    const size_t width = (size_t)(write_varint(delta, timestamp_delta) - delta);
    const size_t rest = (size_t)(record->end - record->rest);
    out = write_varint(out, (int64_t)(1 + width + rest));
    *out++ = 0;
    memcpy(out, delta, width);
    memcpy(out + width, record->rest, rest);
    return out + width + rest;
}

#define MOST_ADDED 16 /* bytes by which a record may grow: a timestamp delta of ten instead of one, and its size */

static PyObject *
module_move_records(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer payload, flags;
    Py_ssize_t count;
    long long old_base, time, base;
    int is_fixed, has_base;
    if (!PyArg_ParseTuple(args, "y*y*nLpLpL", &payload, &flags, &count, &old_base, &is_fixed, &time, &has_base, &base))
        return NULL;
    PyObject *out = NULL;
    long long newest = INT64_MIN;
    if (count < 0 || count > flags.len || count > (PY_SSIZE_T_MAX - payload.len) / MOST_ADDED)
        PyErr_SetString(PyExc_ValueError, "fewer flags than records");
    else if ((out = PyBytes_FromStringAndSize(NULL, payload.len + MOST_ADDED * count)) != NULL) {
        uint8_t *const first = (uint8_t *)PyBytes_AS_STRING(out), *place = first;
        const uint8_t *at = payload.buf, *end = at + payload.len, *stays = flags.buf;
        struct record record;
        for (Py_ssize_t n = 0; n < count && at != NULL; n++) {
            if ((at = read_record(at, end, &record)) == NULL || !stays[n])
                continue;
            const int64_t its = is_fixed ? time : sum_of(old_base, record.timestamp_delta);
            if (!has_base) {
                base = its;
                has_base = 1;
            }
            if (its > newest)
                newest = its;
            place = write_moved(place, &record, (int64_t)((uint64_t)its - (uint64_t)base));
        }
        if (at == NULL) {
            Py_CLEAR(out);
            refuse_records();
        } else
            _PyBytes_Resize(&out, place - first);
    }
    PyBuffer_Release(&payload);
    PyBuffer_Release(&flags);
    return out == NULL ? NULL : Py_BuildValue("NLL", out, base, newest);
}

static PyMethodDef METHODS[] = {
    {"put_keys", module_put_keys, METH_VARARGS, NULL},
    {"mark_kept", module_mark_kept, METH_VARARGS, NULL},
    {"move_records", module_move_records, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, .m_name = "storage._dedupe", .m_size = 0, .m_methods = METHODS,
};

PyMODINIT_FUNC
PyInit__dedupe(void)
{
    return PyModule_Create(&MODULE);
}
