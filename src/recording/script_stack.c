/* SPDX-License-Identifier: BSD-2-Clause */
/* Which frames a mixed stack has, in which order; see recording.h. */
#include "recording/recording.h"

#include "base/frame_key.h"

#include <string.h>

/* ---- parts ---- */

enum hl_frame_part hl_frame_part_of_provider(const struct hl_recording_provider *provider)
{
	return strcmp(provider->name, HL_POOL_PROVIDER) == 0	  ? HL_PART_NATIVE
	       : strcmp(provider->name, HL_TYPE_PROVIDER) == 0	  ? HL_PART_TYPE
	       : strcmp(provider->name, HL_SERVICE_PROVIDER) == 0 ? HL_PART_SERVICE
	       : strcmp(provider->name, HL_AGE_PROVIDER) == 0	  ? HL_PART_AGE
								  : HL_PART_SCRIPT;
}

enum hl_frame_part hl_frame_part_of_site(const struct hl_recording_process *process,
					 const struct hl_recording_site *site, bool is_entry)
{
	enum hl_frame_part part = hl_frame_part_of_provider(&process->providers[site->provider]);
	const char *function = process->site_names[site->function];
	const char *source = process->site_names[site->source];

	if (part != HL_PART_SCRIPT)
		return part;
	if (!*function && !*source && !site->line)
		return HL_PART_ENDED;
	return is_entry ? HL_PART_ENTRY : HL_PART_SCRIPT;
}

static bool is_within(uint64_t pc, uint64_t start, uint64_t end)
{
	return pc >= start && pc < end;
}

enum hl_frame_part hl_frame_part_of_code(const struct hl_recording_provider *provider, uint64_t pc)
{
	if (is_within(pc, provider->eval_start, provider->eval_end) ||
	    is_within(pc, provider->cold_start, provider->cold_end))
		return HL_PART_EVAL;
	if (is_within(pc, provider->alloc_start, provider->alloc_end))
		return HL_PART_ALLOCATES;
	return is_within(pc, provider->text_start, provider->text_end) ? HL_PART_INTERPRETER
								       : HL_PART_NATIVE;
}

static bool is_script(const struct hl_stack_frame *frame)
{
	return frame->part == HL_PART_SCRIPT || frame->part == HL_PART_ENTRY ||
	       frame->part == HL_PART_ENDED;
}

struct hl_script_stack hl_script_stack(const struct hl_stack_frame *frames, size_t count)
{
	struct hl_script_stack stack = {.frames = frames, .count = count};

	while (stack.scripts < count && !is_script(&frames[stack.scripts]))
		stack.scripts++;
	stack.rest = stack.scripts;
	while (stack.rest < count && is_script(&frames[stack.rest]))
		stack.rest++;
	return stack;
}

/* ---- groups and calls ---- */

/* The groups of one runtime in one stack, and the calls of its main function. */
struct match {
	uint32_t runtime;
	size_t groups, calls;
	size_t entries; /* groups that native code called: one that begins otherwise has no call */
	size_t next;	/* where its next group begins */
};

#define RUNTIMES_MAX \
	8 /* a region has no more; groups of more in a damaged recording are left out */

struct mixing {
	const struct hl_script_stack *stack;
	struct match matches[RUNTIMES_MAX];
	size_t match_count;
	uint32_t *ids;
	size_t id_count;
};

static void put_run(struct mixing *mixing, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		mixing->ids[mixing->id_count++] = mixing->stack->frames[i].id;
}

/* Where the group that begins at ${from} ends; groups of several runtimes follow each other. */
static size_t end_of_group(const struct hl_script_stack *stack, size_t from)
{
	const struct hl_stack_frame *frames = stack->frames;
	size_t at = from + 1;

	while (at < stack->rest && frames[at].part == HL_PART_SCRIPT &&
	       frames[at].runtime == frames[from].runtime)
		at++;
	return at;
}

static void count_matches(struct mixing *mixing)
{
	const struct hl_script_stack *stack = mixing->stack;
	struct match *matches = mixing->matches;
	size_t count = 0;

	for (size_t at = stack->scripts; at < stack->rest; at = end_of_group(stack, at)) {
		uint32_t runtime = stack->frames[at].runtime;
		size_t i = 0;
		while (i < count && matches[i].runtime != runtime)
			i++;
		if (i == RUNTIMES_MAX)
			break;
		if (i == count)
			matches[count++] = (struct match){.runtime = runtime, .next = at};
		matches[i].groups++;
		matches[i].entries += stack->frames[at].part != HL_PART_SCRIPT;
	}
	for (size_t at = 0; at < stack->scripts; at++)
		for (size_t i = 0; i < count; i++)
			matches[i].calls += stack->frames[at].part == HL_PART_EVAL &&
					    stack->frames[at].runtime == matches[i].runtime;
	mixing->match_count = count;
}

/* The runtime of ${frame} among the matches, if that is a frame of an interpreter; or NULL. */
static struct match *match_of(struct mixing *mixing, const struct hl_stack_frame *frame)
{
	for (size_t i = 0; i < mixing->match_count; i++)
		if (frame->part != HL_PART_NATIVE && frame->runtime == mixing->matches[i].runtime)
			return &mixing->matches[i];
	return NULL;
}

static bool has_ended(const struct mixing *mixing, const struct match *match)
{
	return mixing->stack->frames[match->next].part == HL_PART_ENDED;
}

static void put_group(struct mixing *mixing, struct match *match)
{
	size_t end = end_of_group(mixing->stack, match->next);

	if (!has_ended(mixing, match))
		put_run(mixing, match->next, end);
	match->next = end;
	match->groups--;
}

/* One call of the main function: its group, and before the first call all that have none. */
static void put_call(struct mixing *mixing, struct match *match, size_t place)
{
	if (match->calls-- > match->groups || has_ended(mixing, match))
		put_run(mixing, place, place + 1);
	while (match->groups > match->calls)
		put_group(mixing, match);
}

size_t hl_script_stack_mix(const struct hl_script_stack *stack, uint32_t *ret_ids,
			   bool *ret_unmatched)
{
	struct mixing mixing = {.stack = stack, .ids = ret_ids};
	bool is_allocator = false;

	count_matches(&mixing);
	*ret_unmatched = false;
	for (size_t i = 0; i < mixing.match_count; i++)
		*ret_unmatched |= mixing.matches[i].calls != mixing.matches[i].groups &&
				  mixing.matches[i].calls != mixing.matches[i].entries;
	for (size_t at = 0; at < stack->scripts; at++) {
		const struct hl_stack_frame *frame = &stack->frames[at];
		struct match *match = match_of(&mixing, frame);
		if (match)
			is_allocator = frame->part == HL_PART_ALLOCATES;
		bool is_call = match && frame->part == HL_PART_EVAL;
		/* The outermost frame stays, an interpreter's own, too: it is that of stacks without
		 * scripts. */
		if ((!match && !is_allocator) || (at == 0 && !is_call))
			put_run(&mixing, at, at + 1);
		else if (is_call)
			put_call(&mixing, match, at);
	}
	/* Groups without any call of a main function. */
	for (size_t i = 0; i < mixing.match_count; i++)
		while (mixing.matches[i].groups)
			put_group(&mixing, &mixing.matches[i]);
	put_run(&mixing, stack->rest, stack->count);
	return mixing.id_count;
}
