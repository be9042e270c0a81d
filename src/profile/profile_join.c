/* SPDX-License-Identifier: BSD-2-Clause */
/* Interns modules, frames and stacks of two profiles side by side; see profile.h. */
#include "profile/profile.h"

#include "base/encode.h"
#include "base/names.h"
#include "profile/builder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One of the two profiles, and what its ids are in the joined one. */
struct side {
	const struct hl_profile *profile;
	bool same_modules;		    /* as in the other one, and not only of the same name */
	uint32_t *modules, *frames, *nodes; /* nodes: at first the builder's, then final ids */
};

static int init_side(struct side *side, const struct hl_profile *profile)
{
	*side = (struct side){
		.profile = profile,
		.modules = calloc(profile->module_count + 1, sizeof(*side->modules)),
		.frames = calloc(profile->frame_count + 1, sizeof(*side->frames)),
		.nodes = calloc(profile->node_count + 1, sizeof(*side->nodes)),
	};
	return side->modules && side->frames && side->nodes ? 0 : -ENOMEM;
}

static void release_side(struct side *side)
{
	free(side->modules);
	free(side->frames);
	free(side->nodes);
}

/* ---- what becomes one ---- */

/*
 * Adds the modules, frames and nodes of ${side}. Modules go by their file names at first, but in
 * one recording, and frames lack their addresses; describe_modules() and describe_frames() give
 * them the rest.
 */
static int intern_side(struct hl_builder *builder, struct side *side)
{
	const struct hl_profile *profile = side->profile;
	static const uint8_t no_build_id[1];
	int r = 0;

	for (size_t i = 1; r == 0 && i < profile->module_count; i++) {
		const struct hl_profile_module *module = &profile->modules[i];
		const char *path = hl_profile_text(profile, module->path);
		r = side->same_modules ? hl_builder_module(builder, path, module->build_id,
							   module->build_id_bytes, &module->print,
							   &side->modules[i])
				       : hl_builder_module(builder, hl_path_basename(path),
							   no_build_id, 0, NULL, &side->modules[i]);
		if (r == 0 && module->script)
			builder->profile->modules[side->modules[i]].script = true;
	}
	for (size_t i = 1; r == 0 && i < profile->frame_count; i++) {
		const struct hl_profile_frame *frame = &profile->frames[i];
		const struct hl_profile_function *function = &profile->functions[frame->function];
		const struct hl_symbols_frame symbol = {
			.function = hl_profile_text(profile, function->name),
			.function_file = hl_profile_text(profile, function->file),
			.function_line = function->line,
			.file = hl_profile_text(profile, frame->file),
			.line = frame->line,
		};
		r = hl_builder_frame(builder, &symbol, side->modules[function->module], 0,
				     &side->frames[i]);
	}
	for (size_t i = 1; r == 0 && i < profile->node_count; i++) {
		const struct hl_profile_node *node = &profile->nodes[i];
		r = hl_builder_child(builder, side->nodes[node->parent], side->frames[node->frame],
				     &side->nodes[i]);
	}
	return r;
}

/* ---- what is said of one side ---- */

/* The text of ${id} in ${from}, as an id of ${joined}. */
static int copy_text(struct hl_profile *joined, const struct hl_profile *from, uint32_t id,
		     uint32_t *ret_id)
{
	return hl_strings_intern(&joined->strings, hl_profile_text(from, id), ret_id);
}

/* Whichever side comes last has the say, but for modules that only the other one used. */
static int describe_modules(struct hl_profile *joined, const struct side *side)
{
	const struct hl_profile *from = side->profile;
	int r = 0;

	for (size_t i = 1; r == 0 && i < from->module_count; i++) {
		struct hl_profile_module module = from->modules[i];
		if (!module.used && joined->modules[side->modules[i]].used)
			continue;
		r = copy_text(joined, from, from->modules[i].path, &module.path);
		if (r == 0)
			r = copy_text(joined, from, from->modules[i].symbols_reason,
				      &module.symbols_reason);
		if (r == 0)
			joined->modules[side->modules[i]] = module;
	}
	return r;
}

static void describe_frames(struct hl_profile *joined, const struct side *side)
{
	for (size_t i = 1; i < side->profile->frame_count; i++) {
		struct hl_profile_frame *frame = &joined->frames[side->frames[i]];
		frame->address = side->profile->frames[i].address;
		frame->inlined = side->profile->frames[i].inlined;
	}
}

