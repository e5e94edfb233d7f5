/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Prints what is decided of connections from some addresses: decide PREFIX SITE [ADDRESS PORT]... For tests, which compare it
 * with crates/policy.
 */
#include "sidelong.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words)
{
    char why[SIDELONG_WHY_BYTES];

    if (count < 3) {
        fprintf(stderr, "usage: decide PREFIX SITE [ADDRESS PORT...]\n");
        return 2;
    }
    sidelong_front *front = sidelong_front_open(words[1], why);
    sidelong_site site = {.name = words[2]};

    if (!front || *why) {
        fprintf(stderr, "decide: %s\n", why);
        return 1;
    }
    for (int i = 3; i + 1 < count; i += 2) {
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(words[i + 1]))};
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = v4.sin_port};
        const struct sockaddr *address = (const void *)&v4;

        if (inet_pton(AF_INET6, words[i], &v6.sin6_addr) == 1)
            address = (const void *)&v6;
        else if (inet_pton(AF_INET, words[i], &v4.sin_addr) != 1) {
            fprintf(stderr, "decide: %s is no address\n", words[i]);
            return 2;
        }
        sidelong_decision decision = sidelong_admit(front, &site, sidelong_client(address));

        printf("%d %s %u\n", decision.admit, sidelong_reason(decision.why), decision.retry_after_s);
    }
    return 0;
}
