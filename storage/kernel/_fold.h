/* The fold of a segment over rows: the same results as storage/kernel/python/fold_python.py.

   No Python here. Functions that may allocate return 0, or -1 when there is no memory; the fold is then of no more use
   but may be freed. Arithmetic on offsets is by comparison or unsigned, since rows may hold any number. */

#ifndef LOGMEND_FOLD_H
#define LOGMEND_FOLD_H

#include <stdlib.h>

#include "_batches.h"

struct buffer {
    uint8_t *data;
    size_t size, room;
};

struct event {
    int64_t base_offset, last_offset, max_timestamp, producer_id, control;
    int32_t attributes, producer_epoch, base_sequence;
};

/* Data batches of one producer that differ in nothing but their place: the first is out, the last is held. */
struct run {
    int64_t producer_id;
    int32_t producer_epoch;
    int16_t row; /* where the held one still lies among the rows that are being folded, else -1 */
    uint8_t transactional, is_used, is_open, has_held;
};

/* In a cache line of its own: with many producers there is one to be written for every row. */
struct held {
    _Alignas(64) struct event event;
};

struct fault {
    int is_set;
    int64_t position, first, second;
};

struct fold {
    int64_t base_offset, interval, offsets_room, times_room;
    int64_t batches, records, first_offset, next_offset, gaps;
    int64_t max_timestamp, max_timestamp_offset, last_timestamp, indexed, newest_epoch;
    uint64_t magics, codecs;
    uint32_t digest_high, digest_low;
    int has_producers, index_overflow, events_overflowed;
    struct fault first_gap, epoch_fall, range_fault;
    struct buffer offsets, times, epochs, events;
    int64_t offsets_taken, times_taken; /* bytes of both indexes that are not here any more */
    struct run *runs; /* a hash table of `slots` places, a power of two, at most half of them used */
    struct held *held; /* by the same places: what is seldom looked at shall not fill the cache */
    size_t slots, producers, event_count, event_limit;
    uint64_t seed;
    int64_t block_offsets; /* 0: nobody asks for blocks */
    struct buffer blocks;
};

/* The batches whose base offsets lie in one block of offsets. All fields are 8 bytes: they are handed out as they lie. */
struct block {
    int64_t block;
    uint64_t digest;
    int64_t batches, bytes, first_offset, last_offset, max_epoch;
};

enum { TRANSACTIONAL_BIT = 0x10, INDEX_ENTRY = 8, TIME_ENTRY = 12 };

/* Rows are folded so few at a time that they stay in the first-level cache, and their columns do not lie a power of two
   apart, where the processor could keep a few of them only. */
enum { FOLDED = 248 };

static void *
buffer_grow(struct buffer *buffer, size_t more)
{
    if (buffer->room - buffer->size < more) {
        const size_t room = buffer->room ? 2 * buffer->room : 1024;
        uint8_t *const data = realloc(buffer->data, room);
        if (data == NULL)
            return NULL;
        buffer->data = data;
        buffer->room = room;
    }
    void *const place = buffer->data + buffer->size;
    buffer->size += more;
    return place;
}

static void
fold_init(struct fold *fold, int64_t base_offset, int64_t interval, int64_t max_index_size, size_t event_limit,
          int64_t block_offsets)
{
    memset(fold, 0, sizeof *fold);
    fold->block_offsets = block_offsets;
    fold->base_offset = fold->next_offset = fold->max_timestamp_offset = base_offset;
    fold->max_timestamp = fold->last_timestamp = fold->newest_epoch = -1;
    fold->interval = interval;
    fold->offsets_room = max_index_size / INDEX_ENTRY * INDEX_ENTRY;
    /* One slot is kept for the closing entry. */
    fold->times_room = max_index_size / TIME_ENTRY * TIME_ENTRY - TIME_ENTRY;
    fold->event_limit = event_limit;
    fold->seed = (uint64_t)(uintptr_t)fold;
}

static void
fold_drop_events(struct fold *fold)
{
    free(fold->events.data);
    free(fold->runs);
    free(fold->held);
    memset(&fold->events, 0, sizeof fold->events);
    fold->runs = NULL;
    fold->held = NULL;
    fold->slots = 0;
}

static void
fold_free(struct fold *fold)
{
    fold_drop_events(fold);
    free(fold->offsets.data);
    free(fold->times.data);
    free(fold->epochs.data);
    free(fold->blocks.data);
    memset(fold, 0, sizeof *fold);
}

