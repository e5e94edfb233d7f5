/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the module uses of Envoy's interface for dynamic modules, as of Envoy 1.40: functions of Envoy
 * (envoy_dynamic_module_callback_...), and functions that it looks for in the module (envoy_dynamic_module_on_...). The
 * module is linked with -z now, so that an Envoy without one of these functions refuses it.
 */
#ifndef SIDELONG_ENVOY_ABI_H
#define SIDELONG_ENVOY_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Envoy warns if its own is another one. */
#define ABI_VERSION "v0.2.0"

/* Bytes without a terminating zero. */
struct text {
    const char *at;
    size_t bytes;
};

struct header {
    struct text name;
    struct text value;
};

enum log_level { LOG_WARN = 3, LOG_ERROR = 4 };
enum header_type { RESPONSE_HEADER = 2 };
enum headers_status { CONTINUE = 0, STOP_ITERATION = 1 };
enum attribute { SOURCE_ADDRESS = 24 };
/* Counts of a host since Envoy has it: connections that failed, requests that failed, requests sent. */
enum host_stat { CONNECT_FAILS = 0, REQUEST_ERRORS = 2, REQUESTS = 5 };

void envoy_dynamic_module_callback_log_v2(enum log_level level, struct text message, struct text file, uint32_t line);

/* Of a load balancer on one worker thread. Indices count the healthy hosts of a priority, or all hosts. */
void envoy_dynamic_module_callback_lb_get_cluster_name(void *lb, struct text *name);
size_t envoy_dynamic_module_callback_lb_get_priority_set_size(void *lb);
size_t envoy_dynamic_module_callback_lb_get_hosts_count(void *lb, uint32_t priority);
size_t envoy_dynamic_module_callback_lb_get_healthy_hosts_count(void *lb, uint32_t priority);
bool envoy_dynamic_module_callback_lb_get_host_address(void *lb, uint32_t priority, size_t host, struct text *address);
bool envoy_dynamic_module_callback_lb_get_healthy_host_address(void *lb, uint32_t priority, size_t healthy_host,
                                                               struct text *address);
uint64_t envoy_dynamic_module_callback_lb_get_host_stat(void *lb, uint32_t priority, size_t host, enum host_stat stat);
size_t envoy_dynamic_module_callback_lb_context_get_downstream_headers_size(void *context);
bool envoy_dynamic_module_callback_lb_context_should_select_another_host(void *lb, void *context, uint32_t priority,
                                                                         size_t host);

bool envoy_dynamic_module_callback_http_get_header(void *filter, enum header_type type, struct text name,
                                                   struct text *value, size_t index, size_t *count);
bool envoy_dynamic_module_callback_http_filter_get_attribute_string(void *filter, enum attribute which,
                                                                    struct text *value);
/* The configuration that the module made for the route or its virtual host; NULL if there is none. */
void *envoy_dynamic_module_callback_get_most_specific_route_config(void *filter);
void envoy_dynamic_module_callback_http_send_response(void *filter, uint32_t status, const struct header *headers,
                                                      size_t count, struct text body, struct text details);

const char *envoy_dynamic_module_on_program_init(void);

void *envoy_dynamic_module_on_lb_config_new(void *envoy, struct text name, struct text config);
void envoy_dynamic_module_on_lb_config_destroy(void *config);
void *envoy_dynamic_module_on_lb_new(void *config, void *envoy);
bool envoy_dynamic_module_on_lb_choose_host(void *envoy, void *lb, void *context, uint32_t *priority,
                                            uint32_t *healthy_host);
void envoy_dynamic_module_on_lb_on_host_membership_update(void *envoy, void *lb, size_t added, size_t removed);
void envoy_dynamic_module_on_lb_destroy(void *lb);

void *envoy_dynamic_module_on_http_filter_config_new(void *envoy, struct text name, struct text config);
void envoy_dynamic_module_on_http_filter_config_destroy(void *config);
void *envoy_dynamic_module_on_http_filter_per_route_config_new(struct text name, struct text config);
void envoy_dynamic_module_on_http_filter_per_route_config_destroy(void *config);
void *envoy_dynamic_module_on_http_filter_new(void *config, void *envoy);
enum headers_status envoy_dynamic_module_on_http_filter_request_headers(void *envoy, void *filter, bool is_last);
enum headers_status envoy_dynamic_module_on_http_filter_response_headers(void *envoy, void *filter, bool is_last);
void envoy_dynamic_module_on_http_filter_destroy(void *filter);

/* Those that the module has no use for, and Envoy does not load it without. Their arguments are left out. */
#define ENVOY_IGNORED(IGNORE) \
    IGNORE(request_body) \
    IGNORE(request_trailers) \
    IGNORE(response_body) \
    IGNORE(response_trailers) \
    IGNORE(stream_complete) \
    IGNORE(http_callout_done) \
    IGNORE(http_stream_headers) \
    IGNORE(http_stream_data) \
    IGNORE(http_stream_trailers) \
    IGNORE(http_stream_complete) \
    IGNORE(http_stream_reset) \
    IGNORE(scheduled) \
    IGNORE(downstream_above_write_buffer_high_watermark) \
    IGNORE(downstream_below_write_buffer_low_watermark)

#endif
