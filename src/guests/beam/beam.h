/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asks a live BEAM (Erlang, Elixir) over the distribution protocol what its allocators hold. The
 * node runs functions of `instrument` or `erlang:system_info`, nothing else; meanwhile heapline is
 * one of its hidden nodes. In builds without libei both functions fail with -ENOTSUP.
 */
#pragma once

#include "base/error.h"
#include "heap/carriers.h"
#include "view/heap.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define HL_BEAM_NODE_MAX 320 /* of a name Erlang takes 255 bytes */

struct hl_process_facts;

/* Whether the process of ${facts} is a BEAM; ${ret_node}: its node as its node() says, "" if it was started without a name. */
bool hl_beam_find_node(const struct hl_process_facts *facts, char ret_node[HL_BEAM_NODE_MAX]);

/* "heapline beam --node ... carriers", as a shell reads it. */
void hl_beam_put_command(const char *node, char *command, size_t size);

/* What allocations() distinguishes besides libraries and drivers, from OTP 27 on. */
enum hl_beam_per {
	HL_BEAM_PER_PROCESS = 1,
	HL_BEAM_PER_PORT = 2,
	HL_BEAM_PER_MFA = 4, /* functions; not with the others */
};

#define HL_BEAM_ALLOCATORS_MAX 32u
#define HL_BEAM_SCHEDULERS_MAX 1025u /* the most that a BEAM may have, and 0 for other threads */

struct hl_beam_settings {
	const char *node;	 /* name@host */
	const char *cookie_path; /* NULL: where Erlang looks for it */
	unsigned timeout_ms;	 /* for each step: connecting, one answer */
	/* Options of the module's functions; 0: they are left to it. */
	uint64_t histogram_start, histogram_width;
	const char *allocators[HL_BEAM_ALLOCATORS_MAX];
	size_t allocator_count;
	uint64_t schedulers[HL_BEAM_SCHEDULERS_MAX];
	size_t scheduler_count;
	unsigned per; /* enum hl_beam_per */
};

/*
 * What a BEAM knows of its allocators without its module `instrument`: sums of each instance of an
 * allocator, of which each scheduler has one.
 */
struct hl_beam_instance {
	char allocator[32];
	char type[8];	 /* "mbc" carriers hold many blocks, "sbc" ones one each */
	uint64_t number; /* 0: for all threads that are not schedulers */
	bool in_pool;	 /* carriers that any instance may take */
	uint64_t carriers, total_bytes;
	uint64_t allocated_blocks, allocated_bytes;
};

/* Zero-initialize for an empty one. */
struct hl_beam_instances {
	struct hl_beam_instance *instances;
	size_t count, capacity;
};

/* What a node said. Zero-initialize for an empty one. */
struct hl_beam_report {
	char otp_release[16];
	bool lacks_instrument; /* the node could list no carriers, only ${instances} */
	bool unproven_bounds;  /* neither the release nor carriers tell the histograms' bounds */
	struct hl_carriers carriers;
	struct hl_beam_instances instances;
	struct hl_allocations allocations;
	/* What it took. */
	uint64_t connect_ns, answer_ns, decode_ns, answer_bytes;
	/* The cookie file, if others than its owner may read it; else empty. */
	char exposed_cookie_path[512];
};

/*
 * Fills an empty ${report} with carriers, or, where the node has no `instrument`, with instances. 0
 * or a negative errno with a sentence; release it in any case.
 */
int hl_beam_carriers(const struct hl_beam_settings *settings, struct hl_beam_report *report,
		     struct hl_error *err);

/* The same with allocations; -ENOSYS where the node has no `instrument`. */
int hl_beam_allocations(const struct hl_beam_settings *settings, struct hl_beam_report *report,
			struct hl_error *err);

static inline void hl_beam_report_release(struct hl_beam_report *report)
{
	hl_carriers_release(&report->carriers);
	hl_allocations_release(&report->allocations);
	free(report->instances.instances);
	report->instances = (struct hl_beam_instances){0};
}

/* ---- views ---- */

/* What a BEAM's allocators hold, as parts of reports; and carriers and allocations as terms of Erlang. */

struct hl_beam_instances;

/* What a BEAM knows of its allocators without `instrument`: the members `total` and `rows`; in
 * tables, the sums of all. */
void hl_beam_instances_emit(struct hl_emit *emit, const struct hl_beam_instances *instances);

/* ---- terms of Erlang ---- */

/*
 * Writes what instrument:carriers() of OTP 22 and later would return, {ok, {Start, Carriers}}, in
 * the order in which the carriers are, readable by file:consult(). Comments before it tell the
 * bounds that slots of free blocks have.
 */
void hl_erlang_term_put_carriers(FILE *out, const struct hl_carriers *carriers);

/*
 * The same for instrument:allocations(), {ok, {Start, Unscanned, #{Origin => #{Type =>
 * Histogram}}}}; rows of one origin must not have equal types. 0 or -ENOMEM.
 */
int hl_erlang_term_put_allocations(FILE *out, const struct hl_allocations *allocations);
