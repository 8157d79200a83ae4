/* Random and randomly damaged bytes through the loops of the C kernel, to be built with the sanitizers:

     gcc -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -o fuzz_scan tests/fuzz/fuzz_scan.c
     ./fuzz_scan [seconds] [seed]

   Every window is an allocation of its exact size, so that one byte read beyond it is caught. It also checks what holds
   whatever the bytes: sizes within bounds, a found batch accepted by the scanner, rows in order. */

#define _GNU_SOURCE
#include <stdio.h>
#include <time.h>

#include "../../storage/kernel/_mapped.h"
#include "../../storage/disk/_seek.h"

static uint64_t state;

static uint64_t
next_random(void)
{
    state += 0x9E3779B97F4A7C15u;
    uint64_t z = state;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static uint64_t
below(uint64_t limit)
{
    return next_random() % limit;
}

static void
require(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "does not hold: %s\n", what);
        abort();
    }
}

/* Write a batch of any magic, mostly sound, to `p`, of which `room` bytes are free; return its size, 0 without room. */
static size_t
make_batch(uint8_t *p, size_t room, int64_t base)
{
    static const uint8_t likely[] = {0, 0, 0, 1, 2, 2, 4, 0x7F, 0x80, 0xFF, 12, 16};
    const int magic = below(20) ? (below(4) ? 2 : (int)below(2)) : (int)below(256);
    const size_t least = magic < 2 ? LEGACY_LEAST : V2_HEADER, size = least + below(below(4) ? 40 : 3000);
    if (size > room)
        return 0;
    for (size_t n = 0; n < size; n++)
        p[n] = below(3) ? likely[below(sizeof likely)] : (uint8_t)next_random();
    store_be(p, (uint64_t)base, 8);
    store_be(p + 8, size - 12, 4);
    store_be(p + 12, below(3) ? 4 : below(6), 4);
    p[16] = (uint8_t)magic;
    if (magic >= 2) {
        store_be(p + 21, below(2) ? 0x30 : below(256), 2);
        store_be(p + 23, below(8), 4);
        store_be(p + 43, below(3) ? below(40) : UINT64_MAX, 8);
        store_be(p + 57, below(4), 4);
        store_be(p + 17, crc32c(0, p + 21, size - 21), 4);
    }
    else
        store_be(p + 12, crc32_ieee(0, p + 16, size - 16), 4);
    return size;
}

static uint8_t *
make_window(size_t *size)
{
    const size_t room = below(2) ? below(300) : below(20000);
    uint8_t *const whole = malloc(room + 1);
    size_t used = 0;
    int64_t base = below(8) ? (int64_t)below(1000) : (int64_t)next_random();
    for (size_t made; (made = make_batch(whole + used, room - used, base)) != 0; used += made)
        base = (int64_t)((uint64_t)base + 8 + below(3));
    for (uint64_t n = below(5); n > 0 && used > 0; n--)
        whole[below(4) ? below(used) : below(used < 61 ? used : 61)] ^= (uint8_t)(1u << below(8));
    *size = below(2) ? used : below(used + 1);
    uint8_t *const window = malloc(*size ? *size : 1);
    memcpy(window, whole, *size);
    free(whole);
    return window;
}

static void
fold_rows(const int64_t *block, size_t capacity, size_t count)
{
    struct fold fold;
    uint8_t entry[TIME_ENTRY];
    fold_init(&fold, (int64_t)below(100), (int64_t)below(5000), (int64_t)below(500), below(2) ? below(20) : 200000,
              below(2) ? 1 + (int64_t)below(4096) : 0);
    for (int n = 0; n < 3; n++)
        require(fold_add(&fold, block, capacity, count) == 0, "memory for the fold");
    time_entry(&fold, entry);
    require(fold.offsets.size <= 500 && fold.times.size <= 500, "indexes stay within their limit");
    require(fold.event_count <= fold.event_limit || fold.events_overflowed, "events stay within their limit");
    fold_free(&fold);
}

static void
fold_window(const uint8_t *window, size_t size, int64_t *block, size_t capacity)
{
    struct fold fold;
    struct folded folded;
    fold_init(&fold, 0, (int64_t)below(5000), (int64_t)below(500), below(20), 1 + (int64_t)below(4096));
    require(scan_and_fold(&fold, window, size, block, capacity, (int64_t)below(1000), 0, &folded) == 0, "memory");
    require(folded.scanned.size <= size, "scan and fold stay within their bounds");
    fold_free(&fold);
}

/* What is mapped gives what is in memory; a file that is shorter than it was gives what is there, and no signal. */
static void
fold_file(const uint8_t *window, size_t size, int64_t *block, size_t capacity, int file)
{
    struct fold read, mapped, cut;
    struct folded wanted, found;
    const size_t before = below(3) ? 0 : below(9000), left = below(size + 1);
    fold_init(&read, 0, 4096, 400, 20, 64);
    fold_init(&mapped, 0, 4096, 400, 20, 64);
    fold_init(&cut, 0, 4096, 400, 20, 64);
    require(ftruncate(file, 0) == 0 && pwrite(file, window, size, (off_t)before) == (ssize_t)size, "a file is written");
    const int64_t first = (int64_t)before, end = first + (int64_t)size;
    require(scan_and_fold(&read, window, size, block, capacity, first, 0, &wanted) == 0, "memory");
    require(scan_and_fold_file(&mapped, file, block, capacity, first, end, 0, &found) == 0, "memory");
    require(found.scanned.size == wanted.scanned.size && found.scanned.stop == wanted.scanned.stop
                && found.next == wanted.next && found.last_position == wanted.last_position
                && mapped.digest_low == read.digest_low && mapped.digest_high == read.digest_high
                && mapped.offsets.size == read.offsets.size && mapped.blocks.size == read.blocks.size,
            "a mapped file folds as memory does");
    require(ftruncate(file, (off_t)(before + left)) == 0, "a file is cut");
    require(scan_and_fold_file(&cut, file, block, capacity, first, end, 0, &found) == 0, "memory");
    require(found.scanned.size <= wanted.scanned.size, "no more is folded than was there");
    require(before + found.scanned.size <= (before + left + 4095) / 4096 * 4096, "nothing beyond the last page is folded");
    fold_free(&read);
    fold_free(&mapped);
    fold_free(&cut);
}

