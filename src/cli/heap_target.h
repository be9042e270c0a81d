/* SPDX-License-Identifier: BSD-2-Clause */
/* Which heap is read, and how: what heapline heap, carriers, allocations, pins, leaks and holders share. */
#pragma once

#include "cli/output.h"
#include "heap/heap.h"

/* For the shared_options of a verb. */
extern const struct hl_option hl_heap_process_options[]; /* --pid --comm */
extern const struct hl_option hl_heap_core_options[];	 /* --core */
extern const struct hl_option hl_heap_stop_options[];	 /* --stop */
#define HL_HEAP_TARGET_OPTIONS hl_heap_process_options, hl_heap_core_options, hl_heap_stop_options
extern const struct hl_option hl_heap_graph_options[]; /* --swapped --unaligned */

/* What these options were set to. The request of a verb with them begins with it. */
struct hl_heap_target {
	struct hl_view_output output;
	struct hl_guest_request guests[HL_GUESTS_OUTSIDE_MAX];
	uint64_t pid;
	const char *core; /* NULL: none */
	bool stop, swapped, unaligned;
};

/* For an option that sets ${member} of it. */
#define HL_HEAP_TARGET_AT(member) offsetof(struct hl_heap_target, member)

/* Whether --pid or --core says whose heap it is, and nothing else is on the line. HL_EXIT_DONE, or
 * HL_EXIT_USAGE after a report. */
int hl_heap_target_check(const struct hl_verb *verb, int argc, char **argv,
			 const struct hl_heap_target *target);

/* Reads it; ${settings}->stop is set here. 0 or a negative errno with a sentence. */
int hl_heap_target_read(const struct hl_heap_target *target, struct hl_heap_settings *settings,
			struct hl_heap **ret_heap, struct hl_error *err);

/*
 * Reads it and has ${write} write its report to the output, in ${form}. Returns the exit status;
 * what went wrong was reported.
 */
int hl_heap_target_report(const struct hl_heap_target *target, struct hl_heap_settings *settings,
			  enum hl_report_form form,
			  int (*write)(const struct hl_heap_target *target,
				       const struct hl_heap *heap,
				       const struct hl_emit_options *how));
