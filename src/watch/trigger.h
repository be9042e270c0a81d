/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When a group is worth a snapshot, from how much it uses at some moments. Arithmetic alone: nothing is read here.
 *
 * Used is what the kernel cannot take back: the charge without page cache. A cause fires once, and again only after the use fell well below what
 * it fired at.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum hl_watch_cause {
	HL_WATCH_CAUSE_NONE,
	HL_WATCH_CAUSE_GROWTH, /* it grows steadily, and reaches the limit soon; or it rushes */
	HL_WATCH_CAUSE_SHARE,  /* it uses the share of the limit */
	HL_WATCH_CAUSE_NEAR,   /* half of what was left then is used, too */
	HL_WATCH_CAUSES,
};

#define HL_WATCH_SAMPLES   6u
#define HL_WATCH_SAMPLE_NS (UINT64_C(2) * 1000000000) /* the least time between two samples */
#define HL_WATCH_SOON_NS   (UINT64_C(600) * 1000000000)
#define HL_WATCH_RUSH_NS \
	(UINT64_C(2) * 1000000000) /* a limit that is as near is reached before a \
				      usual look */

/* Zero-initialize. */
struct hl_watch_trigger {
	bool has_fired[HL_WATCH_CAUSES];
	uint64_t fired_ns[HL_WATCH_CAUSES];
	struct hl_watch_sample {
		uint64_t ns, bytes;
	} samples[HL_WATCH_SAMPLES]; /* oldest first */
	unsigned sample_count;
	struct hl_watch_sample before, last; /* of the last two looks; ns 0: none */
	bool rushes; /* it reaches the limit within HL_WATCH_RUSH_NS, as fast as it grew between those */
};

/* "growth", "share", "near". */
const char *hl_watch_cause_name(enum hl_watch_cause cause);

/* The share of the limit from which on ${cause} is possible; ${share}: that of hl_watch_trigger_feed(). */
double hl_watch_trigger_from(enum hl_watch_cause cause, double share);

/*
 * Takes in that ${used} of ${limit} bytes are used at ${now_ns}; ${share}: of the limit, 0 to 1. The cause that holds now and has not fired yet, or
 * HL_WATCH_CAUSE_NONE. It fires when hl_watch_trigger_fire() is called. Again with the same ${now_ns}: what was used is known better.
 */
enum hl_watch_cause hl_watch_trigger_feed(struct hl_watch_trigger *trigger, uint64_t now_ns,
					  uint64_t used, uint64_t limit, double share);

void hl_watch_trigger_fire(struct hl_watch_trigger *trigger, enum hl_watch_cause cause,
			   uint64_t now_ns);

/* How long to wait before the next look at a group that uses ${used} of ${limit}. */
uint64_t hl_watch_trigger_wait_ns(uint64_t used, uint64_t limit, double share);
