/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * The memory that peers read (fronts/lib/layout.h), and the check of a record in it.
 */
#pragma once

#include "layout.h"

#define SLOT_WORDS (sizeof(struct slot) / 8)
#define TICK_WORDS (sizeof(struct tick) / 8)

/* crates/layout, record.rs: check, step by step: one word after the first goes to the even lane, the next to the odd one. */
#define CHECK_A 0xa0761d6478bd642fULL
#define CHECK_B 0xe7037ed1a0b428dbULL

static __always_inline u64 check_fold(u64 x)
{
    x *= CHECK_A;
    return (x ^ (x >> 29)) * CHECK_B;
}

static __always_inline u32 check_end(u64 even, u64 odd)
{
    u64 mixed = check_fold(even ^ (odd << 32 | odd >> 32));
    return (u32)(mixed ^ (mixed >> 32));
}
