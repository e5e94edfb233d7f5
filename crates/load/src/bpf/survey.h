/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * What the timer adds up every BEATS_A_SURVEY beats, for people and metrics: a part of record.bpf.c, whose state it uses.
 */
#pragma once

/* The kernel's counters of a CPU, each survey. */
static long survey_cpu(u32 number, void *unused)
{
    u64 rq = cpu_of(number)->rq;
    u64 area = cpu_of(number)->area;

    if (!rq)
        return 0;

    machine.context_switches += PEEK(rq, struct rq, nr_switches);
    if (config.cpustat) {
        u64 stat = rq + config.cpustat;
        u64 idle = peek(stat + 8 * bpf_core_enum_value(enum cpu_usage_stat, CPUTIME_IDLE));
        u64 iowait = peek(stat + 8 * bpf_core_enum_value(enum cpu_usage_stat, CPUTIME_IOWAIT));

        machine.cpu_user_ns += peek(stat + 8 * bpf_core_enum_value(enum cpu_usage_stat, CPUTIME_USER));
        machine.cpu_nice_ns += peek(stat + 8 * bpf_core_enum_value(enum cpu_usage_stat, CPUTIME_NICE));
        machine.cpu_system_ns += peek(stat + 8 * bpf_core_enum_value(enum cpu_usage_stat, CPUTIME_SYSTEM));
        machine.cpu_irq_ns += peek(stat + 8 * bpf_core_enum_value(enum cpu_usage_stat, CPUTIME_IRQ));
        machine.cpu_softirq_ns += peek(stat + 8 * bpf_core_enum_value(enum cpu_usage_stat, CPUTIME_SOFTIRQ));
        machine.cpu_steal_ns += peek(stat + 8 * bpf_core_enum_value(enum cpu_usage_stat, CPUTIME_STEAL));
        /* A CPU without a tick counts its idle time elsewhere. */
        u64 sched = config.tick_sched ? rq + config.tick_sched : 0;
        u64 slept = sched ? PEEK(sched, struct tick_sched, idle_sleeptime) : 0;
        if (slept) {
            idle = slept;
            iowait = PEEK(sched, struct tick_sched, iowait_sleeptime);
            bool sleeps;
            if (bpf_core_field_exists(((struct tick_sched *)0)->flags))
                sleeps = PEEK(sched, struct tick_sched, flags) & 4; /* TS_FLAG_IDLE_ACTIVE */
            else
                sleeps = BPF_CORE_READ_BITFIELD_PROBED((struct tick_sched___old *)sched, idle_active);
            u64 since = PEEK(sched, struct tick_sched, idle_entrytime);
            u64 now = bpf_ktime_get_ns();
            if (sleeps && now > since) {
                if (PEEK_U32(rq, struct rq, nr_iowait))
                    iowait += now - since;
                else
                    idle += now - since;
            }
        }
        machine.cpu_idle_ns += idle;
        machine.cpu_iowait_ns += iowait;
    }
    if (config.kstat)
        machine.interrupts += PEEK(rq + config.kstat, struct kernel_stat, irqs_sum);
    if (config.irq_stat) {
        u64 stat = rq + config.irq_stat;
#define ADD_IRQ(field)                                         \
    if (bpf_core_field_exists(((irq_cpustat_t *)0)->field)) \
    machine.interrupts += PEEK_U32(stat, irq_cpustat_t, field)
        ADD_IRQ(__nmi_count);
        ADD_IRQ(apic_timer_irqs);
        ADD_IRQ(irq_spurious_count);
        ADD_IRQ(icr_read_retry_count);
        ADD_IRQ(x86_platform_ipis);
        ADD_IRQ(apic_perf_irqs);
        ADD_IRQ(apic_irq_work_irqs);
        ADD_IRQ(irq_resched_count);
        ADD_IRQ(irq_call_count);
        ADD_IRQ(irq_thermal_count);
        ADD_IRQ(irq_threshold_count);
    }
    if (!config.area)
        return 0;
    if (net_ip) {
        u64 mib = net_ip + area;
        machine.net_received_bytes += peek(mib + 8 * config.ip_in_bytes);
        machine.net_received_packets += peek(mib + 8 * config.ip_in_packets);
        machine.net_sent_bytes += peek(mib + 8 * config.ip_out_bytes);
        machine.net_sent_packets += peek(mib + 8 * config.ip_out_packets);
    }
    if (net_ip6) {
        u64 mib = net_ip6 + area;
        machine.net_received_bytes += peek(mib + 8 * config.ip_in_bytes);
        machine.net_received_packets += peek(mib + 8 * config.ip_in_packets);
        machine.net_sent_bytes += peek(mib + 8 * config.ip_out_bytes);
        machine.net_sent_packets += peek(mib + 8 * config.ip_out_packets);
    }
    if (net_loopback) {
        u64 stats = net_loopback + area;
        u64 packets = PEEK(stats, struct pcpu_lstats, packets);
        u64 bytes = PEEK(stats, struct pcpu_lstats, bytes);
        machine.net_received_bytes -= bytes;
        machine.net_received_packets -= packets;
        machine.net_sent_bytes -= bytes;
        machine.net_sent_packets -= packets;
    }
    if (net_tcp)
        machine.tcp_established += (u32)peek(net_tcp + area + 8 * config.tcp_established);
    return 0;
}

