/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runtimes of languages, by the file that they are in: those that make machine code while they run, which lies in no
 * file and has the names alone that the runtime writes for perf (process/code_names.h); and interpreters whose scripts
 * heapline does not read.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hl_code_runtime {
	const char *file;     /* the beginning of the file's name, before its version */
	const char *language; /* "Java" */
	const char
		*start; /* NULL: it makes no code; else what has it write names from its start on */
	const char *tool, *task; /* `TOOL PID TASK` has it write them while it runs; or NULL */
	const char *version;	 /* the first that does, in parentheses; or "" */
	const char *whole;	 /* what keeps stacks whole that its code is part of; or NULL */
};

/* The runtime in the file ${path}; NULL: unknown. */
const struct hl_code_runtime *hl_code_runtime_of(const char *path);

#define HL_CODE_RUNTIME_REMEDY_MAX 256

/* The clause that says what writes names of the code that ${runtime} makes. ${pid}: 0, or its process, if
 * that still runs. Returns ${text}. */
const char *hl_code_runtime_remedy(const struct hl_code_runtime *runtime, uint32_t pid,
				   char text[HL_CODE_RUNTIME_REMEDY_MAX]);

/* Whether code in no file, by its name and source file ("": unknown), is a function of a program: runtimes name
 * their own stubs as well. */
bool hl_code_runtime_is_script(const char *name, const char *source);
