/* SPDX-License-Identifier: BSD-2-Clause */
/* Verbs and their answers; see control_actions.h. */
#include "collector/control_actions.h"

#include "base/clock.h"
#include "base/names.h"
#include "recording/fields.h"
#include "region/ring.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RESET_MARK "reset"

/* ---- processes ---- */

uint64_t hl_control_actions_tick(const struct hl_tracked *tracked)
{
	return (hl_clock_ns(CLOCK_MONOTONIC) - tracked->start_ns) / HL_RING_TICK_NS;
}

int hl_control_actions_mark(const struct hl_control_subject *subject, struct hl_tracked *tracked,
			    uint64_t tick, const char *name)
{
	bool marks_mode = !strncmp(name, HL_MODE_MARK, strlen(HL_MODE_MARK));

	/* Without a mark at the start nobody could tell that the time until now lacks figures. */
	if (marks_mode && !tracked->mode_marked &&
	    hl_mode_of(atomic_load(&tracked->region.layout.mode)) == HL_MODE_CLOSED)
		hl_archive_mark(subject->archive, tracked->pid, 0, HL_CLOSED_MARK);
	tracked->mode_marked |= marks_mode;
	int r = tracked->log ? hl_drain_orders_mark(&tracked->orders, tick, name) : 0;
	if (r < 0)
		return r;
	r = hl_archive_mark(subject->archive, tracked->pid, tick, name);
	return tracked->log && r == -EAGAIN ? 0 : r;
}

int hl_control_actions_begin_log(const struct hl_control_subject *subject,
				 struct hl_tracked *tracked, struct hl_error *err)
{
	if (tracked->log)
		return 0;
	if (!tracked->region.layout.areas[HL_AREA_RINGS].capacity)
		return hl_error_set(
			err, -EOPNOTSUPP,
			"process %d cannot have a log: its limit of address space left no "
			"room for one; raise 'ulimit -v' and start it again",
			tracked->pid);
	int r = hl_tracked_begin_log(tracked, subject->archive->directory.fd, subject->limits,
				     hl_control_actions_tick(tracked) + 1);
	if (r < 0)
		return hl_error_set(err, r, "the log of process %d cannot be begun: %s",
				    tracked->pid, strerror(-r));
	return 0;
}

bool hl_control_actions_keep(struct hl_tracked *tracked, uint32_t segments)
{
	if (!tracked->log)
		return false;
	hl_drain_orders_keep(&tracked->orders, segments);
	hl_mailbox_reader_tell_segments(&tracked->mailbox, segments);
	return true;
}

/* ---- verbs ---- */

/* What is done to one process; fails with a sentence. */
typedef int action(const struct hl_control_subject *subject, struct hl_tracked *tracked,
		   const struct hl_control_request *request, struct hl_error *err);

static int set_mode(const struct hl_control_subject *subject, struct hl_tracked *tracked,
		    const struct hl_control_request *request, struct hl_error *err)
{
	char text[HL_MARK_MAX + 1];

	int r = hl_mode_logs(request->mode) ? hl_control_actions_begin_log(subject, tracked, err)
					    : 0;
	if (r < 0)
		return r;
	snprintf(text, sizeof(text), HL_MODE_MARK "%s", hl_mode_names[request->mode]);
	/* The mark shows why there is a hole in the figures over time. */
	if (hl_mode_switch(&tracked->region.header->mode, request->mode) != request->mode &&
	    hl_control_actions_mark(subject, tracked, hl_control_actions_tick(tracked), text) < 0)
		hl_archive_warn(subject->archive,
				"process %d was switched to mode '%s' without a mark: it has too "
				"many already",
				tracked->pid, hl_mode_names[request->mode]);
	hl_archive_note_mode(subject->archive, request->mode, false);
	return 0;
}

static int mark(const struct hl_control_subject *subject, struct hl_tracked *tracked,
		const struct hl_control_request *request, struct hl_error *err)
{
	int r = hl_control_actions_mark(subject, tracked, hl_control_actions_tick(tracked),
					request->argument);

	if (r == -EAGAIN)
		return hl_error_set(err, r, "cannot mark process %d: it has too many marks already",
				    tracked->pid);
	if (r < 0)
		return hl_error_set(err, r, "cannot mark process %d: %s", tracked->pid,
				    strerror(-r));
	return 0;
}

static int reset(const struct hl_control_subject *subject, struct hl_tracked *tracked,
		 const struct hl_control_request *request, struct hl_error *err)
{
	uint64_t tick = hl_control_actions_tick(tracked);

	(void)request;
	int r = hl_tracked_reset(tracked);
	if (r < 0)
		return hl_error_set(err, r, "cannot reset process %d: out of memory", tracked->pid);
	if (hl_control_actions_mark(subject, tracked, tick, RESET_MARK) < 0)
		hl_archive_warn(subject->archive,
				"process %d was reset without a mark: it has too many already",
				tracked->pid);
	return 0;
}

