/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * Keeps a node's load record in the kernel, at the kernel's own events, in memory that peers read from the side.
 *
 * Thin: O(1) work at an event, counters in mapped memory, nothing streamed. A CPU's slot is written under that CPU's
 * run-queue lock, so it has one writer at a time; what one timer writes has one too. What a kernel lacks is left out by the
 * loader (kernel.rs beside), program by program, and the record says which fields are valid.
 */
#include "kernel.h"

#include <bpf_helpers.h>

#include <bpf_core_read.h>
#include <bpf_tracing.h>

#include "record.h"

/* A GPL-compatible licence, as the kernel spells it: it lends its helpers to no other. */
char licence[] SEC("license") = "Dual MIT/GPL";

/* CPUs that are looked at: all of them in the sums, PLACES_MAX of them one by one. */
#define CPUS_MAX 1024
/* Control groups above a thread that are looked through for the record's own. */
#define DEPTH_MAX 8
/* Addresses of the node's foreign server. */
#define SERVERS_MAX 64
/* The middle of a mapped address (RFC 4291, 2.5.5.2), as the second word has it. */
#define MAPPED 0xffff0000ULL
/* Sockets that listen there at a time. */
#define LISTENERS_MAX 256
/* NUMA nodes whose memory is counted. */
#define MEMORY_NODES_MAX 8
/* Established connections that are counted at a time: twice as many find a place in most buckets. A power of two each. */
#define CONNECTIONS_MAX 262144
#define BUCKET 16
#define BUCKETS (2 * CONNECTIONS_MAX / BUCKET)
/* Buckets whose connections are looked at in a survey: all of them in 5 s. */
#define BUCKETS_A_SURVEY 64

#define MS 1000000ULL
#define BEAT_NS (1 * MS)
#define BEATS_A_SURVEY 10
/* A run queue's clock is compared with the monotonic one so often: the two drift by parts in a million. */
#define CLOCK_NS (1000 * MS)

/* As IPv6 has it, in which an address of IPv4 is mapped; in the order of the network. */
struct address {
    u64 words[2];
};

struct server {
    struct address address;
    u64 port;
};

/* What the loader knows and the kernel does not tell to programs. */
struct config {
    /* Of the group whose record this is; 0 for the whole machine. */
    u64 cgroup_id;
    /* Of that group among those that hold memory; 0 where there is none. */
    u64 memory_cgroup_id;
    u64 memory_total_bytes;
    u64 page_bytes;
    /* Load averages at the start, with 11 bits behind the point. */
    u64 load[3];
    /* Of per-CPU variables, from the run queue of the same CPU; 0 where the kernel has none of that name. */
    s64 cpustat;
    s64 kstat;
    s64 tick_sched;
    s64 irq_stat;
    s64 area;
    u32 generation;
    u32 cpus;
    u32 places;
    /* Counters of IP and TCP, by their numbers. */
    u32 ip_in_bytes;
    u32 ip_in_packets;
    u32 ip_out_bytes;
    u32 ip_out_packets;
    u32 tcp_established;
    /* Memory nodes, with numbers from 0 on; 0 where they have others. */
    u32 nodes;
    u32 valid;
    u32 server_count;
    u32 reserved;
    struct server servers[SERVERS_MAX];
};

const volatile struct config config SEC(".rodata.config");

/* The one that peers map. */
struct kernel_region region SEC(".data.region");

/* Fields that the loader found to disagree with /proc: bits of `valid` that are left out. */
u32 distrusted SEC(".data.distrust");

/* What is nobody's but these programs'. */
struct cpu {
    u64 rq;
    /* What is added to a per-CPU pointer. */
    u64 area;
    /* The record's group on this CPU. */
    u64 group;
    /* Its threads that are off the queue until its next period begins. */
    u32 throttled;
};

