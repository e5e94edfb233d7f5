/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The HTTP filters. "request" belongs into a cluster: Envoy creates one for each try of a request, and destroys it when the
 * try has ended, be it with its answer, by a reset, or because the client has gone. "admission" belongs into a listener,
 * before the router, and rejects clients.
 */
#include "module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct filter {
    struct try its;
    /* Whether the load balancer has chosen the host. */
    bool is_chosen;
    bool is_answered;
};

/* The two as configurations. The admission filter of a request is its own one. */
static char request, admission;

static bool is_same(struct text text, const char *word)
{
    return text.bytes == strlen(word) && memcmp(text.at, word, text.bytes) == 0;
}

void *envoy_dynamic_module_on_http_filter_config_new(void *envoy, struct text name, struct text config)
{
    if (config.bytes)
        LOG(LOG_ERROR, "sidelong: a filter has filter_config: move the site to typed_per_filter_config of a route or "
            "virtual host");
    else if (is_same(name, "request"))
        return &request;
    else if (is_same(name, "admission"))
        return &admission;
    else
        LOG(LOG_ERROR, "sidelong: filter_name is \"%.*s\": it must be \"request\" in a cluster, and \"admission\" in a "
            "listener", (int)name.bytes, name.at);
    return NULL;
}

void envoy_dynamic_module_on_http_filter_config_destroy(void *config) {}

void *envoy_dynamic_module_on_http_filter_per_route_config_new(struct text name, struct text config)
{
    return new_site("the filter \"admission\"", config);
}

void envoy_dynamic_module_on_http_filter_per_route_config_destroy(void *config)
{
    free(config);
}

void *envoy_dynamic_module_on_http_filter_new(void *config, void *envoy)
{
    if (config == &admission)
        return config;
    struct filter *of = calloc(1, sizeof(*of));
    if (of)
        of->is_chosen = take_chosen(&of->its);
    return of;
}

/* A client by the address that Envoy has for it: of the connection, or of X-Forwarded-For if it trusts that. */
static uint64_t client_of(void *envoy)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    struct text text;

    if (envoy_dynamic_module_callback_http_filter_get_attribute_string(envoy, SOURCE_ADDRESS, &text))
        address = sidelong_address(text.at, text.bytes);
    return sidelong_client((const struct sockaddr *)&address);
}

static enum headers_status admit(void *envoy)
{
    struct site *site = envoy_dynamic_module_callback_get_most_specific_route_config(envoy);

    if (!site)
        return CONTINUE;
    sidelong_decision decision = sidelong_admit(site->front, &site->site, client_of(envoy));
    if (decision.admit)
        return CONTINUE;
    char seconds[16], details[64];
    const char *reason = sidelong_reason(decision.why);
    int seconds_bytes = snprintf(seconds, sizeof(seconds), "%u", decision.retry_after_s);
    int details_bytes = snprintf(details, sizeof(details), "sidelong_%s", reason);
    struct header headers[] = {
        {TEXT("retry-after"), {seconds, (size_t)seconds_bytes}},
        {TEXT("x-sidelong-reason"), {reason, strlen(reason)}},
    };
    envoy_dynamic_module_callback_http_send_response(envoy, 503, headers, 2, TEXT(""),
                                                     (struct text){details, (size_t)details_bytes});
    return STOP_ITERATION;
}

enum headers_status envoy_dynamic_module_on_http_filter_request_headers(void *envoy, void *filter, bool is_last)
{
    const struct filter *of = filter;

    if (filter == &admission)
        return admit(envoy);
    if (of->is_chosen)
        return CONTINUE;
    /* What binds a client to a host, such as a stateful session, goes past the load balancer. */
    envoy_dynamic_module_callback_http_send_response(envoy, 503, NULL, 0, TEXT(""), TEXT("sidelong_has_not_chosen"));
    return STOP_ITERATION;
}

enum headers_status envoy_dynamic_module_on_http_filter_response_headers(void *envoy, void *filter, bool is_last)
{
    struct filter *of = filter;
    struct text status;

    if (filter == &admission)
        return CONTINUE;
    of->is_answered = true;
    bool is_known =
        envoy_dynamic_module_callback_http_get_header(envoy, RESPONSE_HEADER, TEXT(":status"), &status, 0, NULL);
    sidelong_answered(&of->its.counted, is_known && status.bytes == 3 && *status.at < '4');
    return CONTINUE;
}

void envoy_dynamic_module_on_http_filter_destroy(void *filter)
{
    struct filter *of = filter;

    if (filter == &admission)
        return;
    if (of->is_chosen)
        end_try(&of->its, of->is_answered);
    free(of);
}

#define IGNORE(what) \
    int envoy_dynamic_module_on_http_filter_##what(void); \
    int envoy_dynamic_module_on_http_filter_##what(void) \
    { \
        return CONTINUE; \
    }
ENVOY_IGNORED(IGNORE)
