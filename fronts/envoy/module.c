/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sidelong in Envoy: `sidelong front` says to which host each request goes, and which clients a site admits. A dynamic
 * module with three parts:
 *
 *     - a load-balancing policy, which chooses a node for each try of a request and counts the try there (balancer.c),
 *     - an HTTP filter of the cluster, which each try has, and which ends with it (filter.c, "request"),
 *     - an HTTP filter of the listener, which rejects clients (filter.c, "admission").
 *
 * `sidelong front config` prints their configuration; docs/fronts.md explains it.
 */
#define _GNU_SOURCE
#include "module.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *envoy_dynamic_module_on_program_init(void)
{
    return ABI_VERSION;
}

void log_line(enum log_level level, uint32_t line, struct text file, const char *format, ...)
{
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    int bytes = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (bytes > 0)
        envoy_dynamic_module_callback_log_v2(
            level, (struct text){text, bytes < (int)sizeof(text) ? (size_t)bytes : sizeof(text) - 1}, file, line);
}

struct site *new_site(const char *what, struct text config)
{
    const char *space = config.bytes ? memrchr(config.at, ' ', config.bytes) : NULL;
    size_t prefix = space ? (size_t)(space - config.at) : 0, name = space ? config.bytes - prefix - 1 : 0;
    char why[SIDELONG_WHY_BYTES];

    if (prefix == 0 || name == 0 || name > SIDELONG_NAME_BYTES || memchr(config.at, 0, config.bytes)) {
        LOG(LOG_ERROR, "sidelong: the configuration of %s is \"%.*s\": it must be a StringValue with the prefix of the "
            "front, a space, and the name of a site, such as \"/run/sidelong/web1 alpha\"",
            what, (int)(config.bytes < 256 ? config.bytes : 256), config.at ? config.at : "");
        return NULL;
    }
    struct site *site = calloc(1, sizeof(*site) + config.bytes + 1);
    if (!site)
        return NULL;
    memcpy(site->words, config.at, config.bytes);
    site->words[prefix] = 0;
    site->site.name = site->words + prefix + 1;
    site->front = sidelong_front_open(site->words, why);
    if (!site->front) {
        LOG(LOG_ERROR, "sidelong: %s", why);
        free(site);
        return NULL;
    }
    if (*why)
        LOG(LOG_WARN, "sidelong: %s; until then all clients are admitted, and requests of %s go to the nodes that the "
            "front has last named, or to hosts of a lower priority", why, site->site.name);
    return site;
}
