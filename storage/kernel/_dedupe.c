/* The module `storage.kernel._dedupe`: the C kernel behind storage/dedupe_native.py.

   Three passes over the records of one batch of magic 2: their keys into the offset map, which of them stay, and those
   that stay moved to another base timestamp. The map is the block of storage/cleanup/offset_map.py, word for word. No byte is
   read that was not bounded before, whatever the records claim. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_md5.h"

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

/* ---- several keys side by side ---- */

struct group {
    unsigned count;
    Py_ssize_t numbers[LANES]; /* of the records in their batch */
    int64_t offsets[LANES];
    struct record records[LANES];
    uint64_t digests[LANES][2], slots[LANES];
};

#ifdef MD5_LANES

/* Put the digests of keys of one block each into the group; of longer ones too, one by one. */
static void
group_digests(struct group *group)
{
    uint32_t blocks[16][LANES] = {{0}}, states[4][LANES];
    for (unsigned n = 0; n < group->count; n++) {
        const struct record *const record = &group->records[n];
        if (record->key_size > 55)
            continue;
        uint8_t block[64] = {0};
        if (record->key_size)
            memcpy(block, record->key, record->key_size);
        block[record->key_size] = 0x80;
        block[56] = (uint8_t)(record->key_size << 3);
        block[57] = (uint8_t)(record->key_size >> 5);
        for (unsigned i = 0; i < 16; i++)
            blocks[i][n] = read_little(block + 4 * i);
    }
    md5_blocks(states, blocks);
    for (unsigned n = 0; n < group->count; n++) {
        const struct record *const record = &group->records[n];
        uint8_t digest[16];
        for (unsigned i = 0; i < 16; i++)
            digest[i] = (uint8_t)(states[i / 4][n] >> 8 * (i % 4));
        if (record->key_size > 55)
            md5(record->key, record->key_size, group->digests[n]);
        else
            memcpy(group->digests[n], digest, sizeof digest);
    }
}

#else

static void
group_digests(struct group *group)
{
    for (unsigned n = 0; n < group->count; n++)
        md5(group->records[n].key, group->records[n].key_size, group->digests[n]);
}

#define __builtin_prefetch(address) ((void)(address))

#endif

/* Add a record to the group, which has room. */
static void
group_add(struct group *group, const struct record *record, int64_t offset, Py_ssize_t number)
{
    group->records[group->count] = *record;
    group->offsets[group->count] = offset;
    group->numbers[group->count++] = number;
}

/* Find out where the search for each key begins, and ask for the memory there: most of it is in no cache. */
static void
group_begin(struct group *group, uint64_t *words, uint64_t table)
{
    group_digests(group);
    for (unsigned n = 0; n < group->count; n++) {
        group->slots[n] = group->digests[n][0] % table;
        __builtin_prefetch(words + group->slots[n] * 3);
        __builtin_prefetch(words + group->slots[n] * 3 + 2);
    }
}

/* ---- the map ---- */

