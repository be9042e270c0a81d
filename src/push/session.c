/* SPDX-License-Identifier: BSD-2-Clause */
/* One recorded process, its labels and its figures, and what changed in these since the last look; see session.h. */
#include "push/session.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"
#include "base/text.h"
#include "open/open.h"
#include "process/process.h"
#include "process/service.h"
#include "profile/filter.h"
#include "recording/recording_files.h"

#define XXH_INLINE_ALL
#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <xxhash.h>

#define MS_PER_NS 1000000

/* ---- sessions ---- */

struct hl_push_session *hl_push_session_new(const char *recording, const struct hl_user *owner,
					    pid_t pid, uint32_t sequence)
{
	struct hl_push_session *session = calloc(1, sizeof(*session));

	if (!session)
		return NULL;
	session->pid = pid;
	session->sequence = sequence;
	session->recording = strdup(recording);
	session->owner = owner ? hl_user_copy(owner) : NULL;
	if (!session->recording || (owner && !session->owner)) {
		hl_push_session_free(session);
		return NULL;
	}
	return session;
}

void hl_push_session_forget(struct hl_push_session *session)
{
	session->is_known = false;
	session->is_forgotten = true;
	session->look_ms = 0;
	session->count = 0;
	session->now_count = 0;
	free(session->nodes);
	free(session->known);
	session->nodes = NULL;
	session->known = NULL;
	hl_index_release(&session->index);
}

void hl_push_session_free(struct hl_push_session *session)
{
	if (!session)
		return;
	hl_push_session_forget(session);
	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++)
		free(session->labels[i]);
	free(session->figures);
	free(session->now);
	free(session->recording);
	free(session->owner);
	free(session);
}

/* Room in now[] for all figures, which are zero where they were not set before. 0 or -ENOMEM. */
static int figures_begin(struct hl_push_session *session)
{
	if (HL_ARRAY_RESERVE(session->now, session->now_capacity, session->count) < 0)
		return -ENOMEM;
	if (session->now_count < session->count)
		memset(&session->now[session->now_count], 0,
		       (session->count - session->now_count) * sizeof(*session->now));
	session->now_count = session->count;
	return 0;
}

/* The index + 1 of the figures of ${stack}, once one was added in this look; 0: there are none. */
static uint32_t figures_find(const struct hl_push_session *session, int64_t stack)
{
	uint32_t hash = (uint32_t)stack, at = hash, id;

	while ((id = hl_index_next(&session->index, hash, &at)))
		if (session->figures[id - 1].stack == stack)
			return id;
	return 0;
}

/* Looks that need no index have let it go. */
static int complete_index(struct hl_push_session *session)
{
	int r = 0;

	for (size_t i = session->index.used; r == 0 && i < session->count; i++)
		r = hl_index_add(&session->index, (uint32_t)session->figures[i].stack,
				 (uint32_t)i + 1);
	return r;
}

/* The index of the figures of ${stack}, zero when they are new; with room in now[]. 0 or -ENOMEM. */
static int figures_add(struct hl_push_session *session, int64_t stack, size_t *ret_index)
{
	int r = complete_index(session);
	uint32_t id = r == 0 ? figures_find(session, stack) : 0;

	if (r == 0 && !id) {
		r = HL_ARRAY_APPEND(session->figures, session->count, session->capacity,
				    (struct hl_push_figures){.stack = stack});
		id = (uint32_t)session->count;
		if (r == 0 && figures_begin(session) < 0) {
			session->count--;
			r = -ENOMEM;
		}
		if (r == 0)
			r = complete_index(session);
	}
	if (r == 0)
		*ret_index = id - 1;
	return r;
}

int hl_push_session_add(struct hl_push_session *session, int64_t stack, const int64_t figures[4])
{
	size_t index;

	int r = figures_add(session, stack, &index);
	if (r == 0)
		memcpy(session->figures[index].taken, figures,
		       sizeof(session->figures[index].taken));
	return r;
}

/* ---- labels ---- */

/* Sets one; ${text} is as the process has it, any bytes, of which some take more than they did. 0, -EINVAL with a sentence, or -ENOMEM. */
static int set_label(struct hl_push_session *session, enum hl_fleet_label label, const char *text,
		     struct hl_error *err)
{
	HL_FREED char *clean = hl_fleet_label_clean(text);

