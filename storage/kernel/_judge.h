/* One batch: its bounds and its checksum. No Python here, nothing is allocated.

   Sources: Apache Kafka 4.3.0, DefaultRecordBatch, LegacyRecord. */

#ifndef LOGMEND_JUDGE_H
#define LOGMEND_JUDGE_H

#include "_crc.h"
#include "_records.h"

/* The numbers of storage.base.rows.Stop. */
enum stop { END, NEED_MORE, ROWS_FULL, BAD_SIZE, BAD_MAGIC, BAD_CRC, BAD_ORDER, UNKNOWN_MAGIC };

enum { LEAST = 17, LEGACY_LEAST = 26, V2_HEADER = 61 };

static inline int
sum_holds(const uint8_t *batch, size_t size, int magic)
{
    if (magic >= 2)
        return crc32c(0, batch + 21, size - 21) == be32(batch + 17);
    return crc32_ieee(0, batch + 16, size - 16) == be32(batch + 12);
}

/* Judge what lies at `batch`, offsets aside: END if it is sound, with its size in *size. */
static inline enum stop
judge(const uint8_t *batch, size_t left, int verify, size_t *size)
{
    if (left < LEAST)
        return NEED_MORE;
    const int64_t field = signed32(batch + 8);
    const int magic = (int8_t)batch[16];
    if (field < LEGACY_LEAST - 12)
        return BAD_SIZE;
    *size = (size_t)field + 12;
    if (magic < 0)
        return BAD_MAGIC;
    if (magic > 2) {
        if (*size > left)
            return NEED_MORE;
        return *size >= V2_HEADER && sum_holds(batch, *size, magic) ? UNKNOWN_MAGIC : BAD_MAGIC;
    }
    if (magic == 2 && *size < V2_HEADER)
        return BAD_SIZE;
    if (*size > left)
        return NEED_MORE;
    return verify && !sum_holds(batch, *size, magic) ? BAD_CRC : END;
}

#endif
