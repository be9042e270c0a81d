/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CPython in this process, as a guest of the recorder: finds it among the modules, and makes it a provider of script
 * frames. A module is looked at when it is entered, and opened at the next allocation, outside of all locks.
 */
#include "guests/guest.h"
#include "guests/python/objects.h"
#include "guests/python/python.h"
#include "recorder/exports.h"
#include "recorder/recorder.h"

#include <dlfcn.h>

#define HL_PYTHON_MODULES_MAX 2u /* of one process; further ones have no frames */

enum phase {
	PHASE_NONE,
	PHASE_FOUND,
	PHASE_OPENING,
	PHASE_OPEN,
	PHASE_REFUSED, /* its frames cannot be read */
	PHASE_GONE,
};

/* All outlive the recorder: a forked child starts another one. */
static struct interpreter {
	_Atomic uint32_t phase;
	struct hl_python_api api;
	struct hl_python python;
	hl_python_recapture_fn *recapture;
	/* Of its code objects, instead of which ours stands; 0: its own stands there. */
	_Atomic uint64_t end_of_code;
} interpreters[HL_PYTHON_MODULES_MAX];

/* ---- found ---- */

static uint64_t address_of(const struct hl_exports *exports, const char *name)
{
	const Elf64_Sym *symbol = hl_exports_symbol(exports, name);

	return symbol ? exports->load_bias + symbol->st_value : 0;
}

static bool find_api(const struct hl_exports *exports, const struct dl_find_object *object,
		     struct hl_python_api *ret_api)
{
	const Elf64_Sym *eval = hl_exports_symbol(exports, "_PyEval_EvalFrameDefault");
	struct hl_python_api api = {
		.runtime = address_of(exports, "_PyRuntime"),
		.code_type = address_of(exports, "PyCode_Type"),
		.frame_type = address_of(exports, "PyFrame_Type"),
		.current_state = hl_exports_find(exports, "_PyThreadState_UncheckedGet"),
		.own_state = hl_exports_find(exports, "PyGILState_GetThisThreadState"),
		.start = (uint64_t)object->dlfo_map_start,
		.end = (uint64_t)object->dlfo_map_end,
		.eh_frame_hdr = object->dlfo_eh_frame,
	};
	uint64_t version = address_of(exports, "Py_Version");

	if (!api.current_state)
		api.current_state = hl_exports_find(exports, "PyThreadState_GetUnchecked");
	if (!eval || !eval->st_size || !api.code_type || !api.frame_type || !api.current_state ||
	    !api.own_state)
		return false;
	api.version = version ? *(const uint32_t *)version : 0;
	api.eval_start = exports->load_bias + eval->st_value;
	api.eval_end = api.eval_start + eval->st_size;
	*ret_api = api;
	return true;
}

static bool is_loaded(const struct interpreter *it)
{
	struct dl_find_object object;

	return _dl_find_object((void *)it->api.eval_start, &object) == 0 &&
	       (uint64_t)object.dlfo_map_start == it->api.start;
}

static bool note(struct hl_region_header *header, const struct hl_guest_module *module)
{
	struct hl_python_api api;

	hl_python_objects_note(header, module->exports);
	if (module->no_scripts || !find_api(module->exports, module->object, &api))
		return false;
	for (uint32_t i = 0; i < HL_PYTHON_MODULES_MAX; i++) {
		struct interpreter *it = &interpreters[i];
		uint32_t phase = atomic_load(&it->phase);
		if (phase != PHASE_NONE && it->api.eval_start == api.eval_start)
			return false; /* known, perhaps from before a fork */
		if (phase != PHASE_NONE)
			continue;
		it->api = api;
		atomic_store(&it->phase, PHASE_FOUND);
		return true;
	}
	return false;
}

/* One that is gone is not asked any more. */
static void retire_unloaded(void)
{
	for (uint32_t i = 0; i < HL_PYTHON_MODULES_MAX; i++)
		if (atomic_load(&interpreters[i].phase) != PHASE_NONE &&
		    !is_loaded(&interpreters[i]))
			atomic_store(&interpreters[i].phase, PHASE_GONE);
}

/* ---- ends of code objects ---- */

#ifndef HL_ATTACHED

typedef void end_fn(void *code);

/*
 * Instead of the destructor of code objects: what is known of the address is forgotten before another
 * one can lie there. An image that leaves again cannot do so, as a thread may just have loaded our
 * address.
 */
