/* The scanner over a buffer: the same answers as storage/kernel/python/scan_python.py, byte for byte.

   No Python here, nothing is allocated, and every length is bounded by what is left before anything moves by it.
   Sources: Apache Kafka 4.3.0, DefaultRecordBatch, LegacyRecord, DefaultRecord, EndTransactionMarker. */

#ifndef LOGMEND_BATCHES_H
#define LOGMEND_BATCHES_H

#include "_judge.h"

/* The order of storage.base.rows.COLUMNS. */
enum column {
    POSITION, SIZE, BASE_OFFSET, LAST_OFFSET, MAGIC, ATTRIBUTES, CRC, LEADER_EPOCH, MAX_TIMESTAMP, PRODUCER_ID,
    PRODUCER_EPOCH, BASE_SEQUENCE, RECORD_COUNT, CONTROL, COLUMNS
};
#define COLUMN_NAMES \
    "position", "size", "base_offset", "last_offset", "magic", "attributes", "crc", "leader_epoch", "max_timestamp", \
    "producer_id", "producer_epoch", "base_sequence", "record_count", "control"

enum { CONTROL_NONE = -1, CONTROL_EMPTY = -2, CONTROL_UNREADABLE = -3 };
enum { CONTROL_BIT = 0x20, CODEC_BITS = 0x07 };

struct scanned {
    size_t count, size;
    enum stop stop;
};

static int64_t
check_records(const uint8_t *data, size_t size, int64_t count)
{
    size_t place = 0;
    if (count <= 0)
        return count == 0 ? -1 : 0;
    for (; count > 0; count--) {
        const size_t start = place;
        struct record record;
        if (!read_record(data, &place, size, &record))
            return (int64_t)start;
    }
    return place == size ? -1 : (int64_t)place;
}

/* What storage.base.rows.Walked holds. */
struct walked {
    int64_t count, least, most;
    size_t place;
    int is_dense, lacks_key;
};

static struct walked
walk_records(const uint8_t *data, size_t size, int64_t count, int64_t first, int64_t base_timestamp)
{
    int64_t done = 0, least = INT64_MAX, most = -1, odd = 0;
    size_t place = 0, behind = 0;
    int lacks_key = 0;
    for (; done < count; done++) {
        struct record record;
        if (!read_record(data, &place, size, &record))
            break;
        const int64_t timestamp = (int64_t)((uint64_t)base_timestamp + (uint64_t)record.timestamp_delta);
        most = timestamp > most ? timestamp : most;
        least = timestamp < least && timestamp != -1 ? timestamp : least;
        odd |= record.offset_delta ^ (first + done);
        lacks_key |= record.key.data == NULL;
        behind = place;
    }
    return (struct walked){done, least, most, behind, odd == 0, lacks_key};
}

static int64_t
read_control(const uint8_t *payload, size_t size, int64_t attributes, int64_t records)
{
    size_t place = 0;
    struct record record;
    if (records == 0)
        return CONTROL_EMPTY;
    if (records < 0 || attributes & CODEC_BITS || !read_record(payload, &place, size, &record))
        return CONTROL_UNREADABLE;
    const struct bytes_field key = record.key, value = record.value;
    if (key.data == NULL || value.data == NULL || key.size < 4 || value.size < 6 || (records == 1 && place != size))
        return CONTROL_UNREADABLE;
    const int64_t kind = signed16(key.data + 2);
    if (signed16(key.data) < 0 || signed16(value.data) < 0 || kind < 0 || kind > 1)
        return CONTROL_UNREADABLE;
    return kind << 32 | be32(value.data + 2);
}

/* ---- batches ---- */

/* A client's batch that a leader may take as it is. */
struct led {
    struct walked walked;
    int64_t producer_id;
    int attributes, producer_epoch, base_sequence;
};

/* Tell whether `data` is one whole batch of magic 2 without codec, as a client sends it, with nothing to refuse and nothing
   to set but what lies outside the checksum; false only asks for a closer look. */
static int
lead_batch(const uint8_t *data, size_t size, struct led *led)
{
    if (size < V2_HEADER || signed64(data) != 0 || signed32(data + 8) != (int64_t)size - 12 || data[16] != 2)
        return 0;
    led->attributes = (int)signed16(data + 21);
    led->producer_id = signed64(data + 43);
    led->producer_epoch = (int)signed16(data + 51);
    led->base_sequence = (int)signed32(data + 53);
    const int64_t count = signed32(data + 57);
    if ((led->attributes & ~0x10) != 0 || count <= 0 || count != signed32(data + 23) + 1
        || (led->producer_id >= 0 && led->base_sequence < 0) || !sum_holds(data, size, 2))
        return 0;
    led->walked = walk_records(data + V2_HEADER, size - V2_HEADER, count, 0, signed64(data + 27));
    return led->walked.count == count && led->walked.place == size - V2_HEADER
        && led->walked.most == signed64(data + 35);
}

/* Rows wait here until a cache line of each column is full: columns whose distance is a multiple of 4096 bytes would
   otherwise push each other out of the first-level cache at every row. */
enum { STAGED = 8 };

struct rows {
    int64_t *block; /* columns one after another */
    size_t capacity, count;
    int64_t staged[COLUMNS][STAGED];
};

/* Write out what was staged since the last full line; there must be a row. */
static inline void
flush_rows(struct rows *rows)
{
    const size_t some = rows->count % STAGED, number = some ? some : STAGED, first = rows->count - number;
    for (int column = 0; column < COLUMNS; column++)
        memcpy(rows->block + (size_t)column * rows->capacity + first, rows->staged[column], number * sizeof(int64_t));
}