struct cpu cpus[CPUS_MAX];
u64 listeners[LISTENERS_MAX];
u32 listeners_dropped;
/* The last survey in which a server listened at all addresses of the machine, by family: 1 is IPv6. */
u32 everywhere[SERVERS_MAX][2];
u32 established;
u32 surveys = 1;
u32 swept;
u64 nodes[MEMORY_NODES_MAX];
u32 node_count;
u64 group_memory;
u64 net;
u64 net_ip, net_ip6, net_tcp, net_loopback;
u64 net_first[4], net_last[4];
u64 loads[3];
u64 load_at;

struct {
    u64 run_queue;
    u64 uninterruptible;
    u32 online;
    u32 unplaced;
} tick;
struct beat beat;
struct machine machine;
struct sockets sockets;

struct timers {
    struct bpf_timer timer;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct timers);
} timers SEC(".maps");

/*
 * A bit of a socket's address, which is aligned, in the tables below: it was found not to be what it is there for. At the second
 * time, a turn later, it is taken out. An event's end is at times told to none of the programs (a softirq's for milliseconds,
 * seen on 6.18), and the first time may be the moment between an event and the change that it tells of.
 */
#define DOUBTED 1ULL

/* Sockets whose connections count; 0 where a place is free. */
struct bucket {
    u64 sockets[BUCKET];
};

/*
 * What happens to a connection counts once, however often it is told. No map of the kernel's own serves for that. Storage of the
 * socket's own takes a microsecond to allocate. A hash map refuses what a softirq changes that interrupts another change of it,
 * until 6.6 (htab_lock_bucket in kernel/bpf/hashtab.c): then an end is lost, and its connection counts for ever.
 */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, BUCKETS);
    __type(key, u32);
    __type(value, struct bucket);
} connections SEC(".maps");

extern const void psi_system __ksym __weak;

static __always_inline u64 peek(u64 address)
{
    u64 value = 0;
    bpf_probe_read_kernel(&value, sizeof(value), (const void *)address);
    return value;
}

static __always_inline u32 peek_u32(u64 address)
{
    u32 value = 0;
    bpf_probe_read_kernel(&value, sizeof(value), (const void *)address);
    return value;
}

#define OFFSET(type, field) ((u64)bpf_core_field_offset(type, field))
#define PEEK(address, type, field) peek((address) + OFFSET(type, field))
#define PEEK_U32(address, type, field) peek_u32((address) + OFFSET(type, field))

/* Whether a CPU has a place; the loader asks for no more than there are. */
static __always_inline bool has_place(u32 number)
{
    return number < config.places;
}

/* Of a CPU that has one. The mask is for the verifier, which would not see it. */
static __always_inline struct place *place_of(u32 number)
{
    return &region.places[number & (PLACES_MAX - 1)];
}

static __always_inline struct cpu *cpu_of(u32 number)
{
    return &cpus[number & (CPUS_MAX - 1)];
}

static __always_inline void know(struct cpu *cpu, u64 rq)
{
    if (config.area)
        cpu->area = peek(rq + config.area);
    cpu->rq = rq;
}

/* Publishes all words of `from` but the first: odd sequence, words, seal. */
static __always_inline void publish(volatile u64 *to, const u64 *from, const int words)
{
    u32 sequence = (u32)to[0];
    u32 next = sequence + 2 ? sequence + 2 : 2;
    u64 even = next ^ CHECK_A, odd = CHECK_B;

    *(volatile u32 *)to = sequence + 1;
#pragma unroll
    for (int i = 1; i < words; i++) {
        u64 word = from[i];
        to[i] = word;
        if (i & 1)
            even = check_fold(even ^ word);
        else
            odd = check_fold(odd ^ word);
    }
    if (!(words & 1))
        odd = check_fold(odd ^ next);
    to[0] = next | (u64)check_end(even, odd) << 32;
}

