/* One look at a partition directory that was shut down in good order: nothing is odd in it, or somebody has to look closer.

   The same places as in recovery/segment/quick_look.py, and the same questions: names, owners, the ends of both indexes, the
   batches behind the last index entry. No Python here. What is taken for odd may be sound; what is passed is not odd.
   Sources: Apache Kafka 4.3.0, LogLoader, OffsetIndex.sanityCheck, TimeIndex.sanityCheck, AbstractIndex. */

#ifndef LOGMEND_GLANCE_H
#define LOGMEND_GLANCE_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../kernel/_judge.h"

enum { DIGITS = 20, NAME_ROOM = 48, TAIL_LIMIT = 1 << 20, SMALL_LIMIT = 64 << 10, INDEX_ENTRY = 8, TIME_ENTRY = 12 };
enum look { ODD, FINE };

#define EPOCHS_NAME "leader-epoch-checkpoint"
#define METADATA_NAME "partition.metadata"

struct small_file {
    uint8_t *data;
    size_t size;
    int is_there;
};

struct offsets {
    int64_t *data;
    size_t count, room;
};

struct glance {
    /* asked */
    int64_t user; /* who must own the files; -1 for whoever owns the directory */
    /* found */
    struct offsets logs, snapshots;
    size_t indexes, time_indexes;
    struct small_file epochs, metadata, snapshot; /* the newest snapshot, from the last base on */
    int64_t log_end, active_size;
    int magic; /* of the last batch; -1 where the last log is empty */
    /* used */
    int directory;
    uint8_t *tail;
    size_t room;
    /* refused: the number of the error, and of which file */
    int error;
    char name[NAME_ROOM];
};

/* Note what the system refuses; that a file is not there any more, or is a link now, is odd and no more. */
static enum look
refused(struct glance *g, const char *name, int error)
{
    if (error != ENOENT && error != ESTALE && error != ELOOP) {
        g->error = error;
        snprintf(g->name, sizeof g->name, "%.*s", NAME_ROOM - 1, name);
    }
    return ODD;
}

static enum look
offsets_add(struct glance *g, struct offsets *offsets, int64_t offset)
{
    if (offsets->count == offsets->room) {
        const size_t room = offsets->room ? 2 * offsets->room : 64;
        int64_t *const grown = realloc(offsets->data, room * sizeof *grown);
        if (grown == NULL)
            return refused(g, "", ENOMEM);
        offsets->data = grown;
        offsets->room = room;
    }
    offsets->data[offsets->count++] = offset;
    return FINE;
}

static int
is_owners(const struct glance *g, const struct stat *found)
{
    return S_ISREG(found->st_mode) && (int64_t)found->st_uid == g->user && (found->st_mode & 0600) == 0600;
}

/* Return the offset that a name begins with, as a broker writes it; -1 for any other name. */
static int64_t
offset_of(const char *name)
{
    uint64_t offset = 0;
    if (name[0] != '0')
        return -1; /* nineteen digits hold every offset */
    for (int n = 0; n < DIGITS; n++) {
        if (name[n] < '0' || name[n] > '9')
            return -1;
        offset = offset * 10 + (uint64_t)(name[n] - '0');
    }
    return offset <= INT64_MAX ? (int64_t)offset : -1;
}

/* ---- files ---- */

/* Open a plain file of the right owner; -1 where that is not what it is. */
static int
open_plain(struct glance *g, const char *name, struct stat *found)
{
    const int file = openat(g->directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) {
        refused(g, name, errno);
        return -1;
    }
    if (fstat(file, found) != 0)
        refused(g, name, errno);
    else if (is_owners(g, found))
        return file;
    close(file);
    return -1;
}

/* Read exactly `size` bytes; a file that ends before is odd. */
static enum look
read_exactly(struct glance *g, int file, const char *name, uint8_t *target, size_t size, int64_t position)
{
    size_t done = 0;
    while (done < size) {
        const ssize_t count = pread(file, target + done, size - done, (off_t)(position + (int64_t)done));
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return refused(g, name, errno);
        if (count == 0)
            return ODD;
        done += (size_t)count;
    }
    return FINE;
}

static enum look
read_small(struct glance *g, const char *name, struct small_file *small)
{
    struct stat found;
    const int file = open_plain(g, name, &found);
    enum look look = ODD;
    if (file < 0)
        return ODD;
    if (found.st_size <= SMALL_LIMIT) {
        small->size = (size_t)found.st_size;
        small->data = malloc(small->size + 1);
        look = small->data == NULL ? refused(g, name, ENOMEM)
                                   : read_exactly(g, file, name, small->data, small->size, 0);
        small->is_there = look == FINE;
    }
    close(file);
    return look;
}

