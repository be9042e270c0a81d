/* SPDX-License-Identifier: BSD-2-Clause */
/* What changed in a process since the last look; see session.h. */
#include "push/session.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/names.h"
#include "open/open.h"
#include "process/process.h"
#include "profile/filter.h"

#define XXH_INLINE_ALL
#include <inttypes.h>
#include <xxhash.h>

#define MS_PER_NS 1000000
#define SLACK_MS  5000 /* a look may be late by as much */

/* ---- sessions ---- */

struct hl_push_session *hl_push_session_new(const char *recording, pid_t pid, uint32_t sequence)
{
	struct hl_push_session *session = calloc(1, sizeof(*session));

	if (session && !(session->recording = strdup(recording))) {
		free(session);
		return NULL;
	}
	if (session) {
		session->pid = pid;
		session->sequence = sequence;
	}
	return session;
}

void hl_push_session_forget(struct hl_push_session *session)
{
	session->is_known = false;
	session->count = 0;
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
	free(session->recording);
	free(session);
}

/* The figures of ${stack}, zero when it is new; NULL for want of memory. */
static struct hl_push_figures *find_figures(struct hl_push_session *session, int64_t stack)
{
	uint32_t hash = (uint32_t)stack, at = hash, id;

	while ((id = hl_index_next(&session->index, hash, &at)))
		if (session->figures[id - 1].stack == stack)
			return &session->figures[id - 1];
	if (HL_ARRAY_APPEND(session->figures, session->count, session->capacity,
			    (struct hl_push_figures){.stack = stack}) < 0)
		return NULL;
	if (hl_index_add(&session->index, hash, (uint32_t)session->count) < 0) {
		session->count--;
		return NULL;
	}
	return &session->figures[session->count - 1];
}

int hl_push_session_add(struct hl_push_session *session, int64_t stack, const int64_t figures[4])
{
	struct hl_push_figures *known = find_figures(session, stack);

	if (!known)
		return -ENOMEM;
	known->inuse_bytes = figures[0];
	known->inuse_objects = figures[1];
	known->alloc_bytes = figures[2];
	known->alloc_objects = figures[3];
	return 0;
}

/* ---- labels ---- */

/* Sets one; ${text} is as the process has it, any bytes. 0, -EINVAL with a sentence, or -ENOMEM. */
static int set_label(struct hl_push_session *session, enum hl_fleet_label label, const char *text,
		     struct hl_error *err)
{
	if (strlen(text) > HL_FLEET_LABEL_BYTES)
		return hl_error_set(
			err, -EINVAL,
			"cannot push process %d: its label '%s' has %zu bytes, and may have "
			"%d; name it with --service or --version",
			session->pid, hl_fleet_label_names[label], strlen(text),
			HL_FLEET_LABEL_BYTES);
	session->labels[label] = strdup(text);
	return session->labels[label] ? 0 : -ENOMEM;
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
	char pid[16], build_id[2 * HL_BUILD_ID_MAX + 1], container[HL_PUSH_CONTAINER_MAX],
		pod[HL_PUSH_CONTAINER_MAX], cgroups[4096];
	HL_FREED char *program = strndup(command, strcspn(command, " "));

