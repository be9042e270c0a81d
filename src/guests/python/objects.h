/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The objects of Python: up to 512 bytes are cut from arenas by an allocator of the interpreter's own,
 * pymalloc, which calls malloc() for none of them. It is wrapped where the interpreter keeps its address.
 *
 * Both domains that it serves (PyMem_Malloc(), PyObject_Malloc()) are. An interpreter that uses malloc() in its
 * place (PYTHONMALLOC=malloc) is left alone: malloc() is recorded anyway; as it is for what pymalloc takes from
 * there. Under PYTHONMALLOC=debug the objects are those that the debugging layer asks for.
 */
#pragma once

#include "base/compiler.h"
#include "recorder/exports.h"

#include <stdbool.h>
#include <stddef.h>

struct hl_region_header;

/* As PyMemAllocatorEx of Python's C API, since 3.5. */
struct hl_python_allocator {
	void *context;
	void *(*malloc)(void *context, size_t size);
	void *(*calloc)(void *context, size_t count, size_t size);
	void *(*realloc)(void *context, void *block, size_t size);
	void (*free)(void *context, void *block);
};

/* PyMem_GetAllocator() and PyMem_SetAllocator(). */
typedef void hl_python_allocator_fn(int domain, struct hl_python_allocator *allocator);

/* As PyObjectArenaAllocator, since 3.4. */
struct hl_python_arenas {
	void *context;
	void *(*allocate)(void *context, size_t size);
	void (*free)(void *context, void *arena, size_t size);
};

/* The real ones, once an interpreter has been found. */
extern HL_HIDDEN struct hl_python_allocator hl_python_real;
extern HL_HIDDEN struct hl_python_arenas hl_python_real_arenas;

/* Whether hl_python_objects_look() has something to do. */
extern HL_HIDDEN _Atomic bool hl_python_objects_pending;

/* Once, before any interpreter is found: what takes its allocators' places; ${arenas} only where mappings
 * are recorded. Without it nothing is wrapped. */
void hl_python_objects_use(const struct hl_python_allocator *allocator,
			   const struct hl_python_arenas *arenas);

/* Notes a module that has been loaded, if it is an interpreter. The first one counts. */
void hl_python_objects_note(const struct hl_region_header *header,
			    const struct hl_exports *exports);

/* Wraps what is found by now, if the calling thread may: before the interpreter starts, or
 * while it holds the interpreter's lock. Else it stays pending. */
void hl_python_objects_look(void);

/* ---- of the shell ---- */

/* Calls one of these two. */
void hl_python_objects_call(hl_python_allocator_fn *function, int domain,
			    struct hl_python_allocator *allocator);

/* Told of what the hooks take the place of, before they do. */
void hl_python_objects_take(const struct hl_python_allocator *real);