/* Read the last two entries of an index, or fewer; put their count into *count. */
static enum look
read_index_end(struct glance *g, int64_t base, const char *suffix, size_t width, uint8_t *entries, size_t *count)
{
    char name[NAME_ROOM];
    struct stat found;
    snprintf(name, sizeof name, "%0*lld%s", DIGITS, (long long)base, suffix);
    const int file = open_plain(g, name, &found);
    if (file < 0)
        return ODD;
    const int64_t size = found.st_size, there = size / (int64_t)width;
    *count = there < 2 ? (size_t)there : 2;
    const size_t wanted = *count * width;
    const enum look look =
        size % (int64_t)width ? ODD : read_exactly(g, file, name, entries, wanted, size - (int64_t)wanted);
    close(file);
    return look;
}

/* ---- one segment ---- */

/* Judge the end of the offset index of a log of `size` bytes, and say where the batch of its last entry begins. */
static enum look
look_at_index(struct glance *g, int64_t base, int64_t size, int64_t *start)
{
    uint8_t entries[2 * INDEX_ENTRY];
    size_t count;
    *start = 0;
    if (!read_index_end(g, base, ".index", INDEX_ENTRY, entries, &count))
        return ODD;
    if (count > 0) {
        const uint8_t *const last = entries + (count - 1) * INDEX_ENTRY;
        const int64_t relative = signed32(last), position = signed32(last + 4);
        if (relative < 0 || position <= 0 || position >= size)
            return ODD;
        if (count == 2 && !(signed32(entries) < relative && signed32(entries + 4) < position))
            return ODD;
        *start = position;
    }
    return FINE;
}

static enum look
look_at_time_index(struct glance *g, int64_t base)
{
    uint8_t entries[2 * TIME_ENTRY];
    size_t count;
    if (!read_index_end(g, base, ".timeindex", TIME_ENTRY, entries, &count))
        return ODD;
    if (count == 0)
        return FINE;
    const uint8_t *const last = entries + (count - 1) * TIME_ENTRY;
    const int64_t timestamp = signed64(last), relative = signed32(last + 8);
    if (timestamp < 0 || relative < 0 || (timestamp == 0 && relative == 0))
        return ODD;
    return count < 2 || (signed64(entries) < timestamp && signed32(entries + 8) < relative) ? FINE : ODD;
}

/* Check batches that must fill `size` bytes exactly; note where the last of them ends. */
static enum look
look_at_batches(struct glance *g, const uint8_t *data, size_t size, int64_t next)
{
    for (size_t place = 0; place < size;) {
        const uint8_t *const batch = data + place;
        size_t length = 0;
        if (judge(batch, size - place, 1, &length) != END)
            return ODD;
        const int64_t offset = signed64(batch), delta = batch[16] == 2 ? signed32(batch + 23) : 0;
        if (offset < next || delta < 0 || offset >= INT64_MAX - delta)
            return ODD;
        next = offset + delta + 1;
        g->magic = batch[16];
        place += length;
    }
    g->log_end = next;
    return FINE;
}

static enum look
look_at_tail(struct glance *g, int file, const char *name, int64_t base, int64_t start, int64_t size)
{
    const size_t length = (size_t)(size - start);
    if (size - start > TAIL_LIMIT)
        return ODD;
    if (length > g->room) {
        const size_t room = length > SMALL_LIMIT ? TAIL_LIMIT : SMALL_LIMIT;
        free(g->tail);
        g->tail = malloc(room);
        g->room = g->tail == NULL ? 0 : room;
        if (g->tail == NULL)
            return refused(g, name, ENOMEM);
    }
    return read_exactly(g, file, name, g->tail, length, start) && look_at_batches(g, g->tail, length, base) ? FINE : ODD;
}

static enum look
look_at_segment(struct glance *g, int64_t base)
{
    char name[NAME_ROOM];
    struct stat found;
    int64_t start;
    snprintf(name, sizeof name, "%0*lld.log", DIGITS, (long long)base);
    const int file = open_plain(g, name, &found);
    if (file < 0)
        return ODD;
    g->active_size = found.st_size;
    g->log_end = base;
    g->magic = -1;
    const enum look look = look_at_index(g, base, found.st_size, &start) && look_at_time_index(g, base)
                                   && (found.st_size == 0 || look_at_tail(g, file, name, base, start, found.st_size))
                               ? FINE
                               : ODD;
    close(file);
    return look;
}