static inline void
store_be(uint8_t *place, uint64_t number, int size)
{
    for (; size > 0; number >>= 8)
        place[--size] = (uint8_t)number;
}

/* Tell whether an index of this segment can hold the offset. */
static inline int
in_range(const struct fold *fold, int64_t offset)
{
    return offset >= fold->base_offset && (uint64_t)offset - (uint64_t)fold->base_offset <= INT32_MAX;
}

/* ---- indexes ---- */

/* Write the time index entry that is due now to `entry` and return its size; 0 if none is. */
static size_t
time_entry(const struct fold *fold, uint8_t *entry)
{
    if (fold->max_timestamp <= fold->last_timestamp || !in_range(fold, fold->max_timestamp_offset))
        return 0;
    store_be(entry, (uint64_t)fold->max_timestamp, 8);
    store_be(entry + 8, (uint64_t)fold->max_timestamp_offset - (uint64_t)fold->base_offset, 4);
    return TIME_ENTRY;
}

static int
enter_times(struct fold *fold)
{
    uint8_t entry[TIME_ENTRY];
    if (time_entry(fold, entry) == 0)
        return 0;
    uint8_t *const place = buffer_grow(&fold->times, TIME_ENTRY);
    if (place == NULL)
        return -1;
    memcpy(place, entry, TIME_ENTRY);
    fold->last_timestamp = fold->max_timestamp;
    return 0;
}

static int
enter(struct fold *fold, int64_t last_offset, int64_t position)
{
    fold->indexed = position;
    if (fold->index_overflow || fold->offsets_taken + (int64_t)fold->offsets.size >= fold->offsets_room) {
        fold->index_overflow = 1;
        return 0;
    }
    if (in_range(fold, last_offset) && position <= INT32_MAX) {
        uint8_t *const entry = buffer_grow(&fold->offsets, INDEX_ENTRY);
        if (entry == NULL)
            return -1;
        store_be(entry, (uint64_t)last_offset - (uint64_t)fold->base_offset, 4);
        store_be(entry + 4, (uint64_t)position, 4);
    }
    if (fold->times_taken + (int64_t)fold->times.size >= fold->times_room) {
        fold->index_overflow = 1;
        return 0;
    }
    return enter_times(fold);
}

static int
fold_index(struct fold *fold, const int64_t *position, const int64_t *last, const int64_t *timestamp, size_t count)
{
    for (size_t row = 0; row < count; row++) {
        if (timestamp[row] > fold->max_timestamp) {
            fold->max_timestamp = timestamp[row];
            fold->max_timestamp_offset = last[row];
        }
        if ((int64_t)((uint64_t)position[row] - (uint64_t)fold->indexed) > fold->interval
            && enter(fold, last[row], position[row]) < 0)
            return -1;
    }
    return 0;
}

/* ---- offsets, epochs, sets ---- */

/* Nearly always all rows agree with what was expected of them. That is asked of whole columns first, in loops without
   branches that a compiler turns into vectors; single rows are read only where the answer is no. */

static inline int
all_are(const int64_t *column, int64_t value, size_t count)
{
    int64_t differing = 0;
    for (size_t row = 0; row < count; row++)
        differing |= column[row] ^ value;
    return differing == 0;
}

static inline int
all_joined(const int64_t *base, const int64_t *last, size_t count)
{
    int64_t differing = 0;
    for (size_t row = 1; row < count; row++)
        differing |= base[row] ^ (int64_t)((uint64_t)last[row - 1] + 1);
    return differing == 0;
}

static void
note_fault(struct fault *fault, int64_t position, int64_t first, int64_t second)
{
    if (!fault->is_set)
        *fault = (struct fault){.is_set = 1, .position = position, .first = first, .second = second};
}

static void
fold_offsets(struct fold *fold, const int64_t *position, const int64_t *base, const int64_t *last, const int64_t *magic,
             size_t count)
{
    /* Nothing is expected of the first batch. */
    int64_t expected = fold->batches ? fold->next_offset : base[0];
    if (base[0] != expected || !all_joined(base, last, count))
        for (size_t row = 0; row < count; row++) {
            if (base[row] > expected && magic[row] == 2) {
                fold->gaps++;
                note_fault(&fold->first_gap, position[row], expected, base[row]);
            }
            expected = (int64_t)((uint64_t)last[row] + 1);
        }
    if (!in_range(fold, last[0]) || !in_range(fold, last[count - 1])) /* they rise */
        for (size_t row = 0; row < count; row++)
            if (!in_range(fold, last[row]))
                note_fault(&fold->range_fault, position[row], last[row], 0);
    if (fold->batches == 0)
        fold->first_offset = base[0];
    fold->next_offset = (int64_t)((uint64_t)last[count - 1] + 1);
    fold->batches += (int64_t)count;
}

