/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is stored of a fleet, and how it travels.
 *
 *	session  one recorded process, from the start of its recording to its end
 *	window	 what a session allocated and freed between two looks at it, by stack
 *	stack	 a number made of the frames' names, so that it is the same in every process and on
 *		 every host; beside it, once, the names themselves
 */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The labels of a session are texts; they are columns of the store under these names. */
enum hl_fleet_label {
	HL_FLEET_SERVICE,
	HL_FLEET_VERSION,
	HL_FLEET_HOST,
	HL_FLEET_COMMAND,
	HL_FLEET_PID,
	HL_FLEET_BUILD_ID,
	HL_FLEET_CONTAINER,
	HL_FLEET_POD,
};

#define HL_FLEET_LABEL_COUNT 8
#define HL_FLEET_LABEL_BYTES 4096 /* at most */

/* "service", "version", ..., NULL. */
extern const char *const hl_fleet_label_names[];

/* Changes; those of what is in use may be negative. */
struct hl_fleet_row {
	int64_t stack;
	int64_t inuse_bytes, inuse_objects;
	int64_t alloc_bytes, alloc_objects;
};

/* In UTF-8. A line for each frame, the root first, with cells separated by tabs: function, module, file and line, and where the function
 * begins: file ("": the same) and line; where the module is a runtime of scripts, "script" follows. */
struct hl_fleet_stack {
	int64_t stack;
	const char *frames;
};

/* Times are milliseconds of CLOCK_REALTIME. */
struct hl_fleet_window {
	int64_t session;
	int64_t began_ms; /* the recording */
	int64_t base_ms;  /* of the look that began the window; 0: it is the first of the session */
	int64_t ms;	  /* of the look that ended the window */
	int64_t until_ms; /* without another look by then, nobody watches the process any more */
	int64_t ended_ms; /* the process; 0: it had not */
	const char *labels[HL_FLEET_LABEL_COUNT]; /* in UTF-8; "" when unknown */
	struct hl_fleet_stack *stacks;		  /* that were not in an earlier window */
	struct hl_fleet_row *rows;		  /* of the stacks that changed */
	size_t stack_count, stack_capacity, row_count, row_capacity;
};

/* How a label is stored that is any bytes: in UTF-8 and without control characters other than tabs and newlines. To be freed; NULL for want of memory. */
char *hl_fleet_label_clean(const char *text);

/* Frees both arrays; the texts are the caller's. */
void hl_fleet_window_release(struct hl_fleet_window *window);

/*
 * Writes ${text} as a cell of tab-separated values: backslash, tab and newline as \\, \t and \n, other control characters as blanks,
 * and what is not UTF-8 as U+FFFD.
 */
void hl_fleet_put_cell(FILE *out, const char *text);

/* Takes the next cell of ${line}, which it changes to what hl_fleet_put_cell() was given; NULL after the last one. */
char *hl_fleet_take_cell(char **line);

/* Writes ${window} as text. Errors are those of ${out}. */
void hl_fleet_window_write(const struct hl_fleet_window *window, FILE *out);

/*
 * Reads that text from ${text}, ${size} bytes with a NUL after them, which it changes and the window's texts then lie in. 0;
 * -EBADMSG; -ENOMEM. To be released in any case.
 */
int hl_fleet_window_read(char *text, size_t size, struct hl_fleet_window *window);
