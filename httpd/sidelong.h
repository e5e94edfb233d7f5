/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sidelong's verdicts for servers that are no Sidelong edge: whether a site's requests are let in, from memory that
 * `sidelong helper` keeps on this machine.
 *
 *     sidelong_verdicts *verdicts;
 *     char why[SIDELONG_WHY_BYTES];
 *     if (sidelong_open("/run/sidelong/verdicts.region", &verdicts, why) != 0)
 *         complain(why);                                    // and let everybody in
 *     ...
 *     sidelong_decision decision = sidelong_decide(verdicts, "alpha", sidelong_client(address));
 *     if (!decision.admit)
 *         refuse(decision.retry_after_s, sidelong_reason(decision.why));
 *
 * A decision takes some tens of ns: no lock, no allocation, no system call but clock_gettime, which needs none. Every
 * function may be called from several threads at once, but for sidelong_close, which wants the others to be through.
 * Where nothing certain is known everybody is let in.
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

/* Of the layout of regions that this library reads: LAYOUT_VERSION of crates/layout. */
#define SIDELONG_LAYOUT_VERSION 5

/* Of a site's name, which needs no zero at its end. */
#define SIDELONG_NAME_BYTES 64

/* For one line that says why a file cannot be used. */
#define SIDELONG_WHY_BYTES 256

/* Why a site lets in whom it does: `Why` of crates/policy. The last three are this library's own. */
typedef enum {
    SIDELONG_NO_TARGET,
    SIDELONG_WITHIN_TARGET,
    SIDELONG_NO_RECORDS,
    SIDELONG_OVER_TARGET,
    SIDELONG_YIELDS,
    SIDELONG_ALL_OVERLOADED,
    SIDELONG_RECOVERING,   /* all are let in again since a moment ago */
    SIDELONG_NO_VERDICTS,  /* none are open */
    SIDELONG_NO_SUCH_SITE, /* nobody decides on a site of that name */
    SIDELONG_STALE,        /* the last verdict is too old: whoever made it is gone, or hangs */
} sidelong_why;

typedef struct {
    bool admit;
    sidelong_why why;
    /* For a client that is not let in: seconds after which to come back. */
    unsigned retry_after_s;
} sidelong_decision;

typedef struct sidelong_verdicts sidelong_verdicts;

/*
 * Maps the verdicts in the file `path`. Returns 0, or an error number with one line in `why` that says what is wrong and
 * what to do: ENOENT and the like of the system's, EPROTO where it was written by another version or is something else.
 */
int sidelong_open(const char *path, sidelong_verdicts **verdicts, char why[SIDELONG_WHY_BYTES]);

/* Whether `path` names the file that `verdicts` were opened from. One that was replaced is to be opened again. */
bool sidelong_is_current(const sidelong_verdicts *verdicts, const char *path);

/* Unmaps them. Nobody may use them any more. NULL is fine. */
void sidelong_close(sidelong_verdicts *verdicts);

/* A client by its address and port (AF_INET, AF_INET6; all others are one client), as Sidelong's own edges know it. */
uint64_t sidelong_client(const struct sockaddr *address);

/* Whether `client` is let in to the site `name` now. `verdicts` may be NULL. */
sidelong_decision sidelong_decide(const sidelong_verdicts *verdicts, const char *name, uint64_t client);

/* In a word, as metrics and answers have it: "over-target". */
const char *sidelong_reason(sidelong_why why);

#ifdef __cplusplus
}
#endif
#endif
