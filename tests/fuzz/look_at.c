/* Looks at directories at a glance, to be built with the sanitizers; prints a line for each: fine, odd, or a number.

     gcc -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -o look_at tests/fuzz/look_at.c
     ./look_at DIR... */

#define _GNU_SOURCE
#include "../../storage/disk/_glance.h"

int
main(int count, char **paths)
{
    crc_init();
    for (int n = 1; n < count; n++) {
        struct glance glance = {.user = -1};
        const enum look look = look_at_directory(&glance, paths[n]);
        if (look == FINE)
            printf("fine %lld\n", (long long)(glance.log_end + newest_snapshot(&glance)));
        else if (glance.error)
            printf("%d\n", glance.error);
        else
            puts("odd");
        glance_free(&glance);
    }
    return 0;
}
