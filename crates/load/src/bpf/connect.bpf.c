/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * Sends TCP connections to a site's address to a node of the site, and counts them there until TCP has closed them: a worker
 * of a front that is no process. It reads the front's choice and writes the counts of slot 0, in two maps that the front has
 * mapped (fronts/lib/layout.h), and fronts/lib/front.c is the same for other workers.
 *
 * A connection raises its node's count, then reads the node's ownership again, and takes the count back if the node no longer
 * serves the site (crates/layout, front.rs).
 */
#include "kernel.h"

#include <bpf_helpers.h>

#include <bpf_core_read.h>
#include <bpf_endian.h>

#include "layout.h"

char licence[] SEC("license") = "Dual MIT/GPL";

/* Connections at a time. Further ones are refused. */
#define CONNECTIONS_MAX 65536
/* A connection chooses again if another one tries the node, or the node has just left. */
#define ATTEMPTS 3
/* So long a node that refuses is avoided without a front. */
#define AVOIDED_NS 1000000000ULL
#define ALLOW 1
#define REFUSE 0

/* In words: the size of a struct, and where in it a field is. */
#define WORDS(type) ((u32)(sizeof(struct type) / 8))
#define AT(type, field) ((u32)(__builtin_offsetof(struct type, field) / 8))

/* crates/policy: Balance::LeastConnections. */
#define LEAST_CONNECTIONS 2
/* crates/policy, verdict.rs. */
#define CIRCLE ((u32)VERDICT_TURN_MAX + 1)
#define WHYS 7

struct config {
    u32 nodes;
    u32 sites;
};

const volatile struct config config SEC(".rodata.config");

/* An address as connect() is given it, an IPv4 address mapped into IPv6, in network order. */
struct address {
    u32 ip[4];
    u32 port;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, u64);
} choice SEC(".maps"), counts SEC(".maps");

/* The site of an address. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1);
    __type(key, struct address);
    __type(value, u32);
} sites SEC(".maps");

/*
 * The node where a socket's connection counts, by the socket's cookie. Storage of the socket's own would be allocated at each
 * connect(), which takes a microsecond.
 */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, CONNECTIONS_MAX);
    __type(key, u64);
    __type(value, u64);
} sockets SEC(".maps");

static __always_inline u64 chosen(u32 word)
{
    volatile u64 *at = bpf_map_lookup_elem(&choice, &word);

    return at ? *at : 0;
}

static __always_inline u32 site_at(u32 site)
{
    return AT(choice_region, site) + site * WORDS(choice_site);
}

static __always_inline u32 node_at(u32 node)
{
    return site_at(config.sites) + node * WORDS(choice_node);
}

static __always_inline u32 list_words(void)
{
    return (config.nodes + 3) / 4;
}

static __always_inline u32 list_at(u32 site)
{
    return node_at(config.nodes) + site * list_words();
}

static __always_inline u32 server_at(u32 node)
{
    return list_at(config.sites) + node * WORDS(choice_server);
}

/* What all workers share of a node. */
static __always_inline u32 shared_at(u32 node)
{
    return AT(workers_region, node) + node * WORDS(worker_node);
}

/* Of a node in slot 0. */
static __always_inline u32 counts_at(u32 node)
{
    return shared_at(config.nodes) + AT(worker_slot, counts) + node * WORDS(worker_counts);
}

/* A full barrier, too: an addition is one on every machine only if its result is used. */
static __always_inline void add(u32 word, u64 by)
{
    u64 *at = bpf_map_lookup_elem(&counts, &word);

    if (at) {
        u64 before = __sync_fetch_and_add(at, by);

        asm volatile("" : : "r"(before));
    }
}

/* A connection to a site. */
struct request {
    u64 now_ns;
    u32 site;
    u32 members;
    /* Where a search begins, and what it has found: a node plus 1. */
    u32 start;
    u32 found;
    /* The front has not scanned for too long: its loads do not count. */
    bool is_stale;
    bool by_connections;
    /* A refusal since then is not in the nodes' health. */
    u64 known_ns;
};

