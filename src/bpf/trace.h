/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The seam between the kinds of traces and those that run them: start, poll until it is enough,
 * finish. What a trace found becomes a recording in memory: one process, its modules, stacks and
 * their values, named figures, losses. See docs/decisions/0019-traces-are-recordings.md. One
 * thread.
 */
#pragma once

#include "base/compiler.h"
#include "base/error.h"
#include "base/frame_key.h"
#include "bpf/walker.h"
#include "process/process.h"
#include "recording/recording.h"

#include <stdbool.h>

struct hl_trace_result;

/* ---- kinds of traces ---- */

/* The target pays more than the user allows. Positive: what was found is still worth a report. */
#define HL_TRACE_TOO_COSTLY 1

struct hl_trace_request {
	const struct hl_process_facts *facts; /* of the target; valid until _free() */
	const void *settings;		      /* of the kind of trace; valid until _free() */
	void (*note)(const char *format, ...) HL_PRINTF(1, 2); /* a sentence for the user, now */
	void (*detail)(const char *format, ...)
		HL_PRINTF(1, 2); /* the same, for users who want to know each step */
	/* Whether the user or the target has ended it; ask while starting takes its time. */
	bool (*is_enough)(const struct hl_trace_request *request);
	int target_fd; /* of the target's process; readable when that has ended */
};

struct hl_trace_backend {
	const char *mode; /* of the recording; what a verb may override is in its settings */

	/*
	 * Attaches and begins to count. 0; HL_TRACE_TOO_COSTLY, detached again, with the sentence
	 * in
	 * ${err}; or a negative errno with a sentence that names what is missing and the remedy.
	 */
	int (*start)(const struct hl_trace_request *request, void **ret_trace,
		     struct hl_error *err);

	/* Takes in what happened, waiting up to ${timeout_ms}; a signal ends the wait. 0,
	 * HL_TRACE_TOO_COSTLY with a sentence (the trace is then finished), or a negative errno.
	 */
	int (*poll)(void *trace, int timeout_ms, struct hl_error *err);

	/* Fills ${result} with what has changed since the last such report, or the start; goes on.
	 * NULL: this kind of trace does not. 0 or a negative errno with a sentence. */
	int (*report)(void *trace, struct hl_trace_result *result, struct hl_error *err);

	/* Detaches, takes in the rest and fills ${result}: stacks, values, figures, losses. The
	 * target may have ended (${has_ended}). 0 or a negative errno. */
	int (*finish)(void *trace, bool has_ended, struct hl_trace_result *result,
		      struct hl_error *err);

	/* Detaches if that is not done, and frees. NULL is fine. */
	void (*free)(void *trace);
};

/* ---- results ---- */

/* One stack's. In use is alloc - free, which may be below zero. */
struct hl_trace_value {
	uint64_t alloc_bytes, alloc_objects;
	uint64_t free_bytes, free_objects;
};

/* ${mode} is the recording's: "stacks", "pgfault" ... 0 or -ENOMEM.
 */
int hl_trace_result_new(const struct hl_process_facts *facts, const char *mode,
			struct hl_trace_result **ret_result);

/* Says that the trace begins now, and not when ${result} was made. */
void hl_trace_result_begin(struct hl_trace_result *result);

/* Adds to what stack ${node} has, a node of the walker; 0, a stack that was lost, counts as
 * [stack lost]. 0 or -ENOMEM. */
int hl_trace_result_add(struct hl_trace_result *result, uint32_t node,
			const struct hl_trace_value *value);

/* The same for what has no stack: HL_PSEUDO_RELEASED, HL_PSEUDO_NO_FAULT. */
int hl_trace_result_add_pseudo(struct hl_trace_result *result, enum hl_pseudo_frame frame,
			       const struct hl_trace_value *value);

/* Keeps a number by name: lowercase words joined by '_', the unit last ("rss_growth_pages"). Shown
 * in the order of the calls. 0; -ENOMEM; -EINVAL when it is not such a name. */
int hl_trace_result_figure(struct hl_trace_result *result, const char *name, int64_t value);

/* Keeps a sentence of what went wrong, which every view repeats. 0 or -ENOMEM. */
int hl_trace_result_warn(struct hl_trace_result *result, const char *format, ...) HL_PRINTF(2, 3);

/* The sum of what _add() was given. */
struct hl_trace_value hl_trace_result_sum(const struct hl_trace_result *result);

/* What all calls asked for since the last report, where it is more than that: blocks that were freed again were not given
 * to _add(). _called() returns it, or else the sum. */
void hl_trace_result_set_called(struct hl_trace_result *result,
				const struct hl_trace_value *called);
struct hl_trace_value hl_trace_result_called(const struct hl_trace_result *result);

/* To be filled in by the caller. */
struct hl_lost *hl_trace_result_lost(struct hl_trace_result *result);

/* Bytes between samples, when not all was counted; values are to be scaled already. */
void hl_trace_result_set_sample(struct hl_trace_result *result, uint64_t sample_bytes);

/* Sets how the target ended, where the caller knows more than that it is gone: HL_END_EXEC. */
void hl_trace_result_set_end(struct hl_trace_result *result, enum hl_process_end end);

/* Copies the stacks that _add() refers to. Once. 0 or -ENOMEM. */
int hl_trace_result_stacks(struct hl_trace_result *result, const struct hl_recording_node *nodes,
			   uint32_t node_count, const struct hl_recording_module *modules,
			   uint32_t module_count);

/* Takes the scripts and the named code of ${from}, which the nodes refer to, out of it. Once. */
void hl_trace_result_take_scripts(struct hl_trace_result *result,
				  struct hl_recording_process *from);

/* Copies the stacks and modules that ${walker} has of a target, adds what was lost of all targets, and
 * warns of names that may be wrong. Once. 0 or a negative errno. */
int hl_trace_result_walks(struct hl_trace_result *result, const struct hl_walker *walker,
			  uint32_t number);

/* Takes the process of ${from} into the recording that ${result} will be, as one more; ${from} is to be freed all the same. 0 or -ENOMEM. */
int hl_trace_result_join(struct hl_trace_result *result, struct hl_trace_result *from);

/*
 * Makes all of it a recording that ends now, the target by ${end} unless more is known; ${result}
 * is empty after it, and to be freed all the same. Values of nodes beyond those that were copied
 * count as [stack lost]. 0 or -ENOMEM.
 */
int hl_trace_result_recording(struct hl_trace_result *result, enum hl_process_end end,
			      struct hl_recording **ret_recording);

void hl_trace_result_free(struct hl_trace_result *result); /* NULL is fine */
