/* SPDX-License-Identifier: BSD-2-Clause */
/* Verbs and their answers; see control.h. */
#include "collector/control.h"

#include "base/clock.h"
#include "base/names.h"
#include "collector/region_read.h"
#include "recording/fields.h"
#include "region/ring.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- answers ---- */

/* An answer's line, which the caller frees. Takes ${object} over; NULL for want of memory, as is
 * the result then. */
static char *answer_write(json_t *object)
{
	char *text = object ? json_dumps(object, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
	char *line = NULL;

	json_decref(object);
	if (text && asprintf(&line, "%s\n", text) < 0)
		line = NULL;
	free(text);
	return line;
}

char *hl_control_answer_error(const char *sentence)
{
	return answer_write(json_pack("{s:o}", "error", hl_text_to_json(sentence)));
}

char *hl_control_answer_done(void)
{
	return answer_write(json_pack("{s:b}", "done", 1));
}

/* The segments of a process' log that are on disk. */
struct log_files {
	uint32_t count;
	uint64_t bytes;
};

/* The place of a running process with a log in the list; -1: there is none of that sequence. */
static ssize_t place_of(const struct hl_tracked *tracked, uint32_t sequence)
{
	ssize_t place = 0;

	while (tracked && tracked->sequence != sequence) {
		tracked = tracked->next;
		place++;
	}
	return tracked && tracked->log ? place : -1;
}

/* Adds up the segments in the directory, by their processes' places in the list. */
static void count_segments(const struct hl_control_subject *subject, struct log_files *files)
{
	int directory_fd = subject->archive->directory.fd;
	int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	if (!stream) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (const struct dirent *entry; (entry = readdir(stream));) {
		struct stat status;
		uint32_t sequence;
		if (sscanf(entry->d_name, "memlog-%u-", &sequence) != 1)
			continue;
		ssize_t place = place_of(*subject->tracked, sequence);
		if (place < 0 ||
		    fstatat(directory_fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		files[place].count++;
		files[place].bytes += (uint64_t)status.st_size;
	}
	closedir(stream);
}

/* A command line as an array of texts. */
static json_t *command_of(char *const *command)
{
	json_t *array = json_array();

	for (; array && command && *command; command++)
		if (json_array_append_new(array, hl_text_to_json(*command)) < 0) {
			json_decref(array);
			return NULL;
		}
	return array;
}

static json_t *describe_process(struct hl_tracked *tracked, const struct log_files *files)
{
	struct hl_region_view view = hl_tracked_view(tracked);
	struct hl_region_figures figures;
	uint32_t mode = hl_mode_of(atomic_load(&tracked->region.header->mode));

	hl_region_figures_read(&view, &figures);
	hl_recorder_memory_look(&tracked->recorder_memory, tracked->pid, HL_RECORDER_MEMORY_ASKED);
	json_t *object = json_pack(
		"{s:i, s:i, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:I, s:I, s:I, s:I, "
		"s:I, s:I}",
		"pid", tracked->pid, "sequence", tracked->sequence, "command",
		command_of(tracked->identity.command), "mode",
		mode < HL_MODE_COUNT ? hl_mode_names[mode] : "unknown", "inuse_bytes",
		(json_int_t)figures.inuse_bytes, "inuse_objects", (json_int_t)figures.inuse_objects,
		"peak_bytes", (json_int_t)figures.peak_bytes, "stack_nodes",
		(json_int_t)figures.stack_nodes, "events", (json_int_t)figures.events,
		"lost_events", (json_int_t)figures.lost_events, "lost_log_events",
		(json_int_t)figures.lost_log_events, "damaged", tracked->totals.damaged, "ms",
		(json_int_t)hl_control_actions_tick(tracked), "alloc_bytes",
		(json_int_t)figures.alloc_bytes, "alloc_objects", (json_int_t)figures.alloc_objects,
		"free_bytes", (json_int_t)figures.free_bytes, "free_objects",
		(json_int_t)figures.free_objects, "recorder_bytes",
		(json_int_t)tracked->recorder_memory.bytes);
	if (!object || !tracked->log)
		return object;
	json_t *log = json_pack("{s:I, s:I, s:I}", "log_segments", (json_int_t)files->count,
				"log_segments_kept", (json_int_t)tracked->mailbox.log_segments,
				"log_bytes", (json_int_t)files->bytes);
	int r = log ? json_object_update(object, log) : -1;
	json_decref(log);
	if (r == 0)
		return object;
	json_decref(object);
	return NULL;
}

static json_t *describe_processes(const struct hl_control_subject *subject)
{
	size_t count = 1;

	for (const struct hl_tracked *process = *subject->tracked; process; process = process->next)
		count++;
	struct log_files *files = calloc(count, sizeof(*files));
	json_t *array = json_array();
	int r = files && array ? 0 : -1;
	if (r == 0) {
		const struct log_files *log = files;
		count_segments(subject, files);
		for (struct hl_tracked *process = *subject->tracked; r == 0 && process;
		     process = process->next, log++)
			if (hl_tracked_is_running(process))
				r = json_array_append_new(array, describe_process(process, log));
	}
	free(files);
	if (r == 0)
		return array;
	json_decref(array);
	return NULL;
}

static json_t *describe_recording(const struct hl_control_subject *subject)
{
	const struct hl_archive *archive = subject->archive;
	char link[64], path[PATH_MAX];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", archive->directory.fd);
	/* Whatever it was called when it began: whoever asks may be elsewhere. */
	ssize_t length = readlink(link, path, sizeof(path) - 1);
	path[length < 0 ? 0 : length] = '\0';
	return json_pack("{s:i, s:o, s:o}", "collector", getpid(), "recording",
			 hl_text_to_json(length < 0 ? archive->directory.path : path), "command",
			 command_of(archive->meta.command));
}

/* Members `collector`, `recording`, `command`, `recorded`: whether process ${pid} is. */
static char *answer_whose(const struct hl_control_subject *subject, pid_t pid)
{
	json_t *object = describe_recording(subject);
	const struct hl_tracked *process = *subject->tracked;

	while (process && (process->pid != pid || !hl_tracked_is_running(process)))
		process = process->next;
	if (json_object_set_new(object, "recorded", json_boolean(process != NULL)) == 0)
		return answer_write(object);
	json_decref(object);
	return NULL;
}

char *hl_control_answer_status(const struct hl_control_subject *subject)
{
	json_t *object = describe_recording(subject);
	json_t *rest = json_pack("{s:s, s:I, s:I, s:o}", "mode", hl_mode_names[*subject->mode],
				 "ended", (json_int_t)subject->archive->ended_files, "marks",
				 (json_int_t)subject->archive->meta.mark_count, "processes",
				 describe_processes(subject));
	int r = object && rest ? json_object_update(object, rest) : -1;

	json_decref(rest);
	if (r == 0)
		return answer_write(object);
	json_decref(object);
	return NULL;
}

/* ---- what is done to a process ---- */

#define RESET_MARK "reset"

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
	(void)err;
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
		return answer_whose(subject, request->pid);
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
