/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ruby in this process, as a guest of the recorder: finds it among the modules, and makes it a provider of script frames. A
 * module is looked at when it is entered, and opened at the next allocation, outside of all locks.
 */
#include "recorder/modules.h"
#include "guests/guest.h"
#include "guests/ruby/ruby.h"
#include "recorder/node.h"
#include "recorder/recorder.h"
#include "unwind/rule_cache.h"

#include <dlfcn.h>

enum phase {
	PHASE_NONE,
	PHASE_FOUND,
	PHASE_OPENING,
	PHASE_OPEN,
	PHASE_REFUSED, /* its frames cannot be read */
	PHASE_GONE,
};

/* The first one of the process: a program has one. It outlives the recorder: a forked child starts another one. */
static struct {
	_Atomic uint32_t phase;
	struct hl_ruby_api api;
	struct hl_ruby ruby;
} interpreter;

static bool find_api(const struct hl_guest_module *module, struct hl_ruby_api *ret_api)
{
	const Elf64_Sym *release = hl_exports_symbol(module->exports, "ruby_api_version");
	struct hl_ruby_api api = {
		.profile_frames = hl_exports_find(module->exports, "rb_profile_frames"),
		.start = (uint64_t)module->object->dlfo_map_start,
		.end = (uint64_t)module->object->dlfo_map_end,
		.eh_frame_hdr = module->object->dlfo_eh_frame,
	};

	if (!release || !api.profile_frames)
		return false;
	const uint32_t *numbers =
		(const uint32_t *)(module->exports->load_bias + release->st_value);
	api.release = numbers[0] * 100 + numbers[1];
	*ret_api = api;
	return true;
}

static bool note(struct hl_region_header *header, const struct hl_guest_module *module)
{
	struct hl_ruby_api api;

	(void)header;
	if (module->no_scripts || atomic_load(&interpreter.phase) != PHASE_NONE ||
	    !find_api(module, &api))
		return false;
	interpreter.api = api;
	atomic_store(&interpreter.phase, PHASE_FOUND);
	return true;
}

static bool is_loaded(void)
{
	struct dl_find_object object;

	return _dl_find_object((void *)interpreter.api.profile_frames, &object) == 0 &&
	       (uint64_t)object.dlfo_map_start == interpreter.api.start;
}

/* One that is gone is not asked any more. */
static void retire_unloaded(void)
{
	if (atomic_load(&interpreter.phase) != PHASE_NONE && !is_loaded())
		atomic_store(&interpreter.phase, PHASE_GONE);
}

/* ---- a provider ---- */

static void refuse(struct hl_recorder *recorder, enum hl_ruby_problem problem)
{
	uint32_t open = PHASE_OPEN, opening = PHASE_OPENING;

	if (atomic_compare_exchange_strong(&interpreter.phase, &open, PHASE_REFUSED) ||
	    atomic_compare_exchange_strong(&interpreter.phase, &opening, PHASE_REFUSED))
		hl_script_refuse(recorder->region.header, "Ruby", hl_ruby_problem_text(problem));
}

static bool is_open(void)
{
	return HL_LIKELY(atomic_load_explicit(&interpreter.phase, memory_order_acquire) ==
			 PHASE_OPEN);
}

static uint32_t capture(void *state, const struct hl_script_caller *caller,
			struct hl_script_frame *frames, uint32_t max, bool *ret_truncated)
{
	struct hl_ruby *ruby = state;

	if (!is_open())
		return 0;
	uint32_t count = hl_ruby_capture(ruby, caller, frames, max, ret_truncated);
	if (HL_UNLIKELY(!count) && hl_ruby_is_refused(ruby))
		refuse(hl_recorder, HL_RUBY_NOT_PROVED);
	return count;
}

static uint32_t recapture(void *state, const struct hl_script_caller *caller,
			  struct hl_script_frame *frames, uint32_t max)
{
	return is_open() ? hl_ruby_recapture(state, caller->memory, frames, max)
			 : HL_SCRIPT_GAVE_UP;
}

static bool describe(void *state, const struct hl_script_frame *frame,
		     struct hl_script_place *ret_place)
{
	return hl_ruby_describe(state, frame, ret_place);
}

/* Code that YJIT has made stands for the loop. */
static uint64_t find_generated(struct hl_unwind *unwind, struct hl_walk *walk, uint64_t sp)
{
	const struct hl_ruby *ruby = &interpreter.ruby;
	uint64_t bytes = is_open() ? hl_ruby_generated_frame(ruby, walk, sp) : 0;

	if (!bytes)
		return 0;
	uint64_t rule = hl_rule_cache_find(
		unwind, atomic_load_explicit(&unwind->generation, memory_order_relaxed),
		ruby->loop_start);
	atomic_store_explicit(&hl_node_generated_key, (rule & ~HL_RULE_MASK) | ruby->loop_start,
			      memory_order_relaxed);
	return hl_arch_rule_of_leaf_frame(bytes);
}

static void open_noted(struct hl_recorder *recorder)
{
	uint32_t found = PHASE_FOUND, opening = PHASE_OPENING;
	struct hl_ruby *ruby = &interpreter.ruby;

	if (!atomic_compare_exchange_strong(&interpreter.phase, &found, PHASE_OPENING) ||
	    !is_loaded())
		return;
	enum hl_ruby_problem problem = hl_ruby_open(ruby, &interpreter.api);
	struct hl_script_provider provider = {
		.name = "ruby",
		.capture = capture,
		.recapture = recapture,
		.describe = describe,
		.state = ruby,
		.remembers = true,
		.eval_start = ruby->eval_start,
		.eval_end = ruby->eval_end,
		.text_start = ruby->api.start,
		.text_end = ruby->api.end,
	};
	if (problem != HL_RUBY_FITS)
		refuse(recorder, problem);
	else if (hl_script_register(&provider) == 0)
		atomic_compare_exchange_strong(&interpreter.phase, &opening, PHASE_OPEN);
	if (problem == HL_RUBY_FITS && ruby->layout->has_transient_heap)
		hl_script_note(recorder->region.header, "Ruby",
			       "elements of small arrays and hashes lie in its transient heap; "
			       "what a collection moves from there to malloc counts where it ran");
}

const struct hl_guest hl_guest_ruby = {
	.note = note,
	.open = open_noted,
	.unloaded = retire_unloaded,
	.find_generated = find_generated,
};