static int copy_processes(struct hl_profile *joined, const struct hl_profile *from)
{
	joined->processes = calloc(from->process_count + 1, sizeof(*joined->processes));
	joined->threads = calloc(from->thread_count + 1, sizeof(*joined->threads));
	if (!joined->processes || !joined->threads)
		return -ENOMEM;
	for (size_t i = 0; i < from->process_count; i++) {
		struct hl_profile_process *process = &joined->processes[i];
		*process = from->processes[i];
		if (copy_text(joined, from, process->command, &process->command) < 0 ||
		    copy_text(joined, from, process->executable, &process->executable) < 0 ||
		    copy_text(joined, from, process->end, &process->end) < 0)
			return -ENOMEM;
	}
	for (size_t i = 0; i < from->thread_count; i++) {
		joined->threads[i] = from->threads[i];
		if (copy_text(joined, from, from->threads[i].name, &joined->threads[i].name) < 0)
			return -ENOMEM;
	}
	joined->process_count = from->process_count;
	joined->thread_count = from->thread_count;
	return 0;
}

static int copy_rows(struct hl_profile *joined, const struct side *side)
{
	const struct hl_profile *from = side->profile;

	joined->rows = calloc(from->row_count + 1, sizeof(*joined->rows));
	joined->sizes = calloc(from->size_count + 1, sizeof(*joined->sizes));
	if (!joined->rows || !joined->sizes)
		return -ENOMEM;
	for (size_t i = 0; i < from->row_count; i++) {
		joined->rows[i] = from->rows[i];
		joined->rows[i].node = side->nodes[from->rows[i].node];
	}
	for (size_t i = 0; i < from->size_count; i++) {
		joined->sizes[i] = from->sizes[i];
		joined->sizes[i].node = side->nodes[from->sizes[i].node];
	}
	joined->row_count = from->row_count;
	joined->size_count = from->size_count;
	return 0;
}

/* ---- warnings ---- */

/* What is missing of the earlier profile, whose own head no view shows. */
static int warn_of_doubts(struct hl_profile *joined, const struct hl_profile *before)
{
	const char *name = hl_profile_text(before, before->name);
	const struct hl_lost *lost = &before->lost;
	const struct {
		uint64_t count;
		const char *lost, *of_what;
	} losses[] = {
		{lost->damaged, "lost",
		 "records that the program had overwritten: its other figures may be wrong"},
		{before->lost_log_events, "lost",
		 "events of its log: its figures are wrong from then until the log was re-based"},
		{lost->truncated_stacks + lost->incomplete_stacks, "lost the outer frames of",
		 "stacks"},
		{lost->missed_frees, "missed",
		 "frees: other blocks may have been freed unseen, too"},
		{lost->modules, "lost the names of", "modules"},
	};
	char count[HL_GROUPED_MAX], bytes[HL_GROUPED_MAX];
	int r = 0;

	if (!before->complete && !before->imported && !before->snapshot)
		r = hl_profile_warn(joined, "'%s' %s; its figures are those of its last save", name,
				    before->running ? "is still running" : "was interrupted");
	if (r == 0 && (lost->events || lost->bytes))
		r = hl_profile_warn(joined, "'%s' lost %s events, %s bytes: not in its figures",
				    name, hl_grouped(count, lost->events),
				    hl_grouped(bytes, lost->bytes));
	for (size_t i = 0; r == 0 && i < HL_COUNT_OF(losses); i++)
		if (losses[i].count)
			r = hl_profile_warn(joined, "'%s' %s %s %s", name, losses[i].lost,
					    hl_grouped(count, losses[i].count), losses[i].of_what);
	for (size_t i = 0; r == 0 && i < before->process_count; i++)
		if (before->processes[i].own_malloc)
			r = hl_profile_warn(joined,
					    "process %u of '%s' has a malloc of its own, whose "
					    "allocations were not seen",
					    before->processes[i].pid, name);
	if (r == 0 && before->unrecorded_children)
		r = hl_profile_warn(joined, "%s children of '%s' ran unrecorded",
				    hl_grouped(count, before->unrecorded_children), name);
	if (r == 0 && before->sample_bytes != joined->sample_bytes)
		r = hl_profile_warn(
			joined, "'%s' was sampled in another way: small differences mean nothing",
			name);
	return r;
}

static int copy_warnings(struct hl_profile *joined, const struct hl_profile *from)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < from->warning_count; i++)
		r = hl_profile_warn(joined, "%s", hl_profile_text(from, from->warnings[i]));
	return r;
}

/* ---- figures ---- */

union figures {
	struct hl_profile_counters counters;
	int64_t each[sizeof(struct hl_profile_counters) / sizeof(int64_t)];
};

/*
 * Scales figures one after another so that their sum is the scaled sum: each is rounded together
 * with all before it.
 */
