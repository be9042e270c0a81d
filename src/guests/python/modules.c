/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CPython in this process, as a guest of the recorder: finds it among the modules, and makes it a provider of script
 * frames. A module is looked at when it is entered, and opened at the next allocation, outside of all locks. The allocator of its
 * objects is wrapped.
 */
#include "recorder/modules.h"
#include "guests/guest.h"
#include "guests/python/python.h"
#include "recorder/hooks.h"
#include "recorder/recorder.h"
#include "region/region.h"
#include "unwind/saved.h"

#include <dlfcn.h>
#include <string.h>

/* ---- its allocator ---- */

/*
 * The objects of Python: up to 512 bytes are cut from arenas by an allocator of the interpreter's own,
 * pymalloc, which calls malloc() for none of them. It is wrapped where the interpreter keeps its address.
 *
 * Both domains that it serves (PyMem_Malloc(), PyObject_Malloc()) are. An interpreter that uses malloc() in its
 * place (PYTHONMALLOC=malloc) is left alone: malloc() is recorded anyway; as it is for what pymalloc takes from
 * there. Under PYTHONMALLOC=debug the objects are those that the debugging layer asks for.
 */

/* Of Python's C API: the domains of allocators. */
enum domain {
	DOMAIN_RAW,
	DOMAIN_MEM,
	DOMAIN_OBJECT,
};

/* Python's PyMemAllocatorEx, since 3.5, and PyObjectArenaAllocator, since 3.4, are laid out as struct hl_objects_allocator and
 * struct hl_objects_arenas. */
struct allocator_api {
	hl_objects_allocator_fn *get_allocator, *set_allocator;
	void (*get_arenas)(struct hl_objects_arenas *ret_arenas);
	void (*set_arenas)(struct hl_objects_arenas *arenas);
	int (*is_initialized)(void);
	void *(*thread_state)(void);	/* of the thread that holds the lock */
	void *(*state_of_thread)(void); /* of the calling thread */
};

/* All outlive the recorder: a forked child goes on with them. */
static struct allocator_api allocator_api;
static bool maps_arenas; /* mappings are recorded */

static bool is_same(const struct hl_objects_allocator *a, const struct hl_objects_allocator *b)
{
	return a->malloc == b->malloc && a->calloc == b->calloc && a->realloc == b->realloc &&
	       a->free == b->free;
}

/*
 * Whether the interpreter begins with pymalloc: it serves two domains and the third has malloc(). Without
 * it all three have; and where threads run in parallel no two have the same.
 */
static bool find_real(const struct allocator_api *it)
{
	struct hl_objects_allocator raw, memory, object;

	hl_objects_call(it->get_allocator, DOMAIN_RAW, &raw);
	hl_objects_call(it->get_allocator, DOMAIN_MEM, &memory);
	hl_objects_call(it->get_allocator, DOMAIN_OBJECT, &object);
	if (!is_same(&memory, &object) || object.malloc == raw.malloc || object.context)
		return false;
	hl_objects_real = object;
	hl_objects_take(&object);
	return true;
}

static bool may_change(void)
{
	if (!allocator_api.is_initialized())
		return true;
	void *state = allocator_api.state_of_thread();
	return state && state == allocator_api.thread_state();
}

/* What the debugging layer's context is: a letter, and whom it asks. */
struct debug_context {
	char letter;
	struct hl_objects_allocator allocator;
};

/* The context of an unknown allocator may be anything. */
static struct debug_context *debug_context(void *context, enum domain domain)
{
	struct debug_context *it = context;

	return hl_memory_object_is_readable((uint64_t)it, sizeof(*it)) &&
			       it->letter == (domain == DOMAIN_MEM ? 'm' : 'o')
		       ? it
		       : NULL;
}

static bool is_real(const struct hl_objects_allocator *allocator)
{
	return is_same(allocator, &hl_objects_real);
}

