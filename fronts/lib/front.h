/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the parts of this library share: the memory in which a front and the workers of the proxy that it controls tell each other
 * what they do (layout.h), and functions for tests.
 */
#ifndef SIDELONG_FRONT_INTERNAL_H
#define SIDELONG_FRONT_INTERNAL_H

#include "layout.h"
#include "sidelong.h"

#include <stdatomic.h>

_Static_assert(SIDELONG_NAME_BYTES == NAME_BYTES, "as crates/layout has it");

/* What is wrong with a region of `kind` in a file of `room` bytes that begins so; NULL if nothing is. */
const char *sidelong_check(const struct region_header *header, uint64_t room, uint32_t kind, char *text, size_t size);

/* Decides by a verdict of crates/policy. */
sidelong_decision sidelong_by_verdict(uint64_t verdict, uint64_t rotation_ns, uint64_t client);

/* The output function of SplitMix64 (Steele, Lea, Flood 2014), as crates/policy has it. */
uint64_t sidelong_mix(uint64_t random);

uint64_t sidelong_now_ns(void);

/*
 * As `Balance::choose` of crates/policy: the index of a node of the site, -1 if none is usable. `ticket` rises with each
 * request, `random` is fresh.
 */
int sidelong_choose_at(sidelong_front *front, sidelong_site *site, uint64_t now_ns, uint64_t ticket, uint64_t random,
                       sidelong_usable usable, void *context);

#endif