static void end_code(void *code)
{
	uint64_t type = hl_python_word((uint64_t)code, HL_PYTHON_TYPE);
	uint64_t end = 0;

	hl_script_forget((uint64_t)code);
	/* Where ours stands at least one is known, and the type is that of one. */
	for (uint32_t i = 0; i < HL_PYTHON_MODULES_MAX; i++) {
		struct interpreter *it = &interpreters[i];
		uint64_t own = atomic_load(&it->end_of_code);
		if (own && (!end || atomic_load_explicit(&it->python.code_type,
							 memory_order_relaxed) == type))
			end = own;
	}
	((end_fn *)end)(code);
}

/* Has code objects of ${it}, the type of which is known since one has been seen, end by us. */
static void watch_ends(struct interpreter *it)
{
	uint64_t type = atomic_load_explicit(&it->python.code_type, memory_order_relaxed);
	uint64_t none = 0;

	if (HL_LIKELY(it->python.ends_are_told) || !type)
		return;
	_Atomic uint64_t *end = (_Atomic uint64_t *)(type + HL_PYTHON_TYPE_END);
	uint64_t own = atomic_load(end);
	if (!atomic_compare_exchange_strong(&it->end_of_code, &none, own))
		return;
	atomic_store(end, (uint64_t)end_code);
	it->python.ends_are_told = true;
}

#else

static void watch_ends(struct interpreter *it)
{
	(void)it;
}

#endif

/* ---- a provider ---- */

static void refuse(struct hl_recorder *recorder, struct interpreter *it,
		   enum hl_python_problem problem)
{
	uint32_t open = PHASE_OPEN, opening = PHASE_OPENING;

	if (atomic_compare_exchange_strong(&it->phase, &open, PHASE_REFUSED) ||
	    atomic_compare_exchange_strong(&it->phase, &opening, PHASE_REFUSED))
		hl_script_refuse(recorder->region.header, "Python",
				 hl_python_problem_text(problem));
}

static uint32_t capture(void *state, const struct hl_script_caller *caller,
			struct hl_script_frame *frames, uint32_t max, bool *ret_truncated)
{
	struct interpreter *it = state;

	if (HL_UNLIKELY(atomic_load_explicit(&it->phase, memory_order_acquire) != PHASE_OPEN))
		return 0;
	uint32_t count = hl_python_capture(&it->python, caller, frames, max, ret_truncated);
	watch_ends(it);
	if (HL_UNLIKELY(!count) && hl_python_is_refused(&it->python))
		refuse(hl_recorder, it, HL_PYTHON_NOT_PROVED);
	return count;
}

static uint32_t recapture(void *state, const struct hl_script_caller *caller,
			  struct hl_script_frame *frames, uint32_t max)
{
	struct interpreter *it = state;

	return HL_LIKELY(atomic_load_explicit(&it->phase, memory_order_acquire) == PHASE_OPEN)
		       ? it->recapture(&it->python, caller->memory, frames, max)
		       : HL_SCRIPT_GAVE_UP;
}

static bool describe(void *state, const struct hl_script_frame *frame,
		     struct hl_script_place *ret_place)
{
	const struct interpreter *it = state;

	return hl_python_describe(&it->python, frame, ret_place);
}

static void open_interpreter(struct hl_recorder *recorder, struct interpreter *it)
{
	enum hl_python_problem problem = hl_python_open(&it->python, &it->api);
	struct hl_script_provider provider = {
		.name = "python",
		.capture = capture,
		.recapture = recapture,
		.describe = describe,
		.state = it,
		.remembers = true,
		.eval_start = it->api.eval_start,
		.eval_end = it->api.eval_end,
		.cold_start = it->python.cold_start,
		.cold_end = it->python.cold_end,
		.text_start = it->api.start,
		.text_end = it->api.end,
	};
	uint32_t opening = PHASE_OPENING;

	if (problem == HL_PYTHON_FITS)
		it->recapture = hl_python_recapture(&it->python);
	if (problem != HL_PYTHON_FITS)
		refuse(recorder, it, problem);
	else if (hl_script_register(&provider) == 0)
		atomic_compare_exchange_strong(&it->phase, &opening, PHASE_OPEN);
}

static void open_noted(struct hl_recorder *recorder)
{
	for (uint32_t i = 0; i < HL_PYTHON_MODULES_MAX; i++) {
		struct interpreter *it = &interpreters[i];
		uint32_t found = PHASE_FOUND;
		if (atomic_compare_exchange_strong(&it->phase, &found, PHASE_OPENING) &&
		    is_loaded(it))
			open_interpreter(recorder, it);
	}
}

const struct hl_guest hl_guest_python = {
	.linked = hl_python_objects_note,
	.note = note,
	.open = open_noted,
	.unloaded = retire_unloaded,
};
