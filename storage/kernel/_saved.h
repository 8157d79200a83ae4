/* A fold that is put away as numbers and gone on with later.

   The numbers are those of storage/kernel/python/fold_python.py, which names them. No Python here. */

#ifndef LOGMEND_SAVED_H
#define LOGMEND_SAVED_H

#include "_fold.h"

enum { EVENT_FIELDS = 8, RUN_FIELDS = 4 + EVENT_FIELDS, FIXED_FIELDS = 34 };

static void
spread_event(int64_t *numbers, const struct event *event)
{
    const int64_t fields[EVENT_FIELDS] = {event->base_offset, event->last_offset, event->attributes,
                                          event->max_timestamp, event->producer_id, event->producer_epoch,
                                          event->base_sequence, event->control};
    memcpy(numbers, fields, sizeof fields);
}

static struct event
gather_event(const int64_t *numbers)
{
    return (struct event){.base_offset = numbers[0], .last_offset = numbers[1], .attributes = (int32_t)numbers[2],
                          .max_timestamp = numbers[3], .producer_id = numbers[4],
                          .producer_epoch = (int32_t)numbers[5], .base_sequence = (int32_t)numbers[6],
                          .control = numbers[7]};
}

static int
by_producer(const void *one, const void *other)
{
    const int64_t first = *(const int64_t *)one, second = *(const int64_t *)other;
    return (first > second) - (first < second);
}

static size_t
open_runs(const struct fold *fold)
{
    size_t count = 0;
    for (size_t slot = 0; slot < fold->slots; slot++)
        count += fold->runs[slot].is_open;
    return count;
}

/* Return how many numbers `fold_put` writes. */
static size_t
fold_numbers(const struct fold *fold)
{
    return FIXED_FIELDS + fold->epochs.size / sizeof(int64_t) + fold->events.size / sizeof(struct event) * EVENT_FIELDS
           + open_runs(fold) * RUN_FIELDS;
}

static int64_t *
put_fault(int64_t *numbers, const struct fault *fault)
{
    const int64_t fields[4] = {fault->is_set, fault->position, fault->first, fault->second};
    memcpy(numbers, fields, sizeof fields);
    return numbers + 4;
}

/* Write the fold as the numbers that storage/kernel/python/fold_python.py names: runs by producer id. */
static void
fold_put(const struct fold *fold, int64_t *numbers)
{
    const size_t epochs = fold->epochs.size / sizeof(int64_t), events = fold->events.size / sizeof(struct event);
    const size_t runs = open_runs(fold);
    const int64_t first[] = {fold->batches, fold->records, fold->batches ? fold->first_offset : 0, fold->next_offset,
                             fold->gaps, fold->max_timestamp, fold->max_timestamp_offset, fold->last_timestamp,
                             fold->indexed, fold->newest_epoch, (int64_t)fold->magics, (int64_t)fold->codecs,
                             fold->digest_high, fold->digest_low, fold->has_producers, fold->index_overflow,
                             fold->events_overflowed};
    memcpy(numbers, first, sizeof first);
    numbers += sizeof first / sizeof *first;
    numbers = put_fault(put_fault(put_fault(numbers, &fold->first_gap), &fold->epoch_fall), &fold->range_fault);
    *numbers++ = fold->offsets_taken + (int64_t)fold->offsets.size;
    *numbers++ = fold->times_taken + (int64_t)fold->times.size;
    *numbers++ = (int64_t)(epochs / 2);
    *numbers++ = (int64_t)events;
    *numbers++ = (int64_t)runs;
    if (epochs)
        memcpy(numbers, fold->epochs.data, fold->epochs.size);
    numbers += epochs;
    for (size_t n = 0; n < events; n++, numbers += EVENT_FIELDS)
        spread_event(numbers, (const struct event *)(const void *)fold->events.data + n);
    int64_t *const all = numbers;
    for (size_t slot = 0; slot < fold->slots; slot++) {
        const struct run *const run = &fold->runs[slot];
        if (!run->is_open)
            continue;
        const struct event none = {0};
        const int64_t fields[4] = {run->producer_id, run->producer_epoch, run->transactional, run->has_held};
        memcpy(numbers, fields, sizeof fields);
        spread_event(numbers + 4, run->has_held ? &fold->held[slot].event : &none);
        numbers += RUN_FIELDS;
    }
    if (runs)
        qsort(all, runs, RUN_FIELDS * sizeof(int64_t), by_producer);
}