/*
 * What IP has moved since the record began, less what stayed on the machine. The two are counted at different places, and
 * loopback sends a packet in ten thousand of which IP does not know: what has been said once is not taken back.
 */
static __always_inline u64 since_start(u64 now, u64 *first, u64 *last)
{
    /* Nothing has been published yet. Beats wrap in 50 days, and sequences never come back to 0. */
    if (!(u32)*(volatile u64 *)&region.machine)
        *first = now;
    u64 passed = now - *first;

    if ((s64)(passed - *last) > 0)
        *last = passed;
    return *last;
}

static __always_inline u64 zone_pages(u64 node, u32 zone, u64 at)
{
    return peek(node + OFFSET(struct pglist_data, node_zones) + zone * bpf_core_type_size(struct zone) + at);
}

#define NODE_PAGES(node, item) \
    peek((node) + OFFSET(struct pglist_data, vm_stat) + 8 * bpf_core_enum_value(enum node_stat_item, item))

/*
 * What the zones manage, less what the kernel's si_mem_available() makes of their counters. MemTotal is not where to start:
 * a kernel that hands out memory as it is first needed counts in it what no zone manages yet.
 */
static __always_inline void survey_memory(void)
{
    u64 managed = 0, free = 0, reserve = 0, low = 0, cache = 0, reclaimable = 0;

    for (u32 i = 0; i < MEMORY_NODES_MAX && i < node_count; i++) {
        u64 node = nodes[i];

        for (u32 zone = 0; zone < 8 && zone < PEEK_U32(node, struct pglist_data, nr_zones); zone++) {
            managed += zone_pages(node, zone, OFFSET(struct zone, managed_pages));
            free += zone_pages(node, zone,
                               OFFSET(struct zone, vm_stat) + 8 * bpf_core_enum_value(enum zone_stat_item, NR_FREE_PAGES));
            low += zone_pages(node, zone,
                              OFFSET(struct zone, _watermark) + 8 * bpf_core_enum_value(enum zone_watermarks, WMARK_LOW));
        }
        reserve += PEEK(node, struct pglist_data, totalreserve_pages);
        cache += NODE_PAGES(node, NR_ACTIVE_FILE) + NODE_PAGES(node, NR_INACTIVE_FILE);
        reclaimable += NODE_PAGES(node, NR_SLAB_RECLAIMABLE_B) + NODE_PAGES(node, NR_KERNEL_MISC_RECLAIMABLE);
    }
    u64 available = free - reserve;
    if ((s64)available < 0)
        available = 0;
    available += cache - (cache / 2 < low ? cache / 2 : low);
    available += reclaimable - (reclaimable / 2 < low ? reclaimable / 2 : low);
    machine.memory_total_bytes = config.memory_total_bytes;
    if (available < managed)
        machine.memory_used_bytes = (managed - available) * config.page_bytes;
}

static __always_inline void survey_group_memory(void)
{
    u64 counter = group_memory + OFFSET(struct mem_cgroup, memory);
    u64 most = PEEK(counter, struct page_counter, max) * config.page_bytes;

    machine.memory_used_bytes = PEEK(counter, struct page_counter, usage) * config.page_bytes;
    machine.memory_total_bytes =
        most && most < config.memory_total_bytes ? most : config.memory_total_bytes;
}

static long survey_listener(u32 number, void *unused)
{
    u64 entry = number < LISTENERS_MAX ? listeners[number] : 0;
    u64 socket = entry & ~DOUBTED;
    struct local local;

    if (!socket)
        return 0;
    if (state_of(socket, &local) != TCP_LISTEN || !is_listener(&local)) {
        is_over(&listeners[number], entry, false);
        return 0;
    }
    is_over(&listeners[number], entry, true);
    sockets.listening++;
    sockets.queue += PEEK_U32(socket, struct sock, sk_ack_backlog);
    sockets.queue_max += PEEK_U32(socket, struct sock, sk_max_ack_backlog);
    return 0;
}