static __always_inline u32 member(const struct request *of, u32 candidate)
{
    u64 word = chosen(list_at(of->site) + candidate / 4);
    u32 node = word >> 16 * (candidate % 4) & 0xffff;

    return node < config.nodes ? node : 0;
}

/* All of an ownership but where it goes and its generation, in that state and of that site. */
#define OWNED(state, site) \
    ((u64)(state) << (OWNERSHIP_STATE_AT - OWNERSHIP_NEXT_AT) | (site) << (OWNERSHIP_SITE_AT - OWNERSHIP_NEXT_AT))

static __always_inline bool serves(u32 node, u32 site)
{
    u64 says = chosen(node_at(node) + AT(choice_node, ownership)) >> OWNERSHIP_NEXT_AT;
    u64 one = (u64)(site + 1);

    return says == OWNED(OWNERSHIP_SERVING, one) || says == OWNED(OWNERSHIP_PINNED, one);
}

/* crates/policy, health.rs. */
enum health { UP, DOWN, TO_BE_TRIED };

static __always_inline enum health health_of(u32 node, u64 now_ns, u64 *word)
{
    u32 shared = shared_at(node) + AT(worker_node, trial);
    volatile u64 *trial;

    *word = chosen(node_at(node) + AT(choice_node, health));
    if (*word >> HEALTH_PHASE_AT == 0)
        return UP;
    if (now_ns / 1000 < (*word & HEALTH_UNTIL_US_MAX))
        return DOWN;
    /* The trial may be under way, and the front has not looked yet. */
    trial = bpf_map_lookup_elem(&counts, &shared);
    return trial && *trial != *word ? TO_BE_TRIED : DOWN;
}

static __always_inline bool is_usable(const struct request *of, u32 node)
{
    u32 shared = shared_at(node) + AT(worker_node, refused_ns);
    volatile u64 *refused_ns = bpf_map_lookup_elem(&counts, &shared);
    u64 word;

    return serves(node, of->site) && health_of(node, of->now_ns, &word) != DOWN
           && refused_ns && *refused_ns <= of->known_ns;
}

/* A reading, brought up to date by what was sent since. */
static __always_inline s64 load_of(const struct request *of, u32 node)
{
    u64 reading = chosen(node_at(node) + AT(choice_node, reading));
    u32 shared = shared_at(node);
    volatile u64 *sent = bpf_map_lookup_elem(&counts, &shared);
    s64 since = sent ? (s16)((u16)*sent - (u16)reading) : 0;

    if (of->by_connections)
        return (s64)(u32)chosen(node_at(node) + AT(choice_node, requests)) + since;
    return (s64)(reading >> READING_INDEX_AT)
           + since * (s64)(reading >> READING_PER_REQUEST_AT & READING_PER_REQUEST_MAX);
}

/* A number below `count`. */
static __always_inline u32 below(u32 random, u32 count)
{
    return (u64)random * count >> 32;
}

/* Without a front nothing ends a failed node's pause, so then it is better than none. */
static long search(u32 index, struct request *of)
{
    u32 candidate = of->start + index;
    u32 node = member(of, candidate < of->members ? candidate : candidate - of->members);

    if (!(of->is_stale ? serves(node, of->site) : is_usable(of, node)))
        return 0;
    of->found = node + 1;
    return 1;
}

/* Of two nodes drawn at random the one with less load (Mitzenmacher, 2001), or any other: its index plus 1, 0 for none. */
static __always_inline u32 choose(struct request *of)
{
    u32 count = of->members, random = bpf_get_prandom_u32();
    u32 first = below(random, count);
    u32 second = first + 1 + below(random * 0x9e3779b9, count > 1 ? count - 1 : 1);
    u32 one = member(of, first), other = member(of, second < count ? second : second - count);
    bool is_one = is_usable(of, one), is_other = is_usable(of, other);

    if (is_one && is_other)
        return 1 + (!of->is_stale && load_of(of, other) < load_of(of, one) ? other : one);
    if (is_one || is_other)
        return 1 + (is_one ? one : other);
    of->start = first;
    of->found = 0;
    bpf_loop(count, search, of, 0);
    return of->found;
}

