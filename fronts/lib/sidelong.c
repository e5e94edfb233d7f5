/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#define _GNU_SOURCE
#include "front.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* crates/layout: verdicts.rs. */
struct entry {
    uint64_t verdict;
    uint64_t time_ns;
    uint64_t stale_ns;
    uint64_t rotation_ns;
    uint64_t zero[4];
    char name[SIDELONG_NAME_BYTES];
};

_Static_assert(sizeof(struct entry) == 128, "as crates/layout has it");

/* crates/policy: verdict.rs. `part:31 turn:30 why:3`, and how late a client is told to come back at most. */
#define TURN_BITS 30
#define WHY_BITS 3
#define CIRCLE (1u << TURN_BITS)
#define RETRY_AFTER_S_MAX 5

/* Entries that are read at a time: those of most clusters. */
#define ENTRIES 32
/* A cluster has no more sites. */
#define SITES_MAX 4095

/* The file is read and not mapped: a mapped file that somebody cuts short ends its readers by SIGBUS. */
struct sidelong_verdicts {
    int file;
};

static int fails(char *why, int error, const char *path, const char *what)
{
    snprintf(why, SIDELONG_WHY_BYTES, "%s: %s", path, what);
    return error;
}

const char *sidelong_check(const struct header *header, uint64_t room, uint32_t kind, char *text, size_t size)
{
    if (header->magic != MAGIC)
        return "no Sidelong region";
    if (header->version != SIDELONG_LAYOUT_VERSION) {
        snprintf(text, size, "of layout version %u, this library reads %u: install those of one release",
                 header->version, SIDELONG_LAYOUT_VERSION);
        return text;
    }
    if (header->kind != kind)
        return kind == KIND_VERDICTS ? "a region, and none of verdicts" : "a region, and not this one of a front";
    if (header->len > room || header->len < sizeof(*header))
        return "of another length than its header says";
    return NULL;
}

/* Opens the file, if it holds verdicts. */
static int open_file(const char *path, int *opened, char why[SIDELONG_WHY_BYTES])
{
    char text[128];
    struct stat found;
    struct header header;

    /* A FIFO would be waited for. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0 || fstat(file, &found) != 0) {
        int error = errno;
        if (file >= 0)
            close(file);
        snprintf(text, sizeof(text), "%s; `sidelong helper` makes it", strerror(error));
        return fails(why, error, path, text);
    }
    if (pread(file, &header, sizeof(header), 0) != (ssize_t)sizeof(header)) {
        close(file);
        return fails(why, EPROTO, path, "no Sidelong region");
    }
    const char *wrong = sidelong_check(&header, (uint64_t)found.st_size, KIND_VERDICTS, text, sizeof(text));
    if (!wrong && (header.len - sizeof(header)) % sizeof(struct entry) != 0)
        wrong = "of another length than its header says";
    if (wrong) {
        close(file);
        return fails(why, EPROTO, path, wrong);
    }
    *opened = file;
    return 0;
}

int sidelong_open(const char *path, sidelong_verdicts **opened, char why[SIDELONG_WHY_BYTES])
{
    int file;
    int error = open_file(path, &file, why);

    *opened = NULL;
    if (error)
        return error;
    sidelong_verdicts *verdicts = malloc(sizeof(*verdicts));
    if (!verdicts) {
        close(file);
        return fails(why, ENOMEM, path, "no memory for it");
    }
    verdicts->file = file;
    *opened = verdicts;
    return 0;
}

int sidelong_reopen(sidelong_verdicts *verdicts, const char *path, char why[SIDELONG_WHY_BYTES])
{
    int file;
    int error = open_file(path, &file, why);

    if (error)
        return error;
    /* At once for all threads: each of their reads is of the one file or of the other. */
    error = dup3(file, verdicts->file, O_CLOEXEC) < 0 ? errno : 0;
    close(file);
    return error ? fails(why, error, path, strerror(error)) : 0;
}

bool sidelong_is_current(const sidelong_verdicts *verdicts, const char *path)
{
    struct stat open, found;

    return verdicts && fstat(verdicts->file, &open) == 0 && stat(path, &found) == 0 && found.st_dev == open.st_dev
           && found.st_ino == open.st_ino;
}

void sidelong_close(sidelong_verdicts *verdicts)
{
    if (!verdicts)
        return;
    close(verdicts->file);
    free(verdicts);
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

/* Reads the entry of the site `name`. Returns false, and says why, if there is none. */
static bool find(const sidelong_verdicts *verdicts, const char *name, struct entry *found, sidelong_why *why)
{
    struct entry entries[ENTRIES];

    *why = SIDELONG_NO_SUCH_SITE;
    for (size_t first = 0; first < SITES_MAX; first += ENTRIES) {
        off_t at = (off_t)(sizeof(struct header) + first * sizeof(struct entry));
        ssize_t bytes = pread(verdicts->file, entries, sizeof(entries), at);

        if (bytes <= 0) {
            /* Without its first entries the file was cut short. */
            if (first == 0)
                *why = SIDELONG_NO_VERDICTS;
            return false;
        }
        for (size_t i = 0; i < (size_t)bytes / sizeof(struct entry); i++)
            if (strncmp(entries[i].name, name, SIDELONG_NAME_BYTES) == 0) {
                *found = entries[i];
                return true;
            }
    }
    return false;
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
    uint32_t part = (uint32_t)(verdict >> (TURN_BITS + WHY_BITS));
    uint32_t turn = (uint32_t)(verdict >> WHY_BITS) & (CIRCLE - 1);
    uint32_t why = verdict & ((1 << WHY_BITS) - 1);

    decision.why = why <= SIDELONG_RECOVERING ? (sidelong_why)why : SIDELONG_NO_TARGET;
    if (part >= CIRCLE || why > SIDELONG_RECOVERING)
        return decision;
    uint32_t distance = ((uint32_t)(client >> 34) - turn) & (CIRCLE - 1);
    if (distance < part)
        return decision;
    uint64_t wait_s = (uint64_t)((double)(distance - part) / CIRCLE * (double)rotation_ns / 1e9);
    decision.admit = false;
    decision.retry_after_s = wait_s < 1 ? 1 : wait_s > RETRY_AFTER_S_MAX ? RETRY_AFTER_S_MAX : (unsigned)wait_s;
    return decision;
}

sidelong_decision sidelong_decide(const sidelong_verdicts *verdicts, const char *name, uint64_t client)
{
    sidelong_decision decision = {.admit = true, .why = SIDELONG_NO_VERDICTS};

    if (!verdicts)
        return decision;
    struct entry entry;
    if (!find(verdicts, name, &entry, &decision.why))
        return decision;
    uint64_t now_ns = sidelong_now_ns();
    decision.why = SIDELONG_STALE;
    if (entry.time_ns == 0 || (now_ns > entry.time_ns && now_ns - entry.time_ns > entry.stale_ns))
        return decision;
    /* The time may be that of the next verdict, one scan later. */
    return sidelong_by_verdict(entry.verdict, entry.rotation_ns, client);
}

const char *sidelong_reason(sidelong_why why)
{
    static const char *const reasons[] = {
        "no-target", "within-target", "no-records", "over-target", "yields", "all-overloaded",
        "recovering", "no-verdicts", "no-such-site", "stale-verdict",
    };

    return (size_t)why < sizeof(reasons) / sizeof(reasons[0]) ? reasons[why] : "unknown";
}
