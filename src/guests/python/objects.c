/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the allocator of Python's objects and wraps it; see objects.h. */
#include "guests/python/objects.h"

#include "guests/guest.h"
#include "recorder/exports.h"
#include "recorder/hooks_objects.h"
#include "region/region.h"
#include "unwind/memory.h"

#include <string.h>

/* Of Python's C API: the domains of allocators. */
enum domain {
	DOMAIN_RAW,
	DOMAIN_MEM,
	DOMAIN_OBJECT,
};

/* Python's PyMemAllocatorEx, since 3.5, and PyObjectArenaAllocator, since 3.4, are laid out as struct hl_objects_allocator and
 * struct hl_objects_arenas. */
struct api {
	hl_objects_allocator_fn *get_allocator, *set_allocator;
	void (*get_arenas)(struct hl_objects_arenas *ret_arenas);
	void (*set_arenas)(struct hl_objects_arenas *arenas);
	int (*is_initialized)(void);
	void *(*thread_state)(void);	/* of the thread that holds the lock */
	void *(*state_of_thread)(void); /* of the calling thread */
};

/* All outlive the recorder: a forked child goes on with them. */
static struct api api;
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
static bool find_real(const struct api *it)
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
	if (!api.is_initialized())
		return true;
	void *state = api.state_of_thread();
	return state && state == api.thread_state();
}

/* What the debugging layer's context is: a letter, and whom it asks. */
struct debug_context {
	char letter;
	struct hl_objects_allocator allocator;
};

/* The context of an unknown allocator may be anything. */
static struct debug_context *debug_context(void *context, enum domain domain)
{
	uint64_t first = (uint64_t)context, last = first + sizeof(struct debug_context) - 1;
	struct debug_context *it = context;

	bool is_readable = context && hl_memory_page_is_readable(first & ~UINT64_C(4095)) &&
			   hl_memory_page_is_readable(last & ~UINT64_C(4095));
	return is_readable && it->letter == (domain == DOMAIN_MEM ? 'm' : 'o') ? it : NULL;
}

static bool is_real(const struct hl_objects_allocator *allocator)
{
	return is_same(allocator, &hl_objects_real);
}

/* Whether anything may be left to do: not once somebody else's allocator is there. */
static bool wrap(enum domain domain)
{
	struct hl_objects_allocator now;

	hl_objects_call(api.get_allocator, domain, &now);
	struct hl_objects_allocator wrapped = *hl_objects_hooks.allocator;
	if (is_same(&now, hl_objects_hooks.allocator))
		return true;
	if (is_real(&now)) {
		hl_objects_call(api.set_allocator, domain, &wrapped);
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

	api.get_arenas(&hl_objects_real_arenas);
	wrapped.context = hl_objects_real_arenas.context;
	api.set_arenas(&wrapped);
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
		if ((!memory && !object) || api.is_initialized())
			atomic_store(&hl_guest_wants.look, NULL);
	}
	atomic_store(&lock, 0);
}

void hl_python_objects_note(struct hl_region_header *header, const struct hl_exports *exports)
{
	uint32_t flags = atomic_load(&header->flags);

	/* Where arenas cannot be left out of the mappings their objects would count twice. */
	if (!hl_objects_hooks.allocator || api.get_allocator || flags & HL_REGION_NO_OBJECTS ||
	    (!hl_objects_hooks.arenas && flags & HL_REGION_MAPPINGS))
		return;
	struct api found = {
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
	api = found;
	maps_arenas = flags & HL_REGION_MAPPINGS;
	atomic_store(&hl_guest_wants.look, look);
}