	if (!clean)
		return -ENOMEM;
	size_t bytes = strlen(clean), cut = HL_FLEET_LABEL_BYTES;
	if (bytes > cut && label != HL_FLEET_COMMAND)
		return hl_error_set(
			err, -EINVAL,
			"cannot push process %d: its label '%s' has %zu bytes, and may have "
			"%d; name it with --service or --version",
			session->pid, hl_fleet_label_names[label], bytes, HL_FLEET_LABEL_BYTES);
	if (bytes > cut) {
		/* Nobody can name it otherwise; its beginning, of whole characters, tells what runs. */
		while (((unsigned char)clean[cut] & 0xc0) == 0x80)
			cut--;
		clean[cut] = '\0';
	}
	session->labels[label] = HL_TAKE(clean);
	return 0;
}

/* The build id of the executable in hexadecimal digits; "" when it is not known. */
static void put_build_id(const struct hl_profile *profile, uint32_t executable, char *text,
			 size_t size)
{
	text[0] = '\0';
	for (size_t i = 1; i < profile->module_count; i++) {
		const struct hl_profile_module *module = &profile->modules[i];
		if (!executable || module->path != executable)
			continue;
		for (size_t k = 0; k < module->build_id_bytes && 2 * k + 2 < size; k++)
			snprintf(text + 2 * k, 3, "%02x", module->build_id[k]);
	}
}

static int fill_labels(struct hl_push_session *session, const struct hl_push_labels *given,
		       const struct hl_profile *profile, struct hl_error *err)
{
	const struct hl_profile_process *process = &profile->processes[0];
	const char *command = hl_profile_text(profile, process->command);
	char pid[16], build_id[2 * HL_BUILD_ID_MAX + 1], container[HL_SERVICE_CONTAINER_MAX],
		pod[HL_SERVICE_CONTAINER_MAX], cgroups[4096];
	struct hl_service service;

	hl_service_of(command, hl_profile_text(profile, process->executable), &service);
	if (hl_proc_read(session->pid, "cgroup", cgroups, sizeof(cgroups)) < 0)
		cgroups[0] = '\0'; /* it has ended */
	hl_service_container(cgroups, container, pod);
	snprintf(pid, sizeof(pid), "%d", session->pid);
	put_build_id(profile, process->executable, build_id, sizeof(build_id));
	const char *const labels[HL_FLEET_LABEL_COUNT] = {
		[HL_FLEET_SERVICE] = given->service ? given->service : service.name,
		[HL_FLEET_VERSION] = given->version ? given->version : "",
		[HL_FLEET_HOST] = hl_profile_text(profile, profile->host),
		[HL_FLEET_COMMAND] = command,
		[HL_FLEET_PID] = pid,
		[HL_FLEET_BUILD_ID] = build_id,
		[HL_FLEET_CONTAINER] = container,
		[HL_FLEET_POD] = pod,
	};
	int r = 0;
	for (size_t i = 0; r == 0 && i < HL_FLEET_LABEL_COUNT; i++)
		r = set_label(session, (enum hl_fleet_label)i, labels[i], err);
	return r;
}

/* A number that the same recording has in every look, and no other one has. */
static int64_t make_id(const struct hl_push_session *session, const struct hl_profile *profile)
{
	HL_FREED char *text = NULL;
	int length = asprintf(&text, "%s %" PRIu64 " %u %d", session->labels[HL_FLEET_HOST],
			      profile->start_realtime_ns, session->sequence, session->pid);

	return length < 0 ? 0 : (int64_t)(XXH3_64bits(text, (size_t)length) & INT64_MAX);
}

/* ---- reading ---- */

