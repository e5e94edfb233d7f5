/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * The regions that C reads, as crates/layout declares them, with the hash of each. `cargo xtask headers` writes this file: change it
 * there. A part of a word begins at its bit _AT, and is _MAX at most.
 */
#ifndef SIDELONG_LAYOUT_H
#define SIDELONG_LAYOUT_H

/* Programs in the kernel have integers of their own, and no atomic ones. */
#ifdef __bpf__
#define ATOMIC(type) type
#else
#include <stdint.h>
#define ATOMIC(type) _Atomic(type)
#endif

#define LAYOUT_VERSION 16
#define MAGIC 0x474e4f4c45444953ull
#define SITES_MAX 4095
#define NODES_MAX 16383
#define NAME_BYTES 64
#define SLOTS 128
#define PLACES_MAX 128
#define KIND_CHOICE 9
#define LAYOUT_CHOICE 0x520879503785204eull
#define KIND_WORKERS 10
#define LAYOUT_WORKERS 0x26534a07b539719dull
#define KIND_KERNEL 5
#define LAYOUT_KERNEL 0x7e92230ee940b404ull

#define VERDICT_PART_AT 33
#define VERDICT_PART_MAX 0x7fffffffull
#define VERDICT_TURN_AT 3
#define VERDICT_TURN_MAX 0x3fffffffull
#define VERDICT_WHY_AT 0
#define VERDICT_WHY_MAX 7

#define OWNERSHIP_STATE_AT 60
#define OWNERSHIP_STATE_MAX 15
#define OWNERSHIP_SITE_AT 48
#define OWNERSHIP_SITE_MAX 4095
#define OWNERSHIP_NEXT_AT 36
#define OWNERSHIP_NEXT_MAX 4095
#define OWNERSHIP_GENERATION_AT 0
#define OWNERSHIP_GENERATION_MAX 0xfffffffffull
#define OWNERSHIP_FREE 0
#define OWNERSHIP_SERVING 1
#define OWNERSHIP_DRAINING 2
#define OWNERSHIP_HELD 3
#define OWNERSHIP_PINNED 4
#define OWNERSHIP_CHANGING 5

#define READING_INDEX_AT 36
#define READING_INDEX_MAX 0xfffffffull
#define READING_PER_REQUEST_AT 16
#define READING_PER_REQUEST_MAX 1048575
#define READING_IN_FLIGHT_AT 0
#define READING_IN_FLIGHT_MAX 65535

#define HEALTH_PHASE_AT 62
#define HEALTH_PHASE_MAX 3
#define HEALTH_COUNT_AT 56
#define HEALTH_COUNT_MAX 63
#define HEALTH_CAUSE_AT 54
#define HEALTH_CAUSE_MAX 3
#define HEALTH_UNTIL_US_AT 0
#define HEALTH_UNTIL_US_MAX 0x3fffffffffffffull

#define WORKER_PID_AT 32
#define WORKER_PID_MAX 0xffffffffull
#define WORKER_STARTED_AT 0
#define WORKER_STARTED_MAX 0xffffffffull

#define VALID_RUN_QUEUE 1
#define VALID_CPU 2
#define VALID_MEMORY 4
#define VALID_NETWORK 8
#define VALID_ORIGIN 16
#define VALID_INTERRUPTS 32
#define VALID_ALL 63
#define VALID_SHARED 8192
#define VALID_CONNECTIONS 16384
#define VALID_WORKERS 32768

#define ACK_CODE_AT 48
#define ACK_CODE_MAX 255
#define ACK_CAUSE_AT 44
#define ACK_CAUSE_MAX 15
#define ACK_STEP_AT 40
#define ACK_STEP_MAX 15
#define ACK_GENERATION_AT 4
#define ACK_GENERATION_MAX 0xfffffffffull
#define ACK_KIND_AT 0
#define ACK_KIND_MAX 15
#define ACK_ACK 1
#define ACK_CHANGED 2
#define ACK_UNDONE 3
#define ACK_FAILED 4