/* An event on a CPU whose run-queue lock is held. */
static __always_inline void mark(struct rq *rq, struct place *place, u32 runnable, bool switched, u64 running)
{
    volatile u64 *slot = (u64 *)&place->slot;
    u64 words[SLOT_WORDS];
    u64 clock = rq->clock;

    if (clock >= place->clock_until_ns) {
        place->clock_offset_ns = bpf_ktime_get_ns() - clock;
        place->clock_until_ns = clock + CLOCK_NS;
    }
    u64 now = clock + place->clock_offset_ns;
    u64 was_running = slot[1] >> 48;
    u64 passed = now - slot[2];

    words[3] = slot[3];
    if (was_running && (s64)passed > 0)
        words[3] += passed;
    if (runnable > 0xffff)
        runnable = 0xffff;
    words[1] = config.generation | (u64)runnable << 32 | (switched ? running : was_running) << 48;
    words[2] = now;
    words[4] = slot[4] + switched;
    publish(slot, words, SLOT_WORDS);
}

/*
 * A group that has used up its share. Until 6.17 the kernel takes it off the CPU's queue as a whole and its own queue keeps
 * its threads. From 6.18 each thread leaves that, too, as it next returns to user space, and all are put back at once when
 * a period begins (kernel/sched/fair.c, throttle_cfs_rq_work and tg_unthrottle_up). They are ready to run all the while,
 * as /proc has it.
 */
static __always_inline bool is_throttled(struct task_struct *task)
{
    return bpf_core_field_exists(task->throttled) && task->throttled;
}

static __always_inline u32 runnable_of(struct cfs_rq *group, struct cpu *cpu)
{
    u32 queued = bpf_core_field_exists(group->h_nr_queued) ? group->h_nr_queued
                                                           : ((struct cfs_rq___old *)group)->h_nr_running;

    if (!bpf_core_field_exists(group->throttle_count) || !cpu->throttled)
        return queued;
    if (!group->throttle_count)
        cpu->throttled = 0;
    return queued + cpu->throttled;
}

/* The queue of the record's group that `task` is in, itself or by a group below; null where it is in another group. */
static __always_inline struct cfs_rq *group_of(struct task_struct *task, struct cpu *cpu)
{
    struct sched_entity *entity = &task->se;

#pragma unroll
    for (int depth = 0; depth < DEPTH_MAX; depth++) {
        struct cfs_rq *queue = entity->cfs_rq;
        u64 known = cpu->group;

        if (!known || known == (u64)queue) {
            if (queue->tg->css.cgroup->kn->id == config.cgroup_id) {
                cpu->group = (u64)queue;
                return queue;
            }
            cpu->group = 0;
        }
        entity = entity->parent;
        if (!entity)
            break;
    }
    return 0;
}

/* Where the group's memory is counted, learned from one of its threads. */
static __always_inline void learn_memory(struct task_struct *task)
{
    if (group_memory || !config.memory_cgroup_id)
        return;
    u64 subsystems = (u64)task->cgroups + OFFSET(struct css_set, subsys);
    u64 css = peek(subsystems + 8 * bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id));
    u64 cgroup = css ? PEEK(css, struct cgroup_subsys_state, cgroup) : 0;
    u64 kn = cgroup ? PEEK(cgroup, struct cgroup, kn) : 0;

    if (kn && PEEK(kn, struct kernfs_node, id) == config.memory_cgroup_id)
        group_memory = css - OFFSET(struct mem_cgroup, css);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
    u32 cpu = bpf_get_smp_processor_id();
    struct rq *rq = prev->se.cfs_rq->rq;
    struct place *place = place_of(cpu);

    /* One that was offline when the record began. */
    if (cpu < CPUS_MAX && !cpu_of(cpu)->rq)
        know(cpu_of(cpu), (u64)rq);
    if (!has_place(cpu))
        return 0;
    if (!config.cgroup_id) {
        mark(rq, place, rq->nr_running, true, next->pid ? SLOT_RUNNING : 0);
        return 0;
    }
    struct cpu *here = cpu_of(cpu);
    struct cfs_rq *group = group_of(next, here);
    u64 running = group ? SLOT_RUNNING : 0;

    if (group)
        learn_memory(next);
    if (!group || is_throttled(prev)) {
        struct cfs_rq *left = group_of(prev, here);

        if (left && is_throttled(prev))
            __sync_fetch_and_add(&here->throttled, 1);
        if (!group)
            group = left;
    }
    if (group)
        mark(rq, place, runnable_of(group, here), true, running);
    return 0;
}

