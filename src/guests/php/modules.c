/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * PHP in this process, as a guest of the recorder: finds it among the modules, and makes it a provider of script frames. A
 * module is looked at when it is entered, and opened at the next allocation, outside of all locks; its release is known
 * once it has started.
 */
#include "recorder/modules.h"
#include "guests/guest.h"
#include "guests/php/php.h"
#include "recorder/node.h"
#include "recorder/recorder.h"
#include "region/region.h"
#include "unwind/rule_cache.h"
#include "unwind/saved.h"

#include <dlfcn.h>
#include <string.h>

enum phase {
	PHASE_NONE,
	PHASE_FOUND,
	PHASE_OPENING,
	PHASE_OPEN,
	PHASE_REFUSED, /* its frames cannot be read */
	PHASE_GONE,
};

/* How many there may have been, each at another address: recordings know the code of each by its provider, for as long as they go
 * on, and other guests need some of the HL_SCRIPT_PROVIDERS_MAX. */
#define INTERPRETERS 16u

/* All outlive the recorder: a forked child starts another one. A server that loads its module once more has another one. */
static struct interpreter {
	_Atomic uint32_t phase;
	bool is_registered;
	struct hl_php_api api;
	struct hl_php php;
} interpreters[INTERPRETERS];

#define AROUND_GAP 64u /* bytes at most between two functions that lie side by side */

/* Where a program has the library's variable that it was linked with: in itself (a copy relocation); 0: nowhere. */
static _Atomic uint64_t copied_globals;

static uint64_t address_of(const struct hl_exports *exports, const Elf64_Sym *symbol)
{
	return symbol ? exports->load_bias + symbol->st_value : 0;
}

/* The code around scripts, where that is one piece; else the part of it that ends requests. */
static void find_around(const struct hl_exports *exports, struct hl_php_api *api)
{
	const Elf64_Sym *first = hl_exports_symbol(exports, "php_request_startup");
	const Elf64_Sym *last = hl_exports_symbol(exports, "php_request_shutdown");
	uint64_t end = address_of(exports, first) + (first ? first->st_size : 0);

	if (!last || !last->st_size)
		return;
	api->around_start = address_of(exports, last);
	api->around_end = api->around_start + last->st_size;
	if (first && api->around_start - end < AROUND_GAP)
		api->around_start = address_of(exports, first);
}

static bool find_api(const struct hl_guest_module *module, const Elf64_Sym *eval,
		     struct hl_php_api *ret_api)
{
	const struct hl_exports *exports = module->exports;
	const Elf64_Sym *globals = hl_exports_symbol(exports, "executor_globals");
	uint64_t version = hl_exports_find(exports, "get_zend_version");

	if (!globals || !globals->st_value || !eval->st_size || !version)
		return false;
	uint64_t start = address_of(exports, eval);
	*ret_api = (struct hl_php_api){
		.globals = address_of(exports, globals),
		.globals_bytes = globals->st_size,
		.version = version,
		.generator = address_of(exports, hl_exports_symbol(exports, "zend_ce_generator")),
		.eval_start = start,
		.eval_end = start + eval->st_size,
		.start = (uint64_t)module->object->dlfo_map_start,
		.end = (uint64_t)module->object->dlfo_map_end,
		.eh_frame_hdr = module->object->dlfo_eh_frame,
	};
	find_around(exports, ret_api);
	return true;
}

static bool is_loaded(const struct interpreter *it)
{
	struct dl_find_object object;

	return _dl_find_object((void *)it->api.eval_start, &object) == 0 &&
	       (uint64_t)object.dlfo_map_start == it->api.start;
}

/* The provider of one that was unloaded serves what is loaded there now. NULL: one is known, perhaps from before a fork, and a
 * second one has no frames; or there is no room, which *${ret_is_full} says. */
static struct interpreter *place_for(const struct hl_php_api *api, bool *ret_is_full)
{
	struct interpreter *found = NULL;