#define KEPT_CPU_TIMES 64
#define KEPT_SWITCHES 128
#define KEPT_INTERRUPTS_TOTAL 256
#define KEPT_PRESSURE 512
#define KEPT_LOAD_AVERAGE 1024
#define KEPT_TCP 2048
#define KEPT_SOCKETS 4096
#define KEPT_OF_GROUP 8192

#define SLOT_RUNNING 1

#define TICK_ONLINE 1

#define PENDING_RAISED_AT 32
#define PENDING_RAISED_MAX 0xffffffffull
#define PENDING_SERVING_AT 16
#define PENDING_SERVING_MAX 65535
#define PENDING_PENDING_AT 0
#define PENDING_PENDING_MAX 65535

struct region_header {
    uint64_t magic;
    uint32_t version;
    uint32_t kind;
    uint64_t layout_hash;
    uint64_t incarnation;
    uint64_t len;
    uint64_t cluster;
    uint64_t epoch;
    uint64_t extends;
};
_Static_assert(sizeof(struct region_header) == 64, "region_header");

struct choice_site {
    ATOMIC(uint64_t) verdict;
    ATOMIC(uint64_t) members;
    uint64_t zero[6];
    uint8_t name[64];
};
_Static_assert(sizeof(struct choice_site) == 128, "choice_site");

struct choice_node {
    ATOMIC(uint64_t) ownership;
    ATOMIC(uint64_t) reading;
    ATOMIC(uint64_t) health;
    ATOMIC(uint64_t) requests;
    uint64_t zero[4];
};
_Static_assert(sizeof(struct choice_node) == 64, "choice_node");

struct choice_server {
    uint16_t family;
    uint16_t port;
    uint32_t node;
    uint8_t address[16];
    uint64_t zero;
};
_Static_assert(sizeof(struct choice_server) == 32, "choice_server");

struct choice_region {
    struct region_header header;
    ATOMIC(uint64_t) time_ns;
    uint64_t stale_ns;
    uint32_t nodes;
    uint32_t sites;
    uint64_t balance;
    uint64_t rotation_ns;
    uint64_t servers;
    ATOMIC(uint64_t) version;
    uint64_t zero;
    struct choice_site site[];
    /* then struct choice_node node[] */
    /* then ATOMIC(uint16_t) list[][4] */
    /* then struct choice_server server[] */
};
_Static_assert(sizeof(struct choice_region) == 128, "choice_region");

struct worker_node {
    ATOMIC(uint64_t) sent;
    ATOMIC(uint64_t) trial;
    ATOMIC(uint64_t) uncounted;
    ATOMIC(uint64_t) refused_ns;
    ATOMIC(uint64_t) ownership;
    uint64_t zero[3];
};
_Static_assert(sizeof(struct worker_node) == 64, "worker_node");

struct worker_counts {
    ATOMIC(uint64_t) in_flight;
    ATOMIC(uint64_t) unanswered;
    ATOMIC(uint64_t) answers;
    ATOMIC(uint32_t) failed;
    ATOMIC(uint32_t) refused;
};
_Static_assert(sizeof(struct worker_counts) == 32, "worker_counts");

struct worker_slot {
    ATOMIC(uint64_t) owner;
    uint64_t zero[7];
    struct worker_counts counts[];
};
_Static_assert(sizeof(struct worker_slot) == 64, "worker_slot");

struct workers_region {
    struct region_header header;
    struct worker_node node[];
    /* then struct worker_slot slot[] */
};
_Static_assert(sizeof(struct workers_region) == 64, "workers_region");

struct hot {
    uint32_t sequence;
    uint32_t check;
    uint32_t generation;
    uint16_t valid;
    uint16_t run_queue;
    uint64_t time_ns;
    uint16_t cpu_permille;
    uint16_t memory_permille;
    uint16_t pending_interrupts;
    uint16_t workers;
    uint64_t net_bytes_per_s;
    uint32_t connections;
    uint32_t queued;
    uint64_t served;
    uint32_t busy;
    uint32_t by_server;
};
_Static_assert(sizeof(struct hot) == 64, "hot");