/* On the run queue of the CPU that the thread is to run on. */
static __always_inline int woken(struct task_struct *task)
{
    struct rq *rq = task->se.cfs_rq->rq;
    u32 cpu = rq->cpu;
    struct place *place = place_of(cpu);

    if (!has_place(cpu))
        return 0;
    if (!config.cgroup_id) {
        mark(rq, place, rq->nr_running, false, 0);
        return 0;
    }
    struct cfs_rq *group = group_of(task, cpu_of(cpu));

    if (group)
        mark(rq, place, runnable_of(group, cpu_of(cpu)), false, 0);
    return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
    /*
     * A thread that is still on its CPU was never taken off the queue, so there is nothing to tell. And where it wakes
     * itself, on its way to sleep, the kernel comes here without the lock.
     */
    if (task->on_cpu)
        return 0;
    return woken(task);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_new, struct task_struct *task)
{
    return woken(task);
}

/* Softirqs nest in nothing of their own kind, but are raised from anywhere: each change is one atomic operation. */
SEC("tp_btf/softirq_raise")
int BPF_PROG(on_raise, u32 kind)
{
    u32 cpu = bpf_get_smp_processor_id();
    u64 *word = &place_of(cpu)->pending;

    if (!has_place(cpu))
        return 0;
    __sync_fetch_and_or(word, 1ULL << (kind & 15));
    __sync_fetch_and_add(word, 1ULL << 32);
    return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_serve, u32 kind)
{
    u32 cpu = bpf_get_smp_processor_id();
    u64 *word = &place_of(cpu)->pending;

    if (!has_place(cpu))
        return 0;
    __sync_fetch_and_or(word, 1ULL << (16 + (kind & 15)));
    __sync_fetch_and_and(word, ~(1ULL << (kind & 15)));
    return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_served, u32 kind)
{
    u32 cpu = bpf_get_smp_processor_id();
    u64 *word = &place_of(cpu)->pending;

    if (!has_place(cpu))
        return 0;
    __sync_fetch_and_and(word, ~(1ULL << (16 + (kind & 15))));
    return 0;
}

/* Where a socket is, of this machine's addresses. */
struct local {
    struct address address;
    u16 port;
    bool is_ipv6;
};

static __always_inline void locate(u64 socket, struct local *local)
{
    u64 common = socket + OFFSET(struct sock, __sk_common);
    u16 family = 0, port = 0;

    bpf_probe_read_kernel(&family, 2, (void *)(common + OFFSET(struct sock_common, skc_family)));
    /* A reset has taken skc_num back by the time of its event. */
    bpf_probe_read_kernel(&port, 2, (void *)(socket + OFFSET(struct inet_sock, inet_sport)));
    local->port = __builtin_bswap16(port);
    local->is_ipv6 = family == AF_INET6;
    if (bpf_core_field_exists(((struct sock_common *)0)->skc_v6_rcv_saddr) && local->is_ipv6) {
        u64 at = common + OFFSET(struct sock_common, skc_v6_rcv_saddr);
        local->address.words[0] = peek(at);
        local->address.words[1] = peek(at + 8);
    } else {
        local->address.words[0] = 0;
        local->address.words[1] = MAPPED | (u64)PEEK_U32(common, struct sock_common, skc_rcv_saddr) << 32;
    }
}

static __always_inline bool is_at(const struct local *local, const volatile struct server *server)
{
    return local->address.words[0] == server->address.words[0] && local->address.words[1] == server->address.words[1];
}

static __always_inline bool is_everywhere(const struct local *local)
{
    u64 any = local->is_ipv6 ? 0 : MAPPED;

    return !local->address.words[0] && local->address.words[1] == any;
}

