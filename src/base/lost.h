/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a process lost or could not see: the one table of its counters, in the order of reports. The
 * region, recordings, profiles, packs, JSON and sentences are made from it. A new counter needs a
 * row and the place that counts; it changes the region's layout, and so HL_REGION_VERSION.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sentences of reports stand in this order. After a note nothing is missing. */
enum hl_lost_kind { HL_LOST_DAMAGE, HL_LOST_LOSS, HL_LOST_NOTE };

/*
 * FIRST(member, ...) are in each recording and pack, LATER(member, ...) in newer ones alone. The
 * member's name is its key in JSON; what follows initializes a struct hl_lost_counter.
 */
#define HL_LOST_COUNTERS(FIRST, LATER)                                                              \
	/* allocations that could not be recorded: no memory for tables, ... */                     \
	FIRST(events, HL_LOST_LOSS)                                                                 \
	FIRST(bytes, HL_LOST_LOSS, .is_bytes = true)                                                \
	FIRST(truncated_stacks, HL_LOST_LOSS,                                                       \
	      "LOST: the outer frames of %s stack%s, too deep to keep")                             \
	/* the walk ended early for want of a rule or of readable memory */                         \
	FIRST(incomplete_stacks, HL_LOST_LOSS,                                                      \
	      "LOST: the outer frames of %s stack%s, which could not be unwound")                   \
	FIRST(unmatched_frees, HL_LOST_NOTE,                                                        \
	      "note: %s free%s of blocks whose allocation was not seen",                            \
	      .attached = "note: %s free%s of blocks allocated before the recording (harmless)",    \
	      .trace = "note: %s free%s of blocks allocated before the trace (harmless)")           \
	/* in a forked child: of its parent's blocks, or of blocks whose allocation was not seen */ \
	LATER(inherited_frees, HL_LOST_NOTE,                                                        \
	      "note: %s free%s of blocks that forked children inherited")                           \
	/* known by the next allocation in their place; counted then */                             \
	LATER(missed_frees, HL_LOST_LOSS,                                                           \
	      "MISSED: %s free%s %s not seen until malloc gave the address out again; other "       \
	      "blocks that were freed the same way look like leaks",                                \
	      .pack_section = HL_FOURCC('M', 'I', 'S', 'S'))                                        \
	FIRST(modules, HL_LOST_LOSS, "LOST: the names of %s module%s")                              \
	FIRST(unscanned_bytes, HL_LOST_LOSS, "LOST: %s could not be read", .is_bytes = true)        \
	/* counters, stacks and fields that the program wrote over; left out */                     \
	LATER(damaged, HL_LOST_DAMAGE,                                                              \
	      "DAMAGED: the program overwrote heapline's memory; %s impossible record%s left "      \
	      "out, "                                                                               \
	      "and other figures may be wrong")

#define HL_LOST_SKIP(member, ...)

/* All zero when nothing was lost. */
struct hl_lost {
#define HL_LOST_MEMBER(member, ...) uint64_t member;
	HL_LOST_COUNTERS(HL_LOST_MEMBER, HL_LOST_MEMBER)
};

/* The same where several threads count. */
struct hl_lost_shared {
#define HL_LOST_SHARED(member, ...) _Atomic uint64_t member;
	HL_LOST_COUNTERS(HL_LOST_SHARED, HL_LOST_SHARED)
};

#define HL_LOST_COUNT (sizeof(struct hl_lost) / sizeof(uint64_t))

struct hl_lost_counter {
	const char *key;
	enum hl_lost_kind kind;
	const char *
		sentence; /* format of the number, "s" where that is not 1, and "was" or "were"; NULL: the
				 report has its own words */
	const char *attached, *trace; /* the same of such recordings; NULL: no difference */
	bool is_bytes;		      /* else a number of things */
	uint32_t pack_section; /* of a counter that is nearly always 0, and then absent from packs
				  and reports: its section in packs */
};

/* In the order of the members of struct hl_lost. */
extern const struct hl_lost_counter hl_lost_counters[HL_LOST_COUNT];

static inline uint64_t hl_lost_value(const struct hl_lost *lost, size_t counter)
{
	return ((const uint64_t *)lost)[counter];
}

void hl_lost_add(struct hl_lost *sum, const struct hl_lost *more);

/* What came after ${before}; 0 where a counter has become smaller. */
struct hl_lost hl_lost_since(const struct hl_lost *lost, const struct hl_lost *before);