static int
fold_epochs(struct fold *fold, const int64_t *position, const int64_t *base, const int64_t *epoch, size_t count)
{
    int64_t newest = fold->newest_epoch;
    if (all_are(epoch, newest, count))
        return 0;
    for (size_t row = 0; row < count; row++) {
        if (epoch[row] == newest)
            continue;
        if (epoch[row] > newest) {
            const int64_t rise[2] = {epoch[row], base[row]};
            void *const place = buffer_grow(&fold->epochs, sizeof rise);
            if (place == NULL)
                return -1;
            memcpy(place, rise, sizeof rise);
            newest = epoch[row];
        }
        else if (epoch[row] >= 0)
            note_fault(&fold->epoch_fall, position[row], epoch[row], newest);
    }
    fold->newest_epoch = newest;
    return 0;
}

static void
fold_sets(struct fold *fold, const int64_t *magic, const int64_t *attributes, const int64_t *records, size_t count)
{
    uint64_t sum = 0;
    if (all_are(magic, 2, count)) {
        fold->magics |= 1u << 2;
        for (size_t row = 0; row < count; row++)
            sum += (uint64_t)records[row];
    }
    else
        for (size_t row = 0; row < count; row++) {
            fold->magics |= 1u << (magic[row] & 31);
            sum += (uint64_t)(magic[row] == 2 ? records[row] : 0);
        }
    fold->records = (int64_t)((uint64_t)fold->records + sum);
    if (all_are(attributes, attributes[0], count))
        fold->codecs |= 1u << (attributes[0] & CODEC_BITS);
    else
        for (size_t row = 0; row < count; row++)
            fold->codecs |= 1u << (attributes[row] & CODEC_BITS);
}

static void
fold_digest(struct fold *fold, const int64_t *base, const int64_t *last, const int64_t *crc, size_t count)
{
    enum { AT_ONCE = 64 };
    uint8_t bytes[24 * AT_ONCE];
    for (size_t done = 0; done < count;) {
        const size_t some = count - done < AT_ONCE ? count - done : AT_ONCE;
        for (size_t n = 0; n < some; n++, done++) {
            const int64_t words[3] = {base[done], last[done], crc[done]};
            for (int word = 0; word < 3; word++) {
                const uint64_t number = load_le64((const uint8_t *)&words[word]);
                memcpy(bytes + 24 * n + 8 * word, &number, 8);
            }
        }
        fold->digest_high = crc32_ieee(fold->digest_high, bytes, 24 * some);
        fold->digest_low = crc32c(fold->digest_low, bytes, 24 * some);
    }
}

/* ---- blocks ---- */

static inline uint64_t
mix(uint64_t number)
{
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9u;
    number = (number ^ number >> 27) * 0x94D049BB133111EBu;
    return number ^ number >> 31;
}

static int
fold_blocks(struct fold *fold, const int64_t *block, size_t capacity, size_t count)
{
    const int64_t *const size = block + SIZE * capacity, *const epoch = block + LEADER_EPOCH * capacity;
    const int64_t *const base = block + BASE_OFFSET * capacity, *const last = block + LAST_OFFSET * capacity;
    const int64_t *const crc = block + CRC * capacity;
    struct block *now = fold->blocks.size ? (struct block *)(fold->blocks.data + fold->blocks.size) - 1 : NULL;
    for (size_t row = 0; row < count; row++) {
        /* Unsigned: an offset below the block's beginning is far above its end. */
        if (now == NULL
            || (uint64_t)base[row] - (uint64_t)now->block * (uint64_t)fold->block_offsets
                   >= (uint64_t)fold->block_offsets) {
            now = buffer_grow(&fold->blocks, sizeof *now);
            if (now == NULL)
                return -1;
            *now = (struct block){.block = base[row] / fold->block_offsets, .first_offset = base[row], .max_epoch = -1};
        }
        now->digest ^= mix(mix(mix((uint64_t)base[row] + 0x9E3779B97F4A7C15u) + (uint64_t)last[row])
                           + (uint64_t)crc[row]);
        now->batches++;
        now->bytes += size[row];
        now->last_offset = last[row];
        if (epoch[row] > now->max_epoch)
            now->max_epoch = epoch[row];
    }
    return 0;
}

