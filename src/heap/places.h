/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stretches of a process' memory whose use its own data prove: stacks by the threads' control blocks, variables by the
 * program headers of mapped ELF files, Java's heap and code by the tables that the JVM exports for debuggers.
 */
#pragma once

#include "heap/extents.h"
#include "heap/memory.h"

#include <stddef.h>
#include <stdint.h>

enum hl_place_kind {
	HL_PLACE_VARIABLES, /* all segments of an ELF file, whose written pages are its variables */
	HL_PLACE_STACK,
	HL_PLACE_JAVA,
	HL_PLACE_CODE, /* that a runtime made */
};

struct hl_place {
	uint64_t start, end; /* page-aligned */
	enum hl_place_kind kind;
};

/* In rising order, without overlaps. Zero-initialize for an empty list. */
struct hl_places {
	struct hl_place *places;
	size_t count, capacity;
};

/* Where HotSpot keeps Java's objects and its code; zero where no JVM is loaded or it does not say. With ZGC its objects lie in
 * mappings of the memfd "java_heap", and heap_start is 0. */
struct hl_jvm {
	uint64_t heap_start, heap_end, code_start, code_end;
};

/* Finds all places of ${memory}, that of ${jvm} included. 0 or a negative errno. */
int hl_places_read(struct hl_memory *memory, const struct hl_jvm *jvm,
		   struct hl_places *ret_places);

void hl_places_release(struct hl_places *places);

/* Reads the JVM's tables; nothing that is not in memory is touched. */
struct hl_jvm hl_jvm_find(struct hl_memory *memory);
