/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Objects of a runtime that cuts them from memory of its own and calls malloc() for none of them. Where it keeps the
 * addresses of its allocator's functions, a guest puts these hooks there in their place.
 */
#pragma once

#include "base/compiler.h"

#include <stddef.h>

struct hl_objects_allocator {
	void *context;
	void *(*malloc)(void *context, size_t size);
	void *(*calloc)(void *context, size_t count, size_t size);
	void *(*realloc)(void *context, void *block, size_t size);
	void (*free)(void *context, void *block);
};

/* Where the objects' memory comes from. */
struct hl_objects_arenas {
	void *context;
	void *(*allocate)(void *context, size_t size);
	void (*free)(void *context, void *arena, size_t size);
};

/* What takes the places of a runtime's own. */
struct hl_objects_hooks {
	const struct hl_objects_allocator *allocator; /* NULL: nothing does */
	const struct hl_objects_arenas *arenas;	      /* NULL: these stay the runtime's own */
};

/* Set once, before any runtime is found, by who has the hooks. */
extern HL_HIDDEN struct hl_objects_hooks hl_objects_hooks;

/* The runtime's own, set before the hooks take their places. */
extern HL_HIDDEN struct hl_objects_allocator hl_objects_real;
extern HL_HIDDEN struct hl_objects_arenas hl_objects_real_arenas;

extern const struct hl_objects_allocator hl_hooks_objects;
extern const struct hl_objects_arenas hl_hooks_arenas;

/* ---- of the shell ---- */

/* A function of the program that reads or sets an allocator by its number. */
typedef void hl_objects_allocator_fn(int number, struct hl_objects_allocator *allocator);

void hl_objects_call(hl_objects_allocator_fn *function, int number,
		     struct hl_objects_allocator *allocator);

/* Told of the functions that the hooks take the places of, before they do. */
void hl_objects_take(const struct hl_objects_allocator *real);