/* ---- the directory ---- */

static enum look
take_snapshot(struct glance *g, const char *name, int64_t offset)
{
    struct stat found;
    if (fstatat(g->directory, name, &found, AT_SYMLINK_NOFOLLOW) != 0)
        return refused(g, name, errno);
    return is_owners(g, &found) ? offsets_add(g, &g->snapshots, offset) : ODD;
}

/* Take in a name of the directory; any that is not a broker's, or speaks of work under way, is odd. */
static enum look
take_name(struct glance *g, const char *name)
{
    if (strcmp(name, EPOCHS_NAME) == 0)
        return g->epochs.is_there ? ODD : read_small(g, name, &g->epochs);
    if (strcmp(name, METADATA_NAME) == 0)
        return g->metadata.is_there ? ODD : read_small(g, name, &g->metadata);
    const int64_t offset = offset_of(name);
    if (offset < 0)
        return ODD;
    const char *const suffix = name + DIGITS;
    if (strcmp(suffix, ".log") == 0)
        return offsets_add(g, &g->logs, offset);
    if (strcmp(suffix, ".snapshot") == 0)
        return take_snapshot(g, name, offset);
    if (strcmp(suffix, ".index") == 0)
        g->indexes++;
    else if (strcmp(suffix, ".timeindex") == 0)
        g->time_indexes++;
    else
        return ODD;
    return FINE;
}

static enum look
take_names(struct glance *g, DIR *listing)
{
    for (;;) {
        errno = 0;
        const struct dirent *const next = readdir(listing);
        if (next == NULL)
            return errno ? refused(g, "", errno) : FINE;
        if (strcmp(next->d_name, ".") != 0 && strcmp(next->d_name, "..") != 0 && !take_name(g, next->d_name))
            return ODD;
    }
}

static int
by_value(const void *one, const void *other)
{
    const int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

/* Each log has one index of either kind, if each of them is found by its log's name and there are no more. */
static enum look
look_at_segments(struct glance *g)
{
    const struct offsets *const logs = &g->logs;
    if (logs->count == 0 || g->indexes != logs->count || g->time_indexes != logs->count)
        return ODD;
    qsort(logs->data, logs->count, sizeof *logs->data, by_value);
    for (size_t n = 0; n < logs->count; n++)
        if ((n > 0 && logs->data[n] == logs->data[n - 1]) || !look_at_segment(g, logs->data[n]))
            return ODD;
    return FINE;
}

static int64_t
newest_snapshot(const struct glance *g)
{
    int64_t newest = -1;
    for (size_t n = 0; n < g->snapshots.count; n++)
        newest = g->snapshots.data[n] > newest ? g->snapshots.data[n] : newest;
    return newest;
}

static int
has_snapshot_at(const struct glance *g, int64_t offset)
{
    for (size_t n = 0; n < g->snapshots.count; n++)
        if (g->snapshots.data[n] == offset)
            return 1;
    return 0;
}

static enum look
look_at_snapshots(struct glance *g)
{
    char name[NAME_ROOM];
    const int64_t newest = newest_snapshot(g);
    if (newest < g->logs.data[g->logs.count - 1])
        return FINE; /* it says nothing of the end of the log */
    snprintf(name, sizeof name, "%0*lld.snapshot", DIGITS, (long long)newest);
    return read_small(g, name, &g->snapshot);
}

static enum look
look_at_directory(struct glance *g, const char *path)
{
    struct stat found;
    DIR *const listing = opendir(path);
    if (listing == NULL)
        return refused(g, "", errno);
    g->directory = dirfd(listing);
    enum look look = ODD;
    if (fstat(g->directory, &found) != 0)
        refused(g, "", errno);
    else {
        if (g->user < 0)
            g->user = found.st_uid;
        look = take_names(g, listing) && look_at_segments(g) && look_at_snapshots(g) ? FINE : ODD;
    }
    closedir(listing);
    return look;
}

static void
glance_free(struct glance *g)
{
    free(g->logs.data);
    free(g->snapshots.data);
    free(g->epochs.data);
    free(g->metadata.data);
    free(g->snapshot.data);
    free(g->tail);
}

#endif
