/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sidelong in nginx: `sidelong front` says to which server each request goes, and whom a site admits. The module reads that
 * in shared memory at each request, and counts the request there until it has left the server.
 *
 *     load_module modules/ngx_http_sidelong_module.so;
 *     upstream alpha {
 *         sidelong /run/sidelong/web1 alpha;
 *         server 10.0.0.1:8080;
 *         server 10.0.0.2:8080;
 *         keepalive 32;
 *     }
 *     server {
 *         sidelong_admission /run/sidelong/web1 alpha;
 *         location / { proxy_pass http://alpha; }
 *         location /sidelong { sidelong_admission off; sidelong_status; }
 *     }
 *
 * A server that is no node of the front gets no request, unless it is a backup. Without a front the servers of the site, as
 * it was last heard, take turns.
 */
#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>
#include <sys/mman.h>

#include "sidelong.h"

#define TRIED_BITS (8 * sizeof(uintptr_t))
/* A front that begins another life during a choice is asked again, this often. */
#define LIVES 3

/* Of all workers. */
struct counts {
    ngx_atomic_t admitted;
    ngx_atomic_t rejected;
};

/* A site of a front. All that name it share it. */
struct site {
    ngx_str_t prefix;
    sidelong_front *front;
    sidelong_site site;
    struct counts *counts;
};

struct settings {
    ngx_array_t sites; /* struct site * */
    ngx_int_t reason;  /* the index of $sidelong_reason */
    ngx_flag_t admits; /* whether any location has a site that admits */
};

struct location {
    struct site *site; /* NULL: off */
    ngx_flag_t closes;
};

/* Which node each server of an upstream is, in one life of the front. */
struct nodes {
    uint64_t generation;
    ngx_uint_t version;
    ngx_uint_t count;
    struct {
        ngx_http_upstream_rr_peer_t *peer;
        int node;
    } *servers;
    ngx_uint_t of_count;
    /* By node: the server's index and 1, or 0. */
    uint16_t *of;
};

struct upstream {
    struct site *site; /* NULL: not controlled */
    ngx_flag_t is_led;
    /* Of this process. */
    struct nodes nodes;
    ngx_uint_t turns;
};

/* A request to an upstream. */
struct request {
    /* nginx's own functions get a pointer to it. */
    ngx_http_upstream_rr_peer_data_t rr;
    ngx_http_request_t *request;
    struct upstream *upstream;
    ngx_uint_t is_backup;
    ngx_uint_t taken; /* the index of the server in its group */
    sidelong_request counted;
};

extern ngx_module_t ngx_http_sidelong_module;

static ngx_http_output_header_filter_pt next_header_filter;

/* Changes with the servers of an upstream whose names nginx resolves again (since 1.27.3). */
static ngx_uint_t version_of(const ngx_http_upstream_rr_peers_t *peers)
{
#if (NGX_HTTP_UPSTREAM_ZONE && nginx_version >= 1027003)
    return peers->config ? *peers->config : 0;
#else
    return 0;
#endif
}

static void free_nodes(struct nodes *nodes)
{
    if (nodes->servers)
        ngx_free(nodes->servers);
    if (nodes->of)
        ngx_free(nodes->of);
    ngx_memzero(nodes, sizeof(*nodes));
}

/* Looks up which nodes the servers are. */
static ngx_int_t find_nodes(struct upstream *upstream, ngx_http_upstream_rr_peers_t *peers, ngx_log_t *log)
{
    struct nodes *nodes = &upstream->nodes;
    uint64_t generation = sidelong_generation(upstream->site->front);
    int last = -1;

    free_nodes(nodes);
    nodes->servers = ngx_calloc((peers->number + 1) * sizeof(*nodes->servers), log);
    if (!nodes->servers)
        return NGX_ERROR;
    for (ngx_http_upstream_rr_peer_t *peer = peers->peer; peer && nodes->count < peers->number; peer = peer->next) {
        int node = sidelong_node(upstream->site->front, peer->sockaddr);

        nodes->servers[nodes->count].peer = peer;
        nodes->servers[nodes->count++].node = node;
        last = ngx_max(last, node);
    }
    nodes->of_count = (ngx_uint_t)(last + 1);
    nodes->of = ngx_calloc((nodes->of_count + 1) * sizeof(*nodes->of), log);
    if (!nodes->of) {
        free_nodes(nodes);
        return NGX_ERROR;
    }
    for (ngx_uint_t i = 0; i < ngx_min(nodes->count, UINT16_MAX); i++)
        if (nodes->servers[i].node >= 0 && !nodes->of[nodes->servers[i].node])
            nodes->of[nodes->servers[i].node] = (uint16_t)(i + 1);
    nodes->generation = generation;
    nodes->version = version_of(peers);
    return NGX_OK;
}

/* Whether nginx would send the request there: the server was not tried for it, is not marked as down, and did not fail. */
static bool is_usable(const struct request *its, const ngx_http_upstream_rr_peer_t *peer, ngx_uint_t index)
{
    if (its->rr.tried[index / TRIED_BITS] & (uintptr_t)1 << index % TRIED_BITS)
        return false;
    if (peer->down || (peer->max_conns && peer->conns >= peer->max_conns))
        return false;
    return !peer->max_fails || peer->fails < peer->max_fails || ngx_time() - peer->checked > peer->fail_timeout;
}

static bool is_usable_node(void *context, unsigned node)
{
    const struct request *its = context;
    const struct nodes *nodes = &its->upstream->nodes;
    ngx_uint_t server = node < nodes->of_count ? nodes->of[node] : 0;

    return server && is_usable(its, nodes->servers[server - 1].peer, server - 1);
}

/* Sends the request to the server. Under the lock of `peers`. */
static void take(struct request *its, ngx_peer_connection_t *connection, ngx_http_upstream_rr_peer_t *peer,
                 ngx_uint_t index)
{
    time_t now = ngx_time();

    its->rr.tried[index / TRIED_BITS] |= (uintptr_t)1 << index % TRIED_BITS;
    its->rr.current = peer;
    its->taken = index;
    if (now - peer->checked > peer->fail_timeout)
        peer->checked = now;
    peer->conns++;
#ifdef ngx_http_upstream_rr_peer_ref
    ngx_http_upstream_rr_peer_ref(its->rr.peers, peer);
#endif
    connection->sockaddr = peer->sockaddr;
    connection->socklen = peer->socklen;
    connection->name = &peer->name;
#if (NGX_HTTP_UPSTREAM_SID)
    connection->sid = &peer->sid;
#endif
}

/* Whether the request may go to a server that no front has chosen, and is counted there if it is a node. */
static bool begins(struct request *its, const ngx_http_upstream_rr_peer_t *peer, ngx_uint_t index)
{
    struct site *site = its->upstream->site;
    int node = its->is_backup ? sidelong_node(site->front, peer->sockaddr) : its->upstream->nodes.servers[index].node;

    if (node < 0)
        return its->is_backup;
    return sidelong_begin(site->front, &site->site, (unsigned)node, &its->counted);
}

/* The next server that the request may go to. Each is asked once. */
static bool take_in_turn(struct request *its, ngx_peer_connection_t *connection)
{
    ngx_http_upstream_rr_peers_t *peers = its->rr.peers;
    ngx_uint_t start = its->upstream->turns++ % peers->number;

    for (int after_start = 1; after_start >= 0; after_start--) {
        ngx_uint_t i = 0;

        for (ngx_http_upstream_rr_peer_t *peer = peers->peer; peer; peer = peer->next, i++)
            if ((i >= start) == after_start && is_usable(its, peer, i) && begins(its, peer, i)) {
                take(its, connection, peer, i);
                return true;
            }
    }
    return false;
}

static bool take_chosen(struct request *its, ngx_peer_connection_t *connection)
{
    struct site *site = its->upstream->site;
    struct nodes *nodes = &its->upstream->nodes;

    for (int life = 0; life < LIVES; life++) {
        if (!(nodes->servers && nodes->version == version_of(its->rr.peers))
            && find_nodes(its->upstream, its->rr.peers, connection->log) != NGX_OK)
            return false;
        sidelong_choice choice = sidelong_choose(site->front, &site->site, is_usable_node, its, &its->counted);
        if (sidelong_generation(site->front) != nodes->generation) {
            sidelong_ended(&its->counted);
            free_nodes(nodes);
            continue;
        }
        switch (choice) {
        case SIDELONG_NONE:
            return false;
        case SIDELONG_ALONE:
            return take_in_turn(its, connection);
        case SIDELONG_CHOSEN:
            break;
        }
        ngx_uint_t server = (ngx_uint_t)nodes->of[its->counted.node] - 1;
        take(its, connection, nodes->servers[server].peer, server);
        return true;
    }
    return false;
}

/* Takes a server of the group: of the upstream's own ones, or of its backups. */
static bool take_of_group(struct request *its, ngx_peer_connection_t *connection)
{
    ngx_http_upstream_rr_peers_t *peers = its->rr.peers;
    bool taken = false;

    ngx_http_upstream_rr_peers_wlock(peers);
#if (NGX_HTTP_UPSTREAM_ZONE && nginx_version >= 1027003)
    if (!peers->config || its->rr.config == *peers->config)
#endif
        taken = its->is_backup ? take_in_turn(its, connection) : take_chosen(its, connection);
    ngx_http_upstream_rr_peers_unlock(peers);
    return taken;
}

static ngx_int_t get_peer(ngx_peer_connection_t *connection, void *data)
{
    struct request *its = data;
    ngx_str_t *name = its->rr.peers->name;

    connection->cached = 0;
    connection->connection = NULL;
    if (take_of_group(its, connection))
        return NGX_OK;
    if (!its->is_backup && its->rr.peers->next) {
        its->is_backup = 1;
        its->rr.peers = its->rr.peers->next;
        ngx_memzero(its->rr.tried, (its->rr.peers->number + TRIED_BITS - 1) / TRIED_BITS * sizeof(uintptr_t));
        if (its->rr.peers->number && take_of_group(its, connection))
            return NGX_OK;
    }
    connection->name = name;
    return NGX_BUSY;
}

/* Whether nobody listened, and not that the server was slow or talked nonsense. */
static bool was_refused(const ngx_http_upstream_t *upstream)
{
    const ngx_connection_t *connection = upstream->peer.connection;

    if (upstream->request_sent)
        return false;
#if (NGX_SSL || NGX_COMPAT)
    if (connection && connection->ssl)
        return false;
#endif
    return !connection || !connection->write->timedout;
}

/* Whether the server closed a kept connection while the request was on its way, which says nothing about the server. */
static bool was_closed(const ngx_peer_connection_t *peer)
{
    const ngx_connection_t *connection = peer->connection;

    return peer->cached && !(connection && (connection->read->timedout || connection->write->timedout));
}

static void free_peer(ngx_peer_connection_t *connection, void *data, ngx_uint_t state)
{
    struct request *its = data;
    ngx_http_upstream_t *upstream = its->request->upstream;

    if (upstream->state && upstream->state->header_time != (ngx_msec_t)-1) {
        sidelong_answered(&its->counted, upstream->headers_in.status_n < 400);
    } else if ((state & NGX_PEER_FAILED) && was_closed(connection)) {
        /* It may be the site's only one, so it may be tried again, by another connection. */
        its->rr.tried[its->taken / TRIED_BITS] &= ~((uintptr_t)1 << its->taken % TRIED_BITS);
        state = NGX_PEER_NEXT;
    } else if (state & NGX_PEER_FAILED) {
        sidelong_failed(&its->counted, was_refused(upstream));
    }
    sidelong_ended(&its->counted);
    ngx_http_upstream_free_round_robin_peer(connection, data, state);
}

static ngx_int_t init_request(ngx_http_request_t *request, ngx_http_upstream_srv_conf_t *settings)
{
    struct request *its = ngx_pcalloc(request->pool, sizeof(*its));

    if (!its)
        return NGX_ERROR;
    its->request = request;
    its->upstream = ngx_http_conf_upstream_srv_conf(settings, ngx_http_sidelong_module);
    request->upstream->peer.data = its;
    if (ngx_http_upstream_init_round_robin_peer(request, settings) != NGX_OK)
        return NGX_ERROR;
    request->upstream->peer.get = get_peer;
    request->upstream->peer.free = free_peer;
    ngx_http_set_ctx(request, its, ngx_http_sidelong_module);
    return NGX_OK;
}

static ngx_int_t init_upstream(ngx_conf_t *conf, ngx_http_upstream_srv_conf_t *settings)
{
    struct upstream *its = ngx_http_conf_upstream_srv_conf(settings, ngx_http_sidelong_module);

    if (ngx_http_upstream_init_round_robin(conf, settings) != NGX_OK)
        return NGX_ERROR;
    settings->peer.init = init_request;
    its->is_led = 1;
    its->turns = (ngx_uint_t)ngx_random();
    return NGX_OK;
}

/* An answer has begun, and may take long. */
static ngx_int_t at_header(ngx_http_request_t *request)
{
    struct request *its = ngx_http_get_module_ctx(request, ngx_http_sidelong_module);

    if (its && request->upstream)
        sidelong_answered(&its->counted, request->upstream->headers_in.status_n < 400);
    return next_header_filter(request);
}

static ngx_int_t add_header(ngx_http_request_t *request, const char *name, u_char *value, size_t bytes)
{
    ngx_table_elt_t *header = ngx_list_push(&request->headers_out.headers);

    if (!header)
        return NGX_ERROR;
    ngx_memzero(header, sizeof(*header));
    header->hash = 1;
    header->key.data = (u_char *)name;
    header->key.len = ngx_strlen(name);
    header->value.data = value;
    header->value.len = bytes;
    return NGX_OK;
}

static ngx_int_t reject(ngx_http_request_t *request, sidelong_decision decision)
{
    u_char *seconds = ngx_pnalloc(request->pool, NGX_INT_T_LEN);
    const char *reason = sidelong_reason(decision.why);

    if (!seconds
        || add_header(request, "Retry-After", seconds,
                      (size_t)(ngx_sprintf(seconds, "%ui", (ngx_uint_t)decision.retry_after_s) - seconds))
               != NGX_OK
        || add_header(request, "X-Sidelong-Reason", (u_char *)reason, ngx_strlen(reason)) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    return NGX_HTTP_SERVICE_UNAVAILABLE;
}

static ngx_int_t at_request(ngx_http_request_t *request)
{
    const struct location *its = ngx_http_get_module_loc_conf(request, ngx_http_sidelong_module);
    const struct settings *all = ngx_http_get_module_main_conf(request, ngx_http_sidelong_module);

    if (!its->site || request != request->main)
        return NGX_DECLINED;
    /* The variable stays when a request is redirected. It is decided on once, also where an error page is led to. */
    ngx_http_variable_value_t *decided = &request->variables[all->reason];
    if (decided->valid)
        return NGX_DECLINED;
    sidelong_decision decision =
        sidelong_admit(its->site->front, &its->site->site, sidelong_client(request->connection->sockaddr));

    ngx_memzero(decided, sizeof(*decided));
    decided->data = (u_char *)sidelong_reason(decision.why);
    decided->len = ngx_strlen(decided->data);
    decided->valid = 1;
    ngx_atomic_fetch_add(decision.admit ? &its->site->counts->admitted : &its->site->counts->rejected, 1);
    if (decision.admit)
        return NGX_DECLINED;
    return its->closes ? NGX_HTTP_CLOSE : reject(request, decision);
}

/* $sidelong_reason of a request that nothing was decided on. */
static ngx_int_t get_reason(ngx_http_request_t *request, ngx_http_variable_value_t *value, uintptr_t data)
{
    value->not_found = 1;
    return NGX_OK;
}

static u_char *print_site(u_char *to, u_char *end, struct site *its)
{
    uint64_t age_ns;
    bool controls = sidelong_controls(its->front, &age_ns);
    /* Of a client that is always admitted if any is: only the reason counts. */
    sidelong_decision now = sidelong_admit(its->front, &its->site, 0);

    to = ngx_slprintf(to, end, "site=%s front=%V state=%s age_ms=", its->site.name, &its->prefix,
                      controls ? "controlled" : "alone");
    to = age_ns == UINT64_MAX ? ngx_slprintf(to, end, "-") : ngx_slprintf(to, end, "%uL", age_ns / 1000000);
    return ngx_slprintf(to, end, " admission=%s admitted=%uA rejected=%uA\n", sidelong_reason(now.why),
                        its->counts->admitted, its->counts->rejected);
}

static ngx_int_t print_status(ngx_http_request_t *request)
{
    const struct settings *all = ngx_http_get_module_main_conf(request, ngx_http_sidelong_module);
    struct site **sites = all->sites.elts;
    size_t room = 1;
    ngx_chain_t out = {NULL, NULL};

    if (!(request->method & (NGX_HTTP_GET | NGX_HTTP_HEAD)))
        return NGX_HTTP_NOT_ALLOWED;
    ngx_int_t rc = ngx_http_discard_request_body(request);
    if (rc != NGX_OK)
        return rc;
    for (ngx_uint_t i = 0; i < all->sites.nelts; i++)
        room += sites[i]->prefix.len + SIDELONG_NAME_BYTES + 256;
    ngx_buf_t *text = ngx_create_temp_buf(request->pool, room);
    if (!text)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    for (ngx_uint_t i = 0; i < all->sites.nelts; i++)
        text->last = print_site(text->last, text->end, sites[i]);
    ngx_str_set(&request->headers_out.content_type, "text/plain");
    request->headers_out.content_type_len = request->headers_out.content_type.len;
    request->headers_out.status = NGX_HTTP_OK;
    request->headers_out.content_length_n = text->last - text->pos;
    rc = ngx_http_send_header(request);
    if (rc == NGX_ERROR || rc > NGX_OK || request->header_only)
        return rc;
    text->memory = text->last > text->pos;
    text->last_buf = 1;
    out.buf = text;
    return ngx_http_output_filter(request, &out);
}

static bool is_same(const ngx_str_t *a, const ngx_str_t *b)
{
    return a->len == b->len && ngx_memcmp(a->data, b->data, a->len) == 0;
}

/* The front of the prefix, which is opened once; that it is not there yet is said once. */
static sidelong_front *open_front(ngx_conf_t *conf, struct settings *all, const ngx_str_t *prefix)
{
    struct site **sites = all->sites.elts;
    char why[SIDELONG_WHY_BYTES];

    for (ngx_uint_t i = 0; i < all->sites.nelts; i++)
        if (is_same(&sites[i]->prefix, prefix))
            return sites[i]->front;
    sidelong_front *front = sidelong_front_open((const char *)prefix->data, why);
    if (!front)
        ngx_conf_log_error(NGX_LOG_EMERG, conf, 0, "sidelong: %s", why);
    else if (*why)
        ngx_conf_log_error(NGX_LOG_WARN, conf, 0, "sidelong: %s; until then all clients are admitted, and requests go "
                           "to the servers that the front has last named, or to backups", why);
    return front;
}

/* The site that the first two words of a directive name. */
static struct site *find_site(ngx_conf_t *conf)
{
    struct settings *all = ngx_http_conf_get_module_main_conf(conf, ngx_http_sidelong_module);
    ngx_str_t *words = conf->args->elts, prefix = words[1], *name = &words[2];
    struct site **sites = all->sites.elts;

    if (name->len == 0 || name->len > SIDELONG_NAME_BYTES) {
        ngx_conf_log_error(NGX_LOG_EMERG, conf, 0,
                           "%V: \"%V\" is no name of a site: give one of Sidelong's cluster file, 1 to 64 characters",
                           &words[0], name);
        return NULL;
    }
    if (ngx_conf_full_name(conf->cycle, &prefix, 0) != NGX_OK)
        return NULL;
    for (ngx_uint_t i = 0; i < all->sites.nelts; i++)
        if (is_same(&sites[i]->prefix, &prefix) && ngx_strcmp(sites[i]->site.name, name->data) == 0)
            return sites[i];
    struct site *site = ngx_pcalloc(conf->pool, sizeof(*site)), **place;
    if (!site)
        return NULL;
    site->prefix = prefix;
    site->site.name = (const char *)name->data;
    site->front = open_front(conf, all, &prefix);
    if (!site->front || !(place = ngx_array_push(&all->sites)))
        return NULL;
    return *place = site;
}

static char *set_upstream(ngx_conf_t *conf, ngx_command_t *command, void *of)
{
    struct upstream *its = of;
    ngx_http_upstream_srv_conf_t *settings = ngx_http_conf_get_module_srv_conf(conf, ngx_http_upstream_module);

    if (its->site)
        return "is duplicate";
    if (settings->peer.init_upstream)
        return "comes after another way of load balancing, or after \"keepalive\": put it first, and remove the other way";
    its->site = find_site(conf);
    if (!its->site)
        return NGX_CONF_ERROR;
    settings->peer.init_upstream = init_upstream;
    settings->flags = NGX_HTTP_UPSTREAM_CREATE | NGX_HTTP_UPSTREAM_WEIGHT | NGX_HTTP_UPSTREAM_MAX_CONNS
                      | NGX_HTTP_UPSTREAM_MAX_FAILS | NGX_HTTP_UPSTREAM_FAIL_TIMEOUT | NGX_HTTP_UPSTREAM_DOWN
                      | NGX_HTTP_UPSTREAM_BACKUP;
    return NGX_CONF_OK;
}

static char *set_admission(ngx_conf_t *conf, ngx_command_t *command, void *of)
{
    struct location *its = of;
    ngx_str_t *words = conf->args->elts;

    if (its->site != NGX_CONF_UNSET_PTR)
        return "is duplicate";
    its->closes = conf->args->nelts == 4;
    if (conf->args->nelts == 2 && ngx_strcmp(words[1].data, "off") == 0) {
        its->site = NULL;
        return NGX_CONF_OK;
    }
    if (conf->args->nelts == 2 || (its->closes && ngx_strcmp(words[3].data, "close") != 0))
        return "takes \"off\", or the front's prefix, a site and maybe \"close\"";
    struct settings *all = ngx_http_conf_get_module_main_conf(conf, ngx_http_sidelong_module);
    all->admits = 1;
    its->site = find_site(conf);
    return its->site ? NGX_CONF_OK : NGX_CONF_ERROR;
}

static char *set_status(ngx_conf_t *conf, ngx_command_t *command, void *of)
{
    ngx_http_core_loc_conf_t *location = ngx_http_conf_get_module_loc_conf(conf, ngx_http_core_module);

    location->handler = print_status;
    return NGX_CONF_OK;
}

static void *create_settings(ngx_conf_t *conf)
{
    struct settings *all = ngx_pcalloc(conf->pool, sizeof(*all));

    if (!all || ngx_array_init(&all->sites, conf->pool, 4, sizeof(struct site *)) != NGX_OK)
        return NULL;
    return all;
}

static void *create_upstream(ngx_conf_t *conf)
{
    return ngx_pcalloc(conf->pool, sizeof(struct upstream));
}

static void *create_location(ngx_conf_t *conf)
{
    struct location *its = ngx_pcalloc(conf->pool, sizeof(*its));

    if (its)
        its->site = NGX_CONF_UNSET_PTR;
    return its;
}

static char *merge_location(ngx_conf_t *conf, void *outer_location, void *inner_location)
{
    const struct location *outer = outer_location;
    struct location *inner = inner_location;

    if (inner->site == NGX_CONF_UNSET_PTR) {
        inner->site = outer->site == NGX_CONF_UNSET_PTR ? NULL : outer->site;
        inner->closes = outer->closes;
    }
    return NGX_CONF_OK;
}

static ngx_int_t add_variable(ngx_conf_t *conf)
{
    struct settings *all = ngx_http_conf_get_module_main_conf(conf, ngx_http_sidelong_module);
    ngx_str_t name = ngx_string("sidelong_reason");
    ngx_http_variable_t *variable = ngx_http_add_variable(conf, &name, 0);

    if (!variable)
        return NGX_ERROR;
    variable->get_handler = get_reason;
    all->reason = ngx_http_get_variable_index(conf, &name);
    return all->reason == NGX_ERROR ? NGX_ERROR : NGX_OK;
}

struct shared {
    struct counts *counts;
    size_t bytes;
};

static void free_counts(void *data)
{
    struct shared *shared = data;

    munmap(shared->counts, shared->bytes);
}

/* Gives each site counts that all workers share, and that begin at 0 at a reload. */
static ngx_int_t share_counts(ngx_conf_t *conf, const struct settings *all)
{
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(conf->pool, sizeof(struct shared));
    struct site **sites = all->sites.elts;

    if (!cleanup)
        return NGX_ERROR;
    struct shared *shared = cleanup->data;
    shared->bytes = (all->sites.nelts + 1) * sizeof(struct counts);
    shared->counts = mmap(NULL, shared->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared->counts == MAP_FAILED) {
        ngx_log_error(NGX_LOG_EMERG, conf->log, ngx_errno, "sidelong: no memory for its counts");
        return NGX_ERROR;
    }
    cleanup->handler = free_counts;
    for (ngx_uint_t i = 0; i < all->sites.nelts; i++)
        sites[i]->counts = &shared->counts[i];
    return NGX_OK;
}

/* A method that comes later takes the place of an earlier one. To nginx that is worth a warning. */
static ngx_int_t check_upstreams(ngx_conf_t *conf)
{
    ngx_http_upstream_main_conf_t *all = ngx_http_conf_get_module_main_conf(conf, ngx_http_upstream_module);
    ngx_http_upstream_srv_conf_t **upstreams = all->upstreams.elts;

    for (ngx_uint_t i = 0; i < all->upstreams.nelts; i++) {
        if (!upstreams[i]->srv_conf)
            continue;
        const struct upstream *its = ngx_http_conf_upstream_srv_conf(upstreams[i], ngx_http_sidelong_module);

        if (its->site && !its->is_led) {
            ngx_log_error(NGX_LOG_EMERG, conf->log, 0,
                          "upstream \"%V\" has \"sidelong\" and another way of load balancing: remove one of them",
                          &upstreams[i]->host);
            return NGX_ERROR;
        }
    }
    return NGX_OK;
}

static ngx_int_t add_hooks(ngx_conf_t *conf)
{
    ngx_http_core_main_conf_t *core = ngx_http_conf_get_module_main_conf(conf, ngx_http_core_module);
    struct settings *all = ngx_http_conf_get_module_main_conf(conf, ngx_http_sidelong_module);

    if (check_upstreams(conf) != NGX_OK)
        return NGX_ERROR;
    if (all->admits) {
        ngx_http_handler_pt *handler = ngx_array_push(&core->phases[NGX_HTTP_PREACCESS_PHASE].handlers);

        if (!handler)
            return NGX_ERROR;
        *handler = at_request;
    }
    next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = at_header;
    return share_counts(conf, all);
}

static ngx_command_t commands[] = {
    {ngx_string("sidelong"), NGX_HTTP_UPS_CONF | NGX_CONF_TAKE2, set_upstream, NGX_HTTP_SRV_CONF_OFFSET, 0, NULL},
    {ngx_string("sidelong_admission"),
     NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_CONF_TAKE123, set_admission,
     NGX_HTTP_LOC_CONF_OFFSET, 0, NULL},
    {ngx_string("sidelong_status"), NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS, set_status, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL},
    ngx_null_command,
};

static ngx_http_module_t hooks = {
    add_variable, add_hooks, create_settings, NULL, create_upstream, NULL, create_location, merge_location,
};

ngx_module_t ngx_http_sidelong_module = {
    NGX_MODULE_V1, &hooks, commands, NGX_HTTP_MODULE, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NGX_MODULE_V1_PADDING,
};