/* Return the slot of a key of the group, or the free one where it belongs. There is a free one always. */
static uint64_t *
find_slot(uint64_t *words, uint64_t table, const struct group *group, unsigned number)
{
    const uint64_t *const digest = group->digests[number];
    uint64_t slot = group->slots[number], step = 0, *place = words + slot * 3;
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

/* What is put into a map, and how far that is. */
struct filling {
    uint64_t *words, table;
    Py_ssize_t size, limit;
    int64_t latest;
    int is_full;
};

/* Put the keys of the group into the map, up to the one for which there is no room. */
static void
group_put(struct group *group, struct filling *filling)
{
    group_begin(group, filling->words, filling->table);
    for (unsigned n = 0; n < group->count && !filling->is_full; n++) {
        if (filling->size >= filling->limit) {
            filling->is_full = 1;
            break;
        }
        uint64_t *const slot = find_slot(filling->words, filling->table, group, n);
        if (!slot[2]) {
            memcpy(slot, group->digests[n], sizeof group->digests[n]);
            filling->size++;
        }
        slot[2] = (uint64_t)group->offsets[n] + 1;
        filling->latest = group->offsets[n];
    }
    group->count = 0;
}

/* Put the keys of records into the map; false if one of the records before the map is full is not sound. */
static int
put_records(struct filling *filling, const uint8_t *at, const uint8_t *end, Py_ssize_t count, int64_t base, int64_t start)
{
    struct group group = {.count = 0};
    struct record record;
    Py_ssize_t n = 0;
    for (; n < count && !filling->is_full; n++) {
        if ((at = read_record(at, end, &record)) == NULL)
            break;
        const int64_t offset = sum_of(base, record.offset_delta);
        if (record.key == NULL || offset < start)
            continue;
        group_add(&group, &record, offset, n);
        if (group.count == LANES)
            group_put(&group, filling);
    }
    if (group.count)
        group_put(&group, filling);
    return at != NULL || filling->is_full;
}

static PyObject *
module_put_keys(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer block, payload;
    Py_ssize_t table, count, size, limit;
    long long base, start;
    if (!PyArg_ParseTuple(args, "w*ny*nLLnn", &block, &table, &payload, &count, &base, &start, &size, &limit))
        return NULL;
    PyObject *result = NULL;
    if (limit > table - 1)
        PyErr_SetString(PyExc_ValueError, "the limit leaves no slot free");
    else if (check_map(&block, table)) {
        struct filling filling = {block.buf, (uint64_t)table, size, limit, -1, 0};
        const uint8_t *const first = payload.buf;
        int is_sound;
        Py_BEGIN_ALLOW_THREADS
        is_sound = put_records(&filling, first, first + payload.len, count, base, start);
        Py_END_ALLOW_THREADS
        result = is_sound ? Py_BuildValue("nLO", filling.size, (long long)filling.latest, filling.is_full ? Py_True : Py_False)
                          : refuse_records();
    }
    PyBuffer_Release(&block);
    PyBuffer_Release(&payload);
    return result;
}

/* What stays of a batch. */
struct keeping {
    uint64_t *words, table;
    int64_t latest;
    uint8_t *stays;
    int tombstones_stay;
    Py_ssize_t kept, tombstones, unkeyed;
};

/* Decide on the records of the group, which the map knows. */
static void
group_mark(struct group *group, struct keeping *keeping)
{
    group_begin(group, keeping->words, keeping->table);
    for (unsigned n = 0; n < group->count; n++) {
        const uint64_t *const slot = find_slot(keeping->words, keeping->table, group, n);
        const int stays = group->offsets[n] >= (int64_t)(slot[2] - 1);
        keeping->stays[group->numbers[n]] = (uint8_t)stays;
        keeping->kept += stays;
        keeping->tombstones += stays && !group->records[n].has_value;
    }
    group->count = 0;
}

/* Flag the records that stay; false if one of them is not sound. */
static int
mark_records(struct keeping *keeping, const uint8_t *at, const uint8_t *end, Py_ssize_t count, int64_t base)
{
    struct group group = {.count = 0};
    struct record record;
    for (Py_ssize_t n = 0; n < count; n++) {
        if ((at = read_record(at, end, &record)) == NULL)
            return 0;
        const int64_t offset = sum_of(base, record.offset_delta);
        const int is_behind = offset > keeping->latest;
        keeping->stays[n] = (uint8_t)is_behind;
        keeping->kept += is_behind;
        keeping->tombstones += is_behind && !record.has_value;
        if (is_behind)
            continue;
        if (record.key == NULL)
            keeping->unkeyed++;
        else if (record.has_value || keeping->tombstones_stay)
            group_add(&group, &record, offset, n);
        if (group.count == LANES)
            group_mark(&group, keeping);
    }
    if (group.count)
        group_mark(&group, keeping);
    return 1;
}

static PyObject *
module_mark_kept(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer block, payload, flags;
    Py_ssize_t table, count;
    long long base, latest;
    int tombstones_stay;
    if (!PyArg_ParseTuple(args, "y*ny*nLLpw*", &block, &table, &payload, &count, &base, &latest, &tombstones_stay, &flags))
        return NULL;
    PyObject *result = NULL;
    if (count > flags.len)
        PyErr_SetString(PyExc_ValueError, "fewer flags than records");
    else if (check_map(&block, table)) {
        struct keeping keeping = {block.buf, (uint64_t)table, latest, flags.buf, tombstones_stay, 0, 0, 0};
        const uint8_t *const first = payload.buf;
        int is_sound;
        Py_BEGIN_ALLOW_THREADS
        is_sound = mark_records(&keeping, first, first + payload.len, count, base);
        Py_END_ALLOW_THREADS
        result = is_sound ? Py_BuildValue("nnn", keeping.kept, keeping.tombstones, keeping.unkeyed) : refuse_records();
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
    PyModuleDef_HEAD_INIT, .m_name = "storage.kernel._dedupe", .m_size = 0, .m_methods = METHODS,
};

PyMODINIT_FUNC
PyInit__dedupe(void)
{
    return PyModule_Create(&MODULE);
}