/* Whether a node gets this connection. Of those to one that has failed, and may be tried, one does. */
static __always_inline bool wins(const struct request *of, u32 node)
{
    u32 shared = shared_at(node) + AT(worker_node, trial);
    u64 *trial, word, last;
    enum health health = health_of(node, of->now_ns, &word);

    if (health == UP || of->is_stale)
        return true;
    trial = bpf_map_lookup_elem(&counts, &shared);
    if (health == DOWN || !trial)
        return false;
    last = *(volatile u64 *)trial;
    return last != word && __sync_val_compare_and_swap(trial, last, word) == last;
}

static __always_inline void enter(u32 node)
{
    add(shared_at(node), 1);
    add(counts_at(node), 1);
}

static __always_inline void leave(u32 node)
{
    add(shared_at(node), -1);
    add(counts_at(node), -1);
}

/* Ends what a socket counts, once. */
static __always_inline void end(u64 cookie)
{
    u64 *at = bpf_map_lookup_elem(&sockets, &cookie);
    u64 node = at ? *at : 0;

    if (at && bpf_map_delete_elem(&sockets, &cookie) == 0)
        leave(node);
}

/* Whether the socket's connection counts at the node from now on. */
static __always_inline bool begin(u64 cookie, u64 node)
{
    if (bpf_map_update_elem(&sockets, &cookie, &node, BPF_NOEXIST) == 0)
        return true;
    /* A socket that connects again, or one too many. */
    end(cookie);
    return bpf_map_update_elem(&sockets, &cookie, &node, BPF_NOEXIST) == 0;
}

/* The front hears of a refusal at its next scan. Until then the node would seem idle, and get most connections. */
static __always_inline void avoid(u32 node)
{
    u32 shared = shared_at(node) + AT(worker_node, refused_ns);
    volatile u64 *refused_ns = bpf_map_lookup_elem(&counts, &shared);

    if (refused_ns)
        *refused_ns = bpf_ktime_get_ns();
}

/* Whether the site admits a connection: by the verdict, a part of all. */
static __always_inline bool admits(u32 site)
{
    u64 verdict = chosen(site_at(site) + AT(choice_site, verdict));
    u32 part = verdict >> VERDICT_PART_AT, turn = verdict >> VERDICT_TURN_AT & VERDICT_TURN_MAX;

    if (part >= CIRCLE || (verdict & VERDICT_WHY_MAX) >= WHYS)
        return true;
    return (((bpf_get_prandom_u32() >> 2) - turn) & (CIRCLE - 1)) < part;
}

static __always_inline int refuse(void)
{
    /* From 5.18; before, connect() fails with EPERM. */
    if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_set_retval))
        bpf_set_retval(-ECONNREFUSED);
    return REFUSE;
}

/* Replaces the address of a site by that of a node. */
static __always_inline int direct(struct bpf_sock_addr *context, struct address *to)
{
    u32 *site = bpf_map_lookup_elem(&sites, to);
    struct request of = {};
    u64 time_ns, server;

    if (!site)
        return ALLOW;
    time_ns = chosen(AT(choice_region, time_ns));
    of.now_ns = bpf_ktime_get_ns();
    of.site = *site;
    of.members = chosen(site_at(of.site) + AT(choice_site, members));
    if (of.members > config.nodes)
        of.members = config.nodes;
    /* The front may have scanned since `now_ns`. */
    of.is_stale = !time_ns || (of.now_ns > time_ns && of.now_ns - time_ns > chosen(AT(choice_region, stale_ns)));
    of.known_ns = of.is_stale ? of.now_ns - AVOIDED_NS : time_ns;
    of.by_connections = chosen(AT(choice_region, balance)) == LEAST_CONNECTIONS;
    if (!of.members || (!of.is_stale && !admits(of.site)))
        return refuse();
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        u32 node = choose(&of) - 1;

        /* While it looked, a node may have left and another come. */
        if (node >= config.nodes)
            continue;
        enter(node);
        if (!serves(node, of.site) || !wins(&of, node)) {
            leave(node);
            continue;
        }
        if (!begin(bpf_get_socket_cookie(context), node)) {
            leave(node);
            break;
        }
        server = chosen(server_at(node));
        to->port = bpf_htons(server >> 16 & 0xffff);
        if ((u16)server == 4) {
            to->ip[3] = chosen(server_at(node) + AT(choice_server, address));
            return ALLOW;
        }
        u64 low = chosen(server_at(node) + AT(choice_server, address));
        u64 high = chosen(server_at(node) + AT(choice_server, address) + 1);

        to->ip[0] = low;
        to->ip[1] = low >> 32;
        to->ip[2] = high;
        to->ip[3] = high >> 32;
        return ALLOW;
    }
    return refuse();
}