/* Whether the server listens there. If it does at all addresses, it has from now on the connections of all. */
static __always_inline bool is_listener(const struct local *local)
{
    bool is_any = is_everywhere(local), found = false;

    for (u32 i = 0; i < SERVERS_MAX && i < config.server_count; i++) {
        if (config.servers[i].port != local->port || !(is_any || is_at(local, &config.servers[i])))
            continue;
        if (is_any)
            everywhere[i][local->is_ipv6] = surveys;
        found = true;
    }
    return found;
}

static __always_inline bool is_connection(const struct local *local)
{
    for (u32 i = 0; i < SERVERS_MAX && i < config.server_count; i++) {
        u32 seen = everywhere[i][local->is_ipv6];

        if (config.servers[i].port == local->port &&
            ((seen && surveys - seen <= 1) || is_at(local, &config.servers[i])))
            return true;
    }
    return false;
}

/* The state of a socket that may have ended, and be another's by now. */
static __always_inline u8 state_of(u64 socket, struct local *local)
{
    u64 common = socket + OFFSET(struct sock, __sk_common);
    u8 state = 0;

    if (PEEK(common, struct sock_common, skc_net.net) != net)
        return 0;
    bpf_probe_read_kernel(&state, 1, (void *)(common + OFFSET(struct sock_common, skc_state)));
    locate(socket, local);
    return state;
}

/* Whether it is to be taken out of its place in a table: see DOUBTED. */
static __always_inline bool is_over(u64 *place, u64 entry, bool is_right)
{
    if (is_right) {
        if (entry & DOUBTED)
            __sync_val_compare_and_swap(place, entry, entry & ~DOUBTED);
        return false;
    }
    if (!(entry & DOUBTED)) {
        __sync_val_compare_and_swap(place, entry, entry | DOUBTED);
        return false;
    }
    return __sync_val_compare_and_swap(place, entry, 0) == entry;
}

static __always_inline void listen(u64 socket, const struct local *local)
{
    if (!is_listener(local))
        return;
    for (int i = 0; i < LISTENERS_MAX; i++)
        if ((listeners[i] & ~DOUBTED) == socket)
            return;
    for (int i = 0; i < LISTENERS_MAX; i++)
        if (!listeners[i] && !__sync_val_compare_and_swap(&listeners[i], 0, socket))
            return;
    __sync_fetch_and_add(&listeners_dropped, 1);
}

static __always_inline void stop_listening(u64 socket)
{
    for (int i = 0; i < LISTENERS_MAX; i++)
        if ((listeners[i] & ~DOUBTED) == socket) {
            listeners[i] = 0;
            return;
        }
}

static __always_inline struct bucket *bucket_of(u64 pointer)
{
    /* The verifier lets nobody reckon with a pointer, but does not see through this. */
    u64 socket = peek((u64)&pointer);
    /* Multiplicative hashing with 2^64 over the golden ratio (Knuth, The Art of Computer Programming 3, 6.4). */
    u32 index = (socket * 0x9e3779b97f4a7c15ULL) >> 32 & (BUCKETS - 1);

    return bpf_map_lookup_elem(&connections, &index);
}

/* The kernel changes a socket's state under its lock, so that no two of these calls are about one socket at a time. */
static __always_inline void connect(u64 socket, const struct local *local)
{
    if (!is_connection(local))
        return;
    struct bucket *bucket = bucket_of(socket);

    if (!bucket)
        return;
    for (int i = 0; i < BUCKET; i++) {
        u64 entry = bucket->sockets[i];

        if ((entry & ~DOUBTED) == socket) {
            is_over(&bucket->sockets[i], entry, true);
            return;
        }
    }
    for (int i = 0; i < BUCKET; i++)
        if (!bucket->sockets[i] && !__sync_val_compare_and_swap(&bucket->sockets[i], 0, socket)) {
            __sync_fetch_and_add(&established, 1);
            return;
        }
}

