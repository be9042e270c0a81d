/* SPDX-License-Identifier: BSD-2-Clause */
/* Collects warnings, and words those of losses; see directory.h. */
#include "collector/directory.h"

#include "base/clock.h"
#include "base/encode.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool hl_warnings_add(struct hl_warnings *warnings, const char *format, ...)
{
	char text[HL_WARNING_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	for (uint32_t i = 0; i < warnings->count; i++)
		if (strcmp(warnings->texts[i], text) == 0)
			return false;
	if (warnings->count == HL_WARNINGS_MAX)
		return false;
	char *copy = strdup(text);
	if (!copy)
		return false;
	warnings->texts[warnings->count++] = copy;
	return true;
}

bool hl_warnings_replace(struct hl_warnings *warnings, const char *before, const char *sentence)
{
	for (uint32_t i = 0; i < warnings->count; i++) {
		if (strcmp(warnings->texts[i], before) != 0)
			continue;
		char *copy = strdup(sentence);
		if (!copy)
			return false;
		free(warnings->texts[i]);
		warnings->texts[i] = copy;
		return true;
	}
	return hl_warnings_add(warnings, "%s", sentence);
}

void hl_warnings_release(struct hl_warnings *warnings)
{
	for (uint32_t i = 0; i < warnings->count; i++)
		free(warnings->texts[i]);
	*warnings = (struct hl_warnings){0};
}

/* ---- losses of logs ---- */

/* What helps where the disk or its quota is full. */
#define LOG_REMEDY                                                                            \
	"; make room, record to another disk (-o), or keep less of the log (--log-segments, " \
	"--log-segment-size)"
#define EVENTS_REMEDY                                                                        \
	" but what is left for the counters and the log; make room, record to another disk " \
	"(-o), or keep fewer events (--log-segments, --log-segment-size)"

/* "1 event", "1,234 events". */
struct words {
	char text[48];
};

static struct words count_of(uint64_t count, const char *noun)
{
	struct words words;
	char number[HL_GROUPED_MAX];

	snprintf(words.text, sizeof(words.text), "%s %s%s", hl_grouped(number, count), noun,
		 count == 1 ? "" : "s");
	return words;
}

static const char *remedy_for(int error, const char *remedy)
{
	return error == -ENOSPC || error == -EDQUOT ? remedy : "";
}

bool hl_log_losses_tell(const struct hl_log_losses *losses, pid_t pid, struct hl_warnings *warnings)
{
	bool any = false;
	char since[64] = "";

	if (losses->is_rebased)
		snprintf(since, sizeof(since),
			 "; its figures are right again from %" PRIu64 " ms on",
			 losses->rebased_tick);
	if (losses->lost_events)
		any |= hl_warnings_add(warnings,
				       "the log of process %d lacks %s: there was no room for them "
				       "in its rings%s",
				       pid, count_of(losses->lost_events, "event").text, since);
	if (losses->refused_events)
		any |= hl_warnings_add(warnings,
				       "the log of process %d lacks %s that made no sense or found "
				       "no memory",
				       pid, count_of(losses->refused_events, "event").text);
	if (losses->bad_rings)
		any |= hl_warnings_add(warnings,
				       "the log of process %d lacks the events of %s: the process "
				       "has damaged their rings",
				       pid, count_of(losses->bad_rings, "thread").text);
	if (losses->lost_marks)
		any |= hl_warnings_add(warnings,
				       "the log of process %d lacks %s that could not be written",
				       pid, count_of(losses->lost_marks, "mark").text);
	if (losses->missing_intervals)
		any |= hl_warnings_add(
			warnings, "%s of the log of process %d could not be written: %s%s",
			count_of(losses->missing_intervals, "interval").text, pid,
			strerror(-losses->error), remedy_for(losses->error, LOG_REMEDY));
	if (losses->missing_events)
		any |= hl_warnings_add(warnings, "%s of process %d could not be kept: %s%s",
				       count_of(losses->missing_events, "event").text, pid,
				       strerror(-losses->event_error),
				       remedy_for(losses->event_error, EVENTS_REMEDY));
	if (losses->waiting_threads)
		any |= hl_warnings_add(warnings,
				       "%s of process %d waited for up to %.1f s, because the "
				       "collector did not read events",
				       count_of(losses->waiting_threads, "thread").text, pid,
				       (double)losses->waited_ns / HL_NS_PER_SECOND);
	return any;
}
