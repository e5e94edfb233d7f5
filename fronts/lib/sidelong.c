/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#define _GNU_SOURCE
#include "front.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>

/* crates/policy: verdict.rs. How late a client is told to come back at most. */
#define RETRY_AFTER_S_MAX 5

const char *sidelong_check(const struct region_header *header, uint64_t room, uint32_t kind, char *text, size_t size)
{
    if (header->magic != MAGIC)
        return "no Sidelong region";
    if (header->version != LAYOUT_VERSION) {
        snprintf(text, size, "of layout version %u, this library reads %u: install those of one release",
                 header->version, LAYOUT_VERSION);
        return text;
    }
    if (header->kind != kind)
        return "a region, and not this one of a front";
    uint64_t layout = kind == KIND_CHOICE ? LAYOUT_CHOICE : LAYOUT_WORKERS;
    /* One of the next release begins with what this library reads. */
    if (header->layout_hash != layout && header->extends != layout) {
        snprintf(text, size, "of layout %#018" PRIx64 ", this library reads %#018" PRIx64 ": install the library of the front's release",
                 header->layout_hash, layout);
        return text;
    }
    if (header->len > room || header->len < sizeof(*header))
        return "of another length than its header says";
    return NULL;
}

uint64_t sidelong_mix(uint64_t random)
{
    uint64_t z = random + 0x9e3779b97f4a7c15ull;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static uint64_t big_endian(const uint8_t *bytes, int count)
{
    uint64_t number = 0;

    for (int i = 0; i < count; i++)
        number = number << 8 | bytes[i];
    return number;
}

struct sockaddr_storage sidelong_address(const char *text, size_t bytes)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    struct sockaddr_in *v4 = (void *)&address;
    struct sockaddr_in6 *v6 = (void *)&address;
    struct sockaddr_un *local = (void *)&address;
    char copy[sizeof(local->sun_path)];

    if (bytes == 0 || bytes >= sizeof(copy))
        return address;
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    if (*copy == '/') {
        local->sun_family = AF_UNIX;
        memcpy(local->sun_path, copy, bytes);
        return address;
    }
    char *colon = strrchr(copy, ':'), *host = copy;
    if (!colon)
        return address;
    *colon = 0;
    in_port_t port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    if (*host == '[' && colon[-1] == ']') {
        colon[-1] = 0;
        host++;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = port;
    } else if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = port;
    }
    return address;
}

uint64_t sidelong_client(const struct sockaddr *address)
{
    uint64_t ip;
    uint16_t port;

    if (address && address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)address;
        ip = sidelong_mix(big_endian((const uint8_t *)&v4->sin_addr, 4));
        port = ntohs(v4->sin_port);
    } else if (address && address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)address;
        const uint8_t *bytes = v6->sin6_addr.s6_addr;
        /* To who listens for both families, too, an IPv4 address is one. */
        if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
            ip = sidelong_mix(big_endian(bytes + 12, 4));
        else
            ip = sidelong_mix(sidelong_mix(big_endian(bytes, 8)) ^ big_endian(bytes + 8, 8));
        port = ntohs(v6->sin6_port);
    } else {
        return 0;
    }
    return sidelong_mix(ip ^ port);
}

uint64_t sidelong_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

sidelong_decision sidelong_by_verdict(uint64_t verdict, uint64_t rotation_ns, uint64_t client)
{
    sidelong_decision decision = {.admit = true};
    const uint32_t turns = VERDICT_TURN_MAX, circle = turns + 1;
    uint32_t part = (uint32_t)(verdict >> VERDICT_PART_AT);
    uint32_t turn = (uint32_t)(verdict >> VERDICT_TURN_AT) & turns;
    uint32_t why = verdict & VERDICT_WHY_MAX;

    decision.why = why <= SIDELONG_RECOVERING ? (sidelong_why)why : SIDELONG_NO_TARGET;
    if (part >= circle || why > SIDELONG_RECOVERING)
        return decision;
    uint32_t distance = ((uint32_t)(client >> 34) - turn) & turns;
    if (distance < part)
        return decision;
    uint64_t wait_s = (uint64_t)((double)(distance - part) / circle * (double)rotation_ns / 1e9);
    decision.admit = false;
    decision.retry_after_s = wait_s < 1 ? 1 : wait_s > RETRY_AFTER_S_MAX ? RETRY_AFTER_S_MAX : (unsigned)wait_s;
    return decision;
}

const char *sidelong_reason(sidelong_why why)
{
    static const char *const reasons[] = {
        "no-target", "within-target", "no-records", "over-target", "yields", "all-overloaded",
        "recovering", "no-verdicts", "no-such-site", "stale-verdict",
    };

    return (size_t)why < sizeof(reasons) / sizeof(reasons[0]) ? reasons[why] : "unknown";
}
