/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * The memory that peers read, as crates/layout has it (kernel.rs, record.rs, map.rs): any change there is one here.
 */
#pragma once

#define PLACES_MAX 128
#define PORTS_MAX 16
#define NODES_MAX 8

/* layout::valid and layout::kept. */
#define VALID_RUN_QUEUE (1 << 0)
#define VALID_CPU (1 << 1)
#define VALID_MEMORY (1 << 2)
#define VALID_NETWORK (1 << 3)
#define VALID_INTERRUPTS (1 << 5)
#define KEPT_CPU_TIMES (1 << 6)
#define KEPT_SWITCHES (1 << 7)
#define KEPT_INTERRUPTS_TOTAL (1 << 8)
#define KEPT_PRESSURE (1 << 9)
#define KEPT_LOAD_AVERAGE (1 << 10)
#define KEPT_TCP (1 << 11)
#define KEPT_PORTS (1 << 12)
#define KEPT_OF_GROUP (1 << 13)

#define SLOT_RUNNING 1
#define TICK_ONLINE 1

/* sequence and check of every record; the rest is in the order of the struct. */
struct seal {
    u32 sequence;
    u32 check;
};

struct beat {
    struct seal seal;
    u32 generation;
    u16 valid;
    u16 cpus;
    u64 time_ns;
    u16 memory_permille;
    u16 places;
    u32 run_queue;
    u64 net_bytes;
    u32 tcp_established;
    u32 accept_queue;
    u64 cpu_used_ns;
    u32 beats;
    u32 unplaced;
};

/* Words of a slot: seal, generation | runnable << 32 | flags << 48, time_ns, busy_ns, switches. */
#define SLOT_WORDS 5

/* Words of a tick: seal, generation | runnable << 32 | flags << 48, time_ns, slot_sequence. */
#define TICK_WORDS 4

struct place {
    u64 slot[SLOT_WORDS];
    /* The writer's own: what makes its run queue's clock the monotonic one, and until when. */
    u64 clock_offset_ns;
    u64 clock_until_ns;
    u64 zero;
    u64 tick[TICK_WORDS];
    u64 pending;
    u64 zeros[3];
};

struct machine {
    struct seal seal;
    u32 generation;
    u16 valid;
    u16 cpus;
    u64 time_ns;
    u64 cpu_user_ns;
    u64 cpu_nice_ns;
    u64 cpu_system_ns;
    u64 cpu_irq_ns;
    u64 cpu_softirq_ns;
    u64 cpu_idle_ns;
    u64 cpu_iowait_ns;
    u64 cpu_steal_ns;
    u64 context_switches;
    u64 interrupts;
    u64 memory_used_bytes;
    u64 memory_total_bytes;
    u64 memory_pressure_us;
    u64 net_received_bytes;
    u64 net_sent_bytes;
    u64 net_received_packets;
    u64 net_sent_packets;
    u32 load_1m_milli;
    u32 load_5m_milli;
    u32 load_15m_milli;
    u32 tcp_established;
    u32 uninterruptible;
    u32 run_queue;
    u64 zero;
};

struct port {
    u16 port;
    u16 sockets;
    u32 established;
    u32 queue;
    u32 queue_max;
};

struct ports {
    struct seal seal;
    u32 generation;
    u16 count;
    u16 dropped;
    u64 time_ns;
    struct port ports[PORTS_MAX];
    u64 zeros[5];
};

/* The region. The first 384 bytes are the owner's: header, the server's line, acknowledgement, detail. */
struct region {
    u64 owners[48];
    u64 beat[sizeof(struct beat) / 8];
    u64 ports[sizeof(struct ports) / 8];
    struct place places[PLACES_MAX];
    u64 machine[sizeof(struct machine) / 8];
};

_Static_assert(sizeof(struct beat) == 64, "beat");
_Static_assert(sizeof(struct place) == 128, "place");
_Static_assert(sizeof(struct machine) == 192, "machine");
_Static_assert(sizeof(struct ports) == 320, "ports");
_Static_assert(sizeof(struct region) == 17344, "region");

/* layout::record's check, step by step: one word after the first goes to the even lane, the next to the odd one. */
#define CHECK_A 0xa0761d6478bd642fULL
#define CHECK_B 0xe7037ed1a0b428dbULL

static __always_inline u64 check_fold(u64 x)
{
    x *= CHECK_A;
    return (x ^ (x >> 29)) * CHECK_B;
}

static __always_inline u32 check_end(u64 even, u64 odd)
{
    u64 mixed = check_fold(even ^ (odd << 32 | odd >> 32));
    return (u32)(mixed ^ (mixed >> 32));
}