static __always_inline void disconnect(u64 socket)
{
    struct bucket *bucket = bucket_of(socket);

    if (!bucket)
        return;
    for (int i = 0; i < BUCKET; i++)
        if ((bucket->sockets[i] & ~DOUBTED) == socket) {
            if (__sync_lock_test_and_set(&bucket->sockets[i], 0))
                __sync_fetch_and_add(&established, -1);
            return;
        }
}

static __always_inline int change(const struct sock *sock, int before, int after)
{
    struct local local;
    bool is_of_one = before == TCP_ESTABLISHED || after == TCP_ESTABLISHED || before == TCP_LISTEN || after == TCP_LISTEN;

    if (!is_of_one || !net || (u64)sock->__sk_common.skc_net.net != net)
        return 0;
    locate((u64)sock, &local);
    if (after == TCP_ESTABLISHED)
        connect((u64)sock, &local);
    if (before == TCP_ESTABLISHED)
        disconnect((u64)sock);
    if (after == TCP_LISTEN)
        listen((u64)sock, &local);
    if (before == TCP_LISTEN)
        stop_listening((u64)sock);
    return 0;
}

/*
 * The kernel leaves out a program where a softirq interrupts that very program on its CPU (bpf_trace_run in
 * kernel/trace/bpf_trace.c). So there are two: an event that one of them is not told of finds the other one idle, because
 * softirqs do not interrupt each other.
 */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(on_state, const struct sock *sock, int before, int after)
{
    return change(sock, before, after);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(on_state_again, const struct sock *sock, int before, int after)
{
    return change(sock, before, after);
}

/*
 * Those that there were before. The loader reads it once, in its own network namespace, before it arms the timer. From
 * the first on changes are counted. The kernel shows each socket under its lock, as it changes it.
 */
SEC("iter/tcp")
int on_found(struct bpf_iter__tcp *context)
{
    struct sock_common *sock = context->sk_common;

    if (!sock)
        return 0;
    u8 state = sock->skc_state;
    struct local local;

    if (state != TCP_LISTEN && state != TCP_ESTABLISHED)
        return 0;
    net = (u64)sock->skc_net.net;
    locate((u64)sock, &local);
    if (state == TCP_LISTEN)
        listen((u64)sock, &local);
    else
        connect((u64)sock, &local);
    return 0;
}

/* What no event tells of a CPU, each beat. */
static long tick_cpu(u32 number, void *unused)
{
    struct place *place = place_of(number);
    u64 rq = cpu_of(number)->rq;
    bool is_placed = has_place(number);
    u32 slot = (u32)*(volatile u64 *)&place->slot;
    u32 online = 0, runnable = 0;

    barrier();
    /* One without is offline and has been since the record began. */
    if (rq)
        online = PEEK_U32(rq, struct rq, online);
    if (rq && config.cgroup_id) {
        u64 group = cpu_of(number)->group;
        u64 at = bpf_core_field_exists(((struct cfs_rq *)0)->h_nr_queued)
                     ? OFFSET(struct cfs_rq, h_nr_queued)
                     : OFFSET(struct cfs_rq___old, h_nr_running);
        runnable = group ? peek_u32(group + at) : 0;
        u32 throttled = *(volatile u32 *)&cpu_of(number)->throttled;
        if (bpf_core_field_exists(((struct cfs_rq *)0)->throttle_count) && throttled) {
            /* No lock is held here: a thread that leaves meanwhile makes the exchange fail. */
            if (group && PEEK_U32(group, struct cfs_rq, throttle_count))
                runnable += throttled;
            else
                __sync_val_compare_and_swap(&cpu_of(number)->throttled, throttled, 0);
        }
    } else if (rq) {
        runnable = PEEK_U32(rq, struct rq, nr_running);
        /* Of 32 bits from 5.14 to 2025, of 64 else; what one CPU has less another has more. */
        tick.uninterruptible += (s64)(s32)PEEK_U32(rq, struct rq, nr_uninterruptible);
    }
    tick.run_queue += runnable;
    tick.online += !!online;
    tick.unplaced += online && !is_placed;
    if (is_placed) {
        u64 words[TICK_WORDS];

        words[1] = config.generation | (u64)(runnable > 0xffff ? 0xffff : runnable) << 32 |
                   (u64)(online ? TICK_ONLINE : 0) << 48;
        words[2] = bpf_ktime_get_ns();
        words[3] = slot;
        publish((u64 *)&place->tick, words, TICK_WORDS);
    }
    return 0;
}

#include "survey.h"

static int on_beat(void *map, u32 *key, struct timers *value)
{
    u64 now = bpf_ktime_get_ns();

    bpf_timer_start(&value->timer, BEAT_NS, 0);
    tick.run_queue = tick.uninterruptible = tick.online = tick.unplaced = 0;
    bpf_loop(config.cpus, tick_cpu, 0, 0);
    if (!config.cgroup_id)
        average(now);
    if (beat.beats % BEATS_A_SURVEY == 0)
        survey(now);
    beat.beats++;
    beat.generation = config.generation;
    beat.cpus = tick.online;
    beat.places = config.places;
    beat.unplaced = tick.unplaced;
    beat.run_queue = tick.run_queue;
    beat.time_ns = bpf_ktime_get_ns();
    publish((u64 *)&region.beat, (const u64 *)&beat, sizeof(beat) / 8);
    return 0;
}

/* Finds the run queue of the CPU that it is run on, whatever runs there. Never attached. */
SEC("raw_tp")
int prime(void *context)
{
    struct task_struct *task = bpf_get_current_task_btf();
    u32 number = bpf_get_smp_processor_id();
    u64 rq = (u64)task->se.cfs_rq->rq;

    if (number >= CPUS_MAX)
        return 0;
    know(&cpus[number], rq);
    return 0;
}

static __always_inline void find_memory(struct task_struct *task)
{
    u64 subsystems = (u64)task->cgroups + OFFSET(struct css_set, subsys);
    u64 css = peek(subsystems + 8 * bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id));

    if (!css)
        return;
    u64 info = css - OFFSET(struct mem_cgroup, css) + OFFSET(struct mem_cgroup, nodeinfo);
    /* Node numbers without a gap, or the memory is not had. */
    for (u32 i = 0; i < MEMORY_NODES_MAX; i++) {
        u64 at = i < config.nodes ? peek(info + 8 * i) : 0;
        if (!at)
            break;
        nodes[i] = PEEK(at, struct mem_cgroup_per_node, lruvec.pgdat);
        if (!nodes[i])
            break;
        node_count = i + 1;
    }
    if (node_count < config.nodes)
        node_count = 0;
}