/* ---- producers ---- */

static struct run *
find_run(struct run *runs, size_t slots, uint64_t seed, int64_t producer_id)
{
    uint64_t hash = ((uint64_t)producer_id ^ seed) * 0x9E3779B97F4A7C15u;
    hash = (hash ^ hash >> 32) * 0xD6E8FEB86659FD93u;
    for (size_t slot = (hash ^ hash >> 32) & (slots - 1);; slot = (slot + 1) & (slots - 1))
        if (!runs[slot].is_used || runs[slot].producer_id == producer_id)
            return &runs[slot];
}

static int
grow_runs(struct fold *fold)
{
    const size_t slots = fold->slots ? 2 * fold->slots : 64;
    struct run *const runs = calloc(slots, sizeof *runs);
    struct held *const held = aligned_alloc(_Alignof(struct held), slots * sizeof *held);
    if (runs == NULL || held == NULL) {
        free(runs);
        free(held);
        return -1;
    }
    memset(held, 0, slots * sizeof *held);
    for (size_t slot = 0; slot < fold->slots; slot++)
        if (fold->runs[slot].is_used) {
            struct run *const run = find_run(runs, slots, fold->seed, fold->runs[slot].producer_id);
            *run = fold->runs[slot];
            held[run - runs] = fold->held[slot];
        }
    free(fold->runs);
    free(fold->held);
    fold->runs = runs;
    fold->held = held;
    fold->slots = slots;
    return 0;
}

static int
put_event(struct fold *fold, const struct event *event)
{
    struct event *const place = buffer_grow(&fold->events, sizeof *event);
    if (place == NULL)
        return -1;
    *place = *event;
    return 0;
}

static struct event
event_of(const int64_t *block, size_t capacity, size_t row)
{
    return (struct event){
        .base_offset = block[BASE_OFFSET * capacity + row],
        .last_offset = block[LAST_OFFSET * capacity + row],
        .max_timestamp = block[MAX_TIMESTAMP * capacity + row],
        .producer_id = block[PRODUCER_ID * capacity + row],
        .control = block[CONTROL * capacity + row],
        .attributes = (int32_t)block[ATTRIBUTES * capacity + row],
        .producer_epoch = (int32_t)block[PRODUCER_EPOCH * capacity + row],
        .base_sequence = (int32_t)block[BASE_SEQUENCE * capacity + row],
    };
}

/* Rows whose batches are held, by the slot of their run: they are copied once, when the rows are about to go, or when there
   are so many that the runs themselves would leave the first-level cache before that. */
enum { HELD = 64 };
struct latest {
    const int64_t *block;
    size_t capacity, count, slots[HELD];
};

static void
hold(const struct fold *fold, const struct latest *latest, size_t slot)
{
    struct run *const run = &fold->runs[slot];
    if (run->row >= 0)
        fold->held[slot].event = event_of(latest->block, latest->capacity, (size_t)run->row);
    run->row = -1;
}

static void
hold_all(const struct fold *fold, struct latest *latest)
{
    for (size_t n = 0; n < latest->count; n++)
        hold(fold, latest, latest->slots[n]);
    latest->count = 0;
}

static int
fold_event(struct fold *fold, struct latest *latest, size_t row)
{
    const int64_t *const block = latest->block;
    const size_t capacity = latest->capacity;
    const int64_t producer_id = block[PRODUCER_ID * capacity + row];
    if (2 * fold->producers >= fold->slots) {
        hold_all(fold, latest);
        if (grow_runs(fold) < 0)
            return -1;
    }
    struct run *const run = find_run(fold->runs, fold->slots, fold->seed, producer_id);
    const size_t slot = (size_t)(run - fold->runs);
    const uint8_t transactional = (uint8_t)block[ATTRIBUTES * capacity + row] & TRANSACTIONAL_BIT;
    const int32_t producer_epoch = (int32_t)block[PRODUCER_EPOCH * capacity + row];
    const int is_data = block[CONTROL * capacity + row] == CONTROL_NONE;
    if (is_data && run->is_open && run->producer_epoch == producer_epoch && run->transactional == transactional) {
        fold->event_count += !run->has_held;
        run->has_held = 1;
        if (run->row < 0)
            latest->slots[latest->count++] = slot;
        run->row = (int16_t)row;
        if (latest->count == HELD)
            hold_all(fold, latest);
        return 0;
    }
    const struct event event = event_of(block, capacity, row);
    fold->event_count++;
    fold->producers += !run->is_used;
    if (run->has_held) {
        hold(fold, latest, slot);
        if (put_event(fold, &fold->held[slot].event) < 0)
            return -1;
    }
    if (put_event(fold, &event) < 0)
        return -1;
    run->is_used = 1;
    run->has_held = 0;
    run->is_open = (uint8_t)is_data;
    run->row = -1;
    run->producer_id = producer_id;
    run->producer_epoch = producer_epoch;
    run->transactional = transactional;
    return 0;
}

