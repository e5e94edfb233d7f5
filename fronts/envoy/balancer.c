/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The load-balancing policy. Envoy has a load balancer for each cluster and worker thread. For each try of a request Envoy
 * asks it for a host, and then creates the HTTP filters of the try, with nothing in between on that thread. So the filter
 * takes over what the load balancer has counted from a variable of the thread.
 *
 * A host that is no node of the front gets no request, unless its priority is 1 or more. Without a front the hosts that
 * served the site when it was last heard take turns.
 */
#include "module.h"

#include <stdlib.h>
#include <string.h>

/* A front that begins another life during a choice is asked again, this often. */
#define LIVES 3
/* The index of a host that is in no list. */
#define NOWHERE SIZE_MAX

/* A healthy host. */
struct server {
    uint32_t priority;
    uint32_t healthy_host;
    size_t host;
    int node;
};

struct balancer {
    struct site *site;
    /* NULL: Envoy has destroyed it. */
    void *envoy;
    /* Envoy, and tries. */
    size_t users;
    /* By priority. They are current until Envoy changes its hosts, or the front begins another life. */
    struct server *servers;
    size_t count;
    size_t primaries;
    bool are_current;
    uint64_t generation;
    /* How often they were looked up. */
    uint64_t lookup;
    size_t turns;
    /* By node: the index of its server and 1, or 0. */
    uint32_t *of;
    size_t of_count;
    /* Whether requests of the cluster were seen to have the filter, and whether one was seen to have none. */
    bool has_filter;
    bool lacks_filter;
    bool has_complained;
    /* Of the present choice. */
    void *context;
    bool is_tried_again;
};

/* The try whose filter Envoy creates next; by nobody: none. */
static _Thread_local struct try chosen;

void *envoy_dynamic_module_on_lb_config_new(void *envoy, struct text name, struct text config)
{
    return new_site("the load-balancing policy", config);
}

void envoy_dynamic_module_on_lb_config_destroy(void *config)
{
    free(config);
}

void *envoy_dynamic_module_on_lb_new(void *config, void *envoy)
{
    struct balancer *its = calloc(1, sizeof(*its));

    if (its) {
        its->site = config;
        its->envoy = envoy;
        its->users = 1;
    }
    return its;
}

void envoy_dynamic_module_on_lb_on_host_membership_update(void *envoy, void *lb, size_t added, size_t removed)
{
    struct balancer *its = lb;

    its->are_current = false;
}

static void release(struct balancer *its)
{
    if (--its->users > 0)
        return;
    free(its->servers);
    free(its->of);
    free(its);
}

void envoy_dynamic_module_on_lb_destroy(void *lb)
{
    struct balancer *its = lb;

    its->envoy = NULL;
    release(its);
}

/* Adds the healthy hosts of a priority, of which there is room for `room`. */
static void add_servers(struct balancer *its, uint32_t priority, size_t room)
{
    size_t hosts = envoy_dynamic_module_callback_lb_get_hosts_count(its->envoy, priority), host = 0;

    for (size_t i = 0; i < room; i++) {
        struct text healthy, address;

        if (!envoy_dynamic_module_callback_lb_get_healthy_host_address(its->envoy, priority, i, &healthy))
            return;
        /* Healthy hosts are in the order of all hosts. */
        while (host < hosts
               && !(envoy_dynamic_module_callback_lb_get_host_address(its->envoy, priority, host, &address)
                    && address.bytes == healthy.bytes && memcmp(address.at, healthy.at, address.bytes) == 0))
            host++;
        struct sockaddr_storage at = sidelong_address(healthy.at, healthy.bytes);
        its->servers[its->count++] = (struct server){
            .priority = priority,
            .healthy_host = (uint32_t)i,
            .host = host < hosts ? host : NOWHERE,
            .node = sidelong_node(its->site->front, (const struct sockaddr *)&at),
        };
    }
}

/* Looks up which nodes the hosts are, if that may have changed. */
static bool find_servers(struct balancer *its)
{
    uint64_t generation = sidelong_generation(its->site->front);
    size_t priorities, room = 0;
    int last = -1;

    if (its->are_current && its->generation == generation)
        return true;
    priorities = envoy_dynamic_module_callback_lb_get_priority_set_size(its->envoy);
    for (uint32_t i = 0; i < priorities; i++)
        room += envoy_dynamic_module_callback_lb_get_healthy_hosts_count(its->envoy, i);
    free(its->servers);
    free(its->of);
    its->are_current = false;
    its->count = its->primaries = its->of_count = 0;
    its->of = NULL;
    its->servers = calloc(room + 1, sizeof(*its->servers));
    if (!its->servers)
        return false;
    for (uint32_t i = 0; i < priorities; i++) {
        add_servers(its, i, envoy_dynamic_module_callback_lb_get_healthy_hosts_count(its->envoy, i));
        if (i == 0)
            its->primaries = its->count;
    }
    for (size_t i = 0; i < its->primaries; i++)
        if (its->servers[i].node > last)
            last = its->servers[i].node;
    its->of = calloc((size_t)(last + 2), sizeof(*its->of));
    if (!its->of)
        return false;
    its->of_count = (size_t)(last + 1);
    for (size_t i = 0; i < its->primaries; i++)
        if (its->servers[i].node >= 0 && !its->of[its->servers[i].node])
            its->of[its->servers[i].node] = (uint32_t)(i + 1);
    its->generation = generation;
    its->lookup++;
    its->are_current = true;
    return true;
}