	for (size_t i = HL_COUNT_OF(interpreters); i-- > 0;) {
		struct interpreter *it = &interpreters[i];
		uint32_t phase = atomic_load(&it->phase);
		if (phase != PHASE_NONE && phase != PHASE_GONE)
			return NULL;
		bool is_same = phase == PHASE_GONE && it->api.eval_start == api->eval_start &&
			       it->api.eval_end == api->eval_end;
		if (is_same ||
		    (phase == PHASE_NONE && (!found || atomic_load(&found->phase) == PHASE_NONE)))
			found = it;
	}
	*ret_is_full = !found;
	return found;
}

static bool note(struct hl_region_header *header, const struct hl_guest_module *module)
{
	const Elf64_Sym *eval = hl_exports_symbol(module->exports, "execute_ex");
	struct interpreter *it;
	struct hl_php_api api;
	bool is_full = false;

	const Elf64_Sym *globals = hl_exports_symbol(module->exports, "executor_globals");
	if (globals && globals->st_value && !eval && module->is_program)
		atomic_store(&copied_globals, address_of(module->exports, globals));
	if (module->no_scripts || !eval || !eval->st_value)
		return false;
	if (hl_exports_symbol(module->exports, "executor_globals_offset")) {
		hl_script_refuse(header, "PHP", hl_php_problem_text(HL_PHP_THREAD_SAFE));
		return false;
	}
	it = find_api(module, eval, &api) ? place_for(&api, &is_full) : NULL;
	if (is_full)
		hl_script_refuse(header, "PHP", hl_php_problem_text(HL_PHP_TOO_OFTEN));
	if (!it)
		return false;
	it->api = api;
	atomic_store(&it->phase, PHASE_FOUND);
	return true;
}

/* One that is gone is not asked any more. */
static void retire_unloaded(void)
{
	for (size_t i = 0; i < HL_COUNT_OF(interpreters); i++)
		if (atomic_load(&interpreters[i].phase) != PHASE_NONE &&
		    !is_loaded(&interpreters[i]))
			atomic_store(&interpreters[i].phase, PHASE_GONE);
}

static void refuse(struct hl_recorder *recorder, struct interpreter *it,
		   enum hl_php_problem problem)
{
	uint32_t open = PHASE_OPEN;

	if (atomic_compare_exchange_strong(&it->phase, &open, PHASE_REFUSED))
		hl_script_refuse(recorder->region.header, "PHP", hl_php_problem_text(problem));
}

/* Whether it is known which release it is. */
static __attribute__((noinline)) bool choose(struct interpreter *it)
{
	enum hl_php_problem problem = hl_php_choose(&it->php);
	uint64_t copied = atomic_load(&copied_globals);

	/* The program is outward of the interpreter, so it has been noted by now. */
	if (copied)
		it->php.api.globals = copied;

	if (problem != HL_PHP_FITS && problem != HL_PHP_NOT_STARTED)
		refuse(hl_recorder, it, problem);
	return problem == HL_PHP_FITS;
}

static uint32_t capture(void *state, const struct hl_script_caller *caller,
			struct hl_script_frame *frames, uint32_t max, bool *ret_truncated)
{
	struct interpreter *it = state;

	if (HL_UNLIKELY(atomic_load_explicit(&it->phase, memory_order_acquire) != PHASE_OPEN) ||
	    (HL_UNLIKELY(!atomic_load_explicit(&it->php.layout, memory_order_acquire)) &&
	     !choose(it)))
		return 0;
	uint32_t count = hl_php_capture(&it->php, caller, frames, max, ret_truncated);
	caller->stamp->value = hl_php_request(hl_recorder, &it->api);
	if (HL_UNLIKELY(!count) && hl_php_is_refused(&it->php))
		refuse(hl_recorder, it, HL_PHP_NOT_PROVED);
	return count;
}

static uint32_t recapture(void *state, const struct hl_script_caller *caller,
			  struct hl_script_frame *frames, uint32_t max)
{
	struct interpreter *it = state;

	if (HL_UNLIKELY(atomic_load_explicit(&it->phase, memory_order_acquire) != PHASE_OPEN))
		return HL_SCRIPT_GAVE_UP;
	caller->stamp->value = hl_php_request(hl_recorder, &it->api);
	return hl_php_recapture(&it->php, caller, frames, max);
}

static bool describe(void *state, const struct hl_script_frame *frame,
		     struct hl_script_place *ret_place)
{
	const struct interpreter *it = state;