/* The file of the process within its recording, open; -1 when there is none. */
static int open_file(const struct hl_push_session *session)
{
	HL_FREED char *path = NULL;

	if (asprintf(&path, "%s/" HL_PROCESS_FILE, session->recording, session->sequence,
		     (uint32_t)session->pid) < 0)
		return -1;
	return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* When it was written; 0 where that cannot be told. */
static uint64_t written_ns(int fd)
{
	struct stat status;

	if (fd < 0 || fstat(fd, &status) < 0)
		return 0;
	return (uint64_t)status.st_mtim.tv_sec * HL_NS_PER_SECOND +
	       (uint64_t)status.st_mtim.tv_nsec;
}

/* Sums up the values of ${process} by stack. -ESTALE when there are stacks that are not known. */
static int add_values(struct hl_push_session *session, const struct hl_recording_process *process)
{
	if (process->node_count + (size_t)1 != session->node_count)
		return -ESTALE;
	for (uint32_t i = 0; i < process->value_count; i++) {
		const struct hl_recording_value *value = &process->values[i];
		size_t at = HL_LOWER_BOUND(k, session->known_count,
					   session->known[k].node < value->node);
		if (at == session->known_count || session->known[at].node != value->node)
			return -ESTALE;
		int64_t *now = session->now[session->known[at].figures].figures;
		now[0] += (int64_t)(value->alloc_bytes - value->free_bytes);
		now[1] += (int64_t)(value->alloc_objects - value->free_objects);
		now[2] += (int64_t)value->alloc_bytes;
		now[3] += (int64_t)value->alloc_objects;
	}
	return 0;
}

/* Takes the figures of known stacks alone. 0; -ESTALE when that is not enough; -ENOMEM. */
static int read_values(struct hl_push_session *session, bool *ret_ended)
{
	HL_CLEANUP(hl_recording_process_release) struct hl_recording_process process = {0};
	HL_CLOSED int fd = open_file(session);
	uint64_t saved_ns = written_ns(fd);

	if (!session->known || !saved_ns)
		return -ESTALE;
	session->now_count = 0;
	if (figures_begin(session) < 0)
		return -ENOMEM;
	if (saved_ns == session->saved_ns) {
		for (size_t i = 0; i < session->count; i++)
			memcpy(session->now[i].figures, session->figures[i].taken,
			       sizeof(session->now[i].figures));
		*ret_ended = false;
		return 0;
	}
	int r = hl_recording_read_values(fd, session->recording, &process, NULL);
	if (r == 0)
		r = add_values(session, &process);
	if (r < 0)
		return r == -ENOMEM ? r : -ESTALE;
	session->saved_ns = saved_ns;
	*ret_ended = process.complete;
	return 0;
}

static int read_profile(struct hl_push_session *session, struct hl_profile **ret_profile,
			struct hl_error *err)
{
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;
	HL_FREED uint32_t *nodes = NULL;
	HL_CLOSED int fd = open_file(session);
	size_t count = 0;
	const struct hl_profile_selection selection = {.pid = (uint32_t)session->pid,
						       .by_sequence = true,
						       .sequence = session->sequence,
						       .ret_nodes = &nodes,
						       .ret_node_count = &count};
	/* Stacks are as views show them. */
	const struct hl_filter filter = {.fold_plumbing = true};

	/* Noted before the file is read: after a save in between it is read again. */
	session->saved_ns = written_ns(fd);
	int r = hl_open_profile(session->recording, &selection, &profile, err);
	const struct hl_node_ids follow = {nodes, count};
	if (r == 0)
		r = hl_filter_apply(&filter, profile, nodes ? &follow : NULL, err);
	if (r < 0)
		return r;
	free(session->nodes);
	session->nodes = HL_TAKE(nodes);
	session->node_count = count;
	session->now_count = 0;
	*ret_profile = HL_TAKE(profile);
	return figures_begin(session);
}

int hl_push_session_read(struct hl_push_session *session, const struct hl_push_labels *given,
			 bool wants_profile, struct hl_profile **ret_profile, bool *ret_ended,
			 struct hl_error *err)
{
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;
	HL_CLEANUP(hl_user_leave) struct hl_user_scope scope = {0};

	*ret_profile = NULL;
	int r = hl_user_enter(session->owner, &scope);
	if (r < 0)
		return hl_error_set(err, r,
				    "cannot push process %d: root may not act as user %u: %s",
				    session->pid, session->owner->uid, strerror(-r));
	r = wants_profile ? -ESTALE : read_values(session, ret_ended);
	if (r != -ESTALE)
		return r;
	r = read_profile(session, &profile, err);
	if (r < 0)
		return r;
	if (!session->id) {
		r = fill_labels(session, given, profile, err);
		session->began_ms = (int64_t)(profile->start_realtime_ns / MS_PER_NS);
		session->id = r == 0 ? make_id(session, profile) : 0;
		if (r == 0 && !session->id)
			r = -ENOMEM;
	}
	if (r < 0)
		return hl_error_set(err, r, "cannot push process %d: %s", session->pid,
				    strerror(-r));
	*ret_ended = profile->processes[0].complete || !profile->running;
	*ret_profile = HL_TAKE(profile);
	return 0;
}

/* ---- numbers of stacks ---- */

#define SLACK_MS 5000 /* a look may be late by as much */

static uint64_t hash_text(const char *text, uint64_t seed)
{
	return XXH3_64bits_withSeed(text, strlen(text), seed);
}

static uint64_t hash_frame(const struct hl_profile *profile, const struct hl_profile_frame *frame)
{
	const struct hl_profile_function *function = &profile->functions[frame->function];
	const char *module = hl_profile_text(profile, profile->modules[function->module].path);
	uint64_t hash = hash_text(hl_profile_text(profile, function->name), frame->line);

	hash = hash_text(hl_path_basename(module), hash);
	hash = hash_text(hl_profile_text(profile, function->file), hash);
	return hash_text(hl_profile_text(profile, frame->file), hash);
}

/* The number of each node's stack, which is made of names alone: the same on every host and in every build. To be freed; NULL for want of memory. */
static int64_t *number_stacks(const struct hl_profile *profile)
{
	HL_FREED uint64_t *frames = calloc(profile->frame_count + 1, sizeof(*frames));
	int64_t *stacks = calloc(profile->node_count + 1, sizeof(*stacks));

	if (!frames || !stacks) {
		free(stacks);
		return NULL;
	}
	for (size_t i = 0; i < profile->frame_count; i++)
		frames[i] = hash_frame(profile, &profile->frames[i]);
	for (size_t i = 1; i < profile->node_count; i++) {
		const struct hl_profile_node *node = &profile->nodes[i];
		const uint64_t pair[] = {(uint64_t)stacks[node->parent], frames[node->frame]};
		stacks[i] = (int64_t)(XXH3_64bits(pair, sizeof(pair)) & INT64_MAX);
	}
	return stacks;
}

/* ---- frames ---- */

void hl_push_stacks_release(struct hl_push_stacks *stacks)
{
	free(stacks->all);
	hl_index_release(&stacks->index);
	*stacks = (struct hl_push_stacks){0};
}

/* 1; 0 when it was there; -ENOMEM. */
static int add_stack(struct hl_push_stacks *stacks, int64_t stack)
{
	uint32_t hash = (uint32_t)stack, at = hash, id;

	while ((id = hl_index_next(&stacks->index, hash, &at)))
		if (stacks->all[id - 1] == stack)
			return 0;
	if (HL_ARRAY_APPEND(stacks->all, stacks->count, stacks->capacity, stack) < 0)
		return -ENOMEM;
	return hl_index_add(&stacks->index, hash, (uint32_t)stacks->count) < 0 ? -ENOMEM : 1;
}

static void put_name(FILE *out, const char *name)
{
	for (int length; *name; name += length ? length : 1) {
		length = hl_utf8_length(name);
		if (!length)
			fputs("\uFFFD", out);
		else if (length == 1)
			putc(iscntrl((unsigned char)*name) ? ' ' : *name, out);
		else
			fwrite(name, 1, (size_t)length, out);
	}
}

/* A line of struct hl_fleet_stack. */
static void put_frame(FILE *out, const struct hl_profile *profile,
		      const struct hl_profile_frame *frame)
{
	const struct hl_profile_function *function = &profile->functions[frame->function];
	const struct hl_profile_module *module = &profile->modules[function->module];

	put_name(out, hl_profile_text(profile, function->name));
	putc('\t', out);
	put_name(out, hl_path_basename(hl_profile_text(profile, module->path)));
	putc('\t', out);
	put_name(out, hl_profile_text(profile, frame->file));
	fprintf(out, "\t%u\t", frame->line);
	if (function->file != frame->file)
		put_name(out, hl_profile_text(profile, function->file));
	fprintf(out, "\t%u%s\n", function->line, module->script ? "\tscript" : "");
}

/* The lines of all frames: that of frame i is at ends[i - 1] .. ends[i]. */
struct lines {
	char *text;
	size_t *ends;
};

static void lines_release(struct lines *lines)
{
	free(lines->text);
	free(lines->ends);
}

static int lines_make(struct lines *lines, const struct hl_profile *profile)
{
	size_t size;
	FILE *out;

	lines->ends = calloc(profile->frame_count + 1, sizeof(*lines->ends));
	out = lines->ends ? open_memstream(&lines->text, &size) : NULL;
	if (!out)
		return -ENOMEM;
	for (size_t i = 1; i < profile->frame_count; i++) {
		put_frame(out, profile, &profile->frames[i]);
		lines->ends[i] = (size_t)ftell(out);
	}
	return fclose(out) == 0 ? 0 : -ENOMEM;
}

static void put_frames(FILE *out, const struct hl_profile *profile, const struct lines *lines,
		       uint32_t node)
{
	uint32_t frame = profile->nodes[node].frame;

	if (profile->nodes[node].parent)
		put_frames(out, profile, lines, profile->nodes[node].parent);
	fwrite(lines->text + lines->ends[frame - 1], 1, lines->ends[frame] - lines->ends[frame - 1],
	       out);
}

/* Writes the frames of stacks that ${told} does not have, out of those from number ${first} on, which are new to the session. */
static int add_stacks(struct hl_push_session *session, size_t first, struct hl_push_stacks *told,
		      struct hl_push_look *look)
{
	HL_CLEANUP(lines_release) struct lines lines = {0};
	struct hl_fleet_window *window = &look->window;
	size_t size;
	FILE *out = NULL;
	int r = 0;

	for (size_t i = first; r >= 0 && i < session->count; i++) {
		const struct hl_push_figures *figures = &session->figures[i];
		r = add_stack(told, figures->stack);
		if (r <= 0)
			continue;
		if (!out) {
			r = lines_make(&lines, look->profile);
			out = r == 0 ? open_memstream(&look->texts, &size) : NULL;
		}
		if (!out)
			return -ENOMEM;
		r = HL_ARRAY_APPEND(window->stacks, window->stack_count, window->stack_capacity,
				    (struct hl_fleet_stack){figures->stack, NULL});
		put_frames(out, look->profile, &lines, session->now[i].node);
		putc('\0', out);
	}
	if (out && fclose(out) != 0)
		r = -ENOMEM;
	char *text = look->texts;
	for (size_t i = 0; i < window->stack_count; i++) {
		window->stacks[i].frames = r >= 0 ? text : "";
		text += r >= 0 ? strlen(text) + 1 : 0;
	}
	return r < 0 ? r : 0;
}

/* ---- looks ---- */

/* Sums up what each stack has now. Nodes with the same names count at the first of them. */
static int take_figures(struct hl_push_session *session, struct hl_profile *profile,
			const int64_t *stacks)
{
	for (uint32_t i = 1; i < profile->node_count; i++) {
		struct hl_profile_counters *counters = &profile->counters[i];
		size_t index;
		if (!hl_profile_counters_any(counters))
			continue;
		if (figures_add(session, stacks[i], &index) < 0)
			return -ENOMEM;
		struct hl_push_now *now = &session->now[index];
		if (!now->node)
			now->node = i;
		now->figures[0] += counters->alloc_bytes - counters->free_bytes;
		now->figures[1] += counters->alloc_objects - counters->free_objects;
		now->figures[2] += counters->alloc_bytes;
		now->figures[3] += counters->alloc_objects;
		*counters = (struct hl_profile_counters){0};
	}
	return 0;
}

/* From nodes of the profile to figures, so that the next look needs none. Stacks without figures are not known yet. */
static int follow_nodes(struct hl_push_session *session, const struct hl_profile *profile,
			const int64_t *stacks)
{
	HL_FREED uint32_t *figures = calloc(profile->node_count + 1, sizeof(*figures));

	if (!figures)
		return -ENOMEM;
	for (uint32_t i = 1; i < profile->node_count; i++)
		figures[i] = figures_find(session, stacks[i]);
	free(session->known);
	session->known = NULL;
	session->known_count = 0;
	/* Most nodes are on the way to others, and have nothing themselves. */
	size_t capacity = 0;
	if (session->nodes && HL_ARRAY_RESERVE(session->known, capacity, 1) < 0)
		return -ENOMEM;
	for (size_t i = 1; session->nodes && i < session->node_count; i++) {
		uint32_t found =
			session->nodes[i] < profile->node_count ? figures[session->nodes[i]] : 0;
		if (found && HL_ARRAY_APPEND(session->known, session->known_count, capacity,
					     (struct hl_push_node){(uint32_t)i, found - 1}) < 0)
			return -ENOMEM;
	}
	free(session->nodes);
	session->nodes = NULL;
	return 0;
}

/* What was allocated since: after 'ctl reset' figures begin at 0 again. */
static int64_t grown(int64_t before, int64_t now)
{
	return now >= before ? now - before : now;
}

/* Adds the row of one stack, and makes its figures those that were taken. */
static int add_row(struct hl_push_look *look, struct hl_push_figures *figures,
		   const struct hl_push_now *looked)
{
	const int64_t *now = looked->figures;
	const struct hl_fleet_row row = {
		.stack = figures->stack,
		.inuse_bytes = now[0] - figures->taken[0],
		.inuse_objects = now[1] - figures->taken[1],
		.alloc_bytes = grown(figures->taken[2], now[2]),
		.alloc_objects = grown(figures->taken[3], now[3]),
	};
	struct hl_fleet_window *window = &look->window;

	if (looked->node)
		look->profile->counters[looked->node] = (struct hl_profile_counters){
			.alloc_bytes = row.alloc_bytes,
			.alloc_objects = row.alloc_objects,
			.free_bytes = row.alloc_bytes - now[0],
			.free_objects = row.alloc_objects - now[1],
		};
	memcpy(figures->taken, now, sizeof(figures->taken));
	return row.inuse_bytes || row.inuse_objects || row.alloc_bytes || row.alloc_objects
		       ? HL_ARRAY_APPEND(window->rows, window->row_count, window->row_capacity, row)
		       : 0;
}

static int by_stack(const void *left, const void *right)
{
	const struct hl_fleet_row *a = left, *b = right;

	return (a->stack > b->stack) - (a->stack < b->stack);
}

/* Processes are read one at a time; the memory that all others keep between reads adds up. */
static void keep_little(struct hl_push_session *session)
{
	struct hl_push_figures *fitting =
		session->capacity > session->count
			? realloc(session->figures, (session->count + 1) * sizeof(*fitting))
			: NULL;

	if (fitting) {
		session->figures = fitting;
		session->capacity = session->count + 1;
	}
	hl_index_release(&session->index);
	free(session->now);
	session->now = NULL;
	session->now_count = session->now_capacity = 0;
}

int hl_push_session_look(struct hl_push_session *session, struct hl_profile *profile,
			 struct hl_push_stacks *told, int64_t now_ms, int64_t every_ms, bool ended,
			 struct hl_push_look *ret_look)
{
	HL_FREED int64_t *stacks = NULL;
	size_t known = session->count;

	*ret_look = (struct hl_push_look){
		.profile = profile,
		.window = {.session = session->id,
			   .began_ms = session->began_ms,
			   .base_ms = session->look_ms,
			   .ms = now_ms,
			   .until_ms = now_ms + 2 * every_ms + SLACK_MS,
			   .ended_ms = ended ? now_ms : 0},
	};
	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++)
		ret_look->window.labels[i] = session->labels[i];
	session->look_ms = now_ms;
	int r = figures_begin(session);
	if (r == 0 && profile)
		stacks = number_stacks(profile);
	if (profile && !stacks)
		r = -ENOMEM;
	if (r == 0 && profile)
		r = take_figures(session, profile, stacks);
	if (r == 0 && profile)
		r = follow_nodes(session, profile, stacks);
	if (r == 0 && profile)
		r = add_stacks(session, known, told, ret_look);
	for (size_t i = 0; r == 0 && i < session->count; i++)
		r = add_row(ret_look, &session->figures[i], &session->now[i]);
	/* As stores have them: rows that follow each other are in the same pages. */
	if (ret_look->window.row_count)
		qsort(ret_look->window.rows, ret_look->window.row_count,
		      sizeof(*ret_look->window.rows), by_stack);
	keep_little(session);
	return r;
}

void hl_push_look_release(struct hl_push_look *look)
{
	hl_fleet_window_release(&look->window);
	hl_profile_free(look->profile);
	free(look->texts);
	*look = (struct hl_push_look){0};
}
