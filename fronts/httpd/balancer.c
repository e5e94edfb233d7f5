/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * lbmethod=sidelong for mod_proxy_balancer: `sidelong front` says to which member of a balancer each request goes. The
 * request is counted there until it has left the server.
 *
 *     SidelongFront /run/sidelong/web1
 *     <VirtualHost *:80>
 *         SidelongSite alpha
 *         <Proxy balancer://alpha>
 *             BalancerMember http://10.0.0.1:8080 retry=0
 *             BalancerMember http://10.0.0.2:8080 retry=0
 *             ProxySet lbmethod=sidelong
 *         </Proxy>
 *         ProxyPass / balancer://alpha/
 *     </VirtualHost>
 *
 * A member that is no node of the front gets no request, unless it is a hot standby or a spare. Without a front the members
 * that served the site when it was last heard take turns. The module loads without mod_proxy, too: it uses none of its symbols.
 */
#include "mod_sidelong.h"

#include "apr_optional.h"
#include "apr_optional_hooks.h"
#include "apr_strings.h"
#include "http_request.h"
#include "mod_proxy.h"
#include "util_filter.h"

#include <stdlib.h>
#include <sys/un.h>

APLOG_USE_MODULE(sidelong);

#define ANSWER_FILTER "SIDELONG_ANSWER"
/* A front that begins another life during a choice is asked again, this often. */
#define LIVES 3
/* Members whose names were not found are looked up again so often. */
#define RESOLVE_US apr_time_from_sec(1)
/* That a virtual host names no site is said so often by each process. */
#define COMPLAIN_US apr_time_from_sec(60)

/* Which node each member of a balancer is, in one life of the front. Of one process, under the balancer's lock. */
struct members {
    struct members *next;
    const proxy_balancer *balancer;
    uint64_t generation;
    apr_time_t looked_up;
    int are_all_found;
    int count;
    int *node;
    int of_count;
    /* By node: the member's index and 1, or 0. */
    int *of;
    unsigned turns;
};

/* A request to a balancer. */
struct request {
    request_rec *request;
    struct members *members;
    /* The one that it was sent to last; NULL if none was found for it. */
    const proxy_worker *taken;
    int is_standby;
    int count;
    char *tried;
    sidelong_request counted;
};

static struct members *all_members;
static APR_OPTIONAL_FN_TYPE(ap_proxy_retry_worker) * retry_member;

static proxy_worker *member_at(const proxy_balancer *balancer, int index)
{
    return APR_ARRAY_IDX(balancer->workers, index, proxy_worker *);
}

static int node_of(const proxy_worker *member, apr_pool_t *pool, int *is_found)
{
    apr_sockaddr_t *address;

    if (*member->s->uds_path) {
        struct sockaddr_un local = {.sun_family = AF_UNIX};

        apr_cpystrn(local.sun_path, member->s->uds_path, sizeof(local.sun_path));
        return sidelong_node(the_front(), (const struct sockaddr *)&local);
    }
    if (apr_sockaddr_info_get(&address, member->s->hostname_ex, APR_UNSPEC, member->s->port, 0, pool) != APR_SUCCESS) {
        *is_found = 0;
        return -1;
    }
    for (; address; address = address->next) {
        int node = sidelong_node(the_front(), (const struct sockaddr *)&address->sa);

        if (node >= 0)
            return node;
    }
    return -1;
}

static int *room_for(int count)
{
    int *numbers = calloc((size_t)count + 1, sizeof(*numbers));

    ap_assert(numbers); /* as httpd does */
    return numbers;
}

static void look_up(struct members *members, request_rec *request)
{
    int last = -1;

    free(members->node);
    free(members->of);
    members->count = members->balancer->workers->nelts;
    members->node = room_for(members->count);
    members->are_all_found = 1;
    for (int i = 0; i < members->count; i++) {
        members->node[i] = node_of(member_at(members->balancer, i), request->pool, &members->are_all_found);
        if (members->node[i] > last)
            last = members->node[i];
    }
    members->of_count = last + 1;
    members->of = room_for(members->of_count);
    for (int i = members->count - 1; i >= 0; i--)
        if (members->node[i] >= 0)
            members->of[members->node[i]] = i + 1;
}

/* The members of a balancer, looked up again if they may be other nodes now. */
static struct members *members_of(const proxy_balancer *balancer, request_rec *request)
{
    struct members *members = __atomic_load_n(&all_members, __ATOMIC_ACQUIRE);
    uint64_t generation = sidelong_generation(the_front());