	return hl_php_describe(&it->php, frame, ret_place);
}

static void open_one(struct interpreter *it)
{
	uint32_t found = PHASE_FOUND, opening = PHASE_OPENING;

	if (!atomic_compare_exchange_strong(&it->phase, &found, PHASE_OPENING) || !is_loaded(it))
		return;
	memset(&it->php, 0, sizeof(it->php));
	hl_php_open(&it->php, &it->api);
	struct hl_script_provider provider = {
		.name = "php",
		.capture = capture,
		.recapture = recapture,
		.describe = describe,
		.state = it,
		.remembers = true,
		.by_stack = true,
		.eval_start = it->api.eval_start,
		.eval_end = it->api.eval_end,
		.cold_start = it->php.cold_start,
		.cold_end = it->php.cold_end,
		.resume_start = it->api.around_start,
		.resume_end = it->api.around_end,
		.text_start = it->api.start,
		.text_end = it->api.end,
	};
	if (it->is_registered || hl_script_register(&provider) == 0) {
		it->is_registered = true;
		atomic_compare_exchange_strong(&it->phase, &opening, PHASE_OPEN);
	}
}

static void open_noted(struct hl_recorder *recorder)
{
	(void)recorder;
	for (size_t i = 0; i < HL_COUNT_OF(interpreters); i++)
		open_one(&interpreters[i]);
}

/* ---- code that opcache's JIT has made ---- */

/* It has no frame of its own: execute_ex() jumps to it, and leaves room for it in its frame. */

#define WORDS_MAX 64u /* of that frame */

static bool is_return(const struct interpreter *it, struct hl_walk *walk, uint64_t at)
{
	return hl_memory_is_readable(walk, at) &&
	       hl_php_word(at, 0) - it->api.start < it->api.end - it->api.start;
}

/* Whether a frame with a frame pointer that begins at ${sp} was called by the interpreter. */
static bool is_called(const struct interpreter *it, struct hl_walk *walk, uint64_t sp)
{
	for (uint64_t at = sp + 8; at < sp + 8 * WORDS_MAX; at += 8)
		if (is_return(it, walk, at) && hl_php_word(at - 8, 0) > at)
			return true;
	return false;
}

static uint64_t find_generated(struct hl_unwind *unwind, struct hl_walk *walk, uint64_t sp)
{
	const struct interpreter *it = interpreters;

	while (it < interpreters + HL_COUNT_OF(interpreters) &&
	       atomic_load_explicit(&it->phase, memory_order_acquire) != PHASE_OPEN)
		it++;
	if (it == interpreters + HL_COUNT_OF(interpreters))
		return 0;
	uint64_t inside = it->api.eval_start + (it->api.eval_end - it->api.eval_start) / 2;

	uint64_t found = hl_rule_cache_find(
		unwind, atomic_load_explicit(&unwind->generation, memory_order_relaxed), inside);
	hl_rule rule = found & HL_RULE_MASK;
	enum hl_rule_kind kind = hl_rule_kind_of(rule);
	if (!(kind == HL_RULE_SP &&
	      is_return(it, walk, sp + (uint64_t)hl_rule_cfa_offset(rule) - 8)) &&
	    !(kind == HL_RULE_BP && is_called(it, walk, sp)))
		return 0;
	atomic_store_explicit(&hl_node_generated_key, (found & ~HL_RULE_MASK) | inside,
			      memory_order_relaxed);
	return rule;
}

/* Who empties the memory manager ends a request, or has loaded PHP. */
static void end_request(uint64_t pc)
{
	for (size_t i = 0; i < HL_COUNT_OF(interpreters); i++)
		if (atomic_load(&interpreters[i].phase) == PHASE_OPEN &&
		    pc - interpreters[i].api.start <
			    interpreters[i].api.end - interpreters[i].api.start)
			hl_php_requests_end(hl_recorder);
}

const struct hl_guest hl_guest_php = {
	.note = note,
	.open = open_noted,
	.unloaded = retire_unloaded,
	.stamp = hl_php_requests_stamp,
	.pool_resets = end_request,
	.find_generated = find_generated,
};