/* Whether the request may be sent there: by its retry policy, it should not go to hosts that have failed it. */
static bool is_usable(const struct balancer *its, const struct server *server)
{
    return its->is_tried_again || server->host == NOWHERE
           || !envoy_dynamic_module_callback_lb_context_should_select_another_host(its->envoy, its->context,
                                                                                    server->priority, server->host);
}

static bool is_usable_node(void *context, unsigned node)
{
    const struct balancer *its = context;
    uint32_t server = node < its->of_count ? its->of[node] : 0;

    return server && is_usable(its, &its->servers[server - 1]);
}

/* Whether the request may go to a server that no front has chosen. It is counted there if it is a node. */
static bool begins(struct balancer *its, const struct server *server, sidelong_request *counted)
{
    if (server->node < 0)
        return server->priority > 0;
    return sidelong_begin(its->site->front, &its->site->site, (unsigned)server->node, counted);
}

/* The next of those servers that the request may go to. Each is asked once. */
static const struct server *take_in_turn(struct balancer *its, size_t first, size_t end, sidelong_request *counted)
{
    size_t count = end - first, start = its->turns++;

    for (size_t i = 0; i < count; i++) {
        const struct server *server = &its->servers[first + (start + i) % count];

        if (is_usable(its, server) && begins(its, server, counted))
            return server;
    }
    return NULL;
}

static const struct server *take_chosen_node(struct balancer *its, sidelong_request *counted)
{
    for (int life = 0; life < LIVES; life++) {
        if (!find_servers(its))
            return NULL;
        sidelong_choice choice = sidelong_choose(its->site->front, &its->site->site, is_usable_node, its, counted);
        if (sidelong_generation(its->site->front) != its->generation) {
            sidelong_ended(counted);
            continue;
        }
        switch (choice) {
        case SIDELONG_NONE:
            return NULL;
        case SIDELONG_ALONE:
            return take_in_turn(its, 0, its->primaries, counted);
        case SIDELONG_CHOSEN:
            break;
        }
        return &its->servers[its->of[counted->node] - 1];
    }
    return NULL;
}

static uint64_t count_of(const struct balancer *its, const struct server *server, enum host_stat stat)
{
    return envoy_dynamic_module_callback_lb_get_host_stat(its->envoy, server->priority, server->host, stat);
}

/* Ends the last try that a host was chosen for on this thread, if it never got its filter. */
static void settle(void)
{
    struct balancer *by = chosen.by;

    if (!by)
        return;
    chosen.by = NULL;
    if (by->has_filter)
        sidelong_ended(&chosen.counted);
    else
        /* It stays counted: it may be at its host, and nobody sees it end. */
        by->lacks_filter = true;
    release(by);
}

/* Whether a request may get a host: whether its end will be seen. */
static bool is_seen(struct balancer *its)
{
    const char *wrong = NULL;

    if (its->lacks_filter)
        wrong = "gets no requests, as it has no filter \"request\": add it to http_filters of its HttpProtocolOptions";
    else if (envoy_dynamic_module_callback_lb_context_get_downstream_headers_size(its->context) == 0)
        wrong = "has a host for HTTP requests alone: give another cluster to what else asks it for one";
    if (wrong && !its->has_complained) {
        struct text name;
        envoy_dynamic_module_callback_lb_get_cluster_name(its->envoy, &name);
        LOG(LOG_ERROR, "sidelong: cluster %.*s %s", (int)name.bytes, name.at, wrong);
        its->has_complained = true;
    }
    return !wrong;
}

bool envoy_dynamic_module_on_lb_choose_host(void *envoy, void *lb, void *context, uint32_t *priority,
                                            uint32_t *healthy_host)
{
    struct balancer *its = lb;
    sidelong_request counted = {0};
    const struct server *server = NULL;

    its->context = context;
    settle();
    if (!is_seen(its))
        return false;
    /* As Envoy's own policies, it takes a host that has failed the request rather than none. */
    for (int again = 0; again <= 1 && !server; again++) {
        its->is_tried_again = again;
        server = take_chosen_node(its, &counted);
        if (!server)
            server = take_in_turn(its, its->primaries, its->count, &counted);
    }
    if (!server)
        return false;
    chosen = (struct try){
        .by = its,
        .counted = counted,
        .server = (size_t)(server - its->servers),
        .lookup = its->lookup,
        .connect_fails = count_of(its, server, CONNECT_FAILS),
        .errors = count_of(its, server, REQUEST_ERRORS),
        .requests = count_of(its, server, REQUESTS),
    };
    its->users++;
    *priority = server->priority;
    *healthy_host = server->healthy_host;
    return true;
}

bool take_chosen(struct try *to)
{
    if (!chosen.by)
        return false;
    *to = chosen;
    to->by->has_filter = true;
    chosen.by = NULL;
    return true;
}

/*
 * A try without an answer has failed, or its client has gone. Envoy does not say which, but it counts failures by host. It
 * counts what its own limits have stopped as failed, too, but not as sent.
 */
static void find_fault(struct try *its)
{
    const struct balancer *by = its->by;

    if (!by->envoy || !by->are_current || by->lookup != its->lookup)
        return;
    const struct server *server = &by->servers[its->server];
    bool is_refused = count_of(by, server, CONNECT_FAILS) != its->connect_fails;
    if (is_refused
        || (count_of(by, server, REQUEST_ERRORS) != its->errors && count_of(by, server, REQUESTS) != its->requests))
        sidelong_failed(&its->counted, is_refused);
}

void end_try(struct try *its, bool is_answered)
{
    if (!is_answered)
        find_fault(its);
    sidelong_ended(&its->counted);
    release(its->by);
}