SEC("cgroup/connect4")
int on_connect4(struct bpf_sock_addr *context)
{
    struct address to = {.ip = {0, 0, bpf_htonl(0xffff), context->user_ip4}, .port = context->user_port};

    if (context->protocol != IPPROTO_TCP)
        return ALLOW;
    if (!direct(context, &to))
        return REFUSE;
    context->user_ip4 = to.ip[3];
    context->user_port = to.port;
    return ALLOW;
}

/* Also for an IPv4 address that is mapped into IPv6. */
SEC("cgroup/connect6")
int on_connect6(struct bpf_sock_addr *context)
{
    struct address to = {.port = context->user_port};

    if (context->protocol != IPPROTO_TCP)
        return ALLOW;
    to.ip[0] = context->user_ip6[0];
    to.ip[1] = context->user_ip6[1];
    to.ip[2] = context->user_ip6[2];
    to.ip[3] = context->user_ip6[3];
    if (!direct(context, &to))
        return REFUSE;
    context->user_ip6[0] = to.ip[0];
    context->user_ip6[1] = to.ip[1];
    context->user_ip6[2] = to.ip[2];
    context->user_ip6[3] = to.ip[3];
    context->user_port = to.port;
    return ALLOW;
}

static __always_inline bool is_refused(struct bpf_sock_ops *context)
{
    struct bpf_sock *socket = context->sk;
    struct sock *sock = socket ? (struct sock *)bpf_skc_to_tcp_sock(socket) : 0;

    return sock && sock->sk_err == ECONNREFUSED;
}

/*
 * Tells whether a node has answered, and ends a connection with the last that TCP knows of it. No tracepoint would do: its
 * programs are left out where one interrupts itself.
 */
SEC("sockops")
int on_state(struct bpf_sock_ops *context)
{
    u32 op = context->op, before = context->args[0], after = context->args[1];

    if (op != BPF_SOCK_OPS_TCP_CONNECT_CB
        && (op != BPF_SOCK_OPS_STATE_CB || (before != TCP_SYN_SENT && after != TCP_CLOSE)))
        return ALLOW;
    u64 cookie = bpf_get_socket_cookie(context);
    u64 *at = bpf_map_lookup_elem(&sockets, &cookie);

    if (!at)
        return ALLOW;
    if (op == BPF_SOCK_OPS_TCP_CONNECT_CB) {
        bpf_sock_ops_cb_flags_set(context, context->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
        return ALLOW;
    }
    u64 node = *at;

    if (before == TCP_SYN_SENT && after == TCP_ESTABLISHED)
        add(counts_at(node) + AT(worker_counts, answers), 1);
    if (after != TCP_CLOSE)
        return ALLOW;
    if (before == TCP_SYN_SENT) {
        bool refused = is_refused(context);

        add(counts_at(node) + AT(worker_counts, failed), refused ? 1ULL << 32 : 1);
        if (refused)
            avoid(node);
    }
    end(cookie);
    return ALLOW;
}

/* A socket that never got as far as TCP, or was refused by another program. */
SEC("cgroup/sock_release")
int on_release(struct bpf_sock *context)
{
    if (context->protocol == IPPROTO_TCP && context->state == TCP_CLOSE)
        end(bpf_get_socket_cookie(context));
    return ALLOW;
}
