/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Script frames: asks the providers what the calling thread's interpreters run, and interns it
 * below the node of the native stack, outermost first.
 *
 * Only stacks with a frame of an interpreter's main function can run a script. Whether one has, is
 * found out when it is walked, and remembered with it: others cost the same as where there are no
 * interpreters. A new provider makes that out of date, as if modules had changed.
 *
 * The frames of a thread's last allocation are remembered, and those outward of the first that
 * differs are not looked up again. A path of script frames has nodes of its own below the root, at
 * which nothing counts. Below a native stack one node stands for all of it.
 */
#pragma once

#include "base/compiler.h"
#include "guests/provider.h"
#include "recorder/cells.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct hl_recorder;
struct hl_region_header;
struct hl_thread;
struct hl_registers;
struct hl_walk;

#define HL_SITE_HEADS_BITS 14

/* How sites and names are found by what they are. Zero-initialize. */
struct hl_script_sites {
	_Atomic uint32_t lock;
	uint32_t sites[1u << HL_SITE_HEADS_BITS]; /* the newest of each hash, + 1 */
	uint32_t names[1u << HL_SITE_HEADS_BITS];
};

/* Both under the lock of ${sites}. *${ret_name} becomes where in its area ${text} stands; false without room. */
bool hl_script_sites_put_name(struct hl_script_sites *sites, struct hl_region_map *region,
			      const char *text, uint32_t bytes, uint32_t *ret_name);

/* The number of ${site}, entered if it is new; 0 without room. */
uint32_t hl_script_sites_put(struct hl_script_sites *sites, struct hl_region_map *region,
			     struct hl_region_site site);

/* What one thread knows; made at its first allocation with a provider. */
struct hl_script_thread;

/*
 * Has ${provider} asked from now on, in forked children, too; its name and functions stay the
 * caller's and must stay valid. At most HL_SCRIPT_PROVIDERS_MAX: 0, or -ENOSPC. Frames of several
 * are kept in the order of their registration, those of the first outermost. Thread-safe.
 */
int hl_script_register(const struct hl_script_provider *provider);

/* The object at ${function} is about to be freed: another one may come to lie there. To be called
 * on any thread before the address can be used again. Async-signal-safe. */
void hl_script_forget(uint64_t function);

/* Has the collector say once why frames of ${runtime} stay native. Async-signal-safe. */
void hl_script_refuse(struct hl_region_header *header, const char *runtime, const char *reason);

/* The same of memory of ${runtime} that is not recorded: ${what}. */
void hl_script_note(struct hl_region_header *header, const char *runtime, const char *what);

/* In a forked child, at once: a thread that was registering is in the parent. */
void hl_script_enter_child(void);

/* Tells the region of ${recorder} of all providers. */
void hl_script_announce(struct hl_recorder *recorder);

/* Code of the main functions of all providers that are asked; of one that does not say where its own
 * is, all code. */
struct hl_script_evals {
	_Atomic uint32_t count;
	struct hl_script_eval {
		uint64_t start, bytes;
	} of[3 * HL_SCRIPT_PROVIDERS_MAX]; /* a main function may lie in two parts */
};

extern HL_HIDDEN struct hl_script_evals hl_script_evals;

static inline bool hl_script_has_evals(void)
{
	return atomic_load_explicit(&hl_script_evals.count, memory_order_relaxed);
}

/* Whether providers are to be asked below the stack that hl_walk_capture() has just put into ${walk},
 * returning ${kept}. To be called for each capture while there are providers. */
bool hl_script_is_asked(struct hl_walk *walk, uint32_t kept);

/* The cell of what the thread's interpreters run, below that of the native stack, where they run what they ran at the
 * last event, as they mostly do; NULL: hl_script_other_cell() is to be called. */
struct hl_cell *hl_script_same_cell(struct hl_thread *thread, struct hl_cell *stack,
				    const struct hl_registers *caller);

/* The same after that; ${stack} itself where nothing runs. NULL when there is no memory for it. */
struct hl_cell *hl_script_other_cell(struct hl_recorder *recorder, struct hl_thread *thread,
				     struct hl_cell *stack, const struct hl_registers *caller);

static inline struct hl_cell *hl_script_cell(struct hl_recorder *recorder, struct hl_thread *thread,
					     struct hl_cell *stack,
					     const struct hl_registers *caller)
{
	struct hl_cell *cell = hl_script_same_cell(thread, stack, caller);

	return HL_LIKELY(cell) ? cell : hl_script_other_cell(recorder, thread, stack, caller);
}

/*
 * Labels: what else is known of a block than where it was allocated. Each is a frame below the stack, of a
 * provider of its own. Views leave types and services out of stacks unless asked for them.
 */
enum hl_label {
	HL_LABEL_POOL,	  /* what the block was cut from: a frame "[pool NAME]" */
	HL_LABEL_TYPE,	  /* what it is, in the words of its runtime: "table" */
	HL_LABEL_SERVICE, /* which part of the program it belongs to */
	HL_LABEL_COUNT,
};

#define HL_LABEL_NAME_MAX 63u /* bytes; longer names are cut */

/*
 * The cell of label ${name} of ${kind} below that of the stack, to be given in the order of enum
 * hl_label where a block has several. ${stack} itself where there is no room for the name; NULL when there is
 * no memory. ${stack} may be NULL. A thread remembers names by where they stand.
 */
struct hl_cell *hl_script_label_cell(struct hl_recorder *recorder, struct hl_thread *thread,
				     struct hl_cell *stack, enum hl_label kind, const char *name);

/* The same of HL_LABEL_TYPE, where ${type} is a constant: a stack mostly allocates one type. */
struct hl_cell *hl_script_type_cell(struct hl_recorder *recorder, struct hl_thread *thread,
				    struct hl_cell *stack, const char *type);

void hl_script_release(struct hl_thread *thread);
