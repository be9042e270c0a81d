/* SPDX-License-Identifier: BSD-2-Clause */
/* Decides when a snapshot is due; see trigger.h. */
#include "watch/trigger.h"

#include <string.h>

#define MS UINT64_C(1000000)

/* Below this share of the limit growth is what programs do when they start. */
#define GROWTH_SHARE 0.5
/* Over all samples; less is noise. */
#define GROWTH_MIN_SHARE 0.01
/* A cause is armed again this far below. */
#define HYSTERESIS 0.1
#define PAUSE_NS   (UINT64_C(300) * 1000000000)
/* Between two looks; less is not fast. */
#define RUSH_MIN_SHARE	 (1.0 / 64)
#define RUSH_MIN_WAIT_NS (10 * MS)

static const char *const names[HL_WATCH_CAUSES] = {"none", "growth", "share", "near"};

const char *hl_watch_cause_name(enum hl_watch_cause cause)
{
	return names[cause];
}

static void add_sample(struct hl_watch_trigger *trigger, uint64_t now_ns, uint64_t used)
{
	struct hl_watch_sample *samples = trigger->samples;

	if (trigger->sample_count &&
	    now_ns - samples[trigger->sample_count - 1].ns < HL_WATCH_SAMPLE_NS)
		return;
	if (trigger->sample_count == HL_WATCH_SAMPLES)
		memmove(samples, samples + 1, --trigger->sample_count * sizeof(*samples));
	samples[trigger->sample_count++] = (struct hl_watch_sample){now_ns, used};
}

/* Whether each sample is above the one before, and a line through the ends reaches the limit soon. */
static bool grows_to(const struct hl_watch_trigger *trigger, uint64_t limit)
{
	const struct hl_watch_sample *first = trigger->samples,
				     *last = first + HL_WATCH_SAMPLES - 1;

	if (trigger->sample_count < HL_WATCH_SAMPLES)
		return false;
	for (const struct hl_watch_sample *at = first; at < last; at++)
		if (at[1].bytes <= at->bytes)
			return false;
	double grown = (double)(last->bytes - first->bytes);
	double left = last->bytes < limit ? (double)(limit - last->bytes) : 0;
	return grown >= GROWTH_MIN_SHARE * (double)limit &&
	       left / grown * (double)(last->ns - first->ns) <= (double)HL_WATCH_SOON_NS;
}

static void measure_speed(struct hl_watch_trigger *trigger, uint64_t now_ns, uint64_t used,
			  uint64_t limit)
{
	struct hl_watch_sample *before = &trigger->before, *last = &trigger->last;

	if (now_ns - last->ns >= RUSH_MIN_WAIT_NS)
		*before = *last;
	*last = (struct hl_watch_sample){now_ns, used};
	double grown = used > before->bytes ? (double)(used - before->bytes) : 0;
	double left = used < limit ? (double)(limit - used) : 0;
	trigger->rushes = before->ns && grown >= RUSH_MIN_SHARE * (double)limit &&
			  left / grown * (double)(now_ns - before->ns) <= (double)HL_WATCH_RUSH_NS;
}

static double rearmed_below(double from)
{
	return from > 2 * HYSTERESIS ? from - HYSTERESIS : from / 2;
}

double hl_watch_trigger_from(enum hl_watch_cause cause, double share)
{
	return cause == HL_WATCH_CAUSE_GROWTH  ? GROWTH_SHARE
	       : cause == HL_WATCH_CAUSE_SHARE ? share
	       : cause == HL_WATCH_CAUSE_NEAR  ? (share + 1) / 2
					       : 0;
}

enum hl_watch_cause hl_watch_trigger_feed(struct hl_watch_trigger *trigger, uint64_t now_ns,
					  uint64_t used, uint64_t limit, double share)
{
	double part = limit ? (double)used / (double)limit : 1;

	add_sample(trigger, now_ns, used);
	measure_speed(trigger, now_ns, used, limit);
	for (unsigned cause = HL_WATCH_CAUSE_GROWTH; cause < HL_WATCH_CAUSES; cause++)
		if (trigger->has_fired[cause] &&
		    part < rearmed_below(hl_watch_trigger_from(cause, share)) &&
		    now_ns - trigger->fired_ns[cause] >= PAUSE_NS)
			trigger->has_fired[cause] = false;
	/* The nearest to the limit first: it says most. */
	for (unsigned cause = HL_WATCH_CAUSES - 1; cause > HL_WATCH_CAUSE_NONE; cause--)
		if (part >= hl_watch_trigger_from(cause, share) && !trigger->has_fired[cause] &&
		    (cause != HL_WATCH_CAUSE_GROWTH ||
		     (!trigger->has_fired[HL_WATCH_CAUSE_SHARE] &&
		      (trigger->rushes || grows_to(trigger, limit)))))
			return cause;
	return HL_WATCH_CAUSE_NONE;
}

void hl_watch_trigger_fire(struct hl_watch_trigger *trigger, enum hl_watch_cause cause,
			   uint64_t now_ns)
{
	/* Who is near has passed the share as well. */
	for (unsigned at = cause == HL_WATCH_CAUSE_NEAR ? HL_WATCH_CAUSE_SHARE : cause; at <= cause;
	     at++) {
		trigger->has_fired[at] = true;
		trigger->fired_ns[at] = now_ns;
	}
}

uint64_t hl_watch_trigger_wait_ns(uint64_t used, uint64_t limit, double share)
{
	double part = limit ? (double)used / (double)limit : 1;

	return part < GROWTH_SHARE * share ? 2000 * MS
	       : part < share - HYSTERESIS ? 1000 * MS
					   : 250 * MS;
}
