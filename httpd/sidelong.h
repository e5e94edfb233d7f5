/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sidelong's verdicts for servers other than Sidelong's edge: whether a site's requests are admitted, from memory that
 * `sidelong helper` writes on this machine.
 *
 *     sidelong_verdicts *verdicts;
 *     char why[SIDELONG_WHY_BYTES];
 *     if (sidelong_open("/run/sidelong/verdicts.region", &verdicts, why) != 0)
 *         complain(why);                                    // and admit all clients
 *     ...
 *     sidelong_decision decision = sidelong_decide(verdicts, "alpha", sidelong_client(address));
 *     if (!decision.admit)
 *         refuse(decision.retry_after_s, sidelong_reason(decision.why));
 *
 * A decision takes one pread for up to 32 sites: no lock, no allocation. All functions may be called from several threads
 * at once, except sidelong_close, which must be the last one to run.
 * If nothing certain is known, all clients are admitted: also if the file is truncated, which harms no reader.
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

/* Version of the layout of regions that this library reads: LAYOUT_VERSION of crates/layout. */
#define SIDELONG_LAYOUT_VERSION 9

/* Longest name of a site, which needs no terminating zero. */
#define SIDELONG_NAME_BYTES 64

/* Room for one line with the reason why a file cannot be used. */
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
    SIDELONG_STALE,        /* the last verdict is too old: the helper is gone, or hangs */
} sidelong_why;

typedef struct {
    bool admit;
    sidelong_why why;
    /* For a client that is not admitted: seconds after which to come back. */
    unsigned retry_after_s;
} sidelong_decision;

typedef struct sidelong_verdicts sidelong_verdicts;

/*
 * Opens the verdicts in the file `path`. Returns 0, or an error number with one line in `why` that says what is wrong and
 * what to do: an error of the system such as ENOENT, or EPROTO if another version wrote the file or it is something else.
 */
int sidelong_open(const char *path, sidelong_verdicts **verdicts, char why[SIDELONG_WHY_BYTES]);

/* Whether `path` still names the file that `verdicts` were opened from. If not, reopen them. */
bool sidelong_is_current(const sidelong_verdicts *verdicts, const char *path);

/* Takes the file that `path` names now. If it cannot be used, returns an error like sidelong_open and changes nothing. */
int sidelong_reopen(sidelong_verdicts *verdicts, const char *path, char why[SIDELONG_WHY_BYTES]);

/* Closes them; they must not be used any more. NULL is allowed. */
void sidelong_close(sidelong_verdicts *verdicts);

/* A client by its address and port (AF_INET, AF_INET6; all others are one client), as Sidelong's own edges identify it. */
uint64_t sidelong_client(const struct sockaddr *address);

/* Whether `client` is admitted to the site `name` now. `verdicts` may be NULL. */
sidelong_decision sidelong_decide(const sidelong_verdicts *verdicts, const char *name, uint64_t client);

/* The reason as a word, as in metrics and answers: "over-target". */
const char *sidelong_reason(sidelong_why why);

#ifdef __cplusplus
}
#endif
#endif
