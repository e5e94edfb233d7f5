/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Admission control for httpd 2.4 (Lai et al. 2008: "dynamically loadable; trap into Apache request processing"). A
 * connection is closed as soon as it is accepted, before TLS, if no site that it could be for admits its client. A request
 * is answered with 503 if its site rejects it. Established connections are never cut. Decisions use memory that
 * `sidelong front` writes; if that is missing or too old, all clients are admitted.
 *
 *     LoadModule sidelong_module modules/mod_sidelong.so
 *     SidelongFront /run/sidelong/web1
 *     <VirtualHost *:80>
 *         SidelongAdmission On
 *         SidelongSite alpha
 *     </VirtualHost>
 */
#include "mod_sidelong.h"

#include "apr_optional_hooks.h"
#include "apr_shm.h"
#include "apr_strings.h"
#include "apr_time.h"
#include "http_connection.h"
#include "http_core.h"
#include "http_main.h"
#include "http_protocol.h"
#include "http_request.h"
#include "mod_status.h"

APLOG_USE_MODULE(sidelong);

/* That nothing is decided is said so often by each process. */
#define COMPLAIN_US apr_time_from_sec(60)

/* Of a virtual host, or of what stands outside of all. */
typedef struct {
    int is_on; /* -1: as outside */
    /* Without a name if none is set. */
    sidelong_site site;
    const char *front;
    struct counts *counts;
} settings;

/* Of one site, in memory that all processes share. */
struct counts {
    uint64_t admitted; /* requests */
    uint64_t blind;    /* of these, while nothing was known */
    uint64_t refused;  /* requests, with 503 */
    uint64_t closed;   /* connections */
};

/* Of one process. */
static sidelong_front *front;
static apr_time_t complained;

static settings *of(const server_rec *server)
{
    return ap_get_module_config(server->module_config, &sidelong_module);
}

sidelong_front *the_front(void)
{
    return front;
}

sidelong_site *site_of(const server_rec *server)
{
    settings *its = of(server);

    return its->site.name ? &its->site : NULL;
}

