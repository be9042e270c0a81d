/* SPDX-License-Identifier: BSD-2-Clause */
/* heap.bpf.c from the user's side: loaded, switched on, and asked what it has counted. */
#pragma once

#include "base/index.h"
#include "bpf/heap_shared.h"
#include "bpf/heap_trace.h"
#include "bpf/probe.h"
#include "bpf/walker.h"

struct hl_heap_program;

/* Programs to be probed with; -1: none. */
struct hl_heap_entries {
	int entry_fd, return_fd;
};

/*
 * Loads the programs for ${way}, to look at ${pid}; they count nothing yet. ${settings} must live
 * as long. 0 or a negative errno with a sentence.
 */
int hl_heap_program_new(pid_t pid, enum hl_probe_way way, const struct hl_heap_settings *settings,
			struct hl_heap_program **ret_program, struct hl_error *err);

/* Those that watch allocators, and the one that counts calls alone (for
 * hl_heap_program_count_way()). */
struct hl_heap_entries hl_heap_program_entries(const struct hl_heap_program *program);
int hl_heap_program_count_fd(const struct hl_heap_program *program);

/* The way in which the program that counts calls is to be linked when the others are by ${way}. */
enum hl_probe_way hl_heap_program_count_way(enum hl_probe_way way);

/* Says that functions that are probed may call each other. */
void hl_heap_program_may_nest(struct hl_heap_program *program);

/* From here on calls count. 0 or a negative errno with a sentence. */
int hl_heap_program_start(struct hl_heap_program *program, struct hl_error *err);
void hl_heap_program_stop(struct hl_heap_program *program);

/* Whether the target has become another program; then nothing counts any more. */
bool hl_heap_program_is_replaced(const struct hl_heap_program *program);

/* Sums over all processors. 0 or a negative errno. */
int hl_heap_program_counters(const struct hl_heap_program *program,
			     struct hl_heap_counters *ret_sum);

struct hl_heap_sum {
	uint64_t stack;
	double bytes, objects; /* scaled, where they were sampled */
};

/* Zero-initialize for an empty one. */
struct hl_heap_sums {
	struct hl_heap_sum *sums;
	size_t count, capacity;
	struct hl_index index; /* by stack */
};

/* Adds what was allocated before ${before_ns} and stays, or (settings->all) what was allocated at
 * all. 0 or a negative errno. */
int hl_heap_program_sum(const struct hl_heap_program *program, uint64_t before_ns,
			struct hl_heap_sums *sums);

/* Adds ${more} multiplied by ${times}; -1 subtracts it. Returns as above. */
int hl_heap_program_add_sums(struct hl_heap_sums *sums, const struct hl_heap_sums *more,
			     double times);

void hl_heap_program_release_sums(struct hl_heap_sums *sums);

/* The kernel's memory for the table of live blocks, as it says itself; 0 when it does not. */
uint64_t hl_heap_program_table_bytes(const struct hl_heap_program *program);

struct hl_walker *hl_heap_program_walker(const struct hl_heap_program *program);
const struct hl_target *hl_heap_program_target(const struct hl_heap_program *program);

void hl_heap_program_free(struct hl_heap_program *program); /* NULL is fine */