/* The process answers in its region when it allocates next. */
static int ask_allocator(const struct hl_control_subject *subject, struct hl_tracked *tracked,
			 const struct hl_control_request *request, struct hl_error *err)
{
	struct hl_region_header *header = tracked->region.header;

	(void)subject;
	(void)request;
	if (tracked->attached)
		return hl_error_set(
			err, -EOPNOTSUPP,
			"cannot ask the allocator of process %d: %s; 'heapline allocations -p %d' "
			"shows the live blocks that it has seen, 'heapline heap -p %d' where "
			"memory is",
			tracked->pid,
			tracked->ran_before
				? "a recorder asks that was there from the program's start, under "
				  "'heapline record', and this one came later"
				: "only a recorder that is preloaded asks, and only a library; "
				  "this "
				  "one was brought in as the program began, as into programs that "
				  "have an allocator built into them",
			tracked->pid, tracked->pid);
	atomic_fetch_add(&header->introspection.asked, 1);
	atomic_fetch_or(&header->mode, HL_MODE_ASKED);
	return 0;
}

static int keep(const struct hl_control_subject *subject, struct hl_tracked *tracked,
		const struct hl_control_request *request, struct hl_error *err)
{
	(void)subject;
	if (hl_control_actions_keep(tracked, request->segments))
		return 0;
	return hl_error_set(err, -EOPNOTSUPP,
			    "process %d has no log; 'heapline ctl -p %d mode log-fast' begins one",
			    tracked->pid, tracked->pid);
}

static int may_detach(const struct hl_control_subject *subject, struct hl_tracked *tracked,
		      const struct hl_control_request *request, struct hl_error *err)
{
	(void)subject;
	(void)request;
	if (tracked->ran_before)
		return 0;
	return hl_error_set(err, -EOPNOTSUPP,
			    "process %d was started under 'heapline record', whose recorder stays "
			    "in it; 'heapline ctl -p %d mode closed' ends the counting",
			    tracked->pid, tracked->pid);
}

/* On the process that is asked for, or on all that run. */
static int act_on(const struct hl_control_subject *subject,
		  const struct hl_control_request *request, action *act, struct hl_error *err)
{
	unsigned count = 0;

	for (struct hl_tracked *process = *subject->tracked; process; process = process->next) {
		if (!hl_tracked_is_running(process) ||
		    (request->pid && process->pid != request->pid))
			continue;
		int r = act(subject, process, request, err);
		if (r < 0)
			return r;
		count++;
	}
	if (count)
		return 0;
	if (request->pid == 0)
		return hl_error_set(err, -ESRCH, "no process of the recording runs at the moment");
	return hl_error_set(err, -ESRCH, "process %d is not recorded here, or has ended",
			    request->pid);
}

static char *answer_act(const struct hl_control_subject *subject,
			const struct hl_control_request *request, action *act)
{
	struct hl_error err = {0};

	return act_on(subject, request, act, &err) < 0 ? hl_control_answer_error(err.text)
						       : hl_control_answer_done();
}

int hl_control_actions_check_detach(const struct hl_control_subject *subject, pid_t pid,
				    struct hl_error *err)
{
	const struct hl_control_request request = {.verb = HL_CONTROL_DETACH, .pid = pid};

	return act_on(subject, &request, may_detach, err);
}

char *hl_control_actions_act(const struct hl_control_subject *subject,
			     const struct hl_control_request *request)
{
	switch (request->verb) {
	case HL_CONTROL_FIND:
		return hl_control_answer_whose(subject, request->pid);
	case HL_CONTROL_STATUS:
		return hl_control_answer_status(subject);
	case HL_CONTROL_MODE:
		if (request->pid == 0) {
			*subject->mode = request->mode;
			hl_archive_note_mode(subject->archive, request->mode, true);
		}
		return answer_act(subject, request, set_mode);
	case HL_CONTROL_MARK:
		return answer_act(subject, request, mark);
	case HL_CONTROL_SEGMENTS:
		if (request->pid == 0)
			subject->limits->segments_kept = request->segments;
		return answer_act(subject, request, keep);
	case HL_CONTROL_RESET:
		return answer_act(subject, request, reset);
	case HL_CONTROL_ALLOCATOR:
		return answer_act(subject, request, ask_allocator);
	default:
		return hl_control_answer_error("this cannot be asked for");
	}
}
