/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who has mapped private memory that is no heap of glibc's, as far as the process shows it: by what
 * lies in it, where it lies, and which runtime is loaded. What shows nothing is `other`.
 */
#pragma once

#include "heap/memory.h"

enum hl_anonymous_kind {
	HL_ANONYMOUS_VARIABLES, /* .data and .bss, and other pages of files that were written to */
	HL_ANONYMOUS_CODE,
	HL_ANONYMOUS_PYTHON,
	HL_ANONYMOUS_V8,
	HL_ANONYMOUS_JAVA,
	HL_ANONYMOUS_JVM,
	HL_ANONYMOUS_GO,
	HL_ANONYMOUS_BREAK,
	HL_ANONYMOUS_OTHER,
	HL_ANONYMOUS_COUNT,
};

/* As reports show them: "pymalloc's arenas (Python objects)". */
extern const char *const hl_anonymous_names[HL_ANONYMOUS_COUNT];

/* Runtimes that are loaded. */
struct hl_runtimes {
	bool has_v8, has_jvm;
};

struct hl_runtimes hl_runtimes_of(const struct hl_maps *maps);

/* What [${start}, ${end}) is, a part of mapping ${index}, of which ${pages} are in memory. */
enum hl_anonymous_kind hl_anonymous_kind_of(struct hl_memory *memory,
					    const struct hl_runtimes *runtimes, size_t index,
					    uint64_t start, uint64_t end,
					    const struct hl_pages *pages);
