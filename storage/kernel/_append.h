/* A client's batch from its check to the end of a `.log`, as a leader takes it, in one go.

   No Python here, and no memory but the stack's. Source: Apache Kafka 4.3.0, UnifiedLog.append, LogValidator. */

#ifndef LOGMEND_APPEND_H
#define LOGMEND_APPEND_H

#include <errno.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "_batches.h"

/* What a leader changes in a client's batch lies outside the checksum: base offset and leader epoch. */
static inline void
set_led(uint8_t *batch, int64_t base_offset, int32_t leader_epoch)
{
    for (int n = 0; n < 8; n++)
        batch[n] = (uint8_t)((uint64_t)base_offset >> (56 - 8 * n));
    for (int n = 0; n < 4; n++)
        batch[12 + n] = (uint8_t)((uint32_t)leader_epoch >> (24 - 8 * n));
}

/* Up to here a copy of the whole batch costs less than two parts of it do. */
enum { COPIED = 4096 };

/* What a leader appends, where, and what it may be. */
struct append {
    int file;
    const uint8_t *data;
    size_t size, room;
    int64_t next_offset, leader_epoch, least, most, last;
    int needs_keys;
};

/* Write all of the parts, in order; return 0, or the number of the error. */
static inline int
write_parts(int file, struct iovec *part, int count)
{
    while (count > 0) {
        ssize_t written = count == 1 ? write(file, part->iov_base, part->iov_len) : writev(file, part, count);
        if (written < 0 && errno != EINTR)
            return errno;
        if (written == 0)
            return EIO; /* not for ever with a device that takes nothing and calls it success */
        for (; count > 0 && written >= (ssize_t)part->iov_len; part++, count--)
            written -= (ssize_t)part->iov_len;
        if (count > 0 && written > 0) {
            part->iov_base = (uint8_t *)part->iov_base + written;
            part->iov_len -= (size_t)written;
        }
    }
    return 0;
}

/* Tell whether the batch may be taken as it is; see storage.kernel.scan.append_led. */
static inline int
may_append(const struct append *append, struct led *led)
{
    return append->size <= append->room && append->size >= V2_HEADER && signed64(append->data + 43) < 0
        && lead_batch(append->data, append->size, led) && led->walked.least >= append->least && led->walked.most <= append->most
        && !(led->walked.lacks_key && append->needs_keys) && led->walked.count - 1 <= append->last - append->next_offset;
}

/* Append the batch if it may be taken as it is: 1 if it was, 0 if not, or the number of an error below 0. */
static inline int
append_led(const struct append *append, struct led *led)
{
    uint8_t copy[COPIED];
    const size_t copied = append->size <= COPIED ? append->size : V2_HEADER, rest = append->size - copied;
    if (!may_append(append, led))
        return 0;
    memcpy(copy, append->data, copied);
    set_led(copy, append->next_offset, (int32_t)append->leader_epoch);
    struct iovec parts[2] = {{copy, copied}, {(void *)(uintptr_t)(append->data + copied), rest}};
    const int error = write_parts(append->file, parts, rest ? 2 : 1);
    return error ? -error : 1;
}

#endif
