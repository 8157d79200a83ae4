/* The fold of a file that is mapped into memory: the same answers as a fold of what was read of it, without the copy.

   What a mapping cannot give ends a process by a signal, SIGBUS: a sector that cannot be read, a file that another process cut
   meanwhile. So the mapping lives for one call and nobody else sees it, the call is left from the signal's handler, and
   what is wrong there the caller finds out by reading, which has an errno. */

#ifndef LOGMEND_MAPPED_H
#define LOGMEND_MAPPED_H

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "_fold.h"

/* Bytes of a file that one call maps, at most: they count as memory of the process while it lasts. */
enum { MAPPED = 8 << 20 };

/* Where a thread goes on if it is refused a byte from `from` to before `until`. */
struct guard {
    const uint8_t *from, *until;
    sigjmp_buf back;
};

static __thread struct guard *volatile guarding;
static struct sigaction before_us;

static void
on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    struct guard *const guard = guarding;
    const uint8_t *const at = info->si_addr;
    const int was_sent = info->si_code <= 0; /* by a process: there is no address then */
    if (guard != NULL && !was_sent && at >= guard->from && at < guard->until) {
        guarding = NULL;
        siglongjmp(guard->back, 1);
    }
    /* Not ours: it is for the handler that was installed before. What was touched is touched again after this. */
    sigaction(number, &before_us, NULL);
    if (was_sent)
        raise(number);
}

/* Be the one who is asked about SIGBUS. To be called with the interpreter's lock held, before each use: others may have
   come since. */
static int
guard_install(void)
{
    struct sigaction now, ours = {.sa_flags = SA_SIGINFO};
    if (sigaction(SIGBUS, NULL, &now) != 0)
        return 0;
    if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_bus_error)
        return 1;
    before_us = now;
    ours.sa_sigaction = on_bus_error;
    sigemptyset(&ours.sa_mask);
    return sigaction(SIGBUS, &ours, NULL) == 0;
}

/* Do what scan_and_fold does with the bytes from `position` to `end` of a file. Where they cannot be had it ends before
   them with NEED_MORE; `folded` then holds what was folded so far. */
static int
scan_and_fold_file(struct fold *fold, int file, int64_t *block, size_t capacity, int64_t position, int64_t end,
                   int64_t next, struct folded *folded)
{
    const int64_t first = position & ~((int64_t)sysconf(_SC_PAGESIZE) - 1);
    const size_t length = (size_t)(end - first);
    struct guard guard;
    volatile int failed = 0;
    *folded = (struct folded){.next = next, .scanned.stop = NEED_MORE};
    uint8_t *const map = mmap(NULL, length, PROT_READ, MAP_SHARED, file, (off_t)first);
    if (map == MAP_FAILED)
        return 0;
    guard.from = map;
    guard.until = map + length;
    if (sigsetjmp(guard.back, 1) == 0) {
        guarding = &guard;
        failed = scan_and_fold(fold, map + (position - first), (size_t)(end - position), block, capacity, position,
                               next, folded);
        guarding = NULL;
    }
    else
        folded->scanned.stop = NEED_MORE;
    munmap(map, length);
    return failed;
}

#endif