    while (members && members->balancer != balancer)
        members = members->next;
    if (!members) {
        members = calloc(1, sizeof(*members));
        ap_assert(members);
        members->balancer = balancer;
        members->turns = (unsigned)getpid();
        members->next = __atomic_load_n(&all_members, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(&all_members, &members->next, members, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
            ;
    }
    if (!members->node || members->generation != generation || members->count != balancer->workers->nelts
        || (!members->are_all_found && request->request_time - members->looked_up >= RESOLVE_US)) {
        look_up(members, request);
        members->generation = generation;
        members->looked_up = request->request_time;
    }
    return members;
}

/* Whether mod_proxy would send the request there. */
static bool is_usable(const struct request *its, int index)
{
    proxy_worker *member = member_at(its->members->balancer, index);
    int is_standby = PROXY_WORKER_IS_STANDBY(member) || PROXY_WORKER_IS_SPARE(member);

    if (index >= its->count || its->tried[index] || PROXY_WORKER_IS_DRAINING(member) || is_standby != its->is_standby)
        return false;
    /* It may be time to forget an error. */
    if (!PROXY_WORKER_IS_USABLE(member) && retry_member)
        retry_member("BALANCER", member, its->request->server);
    return PROXY_WORKER_IS_USABLE(member);
}

static bool is_usable_node(void *context, unsigned node)
{
    const struct request *its = context;
    int member = (int)node < its->members->of_count ? its->members->of[node] : 0;

    return member && is_usable(its, member - 1);
}

static proxy_worker *take(struct request *its, int index)
{
    proxy_worker *member = member_at(its->members->balancer, index);

    its->tried[index] = 1;
    its->taken = member;
    return member;
}

/* The next member that the request may go to. Each is asked once. */
static proxy_worker *take_in_turn(struct request *its)
{
    struct members *members = its->members;
    unsigned start = members->turns++;

    for (int i = 0; i < members->count; i++) {
        int index = (int)((start + (unsigned)i) % (unsigned)members->count), node = members->node[index];

        if (is_usable(its, index)
            && (node < 0 ? its->is_standby
                         : sidelong_begin(the_front(), site_of(its->request->server), (unsigned)node, &its->counted)))
            return take(its, index);
    }
    return NULL;
}

static proxy_worker *take_chosen(struct request *its, const proxy_balancer *balancer)
{
    for (int life = 0; life < LIVES; life++) {
        its->members = members_of(balancer, its->request);
        sidelong_choice choice =
            sidelong_choose(the_front(), site_of(its->request->server), is_usable_node, its, &its->counted);
        if (sidelong_generation(the_front()) != its->members->generation) {
            sidelong_ended(&its->counted);
            continue;
        }
        switch (choice) {
        case SIDELONG_NONE:
            return NULL;
        case SIDELONG_ALONE:
            return take_in_turn(its);
        case SIDELONG_CHOSEN:
            break;
        }
        return take(its, its->members->of[its->counted.node] - 1);
    }
    return NULL;
}

static apr_status_t forget_request(void *data)
{
    struct request *its = data;

    sidelong_ended(&its->counted);
    return APR_SUCCESS;
}

static struct request *begin_request(const proxy_balancer *balancer, request_rec *request)
{
    struct request *its = ap_get_module_config(request->request_config, &sidelong_module);

    if (its) {
        /* mod_proxy could not connect to the last one, and asks for another. */
        sidelong_failed(&its->counted, true);
        sidelong_ended(&its->counted);
        return its;
    }
    its = apr_pcalloc(request->pool, sizeof(*its));
    its->request = request;
    its->count = balancer->workers->nelts;
    its->tried = apr_pcalloc(request->pool, (apr_size_t)its->count + 1);
    ap_set_module_config(request->request_config, &sidelong_module, its);
    apr_pool_cleanup_register(request->pool, its, forget_request, apr_pool_cleanup_null);
    ap_add_output_filter(ANSWER_FILTER, its, request, request->connection);
    return its;
}

/* Runs under the balancer's lock. */
static proxy_worker *find_member(proxy_balancer *balancer, request_rec *request)
{
    static apr_time_t complained;

    if (!the_front() || !site_of(request->server)) {
        if (request->request_time - complained >= COMPLAIN_US) {
            complained = request->request_time;
            ap_log_rerror(APLOG_MARK, APLOG_ERR, 0, request,
                          "sidelong: %s has lbmethod=sidelong, and its virtual host no SidelongSite: set it",
                          balancer->s->name);
        }
        return NULL;
    }
    struct request *its = begin_request(balancer, request);
    proxy_worker *member = its->is_standby ? NULL : take_chosen(its, balancer);

    if (!member) {
        its->is_standby = 1;
        its->members = members_of(balancer, request);
        member = take_in_turn(its);
    }
    return member;
}

/* The answer has begun, and may take long. */
static apr_status_t at_answer(ap_filter_t *filter, apr_bucket_brigade *brigade)
{
    struct request *its = filter->ctx;

    ap_remove_output_filter(filter);
    sidelong_answered(&its->counted, filter->r->status < 400);
    return ap_pass_brigade(filter->next, brigade);
}

/* mod_proxy is done with the request. */
static int at_end(int *status, request_rec *request)
{
    struct request *its = ap_get_module_config(request->request_config, &sidelong_module);

    /* A suspended one goes on, and ends with its pool. */
    if (!its || *status == SUSPENDED)
        return DECLINED;
    if (*status == OK || *status == DONE)
        sidelong_answered(&its->counted, request->status < 400);
    else if (apr_table_get(request->notes, "proxy-error-override"))
        sidelong_answered(&its->counted, false);
    else if (*status == HTTP_SERVICE_UNAVAILABLE)
        sidelong_failed(&its->counted, true);
    else if (*status == HTTP_BAD_GATEWAY || *status == HTTP_GATEWAY_TIME_OUT)
        sidelong_failed(&its->counted, false);
    sidelong_ended(&its->counted);
    return DECLINED;
}

static apr_status_t do_nothing(proxy_balancer *balancer, server_rec *server)
{
    return APR_SUCCESS;
}

static apr_status_t do_nothing_to(proxy_balancer *balancer, proxy_worker *member, server_rec *server)
{
    return APR_SUCCESS;
}

static const proxy_balancer_method method = {"sidelong", find_member, NULL, do_nothing, do_nothing, do_nothing_to};

/* What httpd goes by in the end: the name. */
static int is_ours(const proxy_balancer *balancer)
{
    return strcmp(balancer->s->lbpname, method.name) == 0;
}

static const proxy_balancer *balancer_at(const server_rec *server, const module *proxy, int index)
{
    const proxy_server_conf *settings = ap_get_module_config(server->module_config, proxy);

    return index < settings->balancers->nelts ? &APR_ARRAY_IDX(settings->balancers, index, proxy_balancer) : NULL;
}

/* What keeps a balancer from being controlled; NULL if nothing does, or it is not to be controlled. */
static const char *wrong_with(const proxy_balancer *balancer, const server_rec *main_server, const module *proxy)
{
    const proxy_balancer *outer;

    if (is_ours(balancer)) {
        if (!the_front())
            return "has lbmethod=sidelong, and no SidelongFront is set: name the prefix of the front's files";
        if (*balancer->s->sticky)
            return "has lbmethod=sidelong and stickysession, which sends requests past it: remove one of them";
        return NULL;
    }
    /* A ProxyPass in a virtual host makes a balancer there, with the members of the outer one and the default method. */
    for (int i = 0; (outer = balancer_at(main_server, proxy, i)); i++)
        if (is_ours(outer) && strcmp(outer->s->name, balancer->s->name) == 0)
            return "has lbmethod=sidelong outside of the virtual host, which httpd does not pass on to it: put "
                   "<Proxy> with its ProxySet into the virtual host";
    return NULL;
}

int check_balancers(server_rec *main_server)
{
    const module *proxy = ap_find_linked_module("mod_proxy.c");
    const proxy_balancer *balancer;

    for (server_rec *server = main_server; proxy && server; server = server->next)
        for (int i = 0; (balancer = balancer_at(server, proxy, i)); i++) {
            const char *wrong = wrong_with(balancer, main_server, proxy);

            if (wrong) {
                ap_log_error(APLOG_MARK, APLOG_EMERG, 0, server, "%s %s", balancer->s->name, wrong);
                return HTTP_INTERNAL_SERVER_ERROR;
            }
        }
    return OK;
}

static void find_functions(void)
{
    retry_member = APR_RETRIEVE_OPTIONAL_FN(ap_proxy_retry_worker);
}

void register_balancer(apr_pool_t *pool)
{
    ap_register_provider(pool, PROXY_LBMETHOD, "sidelong", "0", &method);
    ap_register_output_filter(ANSWER_FILTER, at_answer, NULL, AP_FTYPE_CONTENT_SET);
    ap_hook_optional_fn_retrieve(find_functions, NULL, NULL, APR_HOOK_MIDDLE);
    APR_OPTIONAL_HOOK(proxy, request_status, at_end, NULL, NULL, APR_HOOK_MIDDLE);
}