static void count(uint64_t *counter)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* One thread of those that come by then. */
static int is_due(apr_time_t *last, apr_time_t now, apr_interval_time_t every)
{
    apr_time_t seen = __atomic_load_n(last, __ATOMIC_RELAXED);

    return now - seen >= every
           && __atomic_compare_exchange_n(last, &seen, now, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static int knows_nothing(sidelong_why why)
{
    return why == SIDELONG_NO_VERDICTS || why == SIDELONG_NO_SUCH_SITE || why == SIDELONG_STALE;
}

static sidelong_decision decide(server_rec *server, settings *its, uint64_t client)
{
    sidelong_decision decision = sidelong_admit(front, &its->site, client);

    if (knows_nothing(decision.why) && is_due(&complained, apr_time_now(), COMPLAIN_US))
        ap_log_error(APLOG_MARK, APLOG_WARNING, 0, server,
                     "sidelong: nothing is known of site %s (%s in %s): all its clients are admitted", its->site.name,
                     sidelong_reason(decision.why), its->front);
    return decision;
}

static uint64_t client_of(const conn_rec *connection)
{
    return sidelong_client((const struct sockaddr *)&connection->client_addr->sa);
}

/* Whether a connection to `port` may be for `server`. */
static int listens(const server_rec *server, apr_port_t port)
{
    for (const server_addr_rec *address = server->addrs; address; address = address->next)
        if (address->host_port == 0 || address->host_port == port)
            return 1;
    return 0;
}

static int at_connection(conn_rec *connection, void *socket)
{
    if (connection->master)
        return DECLINED; /* a stream of one under way */

    uint64_t client = client_of(connection);
    apr_port_t port = connection->local_addr->port;
    settings *first = of(connection->base_server);

    for (server_rec *server = connection->base_server->is_virtual ? ap_server_conf : connection->base_server;
         server; server = server->next) {
        if (server != connection->base_server && !(server->is_virtual && listens(server, port)))
            continue;
        settings *its = of(server);

        if (its->is_on != 1 || decide(server, its, client).admit)
            return DECLINED;
    }
    count(&first->counts->closed);
    ap_log_cerror(APLOG_MARK, APLOG_DEBUG, 0, connection, "sidelong: closed, for no site lets it in");
    return HTTP_SERVICE_UNAVAILABLE;
}

static int at_request(request_rec *request)
{
    settings *its = of(request->server);

    if (its->is_on != 1 || !ap_is_initial_req(request))
        return DECLINED;
    sidelong_decision decision = decide(request->server, its, client_of(request->connection));

    if (decision.admit) {
        count(&its->counts->admitted);
        if (knows_nothing(decision.why))
            count(&its->counts->blind);
        return DECLINED;
    }
    count(&its->counts->refused);
    apr_table_setn(request->err_headers_out, "Retry-After",
                   apr_psprintf(request->pool, "%u", decision.retry_after_s));
    apr_table_setn(request->err_headers_out, "X-Sidelong-Reason", sidelong_reason(decision.why));
    return HTTP_SERVICE_UNAVAILABLE;
}

/* For mod_status, where it is loaded. */
static int at_status(request_rec *request, int flags)
{
    int is_short = flags & AP_STATUS_SHORT;

    if (flags & AP_STATUS_NOTABLE)
        return OK;
    if (!is_short)
        ap_rputs("<hr /><h2>Sidelong</h2><table border=\"0\"><tr><th>Site</th><th>State</th><th>Requests admitted</th>"
                 "<th>of these, without a verdict</th><th>Rejected with 503</th><th>Connections closed</th></tr>\n",
                 request);
    for (server_rec *server = ap_server_conf; server; server = server->next) {
        settings *its = of(server);

        if (its->is_on != 1)
            continue;
        sidelong_decision now = sidelong_admit(front, &its->site, 0);

        ap_rprintf(request,
                   is_short ? "Sidelong-%s: %s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n"
                            : "<tr><td>%s</td><td>%s</td><td>%" PRIu64 "</td><td>%" PRIu64 "</td><td>%" PRIu64
                              "</td><td>%" PRIu64 "</td></tr>\n",
                   ap_escape_html(request->pool, its->site.name), sidelong_reason(now.why), its->counts->admitted,
                   its->counts->blind, its->counts->refused, its->counts->closed);
    }
    if (!is_short)
        ap_rputs("</table>\n", request);
    return OK;
}

static void open_front(server_rec *server, const char *prefix)
{
    char why[SIDELONG_WHY_BYTES];

    front = sidelong_front_open(prefix, why);
    if (*why)
        ap_log_error(APLOG_MARK, APLOG_WARNING, 0, server,
                     "sidelong: %s; until then all clients are admitted, and requests go to the servers that the front "
                     "has last named, or to standbys", why);
}

static int check_settings(apr_pool_t *pool, apr_pool_t *log, apr_pool_t *temporary, server_rec *main_server)
{
    apr_size_t servers = 0;
    apr_shm_t *memory;

    for (server_rec *server = main_server; server; server = server->next) {
        settings *its = of(server);

        servers++;
        if (its->is_on == 1 && (!its->site.name || !its->front)) {
            ap_log_error(APLOG_MARK, APLOG_EMERG, 0, server, "SidelongAdmission is On for %s:%u and %s",
                         server->server_hostname, server->port,
                         its->front ? "SidelongSite names no site" : "SidelongFront names no front");
            return HTTP_INTERNAL_SERVER_ERROR;
        }
    }
    apr_status_t status = apr_shm_create(&memory, servers * sizeof(struct counts), NULL, pool);
    if (status != APR_SUCCESS) {
        ap_log_error(APLOG_MARK, APLOG_EMERG, status, main_server, "sidelong: no memory for its counts");
        return HTTP_INTERNAL_SERVER_ERROR;
    }
    struct counts *counts = apr_shm_baseaddr_get(memory);

    memset(counts, 0, servers * sizeof(struct counts));
    front = NULL;
    complained = 0;
    for (server_rec *server = main_server; server; server = server->next)
        of(server)->counts = counts++;
    if (of(main_server)->front)
        open_front(main_server, of(main_server)->front);
    return check_balancers(main_server);
}

static void *create_settings(apr_pool_t *pool, server_rec *server)
{
    settings *its = apr_pcalloc(pool, sizeof(*its));

    its->is_on = -1;
    return its;
}

static void *merge_settings(apr_pool_t *pool, void *outer_settings, void *inner_settings)
{
    const settings *outer = outer_settings, *inner = inner_settings;
    settings *its = create_settings(pool, NULL);

    its->is_on = inner->is_on != -1 ? inner->is_on : outer->is_on;
    its->site.name = inner->site.name ? inner->site.name : outer->site.name;
    its->front = outer->front;
    return its;
}

static const char *set_admission(cmd_parms *command, void *unused, int is_on)
{
    of(command->server)->is_on = is_on;
    return NULL;
}

static const char *set_site(cmd_parms *command, void *unused, const char *name)
{
    if (!*name || strlen(name) > SIDELONG_NAME_BYTES)
        return "is the name of a site in Sidelong's cluster file, 1 to 64 characters";
    of(command->server)->site.name = name;
    return NULL;
}

static const char *set_front(cmd_parms *command, void *unused, const char *prefix)
{
    const char *wrong = ap_check_cmd_context(command, GLOBAL_ONLY);

    if (!wrong)
        of(command->server)->front = ap_server_root_relative(command->pool, prefix);
    return wrong;
}

static const command_rec commands[] = {
    AP_INIT_FLAG("SidelongAdmission", set_admission, NULL, RSRC_CONF,
                 "On: Sidelong decides which clients of the site are admitted. Default Off"),
    AP_INIT_TAKE1("SidelongSite", set_site, NULL, RSRC_CONF,
                  "the site of Sidelong's cluster file that this virtual host serves"),
    AP_INIT_TAKE1("SidelongFront", set_front, NULL, RSRC_CONF,
                  "the prefix of the files that `sidelong front` keeps: RUN_DIR/NAME"),
    {NULL},
};

static void register_hooks(apr_pool_t *pool)
{
    ap_hook_post_config(check_settings, NULL, NULL, APR_HOOK_MIDDLE);
    /* Before mod_ssl begins its handshake. */
    ap_hook_pre_connection(at_connection, NULL, NULL, APR_HOOK_REALLY_FIRST);
    ap_hook_post_read_request(at_request, NULL, NULL, APR_HOOK_FIRST);
    APR_OPTIONAL_HOOK(ap, status_hook, at_status, NULL, NULL, APR_HOOK_MIDDLE);
    register_balancer(pool);
}

module AP_MODULE_DECLARE_DATA sidelong_module = {
    STANDARD20_MODULE_STUFF, NULL, NULL, create_settings, merge_settings, commands, register_hooks, 0,
};