static inline void
next_row(struct rows *rows)
{
    if (++rows->count % STAGED == 0)
        flush_rows(rows);
}

static inline void
set_v2(struct rows *rows, const uint8_t *batch, size_t size)
{
    int64_t (*const row)[STAGED] = rows->staged;
    const size_t n = rows->count % STAGED;
    const int64_t attributes = signed16(batch + 21), producer = signed64(batch + 43), records = signed32(batch + 57);
    row[MAGIC][n] = 2;
    row[ATTRIBUTES][n] = attributes;
    row[CRC][n] = be32(batch + 17);
    row[LEADER_EPOCH][n] = signed32(batch + 12);
    row[MAX_TIMESTAMP][n] = signed64(batch + 35);
    row[PRODUCER_ID][n] = producer;
    row[PRODUCER_EPOCH][n] = signed16(batch + 51);
    row[BASE_SEQUENCE][n] = signed32(batch + 53);
    row[RECORD_COUNT][n] = records;
    row[CONTROL][n] = CONTROL_NONE;
    if (attributes & CONTROL_BIT && producer > -1)
        row[CONTROL][n] = read_control(batch + V2_HEADER, size - V2_HEADER, attributes, records);
}

static inline void
set_legacy(struct rows *rows, const uint8_t *entry)
{
    int64_t (*const row)[STAGED] = rows->staged;
    const size_t n = rows->count % STAGED;
    row[MAGIC][n] = entry[16];
    row[ATTRIBUTES][n] = (int8_t)entry[17];
    row[CRC][n] = be32(entry + 12);
    row[MAX_TIMESTAMP][n] = entry[16] == 0 ? -1 : signed64(entry + 18);
    row[LEADER_EPOCH][n] = row[PRODUCER_ID][n] = row[PRODUCER_EPOCH][n] = row[BASE_SEQUENCE][n] = -1;
    row[RECORD_COUNT][n] = -1;
    row[CONTROL][n] = CONTROL_NONE;
}

/* Ask for what small batches reach soon: each sum ends too early for the processor to foresee the next one. The address
   may lie behind the window; nothing is read from it. */
static inline void
prefetch_behind(const uint8_t *batch)
{
    for (uintptr_t ahead = 2048; ahead < 2048 + 192; ahead += 64)
        __builtin_prefetch((const void *)((uintptr_t)batch + ahead));
}

static inline struct scanned
scan_window(const uint8_t *window, size_t length, int64_t *block, size_t capacity, int64_t position, int64_t next,
            int verify)
{
    struct rows rows = {.block = block, .capacity = capacity};
    size_t place = 0;
    enum stop stop = END;
    while (place != length) {
        const uint8_t *const batch = window + place;
        size_t size = 0;
        if (rows.count == capacity) {
            stop = ROWS_FULL;
            break;
        }
        prefetch_behind(batch);
        stop = judge(batch, length - place, verify, &size);
        if (stop != END)
            break;
        const int64_t base = signed64(batch), delta = batch[16] == 2 ? signed32(batch + 23) : 0;
        if (base < next || delta < 0 || base >= INT64_MAX - delta) {
            stop = BAD_ORDER;
            break;
        }
        const size_t n = rows.count % STAGED;
        rows.staged[POSITION][n] = position + (int64_t)place;
        rows.staged[SIZE][n] = (int64_t)size;
        rows.staged[BASE_OFFSET][n] = base;
        rows.staged[LAST_OFFSET][n] = base + delta;
        if (batch[16] == 2)
            set_v2(&rows, batch, size);
        else
            set_legacy(&rows, batch);
        next_row(&rows);
        next = base + delta + 1;
        place += size;
    }
    if (rows.count % STAGED)
        flush_rows(&rows);
    return (struct scanned){.count = rows.count, .size = place, .stop = stop};
}

/* `capacity` rows of `block` are written at most; position + length must fit an int64. */
static struct scanned
scan_batches(const uint8_t *window, size_t length, int64_t *block, size_t capacity, int64_t position, int64_t next)
{
    return scan_window(window, length, block, capacity, position, next, 1);
}

static struct scanned
walk_headers(const uint8_t *window, size_t length, int64_t *block, size_t capacity, int64_t position, int64_t next)
{
    return scan_window(window, length, block, capacity, position, next, 0);
}

/* Tell whether a header that could be a batch's stands at `batch`, of which `left` bytes (17 or more) are there. */
static inline int
is_shaped(const uint8_t *batch, size_t left, int64_t lowest, int64_t highest)
{
    const int64_t field = signed32(batch + 8);
    if (batch[16] > 2 || field < LEGACY_LEAST - 12 || (uint64_t)field + 12 > left)
        return 0;
    const int64_t base = signed64(batch);
    if (base < lowest || base > highest || base == INT64_MAX)
        return 0;
    if (batch[16] < 2)
        return 1;
    const int64_t delta = field + 12 >= V2_HEADER ? signed32(batch + 23) : -1;
    return delta >= 0 && delta < INT64_MAX - base;
}

static int64_t
find_batch(const uint8_t *window, size_t length, size_t start, int64_t lowest, int64_t highest)
{
    uint64_t budget = 2 * (uint64_t)length;
    if (lowest < 0)
        lowest = 0;
    for (size_t place = start; place < length && length - place >= LEAST; place++) {
        const uint8_t *const batch = window + place;
        if (!is_shaped(batch, length - place, lowest, highest))
            continue;
        const size_t size = (size_t)signed32(batch + 8) + 12, summed = size - (batch[16] == 2 ? 21 : 16);
        if (summed > budget)
            return -2;
        budget -= summed;
        if (sum_holds(batch, size, batch[16]))
            return (int64_t)place;
    }
    return -1;
}

#endif