/* At most FOLDED rows, from `first` on. */
static int
fold_producers(struct fold *fold, const int64_t *block, size_t capacity, size_t first, size_t count)
{
    struct latest latest = {.block = block + first, .capacity = capacity};
    const int64_t *const producer = latest.block + PRODUCER_ID * capacity;
    for (size_t row = 0; row < count; row++) {
        if (producer[row] < 0)
            continue;
        fold->has_producers = 1;
        if (fold->events_overflowed)
            return 0;
        if (fold_event(fold, &latest, row) < 0)
            return -1;
        if (fold->event_count > fold->event_limit) {
            fold->events_overflowed = 1;
            fold_drop_events(fold);
            return 0;
        }
    }
    hold_all(fold, &latest);
    return 0;
}

/* Fold the first `count` rows of a block whose columns have `capacity` rows each. */
static int
fold_add(struct fold *fold, const int64_t *block, size_t capacity, size_t count)
{
    const int64_t *const position = block + POSITION * capacity, *const magic = block + MAGIC * capacity;
    const int64_t *const base = block + BASE_OFFSET * capacity, *const last = block + LAST_OFFSET * capacity;
    if (count == 0)
        return 0;
    fold_offsets(fold, position, base, last, magic, count);
    fold_sets(fold, magic, block + ATTRIBUTES * capacity, block + RECORD_COUNT * capacity, count);
    fold_digest(fold, base, last, block + CRC * capacity, count);
    if (fold_epochs(fold, position, base, block + LEADER_EPOCH * capacity, count) < 0
        || fold_index(fold, position, last, block + MAX_TIMESTAMP * capacity, count) < 0)
        return -1;
    if (fold->block_offsets && fold_blocks(fold, block, capacity, count) < 0)
        return -1;
    for (size_t first = 0; first < count; first += FOLDED)
        if (fold_producers(fold, block, capacity, first, count - first < FOLDED ? count - first : FOLDED) < 0)
            return -1;
    return 0;
}

/* ---- scan and fold ---- */

struct folded {
    struct scanned scanned;
    int64_t next, last_position, before_last; /* the last two: of the last batch, and what could have followed the one
                                                 before it */
};

/* Scan the window and fold what is sound. `block` has `capacity` rows, of which no more are used than are folded at a
   time. Batches beyond the fold's own results are told only by *folded. Returns 0, or -1 when there is no memory. */
static int
scan_and_fold(struct fold *fold, const uint8_t *window, size_t length, int64_t *block, size_t capacity,
              int64_t position, int64_t next, struct folded *folded)
{
    const size_t some = capacity < FOLDED ? capacity : FOLDED;
    *folded = (struct folded){.next = next};
    struct scanned *const done = &folded->scanned;
    do {
        /* Scanning may be left for good where a window is a mapped file (see _mapped.h): all that is known by then has
           to be in memory. */
        __asm__ volatile("" ::: "memory");
        const struct scanned part = scan_batches(window + done->size, length - done->size, block, some,
                                                 position + (int64_t)done->size, folded->next);
        if (part.count) {
            const int64_t *const last = block + LAST_OFFSET * some;
            folded->before_last = part.count > 1 ? last[part.count - 2] + 1 : folded->next;
            folded->last_position = block[POSITION * some + part.count - 1];
            folded->next = last[part.count - 1] + 1;
            if (fold_add(fold, block, some, part.count) < 0)
                return -1;
        }
        done->count += part.count;
        done->size += part.size;
        done->stop = part.stop;
    } while (done->stop == ROWS_FULL);
    return 0;
}

#endif