struct detail {
    uint32_t sequence;
    uint32_t check;
    uint32_t generation;
    uint32_t pid;
    uint64_t time_ns;
    uint32_t load_1m_milli;
    uint32_t load_5m_milli;
    uint32_t load_15m_milli;
    uint32_t threads;
    uint64_t cpu_user_ns;
    uint64_t cpu_system_ns;
    uint64_t cpu_iowait_ns;
    uint64_t cpu_idle_ns;
    uint64_t context_switches;
    uint64_t interrupts;
    uint64_t memory_used_bytes;
    uint64_t memory_total_bytes;
    uint64_t net_received_bytes;
    uint64_t net_sent_bytes;
    uint64_t net_received_packets;
    uint64_t net_sent_packets;
    uint32_t tcp_established;
    uint32_t cpus;
    uint64_t errors;
    uint64_t origin_sent_bytes;
    uint64_t reserved[4];
};
_Static_assert(sizeof(struct detail) == 192, "detail");

struct load_region {
    struct region_header header;
    struct hot hot;
    ATOMIC(uint64_t) ack;
    uint64_t zero[7];
    struct detail detail;
};
_Static_assert(sizeof(struct load_region) == 384, "load_region");

struct beat {
    uint32_t sequence;
    uint32_t check;
    uint32_t generation;
    uint16_t valid;
    uint16_t cpus;
    uint64_t time_ns;
    uint16_t memory_permille;
    uint16_t places;
    uint32_t run_queue;
    uint64_t net_bytes;
    uint32_t tcp_established;
    uint32_t unplaced;
    uint64_t cpu_used_ns;
    uint32_t beats;
    uint32_t reserved;
};
_Static_assert(sizeof(struct beat) == 64, "beat");

struct sockets {
    uint32_t sequence;
    uint32_t check;
    uint32_t generation;
    uint16_t listening;
    uint16_t dropped;
    uint64_t time_ns;
    uint32_t established;
    uint32_t queue;
    uint32_t queue_max;
    uint32_t reserved;
    uint64_t zero[3];
};
_Static_assert(sizeof(struct sockets) == 64, "sockets");

struct slot {
    uint32_t sequence;
    uint32_t check;
    uint32_t generation;
    uint16_t runnable;
    uint16_t flags;
    uint64_t time_ns;
    uint64_t busy_ns;
    uint64_t switches;
};
_Static_assert(sizeof(struct slot) == 40, "slot");

struct tick {
    uint32_t sequence;
    uint32_t check;
    uint32_t generation;
    uint16_t runnable;
    uint16_t flags;
    uint64_t time_ns;
    uint32_t slot_sequence;
    uint32_t reserved;
};
_Static_assert(sizeof(struct tick) == 32, "tick");

struct place {
    struct slot slot;
    uint64_t clock_offset_ns;
    uint64_t clock_until_ns;
    uint64_t slot_zero;
    struct tick tick;
    uint64_t pending;
    uint64_t zero[3];
};
_Static_assert(sizeof(struct place) == 128, "place");

struct machine {
    uint32_t sequence;
    uint32_t check;
    uint32_t generation;
    uint16_t valid;
    uint16_t cpus;
    uint64_t time_ns;
    uint64_t cpu_user_ns;
    uint64_t cpu_nice_ns;
    uint64_t cpu_system_ns;
    uint64_t cpu_irq_ns;
    uint64_t cpu_softirq_ns;
    uint64_t cpu_idle_ns;
    uint64_t cpu_iowait_ns;
    uint64_t cpu_steal_ns;
    uint64_t context_switches;
    uint64_t interrupts;
    uint64_t memory_used_bytes;
    uint64_t memory_total_bytes;
    uint64_t memory_pressure_us;
    uint64_t net_received_bytes;
    uint64_t net_sent_bytes;
    uint64_t net_received_packets;
    uint64_t net_sent_packets;
    uint32_t load_1m_milli;
    uint32_t load_5m_milli;
    uint32_t load_15m_milli;
    uint32_t tcp_established;
    uint32_t uninterruptible;
    uint32_t run_queue;
    uint64_t reserved;
};
_Static_assert(sizeof(struct machine) == 192, "machine");

struct kernel_region {
    struct load_region load;
    struct beat beat;
    struct sockets sockets;
    struct place places[128];
    struct machine machine;
};
_Static_assert(sizeof(struct kernel_region) == 17088, "kernel_region");

#endif
