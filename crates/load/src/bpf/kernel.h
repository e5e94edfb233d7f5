/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * What the programs know of the kernel: the fields that they touch, and no others. The loader finds where each lies in
 * the kernel that runs (CO-RE), so neither order nor offsets mean anything here.
 */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;
typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s8 __s8;
typedef s16 __s16;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;
typedef u8 uint8_t;
typedef u16 uint16_t;
typedef u32 uint32_t;
typedef u64 uint64_t;
typedef _Bool bool;

#define true 1
#define false 0

/* <linux/bpf.h> */
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2 };
enum { BPF_NOEXIST = 1, BPF_F_NO_PREALLOC = 1, BPF_F_MMAPABLE = 1024 };

struct bpf_timer {
    u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_sock {
    u32 bound_dev_if;
    u32 family;
    u32 type;
    u32 protocol;
    u32 mark;
    u32 priority;
    u32 src_ip4;
    u32 src_ip6[4];
    u32 src_port;
    u16 dst_port;
    u32 dst_ip4;
    u32 dst_ip6[4];
    u32 state;
};

struct bpf_sock_addr {
    u32 user_family;
    u32 user_ip4;
    u32 user_ip6[4];
    u32 user_port;
    u32 family;
    u32 type;
    u32 protocol;
    u32 msg_src_ip4;
    u32 msg_src_ip6[4];
    union {
        struct bpf_sock *sk;
        u64 sk_aligned;
    };
};

struct bpf_sock_ops {
    u32 op;
    union {
        u32 args[4];
        u32 reply;
        u32 replylong[4];
    };
    u32 family;
    u32 remote_ip4;
    u32 local_ip4;
    u32 remote_ip6[4];
    u32 local_ip6[4];
    u32 remote_port;
    u32 local_port;
    u32 is_fullsock;
    u32 snd_cwnd;
    u32 srtt_us;
    u32 bpf_sock_ops_cb_flags;
    u32 state;
    u32 rtt_min;
    u32 snd_ssthresh;
    u32 rcv_nxt;
    u32 snd_nxt;
    u32 snd_una;
    u32 mss_cache;
    u32 ecn_flags;
    u32 rate_delivered;
    u32 rate_interval_us;
    u32 packets_out;
    u32 retrans_out;
    u32 total_retrans;
    u32 segs_in;
    u32 data_segs_in;
    u32 segs_out;
    u32 data_segs_out;
    u32 lost_out;
    u32 sacked_out;
    u32 sk_txhash;
    u64 bytes_received;
    u64 bytes_acked;
    union {
        struct bpf_sock *sk;
        u64 sk_aligned;
    };
};

enum { BPF_SOCK_OPS_TCP_CONNECT_CB = 3, BPF_SOCK_OPS_STATE_CB = 10, BPF_SOCK_OPS_STATE_CB_FLAG = 4 };

/* By its name; the number is the running kernel's. */
enum bpf_func_id { BPF_FUNC_set_retval = 187 };

/* <linux/in.h>, <linux/socket.h>, <net/tcp_states.h>, <linux/time.h>, <asm/errno.h> */
enum { IPPROTO_TCP = 6 };
enum { AF_INET6 = 10 };

enum { TCP_ESTABLISHED = 1, TCP_SYN_SENT = 2, TCP_CLOSE = 7, TCP_LISTEN = 10 };
enum { CLOCK_MONOTONIC = 1 };
enum { ECONNREFUSED = 111 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
    int counter;
} atomic_t;

typedef struct {
    long counter;
} atomic_long_t;

struct kernfs_node {
    u64 id;
};

struct cgroup {
    struct kernfs_node *kn;
};

struct cgroup_subsys_state {
    struct cgroup *cgroup;
};

struct task_group {
    struct cgroup_subsys_state css;
};

struct cfs_rq {
    struct rq *rq;
    struct task_group *tg;
    unsigned int h_nr_queued;
    int throttle_count;
};

/* Until 6.14. */
struct cfs_rq___old {
    unsigned int h_nr_running;
};

struct rq {
    unsigned int nr_running;
    u64 nr_switches;
    unsigned long nr_uninterruptible;
    u64 clock;
    atomic_t nr_iowait;
    int cpu;
    int online;
};

struct sched_entity {
    struct sched_entity *parent;
    struct cfs_rq *cfs_rq;
};

struct page_counter {
    atomic_long_t usage;
    unsigned long max;
};

struct pglist_data;

struct lruvec {
    struct pglist_data *pgdat;
};

struct mem_cgroup_per_node {
    struct lruvec lruvec;
};

struct mem_cgroup {
    struct cgroup_subsys_state css;
    struct page_counter memory;
    struct mem_cgroup_per_node *nodeinfo[];
};

struct zone {
    unsigned long _watermark[4];
    atomic_long_t managed_pages;
    atomic_long_t vm_stat[1];
};

struct pglist_data {
    struct zone node_zones[1];
    int nr_zones;
    unsigned long totalreserve_pages;
    atomic_long_t vm_stat[1];
};

struct css_set {
    struct cgroup_subsys_state *subsys[1];
};

struct ipstats_mib {
    u64 mibs[1];
};

struct tcp_mib {
    unsigned long mibs[1];
};

struct netns_mib {
    struct ipstats_mib *ip_statistics;
    struct ipstats_mib *ipv6_statistics;
    struct tcp_mib *tcp_statistics;
};

typedef struct {
    u64 v;
} u64_stats_t;

struct pcpu_lstats {
    u64_stats_t packets;
    u64_stats_t bytes;
};

struct net_device {
    struct pcpu_lstats *lstats;
};

struct net {
    struct netns_mib mib;
    struct net_device *loopback_dev;
};

struct nsproxy {
    struct net *net_ns;
};

typedef struct {
    struct net *net;
} possible_net_t;

struct in6_addr {
    u8 bytes[16];
};

struct sock_common {
    u32 skc_rcv_saddr;
    u16 skc_family;
    u16 skc_num;
    /* Where the kernel has IPv6. */
    struct in6_addr skc_v6_rcv_saddr;
    unsigned char skc_state;
    possible_net_t skc_net;
};

struct inet_sock {
    __be16 inet_sport;
};

struct sock {
    struct sock_common __sk_common;
    u32 sk_ack_backlog;
    u32 sk_max_ack_backlog;
    int sk_err;
};

struct bpf_iter__tcp {
    struct sock_common *sk_common;
};

struct task_struct {
    int pid;
    int on_cpu;
    struct sched_entity se;
    /* From 6.18. */
    bool throttled;
    struct css_set *cgroups;
    struct nsproxy *nsproxy;
};

struct kernel_cpustat {
    u64 cpustat[1];
};

struct kernel_stat {
    unsigned long irqs_sum;
};

struct tick_sched {
    unsigned long flags;
    u64 idle_entrytime;
    u64 idle_sleeptime;
    u64 iowait_sleeptime;
};

/* Until 6.9. */
struct tick_sched___old {
    unsigned int idle_active : 1;
};

/* Of x86: what /proc/stat counts beside the interrupts that have a number. */
typedef struct {
    unsigned int __nmi_count;
    unsigned int apic_timer_irqs;
    unsigned int irq_spurious_count;
    unsigned int icr_read_retry_count;
    unsigned int x86_platform_ipis;
    unsigned int apic_perf_irqs;
    unsigned int apic_irq_work_irqs;
    unsigned int irq_resched_count;
    unsigned int irq_call_count;
    unsigned int irq_thermal_count;
    unsigned int irq_threshold_count;
} irq_cpustat_t;

struct psi_group {
    u64 total[1];
};

#pragma clang attribute pop

enum cpu_usage_stat {
    CPUTIME_USER,
    CPUTIME_NICE,
    CPUTIME_SYSTEM,
    CPUTIME_SOFTIRQ,
    CPUTIME_IRQ,
    CPUTIME_IDLE,
    CPUTIME_IOWAIT,
    CPUTIME_STEAL,
};

enum cgroup_subsys_id { memory_cgrp_id };
enum zone_watermarks { WMARK_LOW = 1 };
enum zone_stat_item { NR_FREE_PAGES };
enum node_stat_item { NR_INACTIVE_FILE, NR_ACTIVE_FILE, NR_SLAB_RECLAIMABLE_B, NR_KERNEL_MISC_RECLAIMABLE };
enum psi_states { PSI_MEM_SOME = 2 };
