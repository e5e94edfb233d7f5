/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Prints which node the library chooses: choose PREFIX SITE NOW_NS, then lines "TICKET RANDOM" on standard input; -1 for
 * none. For tests, which compare it with crates/policy.
 */
#include "front.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words)
{
    char why[SIDELONG_WHY_BYTES];
    uint64_t ticket, random;

    if (count != 4) {
        fprintf(stderr, "usage: choose PREFIX SITE NOW_NS\n");
        return 2;
    }
    sidelong_front *front = sidelong_front_open(words[1], why);
    sidelong_site site = {.name = words[2]};

    if (!front || *why) {
        fprintf(stderr, "choose: %s\n", why);
        return 1;
    }
    /* Who asks waits for each. */
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (scanf("%" SCNu64 " %" SCNu64, &ticket, &random) == 2) {
        uint64_t age_ns;

        /* As each request does, which chooses by the present time. */
        sidelong_controls(front, &age_ns);
        printf("%d\n",
               sidelong_choose_at(front, &site, strtoull(words[3], NULL, 10), ticket, random, NULL, NULL));
    }
    return 0;
}
