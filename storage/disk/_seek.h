/* Where the batch of an offset, or the first record of a time, lies in a `.log`: headers, and the records of one batch.

   No Python here, and no memory but the stack's. Whatever is odd is left to storage/reading/segment_walk.py and storage/log/log_read.py,
   which say the same of all else. Source: Apache Kafka 4.3.0, FileRecords, LogSegment.findOffsetByTimestamp. */

#ifndef LOGMEND_SEEK_H
#define LOGMEND_SEEK_H

#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "../kernel/_records.h"

enum { SEEK_HEADER = 61, SEEK_OVERHEAD = 12, SEEK_PIECE = 8 << 10, SEEK_BODY = 64 << 10, SEEK_NOT_PLAIN = 0x0F };

struct place {
    int64_t position, size, base_offset, last_offset, max_timestamp;
};

/* What of a file is in memory. */
struct piece {
    int64_t position;
    size_t filled;
    uint8_t bytes[SEEK_PIECE];
};

/* Where a search may begin: at the position of an index entry, with that of the entry behind it, -1 if there is none. */
struct hint {
    int64_t start, next;
};

static inline int64_t
wrapped_sum(int64_t one, int64_t other)
{
    return (int64_t)((uint64_t)one + (uint64_t)other);
}

/* Look up `relative` in an offset index: the last entry up to it, and the one behind that. */
static inline struct hint
hint_of(const uint8_t *entries, size_t size, int64_t relative)
{
    const size_t count = count_up_to(entries, size, 8, relative);
    return (struct hint){
        count ? signed32(entries + 8 * count - 4) : 0,
        count < size / 8 ? signed32(entries + 8 * count + 4) : -1,
    };
}

/* Have `wanted` bytes at `position` in memory, if the file and its `end` have them; false if not even a header is there. */
static inline int
piece_read(struct piece *piece, int file, int64_t position, int64_t end, size_t wanted)
{
    if (end - position < SEEK_HEADER)
        return 0;
    if (wanted > SEEK_PIECE)
        wanted = SEEK_PIECE;
    if ((int64_t)wanted > end - position)
        wanted = (size_t)(end - position);
    const ssize_t filled = pread(file, piece->bytes, wanted, (off_t)position);
    piece->position = position;
    piece->filled = filled < 0 ? 0 : (size_t)filled;
    return filled >= SEEK_HEADER;
}

/* Read the header of the batch at `position`, which is in memory; false where it is none of magic 2 that ends by `end`. */
static inline int
place_read(const struct piece *piece, int64_t position, int64_t end, struct place *found)
{
    const uint8_t *const header = piece->bytes + (position - piece->position);
    const int64_t size = signed32(header + 8) + SEEK_OVERHEAD, base = signed64(header);
    *found = (struct place){position, size, base, wrapped_sum(base, signed32(header + 23)), signed64(header + 35)};
    return header[16] == 2 && size >= SEEK_HEADER && size <= end - position && base >= 0;
}

/* Find the first batch from `hint.start` on that reaches `offset` or `timestamp` and ends by `end`; false where anything
   but batches of magic 2 comes before it, or the disk refuses: then Python has to look. */
static inline int
place_find(struct piece *piece, int file, struct hint hint, int64_t end, int64_t offset, int64_t timestamp,
           struct place *found)
{
    int64_t position = hint.start;
    /* With an entry for each batch, as of large ones, the header of the next one is all that is needed. */
    if (position < 0 || end < 0)
        return 0;
    const int64_t ahead = hint.next - position;
    if (ahead >= SEEK_PIECE && timestamp == INT64_MAX && piece_read(piece, file, hint.next, end, SEEK_HEADER)
        && place_read(piece, hint.next, end, found) && found->base_offset <= offset && found->last_offset >= offset)
        return 1;
    size_t wanted = ahead > 0 && ahead < SEEK_PIECE ? (size_t)ahead + SEEK_HEADER : SEEK_PIECE;
    while (piece_read(piece, file, position, end, wanted)) {
        while (position - piece->position <= (int64_t)piece->filled - SEEK_HEADER) {
            if (!place_read(piece, position, end, found))
                return 0;
            if (found->last_offset >= offset || found->max_timestamp >= timestamp)
                return 1;
            position += found->size;
        }
        wanted = found->size < SEEK_PIECE / 2 ? SEEK_PIECE : SEEK_HEADER;
    }
    return 0;
}

/* Return the offset, less the segment's base, of the last entry of a time index up to `timestamp`, 0 without one. */
static inline int64_t
last_by_time(const uint8_t *entries, size_t size, int64_t timestamp)
{
    const size_t count = count_up_to(entries, size, 12, timestamp);
    return count ? signed32(entries + 12 * count - 4) : 0;
}

struct found_record {
    int64_t timestamp, offset;
};

/* Find the first record from `timestamp` and `log_start` on, in the first batch that reaches the time, of which no more is
   read than leads to it; false where it is not there, or where that batch is not plain. */
static inline int
record_find(int file, struct hint hint, int64_t end, int64_t timestamp, int64_t log_start, struct found_record *found)
{
    union {
        struct piece piece;
        uint8_t bytes[SEEK_BODY];
    } room;
    struct place place;
    struct record record;
    if (!place_find(&room.piece, file, hint, end, INT64_MAX, timestamp, &place) || place.size > SEEK_BODY)
        return 0;
    const size_t at = (size_t)(place.position - room.piece.position), size = (size_t)place.size;
    size_t filled = room.piece.filled - at;
    memmove(room.bytes, room.piece.bytes + at, filled);
    if (signed16(room.bytes + 21) & SEEK_NOT_PLAIN)
        return 0;
    const int64_t base_timestamp = signed64(room.bytes + 27);
    const int64_t first = wrapped_sum(log_start, -place.base_offset);
    struct search search = {.left = signed32(room.bytes + 57)};
    for (;;) {
        if (filled > size)
            filled = size;
        if (find_record(room.bytes + SEEK_HEADER, filled - SEEK_HEADER, &search, base_timestamp, timestamp, first, &record))
            break;
        const size_t wanted = size - filled < SEEK_PIECE ? size - filled : SEEK_PIECE;
        if (!wanted || search.left <= 0)
            return 0;
        const ssize_t more = pread(file, room.bytes + filled, wanted, (off_t)place.position + (off_t)filled);
        if (more <= 0)
            return 0;
        filled += (size_t)more;
    }
    *found = (struct found_record){record.timestamp_delta, wrapped_sum(place.base_offset, record.offset_delta)};
    return 1;
}

#endif
