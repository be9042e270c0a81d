/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a trace found, on its way to be a recording in memory: one process, its modules, stacks and
 * their values, named figures, losses. See docs/decisions/0019-traces-are-recordings.md.
 */
#pragma once

#include "base/compiler.h"
#include "base/frame_key.h"
#include "bpf/walker.h"
#include "process/process.h"
#include "recording/recording.h"

struct hl_trace_result;

/* Of one stack. In use is alloc - free, which may be below zero. */
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
 * in the order of the calls. 0; -ENOMEM; -EINVAL when it is no such name. */
int hl_trace_result_figure(struct hl_trace_result *result, const char *name, int64_t value);

/* Keeps a sentence of what went wrong, which every view repeats. 0 or -ENOMEM. */
int hl_trace_result_warn(struct hl_trace_result *result, const char *format, ...) HL_PRINTF(2, 3);

/* To be filled in by the caller. */
struct hl_recording_lost *hl_trace_result_lost(struct hl_trace_result *result);

/* Bytes between samples, when not all was counted; values are to be scaled already. */
void hl_trace_result_set_sample(struct hl_trace_result *result, uint64_t sample_bytes);

/* Sets how the target ended, where the caller knows more than that it is gone: HL_END_EXEC. */
void hl_trace_result_set_end(struct hl_trace_result *result, enum hl_process_end end);

/* Copies the stacks that _add() refers to. Once. 0 or -ENOMEM. */
int hl_trace_result_stacks(struct hl_trace_result *result, const struct hl_recording_node *nodes,
			   uint32_t node_count, const struct hl_recording_module *modules,
			   uint32_t module_count);

/* Copies the stacks and modules that ${walker} has, adds what it lost, and warns of names that may
 * be wrong. Once. 0 or a negative errno. */
int hl_trace_result_walks(struct hl_trace_result *result, const struct hl_walker *walker);

/*
 * Makes all of it a recording that ends now, the target by ${end} unless more is known; ${result}
 * is empty after it, and to be freed all the same. Values of nodes beyond those that were copied
 * count as [stack lost]. 0 or -ENOMEM.
 */
int hl_trace_result_recording(struct hl_trace_result *result, enum hl_process_end end,
			      struct hl_recording **ret_recording);

void hl_trace_result_free(struct hl_trace_result *result); /* NULL is fine */
