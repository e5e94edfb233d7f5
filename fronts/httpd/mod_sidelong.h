/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the two parts of mod_sidelong know of each other: admission (mod_sidelong.c), and lbmethod=sidelong (balancer.c). */
#ifndef MOD_SIDELONG_H
#define MOD_SIDELONG_H

#include "httpd.h"
#include "http_config.h"
#include "http_log.h"

#include "sidelong.h"

extern module AP_MODULE_DECLARE_DATA sidelong_module;

/* The front that SidelongFront names; NULL if it is not set. */
sidelong_front *the_front(void);

/* The site that SidelongSite names; NULL if it is not set. */
sidelong_site *site_of(const server_rec *server);

void register_balancer(apr_pool_t *pool);

/* OK, or an error that is logged. */
int check_balancers(server_rec *main_server);

#endif
