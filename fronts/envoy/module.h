/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the parts of the module know of each other: the load balancer (balancer.c) and the HTTP filters (filter.c). */
#ifndef SIDELONG_ENVOY_MODULE_H
#define SIDELONG_ENVOY_MODULE_H

#include "abi.h"
#include "sidelong.h"

/* A site of a front. */
struct site {
    sidelong_front *front;
    sidelong_site site;
    /* The front's prefix, then the site's name. */
    char words[];
};

#define TEXT(literal) ((struct text){literal, sizeof(literal) - 1})

/* Logs a line of `printf`. */
#define LOG(level, ...) log_line(level, __LINE__, TEXT(__FILE__), __VA_ARGS__)
__attribute__((format(printf, 4, 5))) void log_line(enum log_level level, uint32_t line, struct text file,
                                                    const char *format, ...);

/*
 * The site that a configuration names: the front's prefix, a space and the site's name. NULL, with a line in the log, if it
 * names none. `what` is configured.
 */
struct site *new_site(const char *what, struct text config);

struct balancer;

/* A try of a request, at the host that the load balancer has chosen. */
struct try {
    struct balancer *by;
    /* Nowhere, if the host is no node. */
    sidelong_request counted;
    /* The host among those that the load balancer had then, and what Envoy had counted there. */
    size_t server;
    uint64_t lookup;
    uint64_t connect_fails;
    uint64_t errors;
    uint64_t requests;
};

/* Takes over the try that the load balancer has just chosen a host for on this thread. Returns whether there is one. */
bool take_chosen(struct try *to);

/* The try has ended, on the same thread. */
void end_try(struct try *its, bool is_answered);

#endif