	if (!program)
		return -ENOMEM;
	if (hl_proc_read(session->pid, "cgroup", cgroups, sizeof(cgroups)) < 0)
		cgroups[0] = '\0'; /* it has ended */
	hl_push_find_container(cgroups, container, pod);
	snprintf(pid, sizeof(pid), "%d", session->pid);
	put_build_id(profile, process->executable, build_id, sizeof(build_id));
	const char *const labels[HL_FLEET_LABEL_COUNT] = {
		[HL_FLEET_SERVICE] = given->service ? given->service : hl_path_basename(program),
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

int hl_push_session_read(struct hl_push_session *session, const struct hl_push_labels *given,
			 struct hl_profile **ret_profile, bool *ret_ended, struct hl_error *err)
{
	const struct hl_profile_selection selection = {
		.pid = (uint32_t)session->pid, .by_sequence = true, .sequence = session->sequence};
	/* Stacks are as views show them. */
	const struct hl_filter filter = {.fold_plumbing = true};
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;

	int r = hl_open_profile(session->recording, &selection, &profile, err);
	if (r == 0)
		r = hl_filter_apply(&filter, profile, NULL, err);
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

/* ---- looks ---- */

/* Numbers of frames and stacks are made of names alone, so that they are the same on every host and in every build. */
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

/* By node, to be freed; NULL for want of memory. */
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

static void put_name(FILE *out, const char *name)
{
	for (; *name; name++)
		putc(*name == '\t' || *name == '\n' ? ' ' : *name, out);
}

/* See struct hl_fleet_stack. */
static void put_frames(FILE *out, const struct hl_profile *profile, uint32_t node)
{
	if (profile->nodes[node].parent)
		put_frames(out, profile, profile->nodes[node].parent);
	const struct hl_profile_frame *frame = &profile->frames[profile->nodes[node].frame];
	const struct hl_profile_function *function = &profile->functions[frame->function];
	put_name(out, hl_profile_text(profile, function->name));
	putc('\t', out);
	put_name(out, hl_path_basename(
			      hl_profile_text(profile, profile->modules[function->module].path)));
	putc('\t', out);
	put_name(out, hl_profile_text(profile, frame->file));
	fprintf(out, "\t%u\t", frame->line);
	if (function->file != frame->file)
		put_name(out, hl_profile_text(profile, function->file));
	fprintf(out, "\t%u%s\n", function->line,
		profile->modules[function->module].script ? "\tscript" : "");
}

/* Sums up what each stack has now. Nodes with the same names count at the first of them. */
static int take_figures(struct hl_push_session *session, struct hl_profile *profile,
			const int64_t *stacks)
{
	for (uint32_t i = 0; i < profile->node_count; i++) {
		struct hl_profile_counters *counters = &profile->counters[i];
		struct hl_push_figures *figures;
		if (!i || !hl_profile_counters_any(counters))
			continue;
		figures = find_figures(session, stacks[i]);
		if (!figures)
			return -ENOMEM;
		if (!figures->node)
			figures->node = i;
		figures->now[0] += counters->alloc_bytes - counters->free_bytes;
		figures->now[1] += counters->alloc_objects - counters->free_objects;
		figures->now[2] += counters->alloc_bytes;
		figures->now[3] += counters->alloc_objects;
		*counters = (struct hl_profile_counters){0};
	}
	return 0;
}

/* What was allocated since: after 'ctl reset' figures begin at 0 again. */
static int64_t grown(int64_t before, int64_t now)
{
	return now >= before ? now - before : now;
}

/* Adds the row of one stack, and makes its figures those that were taken. */
static int add_row(struct hl_push_look *look, struct hl_push_figures *figures)
{
	const int64_t *now = figures->now;
	const struct hl_fleet_row row = {
		.stack = figures->stack,
		.inuse_bytes = now[0] - figures->inuse_bytes,
		.inuse_objects = now[1] - figures->inuse_objects,
		.alloc_bytes = grown(figures->alloc_bytes, now[2]),
		.alloc_objects = grown(figures->alloc_objects, now[3]),
	};
	struct hl_fleet_window *window = &look->window;

	if (figures->node)
		look->profile->counters[figures->node] = (struct hl_profile_counters){
			.alloc_bytes = row.alloc_bytes,
			.alloc_objects = row.alloc_objects,
			.free_bytes = row.alloc_bytes - now[0],
			.free_objects = row.alloc_objects - now[1],
		};
	figures->inuse_bytes = now[0];
	figures->inuse_objects = now[1];
	figures->alloc_bytes = now[2];
	figures->alloc_objects = now[3];
	memset(figures->now, 0, sizeof(figures->now));
	return row.inuse_bytes || row.inuse_objects || row.alloc_bytes || row.alloc_objects
		       ? HL_ARRAY_APPEND(window->rows, window->row_count, window->row_capacity, row)
		       : 0;
}

/* Writes the frames of the stacks from number ${first} on, which are new. */
static int add_stacks(struct hl_push_session *session, size_t first, struct hl_push_look *look)
{
	struct hl_fleet_window *window = &look->window;
	size_t size;
	FILE *out = open_memstream(&look->texts, &size);
	int r = out ? 0 : -ENOMEM;

	for (size_t i = first; r == 0 && i < session->count; i++) {
		const struct hl_push_figures *figures = &session->figures[i];
		fflush(out); /* so that size is known: where the text begins */
		r = HL_ARRAY_APPEND(window->stacks, window->stack_count, window->stack_capacity,
				    (struct hl_fleet_stack){figures->stack, (const char *)size});
		put_frames(out, look->profile, figures->node);
		putc('\0', out);
	}
	if (out && fclose(out) != 0)
		r = -ENOMEM;
	for (size_t i = 0; i < window->stack_count; i++)
		window->stacks[i].frames =
			r == 0 ? look->texts + (size_t)window->stacks[i].frames : "";
	return r;
}

int hl_push_session_look(struct hl_push_session *session, struct hl_profile *profile,
			 int64_t now_ms, int64_t every_ms, bool ended,
			 struct hl_push_look *ret_look)
{
	HL_FREED int64_t *stacks = NULL;
	size_t known = session->count;

	*ret_look = (struct hl_push_look){
		.profile = profile,
		.window = {.session = session->id,
			   .began_ms = session->began_ms,
			   .ms = now_ms,
			   .until_ms = now_ms + 2 * every_ms + SLACK_MS,
			   .ended_ms = ended ? now_ms : 0},
	};
	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++)
		ret_look->window.labels[i] = session->labels[i];
	stacks = number_stacks(profile);
	int r = stacks ? take_figures(session, profile, stacks) : -ENOMEM;
	if (r == 0)
		r = add_stacks(session, known, ret_look);
	for (size_t i = 0; r == 0 && i < session->count; i++) {
		r = add_row(ret_look, &session->figures[i]);
		session->figures[i].node = 0;
	}
	return r;
}

void hl_push_look_release(struct hl_push_look *look)
{
	hl_fleet_window_release(&look->window);
	hl_profile_free(look->profile);
	free(look->texts);
	*look = (struct hl_push_look){0};
}
