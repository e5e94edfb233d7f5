/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sidelong for the workers of other proxies, and for clients that choose a server by themselves: which node a request goes to,
 * and whether its client is admitted, from memory that `sidelong front` writes on this machine.
 * If nothing certain is known, all clients are admitted.
 */
#ifndef SIDELONG_H
#define SIDELONG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Longest name of a site, which needs no terminating zero. */
#define SIDELONG_NAME_BYTES 64

/* Room for one line with the reason why files cannot be used. */
#define SIDELONG_WHY_BYTES 256

/* Why a site admits what it admits: `Why` of crates/policy. The last three are this library's own. */
typedef enum {
    SIDELONG_NO_TARGET,
    SIDELONG_WITHIN_TARGET,
    SIDELONG_NO_RECORDS,
    SIDELONG_OVER_TARGET,
    SIDELONG_YIELDS,
    SIDELONG_ALL_OVERLOADED,
    SIDELONG_RECOVERING,   /* all are admitted again, since a moment ago */
    SIDELONG_NO_VERDICTS,  /* no verdicts are open */
    SIDELONG_NO_SUCH_SITE, /* there is no verdict on a site of that name */
    SIDELONG_STALE,        /* the last verdict is too old: the front is gone, or hangs */
} sidelong_why;

typedef struct {
    bool admit;
    sidelong_why why;
    /* For a client that is not admitted: seconds after which to come back. */
    unsigned retry_after_s;
} sidelong_decision;

/* The address that is written so: 10.0.0.1:80, [2001:db8::1]:80, 2001:db8::1:80 or /path; AF_UNSPEC if it is something else. */
struct sockaddr_storage sidelong_address(const char *text, size_t bytes);

/* A client by its address and port (AF_INET, AF_INET6; all others are one client), as Sidelong's own edges identify it. */
uint64_t sidelong_client(const struct sockaddr *address);

/* The reason as a word, as in metrics and answers: "over-target". */
const char *sidelong_reason(sidelong_why why);

/*
 * The memory of a front, for the workers of the proxy that it controls. A worker asks it for the node of each request, and
 * counts the request there until it has ended: a node changes sites only when no worker counts one at it.
 *
 *     sidelong_front *front = sidelong_front_open("/run/sidelong/web1", why);
 *     sidelong_site site = {.name = "alpha"};
 *     sidelong_request request = {0};
 *     ...
 *     switch (sidelong_choose(front, &site, usable, context, &request)) {
 *     case SIDELONG_CHOSEN:
 *         send_to(request.node);
 *         ...
 *         sidelong_answered(&request, status < 400);        // or sidelong_failed(&request, refused)
 *         ...
 *         sidelong_ended(&request);                         // when the answer has ended
 *     }
 *
 * The memory is mapped. If another process truncates its file, the mapping is replaced by a copy of what the front last said,
 * so that no worker ends by SIGBUS, and the file is opened anew. A handler of SIGBUS that the program had before gets all
 * other faults. Functions may be called from several threads, and after a fork; a request is its process's. A library that
 * contains this one must stay loaded (-z nodelete).
 */
typedef struct sidelong_front sidelong_front;

/*
 * A site, by the name in the cluster file, which must live as long as this. The rest is the library's. It is zero at first.
 * All threads use the same one.
 */
typedef struct {
    const char *name;
    uint64_t found;
    uint64_t turns;
} sidelong_site;

/* A request at a node. It is all zero before and after. */
typedef struct {
    unsigned node;
    unsigned stage;
    void *counts;
    void *shared;
} sidelong_request;

typedef enum {
    /* The request may be sent to its node, and is counted there. */
    SIDELONG_CHOSEN,
    /*
     * The front is gone or hangs, or was never there. The caller chooses by itself among the nodes that sidelong_begin
     * takes: those that served the site when the front was last heard.
     */
    SIDELONG_ALONE,
    /* No node that serves the site is usable. */
    SIDELONG_NONE,
} sidelong_choice;

/* Whether the caller can send the request to the node: it has a server for it, which has not been tried for this request. */
typedef bool (*sidelong_usable)(void *context, unsigned node);

/*
 * The front with the files `prefix`.choice.region and `prefix`.workers.region. It lives as long as the process: opened again,
 * it is the same. If the files cannot be used yet, `why` says so, and the library tries again. Otherwise `why` is empty.
 * NULL, with `why`, if there is no memory, or the path is longer than 511 bytes.
 */
sidelong_front *sidelong_front_open(const char *prefix, char why[SIDELONG_WHY_BYTES]);

/* Whether the front is in control now. Its last scan was `age_ns` ago; UINT64_MAX if that is not known, or the front has ended. */
bool sidelong_controls(sidelong_front *front, uint64_t *age_ns);

/*
 * Changes when nodes must be looked up anew by sidelong_node: with each life of the front, and when nodes join or leave. 0 before the
 * first. If it has
 * changed since the nodes were looked up, sidelong_choose may have meant another one, or have found none: choose again.
 */
uint64_t sidelong_generation(sidelong_front *front);

/* The index of the node whose server answers at `address` (AF_INET, AF_INET6, AF_UNIX); -1 if there is none. */
int sidelong_node(sidelong_front *front, const struct sockaddr *address);

/* Chooses a node for a request, and counts the request there. */
sidelong_choice sidelong_choose(sidelong_front *front, sidelong_site *site, sidelong_usable usable, void *context,
                                sidelong_request *request);

/*
 * Counts a request at a node that the caller has chosen by itself. Returns whether it may be sent there: whether the node
 * serves the site.
 */
bool sidelong_begin(sidelong_front *front, sidelong_site *site, unsigned node, sidelong_request *request);

/* The answer has begun, with a status below 400 or another that tells nothing about the node's speed. */
void sidelong_answered(sidelong_request *request, bool successfully);

/*
 * The request has failed: the node refused the connection, or in another way, which may be due to the request. It is counted
 * until it has ended.
 */
void sidelong_failed(sidelong_request *request, bool refused);

/* The request has left the node, with its whole answer or without. */
void sidelong_ended(sidelong_request *request);

/* In place of all these, for a proxy that counts the request by itself from now on: here it only counts as sent. */
void sidelong_handed_over(sidelong_request *request);

/* A request that was handed over has left `node`, or its answer has begun: it no longer counts as sent. */
void sidelong_handed_back(sidelong_front *front, unsigned node);

/*
 * Whether `client`, of sidelong_client, is admitted to the site now. `front` may be NULL.
 *
 *     sidelong_decision decision = sidelong_admit(front, &site, sidelong_client(address));
 *     if (!decision.admit)
 *         refuse(decision.retry_after_s, sidelong_reason(decision.why));
 */
sidelong_decision sidelong_admit(sidelong_front *front, sidelong_site *site, uint64_t client);

#ifdef __cplusplus
}
#endif
#endif