static const int64_t *
get_fault(const int64_t *numbers, struct fault *fault)
{
    *fault = (struct fault){.is_set = numbers[0] != 0, .position = numbers[1], .first = numbers[2],
                            .second = numbers[3]};
    return numbers + 4;
}

static const int64_t *
get_fixed(struct fold *fold, const int64_t *numbers)
{
    int64_t *const first[] = {&fold->batches, &fold->records, &fold->first_offset, &fold->next_offset, &fold->gaps,
                              &fold->max_timestamp, &fold->max_timestamp_offset, &fold->last_timestamp,
                              &fold->indexed, &fold->newest_epoch};
    for (size_t n = 0; n < sizeof first / sizeof *first; n++)
        *first[n] = *numbers++;
    fold->magics = (uint64_t)*numbers++;
    fold->codecs = (uint64_t)*numbers++;
    fold->digest_high = (uint32_t)*numbers++;
    fold->digest_low = (uint32_t)*numbers++;
    fold->has_producers = *numbers++ != 0;
    fold->index_overflow = *numbers++ != 0;
    fold->events_overflowed = *numbers++ != 0;
    numbers = get_fault(get_fault(get_fault(numbers, &fold->first_gap), &fold->epoch_fall), &fold->range_fault);
    fold->offsets_taken = *numbers++;
    fold->times_taken = *numbers++;
    return numbers;
}

static int
get_run(struct fold *fold, const int64_t *numbers)
{
    if (2 * fold->producers >= fold->slots && grow_runs(fold) < 0)
        return -1;
    struct run *const run = find_run(fold->runs, fold->slots, fold->seed, numbers[0]);
    *run = (struct run){.producer_id = numbers[0], .producer_epoch = (int32_t)numbers[1], .row = -1,
                        .transactional = (uint8_t)numbers[2], .is_used = 1, .is_open = 1,
                        .has_held = numbers[3] != 0};
    fold->held[run - fold->runs].event = gather_event(numbers + 4);
    fold->event_count += run->has_held;
    fold->producers++;
    return 0;
}

/* Take over what fold_put wrote of another fold. `fold` is as fold_init left it. The bytes of both indexes count as
   taken. Returns 1, 0 with nothing done where the numbers are not as many as they say, or -1. */
static int
fold_get(struct fold *fold, const int64_t *numbers, size_t count)
{
    if (count < FIXED_FIELDS)
        return 0;
    const uint64_t epochs = (uint64_t)numbers[FIXED_FIELDS - 3], events = (uint64_t)numbers[FIXED_FIELDS - 2];
    const uint64_t runs = (uint64_t)numbers[FIXED_FIELDS - 1];
    if (epochs > count || events > count || runs > count
        || FIXED_FIELDS + 2 * epochs + EVENT_FIELDS * events + RUN_FIELDS * runs != count)
        return 0;
    numbers = get_fixed(fold, numbers) + 3;
    for (uint64_t n = 0; n < epochs; n++, numbers += 2) {
        void *const place = buffer_grow(&fold->epochs, 2 * sizeof(int64_t));
        if (place == NULL)
            return -1;
        memcpy(place, numbers, 2 * sizeof(int64_t));
    }
    for (uint64_t n = 0; n < events; n++, numbers += EVENT_FIELDS) {
        const struct event event = gather_event(numbers);
        if (put_event(fold, &event) < 0)
            return -1;
    }
    fold->event_count = events;
    for (uint64_t n = 0; n < runs; n++, numbers += RUN_FIELDS)
        if (get_run(fold, numbers) < 0)
            return -1;
    return 1;
}

#endif