struct scaler {
	uint64_t numerator, denominator;
	union figures plain, scaled; /* sums so far */
};

__extension__ typedef __int128 wide; /* holds a figure times a duration */

static struct hl_profile_counters scale(struct scaler *scaler,
					const struct hl_profile_counters *counters)
{
	union figures figures = {.counters = *counters};

	for (size_t i = 0; i < HL_COUNT_OF(figures.each); i++) {
		scaler->plain.each[i] += figures.each[i];
		int64_t sum = (int64_t)((wide)scaler->plain.each[i] * scaler->numerator /
					scaler->denominator);
		figures.each[i] = sum - scaler->scaled.each[i];
		scaler->scaled.each[i] = sum;
	}
	return figures.counters;
}

static int add_base(struct hl_profile *joined, const struct side *before, struct scaler *scaler)
{
	const struct hl_profile *from = before->profile;
	struct scaler of_total = *scaler;

	joined->base = calloc(joined->node_count, sizeof(*joined->base));
	if (!joined->base)
		return -ENOMEM;
	for (size_t i = 0; i < from->node_count; i++) {
		struct hl_profile_counters scaled = scale(scaler, &from->counters[i]);
		hl_profile_counters_add(&joined->base[before->nodes[i]], &scaled);
	}
	joined->base_total = scale(&of_total, &from->total);
	joined->base_duration_ns = from->duration_ns;
	joined->base_moment_ms = from->moment_ms;
	joined->base_snapshot = from->snapshot;
	if (copy_text(joined, from, from->moment, &joined->base_moment) < 0 ||
	    copy_text(joined, from, from->imported ? from->source : 0, &joined->base_source) < 0)
		return -ENOMEM;
	return copy_text(joined, from, from->name, &joined->base_name);
}

static void add_counters(struct hl_profile *joined, const struct side *after)
{
	for (size_t i = 0; i < after->profile->node_count; i++)
		hl_profile_counters_add(&joined->counters[after->nodes[i]],
					&after->profile->counters[i]);
}

/* ---- all of it ---- */

/* All but the warnings. */
static int describe(struct hl_profile *joined, const struct side *before, const struct side *after)
{
	const struct hl_profile *from = after->profile;
	struct {
		uint32_t id, *ret_id;
	} texts[] = {
		{from->name, &joined->name},	 {from->command, &joined->command},
		{from->host, &joined->host},	 {from->kernel, &joined->kernel},
		{from->mode, &joined->mode},	 {from->tool_version, &joined->tool_version},
		{from->source, &joined->source}, {from->filter, &joined->filter},
		{from->moment, &joined->moment},
	};

	describe_frames(joined, before);
	describe_frames(joined, after);
	int r = describe_modules(joined, before);
	if (r == 0)
		r = describe_modules(joined, after);
	for (size_t i = 0; r == 0 && i < HL_COUNT_OF(texts); i++)
		r = copy_text(joined, from, texts[i].id, texts[i].ret_id);
	joined->imported = from->imported;
	joined->sample_bytes = from->sample_bytes;
	joined->start_realtime_ns = from->start_realtime_ns;
	joined->duration_ns = from->duration_ns;
	joined->moment_ms = from->moment_ms;
	joined->complete = from->complete;
	joined->snapshot = from->snapshot;
	joined->attached = from->attached;
	joined->left_running = from->left_running;
	joined->no_scripts = from->no_scripts;
	joined->reset_ns = from->reset_ns;
	joined->running = from->running;
	joined->unrecorded_children = from->unrecorded_children;
	joined->refused_children = from->refused_children;
	joined->recorded_process_count = from->recorded_process_count;
	joined->recorded_process_number = from->recorded_process_number;
	joined->total = from->total;
	joined->unfiltered_total = from->unfiltered_total;
	joined->spliced = true;
	joined->folds_plumbing = from->folds_plumbing;
	joined->host_folded = from->host_folded || before->profile->host_folded;
	joined->plumbing_folded = from->plumbing_folded || before->profile->plumbing_folded;
	joined->lost = from->lost;
	joined->lost_log_events = from->lost_log_events;
	joined->script_unmatched = from->script_unmatched;
	if (r == 0)
		r = copy_processes(joined, from);
	if (r == 0)
		r = copy_rows(joined, after);
	return r;
}