/* Whether anything may be left to do: not once somebody else's allocator is there. */
static bool wrap(enum domain domain)
{
	struct hl_objects_allocator now;

	hl_objects_call(allocator_api.get_allocator, domain, &now);
	struct hl_objects_allocator wrapped = *hl_objects_hooks.allocator;
	if (is_same(&now, hl_objects_hooks.allocator))
		return true;
	if (is_real(&now)) {
		hl_objects_call(allocator_api.set_allocator, domain, &wrapped);
		return true;
	}
	struct debug_context *debug = debug_context(now.context, domain);
	if (debug && is_real(&debug->allocator))
		debug->allocator = wrapped;
	return debug;
}

static void wrap_arenas(void)
{
	struct hl_objects_arenas wrapped = *hl_objects_hooks.arenas;

	allocator_api.get_arenas(&hl_objects_real_arenas);
	wrapped.context = hl_objects_real_arenas.context;
	allocator_api.set_arenas(&wrapped);
}

/*
 * The interpreter sets its allocators once more as it starts, by its environment and its options. So
 * this looks until it has started.
 */
static void look(void)
{
	static _Atomic uint32_t lock;
	uint32_t free = 0;

	if (!atomic_compare_exchange_strong(&lock, &free, 1))
		return;
	if (may_change()) {
		if (maps_arenas && !hl_objects_real_arenas.allocate)
			wrap_arenas();
		bool memory = wrap(DOMAIN_MEM), object = wrap(DOMAIN_OBJECT);
		if ((!memory && !object) || allocator_api.is_initialized())
			atomic_store(&hl_guest_wants.look, NULL);
	}
	atomic_store(&lock, 0);
}

/* Notes a module that has been loaded, if it is an interpreter. The first one counts. */
static void python_objects_note(struct hl_region_header *header, const struct hl_exports *exports)
{
	uint32_t flags = atomic_load(&header->flags);

	/* Where arenas cannot be left out of the mappings their objects would count twice. */
	if (!hl_objects_hooks.allocator || allocator_api.get_allocator ||
	    flags & HL_REGION_NO_OBJECTS ||
	    (!hl_objects_hooks.arenas && flags & HL_REGION_MAPPINGS))
		return;
	struct allocator_api found = {
		.get_allocator =
			(hl_objects_allocator_fn *)hl_exports_find(exports, "PyMem_GetAllocator"),
		.set_allocator =
			(hl_objects_allocator_fn *)hl_exports_find(exports, "PyMem_SetAllocator"),
		.get_arenas = (void (*)(struct hl_objects_arenas *))hl_exports_find(
			exports, "PyObject_GetArenaAllocator"),
		.set_arenas = (void (*)(struct hl_objects_arenas *))hl_exports_find(
			exports, "PyObject_SetArenaAllocator"),
		.is_initialized = (int (*)(void))hl_exports_find(exports, "Py_IsInitialized"),
		.thread_state =
			(void *(*)(void))hl_exports_find(exports, "_PyThreadState_UncheckedGet"),
		.state_of_thread =
			(void *(*)(void))hl_exports_find(exports, "PyGILState_GetThisThreadState"),
	};
	if (!found.thread_state) /* 3.13 */
		found.thread_state =
			(void *(*)(void))hl_exports_find(exports, "PyThreadState_GetUnchecked");
	if (!found.get_allocator || !found.set_allocator || !found.get_arenas ||
	    !found.set_arenas || !found.is_initialized || !found.thread_state ||
	    !found.state_of_thread || !find_real(&found))
		return;
	allocator_api = found;
	maps_arenas = flags & HL_REGION_MAPPINGS;
	atomic_store(&hl_guest_wants.look, look);
}

/* ---- the module ---- */

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

	python_objects_note(header, module->exports);
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
	.linked = python_objects_note,
	.note = note,
	.open = open_noted,
	.unloaded = retire_unloaded,
};