static long sweep(u32 number, void *unused)
{
    u32 index = (swept + number) & (BUCKETS - 1);
    struct bucket *bucket = bpf_map_lookup_elem(&connections, &index);

    if (!bucket)
        return 0;
    for (int i = 0; i < BUCKET; i++) {
        u64 entry = bucket->sockets[i];
        struct local local;

        if (!entry)
            continue;
        bool is_right = state_of(entry & ~DOUBTED, &local) == TCP_ESTABLISHED && is_connection(&local);
        if (is_over(&bucket->sockets[i], entry, is_right))
            __sync_fetch_and_add(&established, -1);
    }
    return 0;
}

static __always_inline void survey_sockets(u64 now)
{
    surveys++;
    sockets.generation = config.generation;
    sockets.time_ns = now;
    sockets.listening = 0;
    sockets.queue = sockets.queue_max = 0;
    sockets.dropped = listeners_dropped;
    bpf_loop(LISTENERS_MAX, survey_listener, 0, 0);
    bpf_loop(BUCKETS_A_SURVEY, sweep, 0, 0);
    swept += BUCKETS_A_SURVEY;
    sockets.established = (s32)established > 0 ? established : 0;
    publish((u64 *)&region.sockets, (const u64 *)&sockets, sizeof(sockets) / 8);
}

static __always_inline void survey(u64 now)
{
    machine.generation = config.generation;
    machine.time_ns = now;
    machine.cpus = tick.online;
    machine.cpu_user_ns = machine.cpu_nice_ns = machine.cpu_system_ns = machine.cpu_irq_ns = 0;
    machine.cpu_softirq_ns = machine.cpu_idle_ns = machine.cpu_iowait_ns = machine.cpu_steal_ns = 0;
    machine.context_switches = machine.interrupts = 0;
    machine.memory_used_bytes = machine.memory_total_bytes = machine.memory_pressure_us = 0;
    machine.net_received_bytes = machine.net_sent_bytes = 0;
    machine.net_received_packets = machine.net_sent_packets = 0;
    machine.tcp_established = 0;
    machine.uninterruptible = tick.uninterruptible;
    machine.run_queue = tick.run_queue;
    u16 valid = config.valid;

    if (config.cgroup_id) {
        if (group_memory)
            survey_group_memory();
        else
            valid &= ~VALID_MEMORY;
    } else {
        bpf_loop(config.cpus, survey_cpu, 0, 0);
        machine.net_received_bytes = since_start(machine.net_received_bytes, &net_first[0], &net_last[0]);
        machine.net_sent_bytes = since_start(machine.net_sent_bytes, &net_first[1], &net_last[1]);
        machine.net_received_packets = since_start(machine.net_received_packets, &net_first[2], &net_last[2]);
        machine.net_sent_packets = since_start(machine.net_sent_packets, &net_first[3], &net_last[3]);
        if (node_count)
            survey_memory();
        else
            valid &= ~VALID_MEMORY;
        if (!net_ip || !config.area)
            valid &= ~VALID_NETWORK;
        if (!net_tcp || !config.area)
            valid &= ~KEPT_TCP;
        if (&psi_system && (valid & KEPT_PRESSURE))
            machine.memory_pressure_us =
                peek((u64)&psi_system + OFFSET(struct psi_group, total) +
                     8 * bpf_core_enum_value(enum psi_states, PSI_MEM_SOME)) / 1000;
        else
            valid &= ~KEPT_PRESSURE;
        machine.load_1m_milli = loads[0] * 1000 >> 11;
        machine.load_5m_milli = loads[1] * 1000 >> 11;
        machine.load_15m_milli = loads[2] * 1000 >> 11;
    }
    if (valid & KEPT_SOCKETS)
        survey_sockets(now);
    valid &= ~distrusted;
    machine.valid = valid;
    beat.valid = valid;
    if (machine.memory_total_bytes)
        beat.memory_permille = machine.memory_used_bytes * 1000 / machine.memory_total_bytes;
    beat.net_bytes = machine.net_received_bytes + machine.net_sent_bytes;
    beat.tcp_established = machine.tcp_established;
    beat.cpu_used_ns = machine.cpu_user_ns + machine.cpu_nice_ns + machine.cpu_system_ns + machine.cpu_irq_ns +
                       machine.cpu_softirq_ns + machine.cpu_steal_ns;
    publish((u64 *)&region.machine, (const u64 *)&machine, sizeof(machine) / 8);
}

/* As the kernel's calc_load(), every 5 s. */
static __always_inline void average(u64 now)
{
    static const u64 decay[3] = {1884, 2014, 2037};
    u64 active = tick.run_queue + tick.uninterruptible;

    if (now < load_at)
        return;
    load_at += 5000 * MS;
    active = (s64)active > 0 ? active << 11 : 0;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        u64 load = loads[i] * decay[i] + active * (2048 - decay[i]);
        if (active >= loads[i])
            load += 2047;
        loads[i] = load >> 11;
    }
}
