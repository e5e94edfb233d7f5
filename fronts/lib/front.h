/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a front and the workers of the proxy that it controls tell each other in shared memory (crates/layout: choice.rs,
 * workers.rs). For this library and its tests.
 */
#ifndef SIDELONG_FRONT_INTERNAL_H
#define SIDELONG_FRONT_INTERNAL_H

#include "sidelong.h"

#include <stdatomic.h>

#define MAGIC 0x474e4f4c45444953ull
#define KIND_CHOICE 9
#define KIND_WORKERS 10

struct header {
    uint64_t magic;
    uint32_t version;
    uint32_t kind;
    uint64_t layout_hash;
    _Atomic uint64_t incarnation;
    uint64_t len;
    uint64_t cluster;
    uint64_t zero[2];
};

struct choice_site {
    _Atomic uint64_t verdict;
    _Atomic uint64_t members;
    uint64_t zero[6];
    char name[SIDELONG_NAME_BYTES];
};

struct choice_node {
    _Atomic uint64_t ownership;
    _Atomic uint64_t reading;
    _Atomic uint64_t health;
    _Atomic uint64_t requests;
    uint64_t zero[4];
};

struct choice_server {
    uint16_t family;
    uint16_t port;
    uint32_t node;
    uint8_t address[16];
    uint64_t zero;
};

struct choice {
    struct header header;
    _Atomic uint64_t time_ns;
    uint64_t stale_ns;
    uint32_t nodes;
    uint32_t sites;
    uint64_t balance;
    uint64_t rotation_ns;
    uint64_t servers;
    uint64_t zero[2];
    struct choice_site site[];
    /* then struct choice_node[nodes], for each site uint16_t[nodes, a multiple of 4], struct choice_server[servers] */
};

struct worker_node {
    _Atomic uint64_t sent;
    _Atomic uint64_t trial;
    _Atomic uint64_t uncounted;
    uint64_t zero[5];
};

struct worker_counts {
    _Atomic uint64_t in_flight;
    _Atomic uint64_t unanswered;
    _Atomic uint64_t answers;
    _Atomic uint32_t failed; /* the lower half of a word: little-endian */
    _Atomic uint32_t refused;
};

struct worker_slot {
    _Atomic uint64_t owner;
    uint64_t zero[7];
    struct worker_counts counts[];
};

#define SLOTS 128

struct workers {
    struct header header;
    struct worker_node node[];
    /* then SLOTS times struct worker_slot with counts[nodes] */
};

_Static_assert(sizeof(struct header) == 64 && sizeof(struct choice_site) == 128 && sizeof(struct choice_node) == 64 && sizeof(struct choice_server) == 32
                   && sizeof(struct choice) == 128 && sizeof(struct worker_node) == 64
                   && sizeof(struct worker_counts) == 32 && sizeof(struct worker_slot) == 64,
               "as crates/layout has them");

/* What is wrong with a region of `kind` in a file of `room` bytes that begins so; NULL if nothing is. */
const char *sidelong_check(const struct header *header, uint64_t room, uint32_t kind, char *text, size_t size);

/* Decides by a verdict of crates/policy. */
sidelong_decision sidelong_by_verdict(uint64_t verdict, uint64_t rotation_ns, uint64_t client);

/* The output function of SplitMix64 (Steele, Lea, Flood 2014), as crates/policy has it. */
uint64_t sidelong_mix(uint64_t random);

uint64_t sidelong_now_ns(void);

/*
 * As `Balance::choose` of crates/policy: the index of a node of the site, -1 if none is usable. `ticket` rises with each
 * request, `random` is fresh.
 */
int sidelong_choose_at(sidelong_front *front, sidelong_site *site, uint64_t now_ns, uint64_t ticket, uint64_t random,
                       sidelong_usable usable, void *context);

#endif
