/* Numbers as they are stored, entries of an index, and the records in a batch of magic 2.

   No Python here, nothing is allocated, and every length is bounded by what is left before anything moves by it.
   Sources: Apache Kafka 4.3.0, DefaultRecord, OffsetIndex, TimeIndex. */

#ifndef LOGMEND_RECORDS_H
#define LOGMEND_RECORDS_H

#include <stddef.h>
#include <stdint.h>

static inline uint32_t
be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline int64_t
signed16(const uint8_t *p)
{
    return (int16_t)((uint16_t)p[0] << 8 | p[1]);
}

static inline int64_t
signed32(const uint8_t *p)
{
    return (int32_t)be32(p);
}

static inline int64_t
signed64(const uint8_t *p)
{
    return (int64_t)((uint64_t)be32(p) << 32 | be32(p + 4));
}

/* ---- records ---- */

static inline int64_t
unzigzag(uint64_t raw)
{
    return (int64_t)(raw >> 1 ^ (0 - (raw & 1)));
}

static inline int
read_long_varint(const uint8_t *data, size_t *place, size_t end, int most, int64_t *number)
{
    uint64_t raw = 0;
    for (int n = 0; n < most && *place < end; n++) {
        const uint8_t byte = data[(*place)++];
        raw |= (uint64_t)(byte & 0x7F) << (7 * n);
        if (byte < 0x80) {
            *number = unzigzag(most == 5 ? (uint32_t)raw : raw);
            return 1;
        }
    }
    return 0;
}

/* Read a zig-zag number of at most `most` bytes at *place, bits beyond 32 (`most` 5) or 64 cut off. False if there is
   none that ends before `end`. Nearly all have one byte or two. */
static inline int
read_varint(const uint8_t *data, size_t *place, size_t end, int most, int64_t *number)
{
    const size_t at = *place;
    if (at < end && data[at] < 0x80) {
        *number = unzigzag(data[at]);
        *place = at + 1;
        return 1;
    }
    if (end - at >= 2 && at < end && data[at + 1] < 0x80) {
        *number = unzigzag((uint64_t)(data[at] & 0x7F) | (uint64_t)data[at + 1] << 7);
        *place = at + 2;
        return 1;
    }
    return read_long_varint(data, place, end, most, number);
}

struct bytes_field {
    const uint8_t *data; /* NULL for null */
    size_t size;
};

static inline int
read_bytes(const uint8_t *data, size_t *place, size_t end, struct bytes_field *field)
{
    int64_t size;
    if (!read_varint(data, place, end, 5, &size))
        return 0;
    field->data = NULL;
    field->size = 0;
    if (size < 0)
        return 1;
    if ((uint64_t)size > end - *place)
        return 0;
    field->data = data + *place;
    field->size = (size_t)size;
    *place += (size_t)size;
    return 1;
}

static inline int
read_headers(const uint8_t *data, size_t *place, size_t end)
{
    int64_t count;
    if (!read_varint(data, place, end, 5, &count) || count < 0 || (uint64_t)count > end - *place)
        return 0;
    for (; count > 0; count--) {
        struct bytes_field name, content;
        if (!read_bytes(data, place, end, &name) || name.data == NULL || !read_bytes(data, place, end, &content))
            return 0;
    }
    return 1;
}

struct record {
    struct bytes_field key, value;
    int64_t timestamp_delta, offset_delta;
};

/* Read the record at *place and move behind it; false, with *place undefined, if it is not sound. */
static inline int
read_record(const uint8_t *data, size_t *place, size_t size, struct record *record)
{
    int64_t body;
    if (!read_varint(data, place, size, 5, &body) || body < 1 || (uint64_t)body > size - *place)
        return 0;
    /* The next record begins behind these bytes, not behind the fields, which end there too: so the processor need
       not wait for them. */
    const size_t end = *place + (size_t)body;
    size_t at = *place + 1; /* behind the attributes */
    *place = end;
    return read_varint(data, &at, end, 10, &record->timestamp_delta)
        && read_varint(data, &at, end, 5, &record->offset_delta) && read_bytes(data, &at, end, &record->key)
        && read_bytes(data, &at, end, &record->value) && read_headers(data, &at, end) && at == end;
}

/* Where a search for a record has come to: the bytes of the records it is behind, and how many records there are still. */
struct search {
    size_t place;
    int64_t left;
};

/* Find the first record from `timestamp` and from `offset_delta` on; false if there is none before the search has come to
   the last record, or to one that is not sound, or not whole: with more of the bytes it may go on from there. */
static inline int
find_record(const uint8_t *data, size_t size, struct search *search, int64_t base_timestamp, int64_t timestamp,
            int64_t offset_delta, struct record *record)
{
    size_t place = search->place;
    for (; search->left > 0 && read_record(data, &place, size, record); search->left--) {
        search->place = place;
        record->timestamp_delta = (int64_t)((uint64_t)base_timestamp + (uint64_t)record->timestamp_delta);
        if (record->timestamp_delta >= timestamp && record->offset_delta >= offset_delta)
            return 1;
    }
    return 0;
}

/* ---- entries of an index, which rise ---- */

/* Return how many begin with a number up to `target`, of 4 bytes in entries of 8 and of 8 bytes in entries of 12. */
static inline size_t
count_up_to(const uint8_t *entries, size_t size, size_t width, int64_t target)
{
    size_t low = 0, high = size / width;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const uint8_t *const entry = entries + middle * width;
        if (target < (width == 8 ? signed32(entry) : signed64(entry)))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

#endif
