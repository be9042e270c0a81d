/* SPDX-License-Identifier: BSD-2-Clause */
/* Which heap is read, and how: what heapline heap, carriers, allocations, pins and leaks share. */
#pragma once

#include "cli/output.h"
#include "heap/heap.h"

/* For the shared_options of a verb. */
extern const struct hl_option hl_heap_target_options[];	 /* --pid --core --stop */
extern const struct hl_option hl_heap_process_options[]; /* --pid --stop */
extern const struct hl_option hl_heap_graph_options[];	 /* --swapped --unaligned */

/* Whether --pid or --core says whose heap it is, and nothing else is on the line. HL_EXIT_DONE, or
 * HL_EXIT_USAGE after a report. */
int hl_heap_target_check(const struct hl_verb *verb, int argc, char **argv);

/* The process that --pid names. */
pid_t hl_heap_target_pid(void);

/* The core file that --core names; NULL: none. */
const char *hl_heap_target_core(void);

/* Whether --stop, --swapped, --unaligned was given. */
bool hl_heap_target_stops(void);
bool hl_heap_target_reads_swapped(void);
bool hl_heap_target_reads_unaligned(void);

/* Reads it; ${settings}->stop is set here. 0 or a negative errno with a sentence. */
int hl_heap_target_read(struct hl_heap_settings *settings, struct hl_heap **ret_heap,
			struct hl_error *err);

/*
 * Reads it and has ${write} write its report to the output, in ${form}. Returns the exit status;
 * what went wrong was reported.
 */
int hl_heap_target_report(struct hl_heap_settings *settings, enum hl_report_form form,
			  uint64_t row_limit,
			  int (*write)(const struct hl_heap *heap,
				       const struct hl_emit_options *how));