/* The stacks of both in one profile without figures. */
static int join_stacks(struct side *before, struct side *after, struct hl_profile **ret_joined)
{
	HL_CLEANUP(hl_builder_release) struct hl_builder builder = {0};
	HL_FREED uint32_t *final_ids = NULL;

	int r = hl_builder_init(&builder);
	if (r == 0)
		r = hl_builder_reserve(&builder, after->profile->node_count);
	if (r == 0)
		r = intern_side(&builder, after);
	if (r == 0)
		r = intern_side(&builder, before);
	if (r == 0)
		r = hl_builder_finish(&builder, &final_ids, ret_joined);
	if (r < 0)
		return r;
	for (size_t i = 0; i < before->profile->node_count; i++)
		before->nodes[i] = final_ids[before->nodes[i]];
	for (size_t i = 0; i < after->profile->node_count; i++)
		after->nodes[i] = final_ids[after->nodes[i]];
	return 0;
}

static int join(struct side *before, struct side *after, struct scaler *scaler,
		struct hl_profile **ret_profile)
{
	const struct hl_profile *from = before->profile;
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *joined = NULL;

	int r = join_stacks(before, after, &joined);
	if (r < 0)
		return r;
	add_counters(joined, after);
	r = add_base(joined, before, scaler);
	if (r == 0)
		r = describe(joined, before, after);
	if (r == 0)
		r = copy_warnings(joined, after->profile);
	for (size_t i = 0; r == 0 && i < from->warning_count; i++)
		r = hl_profile_warn(joined, "'%s': %s", hl_profile_text(from, from->name),
				    hl_profile_text(from, from->warnings[i]));
	if (r == 0)
		r = warn_of_doubts(joined, from);
	if (r < 0)
		return r;
	for (int value = 0; value < HL_VALUE_COUNT; value++)
		for (int unit = 0; unit < HL_UNIT_COUNT; unit++)
			joined->known[value][unit] =
				from->known[value][unit] && after->profile->known[value][unit];
	*ret_profile = HL_TAKE(joined);
	return 0;
}

static int fail(const struct hl_profile *before, const struct hl_profile *after, int code,
		struct hl_error *err)
{
	return hl_error_set(err, code, "cannot compare '%s' with '%s': %s",
			    hl_profile_text(before, before->name),
			    hl_profile_text(after, after->name), strerror(-code));
}

int hl_profile_join(const struct hl_profile *before, const struct hl_profile *after, bool normalize,
		    struct hl_profile **ret_profile, struct hl_error *err)
{
	struct scaler scaler = {.numerator = 1, .denominator = 1};
	HL_CLEANUP(release_side) struct side of_before = {0};
	HL_CLEANUP(release_side) struct side of_after = {0};

	bool has_common = false;
	for (int value = 0; value < HL_VALUE_COUNT; value++)
		for (int unit = 0; unit < HL_UNIT_COUNT; unit++)
			has_common |= before->known[value][unit] && after->known[value][unit];
	if (!has_common)
		return hl_error_set(err, -ENODATA,
				    "cannot compare '%s' with '%s': they hold no value in common; "
				    "'heapline info' shows what each of them holds",
				    hl_profile_text(before, before->name),
				    hl_profile_text(after, after->name));
	if (normalize) {
		const struct hl_profile *timeless = before->duration_ns ? after : before;
		if (!timeless->duration_ns)
			return hl_error_set(
				err, -ENODATA,
				"cannot normalize by time: '%s' does not say how long it "
				"took; compare without --normalize",
				hl_profile_text(timeless, timeless->name));
		scaler.numerator = after->duration_ns;
		scaler.denominator = before->duration_ns;
	}
	int r = init_side(&of_before, before);
	if (r == 0)
		r = init_side(&of_after, after);
	if (r == 0)
		r = join(&of_before, &of_after, &scaler, ret_profile);
	return r < 0 ? fail(before, after, r, err) : 0;
}

int hl_profile_join_stacks(const struct hl_profile *profile, const struct hl_profile *more,
			   struct hl_profile **ret_profile, uint32_t **ret_nodes,
			   struct hl_error *err)
{
	HL_CLEANUP(release_side) struct side other = {0};
	HL_CLEANUP(release_side) struct side whole = {0};
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *joined = NULL;

	int r = init_side(&other, more);
	if (r == 0)
		r = init_side(&whole, profile);
	other.same_modules = whole.same_modules = true;
	if (r == 0)
		r = join_stacks(&other, &whole, &joined);
	if (r == 0) {
		add_counters(joined, &whole);
		memcpy(joined->known, profile->known, sizeof(joined->known));
		r = describe(joined, &other, &whole);
	}
	if (r == 0)
		r = copy_warnings(joined, profile);
	if (r < 0)
		return fail(more, profile, r, err);
	*ret_nodes = HL_TAKE(other.nodes);
	*ret_profile = HL_TAKE(joined);
	return 0;
}