/* Run once by the loader, in its network namespace; its answer is 0, or what failed. */
SEC("syscall")
int arm(void *context)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct timers *value;
    u32 key = 0;
    long failed;

    if (!config.cgroup_id) {
        net = (u64)task->nsproxy->net_ns;
        net_ip = PEEK(net, struct net, mib.ip_statistics);
        if (bpf_core_field_exists(((struct netns_mib *)0)->ipv6_statistics))
            net_ip6 = PEEK(net, struct net, mib.ipv6_statistics);
        net_tcp = PEEK(net, struct net, mib.tcp_statistics);
        u64 loopback = PEEK(net, struct net, loopback_dev);
        net_loopback = loopback ? PEEK(loopback, struct net_device, lstats) : 0;
        if (bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id))
            find_memory(task);
    }
    loads[0] = config.load[0];
    loads[1] = config.load[1];
    loads[2] = config.load[2];
    load_at = bpf_ktime_get_ns() + 5000 * MS;
    value = bpf_map_lookup_elem(&timers, &key);
    if (!value)
        return 1;
    failed = bpf_timer_init(&value->timer, &timers, CLOCK_MONOTONIC);
    if (failed)
        return (int)failed;
    failed = bpf_timer_set_callback(&value->timer, on_beat);
    if (failed)
        return (int)failed;
    return (int)bpf_timer_start(&value->timer, 0, 0);
}