/* With the true place of a batch as a hint, or with any: what is found lies in the file, and reaches what was looked for. */
static void
seek_file(const uint8_t *window, size_t size, int file)
{
    const int64_t end = below(4) ? (int64_t)size : (int64_t)below(size + 100), wanted = (int64_t)below(1000);
    const struct hint hint = {below(2) ? 0 : (int64_t)below(size + 100) - 50, (int64_t)below(size + 100) - 50};
    struct place place;
    struct found_record found;
    struct piece *const piece = malloc(sizeof *piece);
    require(ftruncate(file, 0) == 0 && pwrite(file, window, size, 0) == (ssize_t)size, "a file is written");
    if (place_find(piece, file, hint, end, wanted, INT64_MAX, &place))
        require(place.last_offset >= wanted && place.position >= 0 && place.position + place.size <= end,
                "a batch that is found reaches the offset, and ends in time");
    if (record_find(file, hint, end, wanted, (int64_t)below(1000), &found))
        require(found.timestamp >= wanted, "a record that is found is of the time");
    hint_of(window, size, wanted);
    last_by_time(window, size, wanted);
    free(piece);
}

/* Return up to twenty records, sound but for two bytes at most. */
static uint8_t *
make_records(size_t *size)
{
    uint8_t made[20 * 40];
    *size = 0;
    for (size_t n = below(20); n > 0; n--) {
        const uint8_t value = (uint8_t)below(20);
        const uint8_t whole = (uint8_t)(2 * (6 + value)), time = (uint8_t)below(8), offset = (uint8_t)below(40);
        const uint8_t head[] = {whole, 0, time, offset, 1, (uint8_t)(2 * value)};
        memcpy(made + *size, head, sizeof head);
        memset(made + *size + sizeof head, 0, value + 1);
        *size += sizeof head + value + 1;
    }
    for (size_t n = below(3); n > 0 && *size > 0; n--)
        made[below(*size)] = (uint8_t)next_random();
    uint8_t *const payload = malloc(*size ? *size : 1);
    memcpy(payload, made, *size);
    return payload;
}

static void
through_records(const uint8_t *payload, size_t size)
{
    const int64_t fault = check_records(payload, size, (int64_t)below(25) - 1);
    require(fault >= -1 && fault <= (int64_t)size, "a fault lies within the payload");
    require(walk_records(payload, size, (int64_t)below(200), (int64_t)below(3), (int64_t)next_random()).place <= size,
            "a walk stays within the payload");
    struct record record;
    const int64_t since = below(2) ? 0 : (int64_t)next_random();
    struct search search = {.left = (int64_t)below(200)};
    if (find_record(payload, size, &search, since, since, (int64_t)below(30), &record))
        require(record.key.data == NULL || (record.key.data >= payload && record.key.data <= payload + size),
                "a key lies within the payload");
    read_control(payload, size, below(2) ? (int64_t)below(1 << 16) : 0, (int64_t)below(3));
}

static void
one_round(int file)
{
    size_t size;
    uint8_t *const window = make_window(&size);
    const size_t capacity = 1 + below(200);
    int64_t *const block = malloc(capacity * COLUMNS * sizeof *block);
    for (size_t n = 0; n < capacity * COLUMNS; n++)
        block[n] = below(2) ? (int64_t)next_random() : (int64_t)below(5);
    for (size_t n = 0; n < capacity; n++)
        block[SIZE * capacity + n] &= INT32_MAX; /* no scan gives more */
    fold_rows(block, capacity, below(capacity + 1));
    const int64_t lowest = (int64_t)below(500);
    walk_headers(window, size, block, capacity, (int64_t)below(1000), below(2) ? lowest : INT64_MIN);
    const struct scanned scanned = scan_batches(window, size, block, capacity, (int64_t)below(1000), lowest);
    require(scanned.size <= size && scanned.count <= capacity, "the scan stays within its bounds");
    fold_rows(block, capacity, scanned.count);
    const int64_t found = find_batch(window, size, below(size + 2), lowest, INT64_MAX);
    require(found < (int64_t)size || size == 0, "a batch is found within the window");
    if (found >= 0) {
        const size_t place = (size_t)found;
        require(scan_batches(window + place, size - place, block, 1, 0, lowest).count == 1, "a found batch is sound");
    }
    fold_window(window, size, block, capacity);
    if (size && below(4) == 0)
        fold_file(window, size, block, capacity, file);
    seek_file(window, size, file);
    through_records(window, size);
    uint8_t *const payload = make_records(&size);
    through_records(payload, size);
    free(payload);
    free(block);
    free(window);
}

int
main(int argc, char **argv)
{
    const time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 10);
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
    unsigned long rounds = 0;
    const int file = memfd_create("window", 0);
    require(file >= 0 && guard_install(), "a file and a guard");
    crc_init();
    printf("seed %llu\n", (unsigned long long)seed);
    for (state = seed; time(NULL) < end; rounds++) {
        crc_choose(rounds % 3 == 0);
        one_round(file);
    }
    printf("%lu rounds, nothing found\n", rounds);
    return 0;
}
