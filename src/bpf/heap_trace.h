/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heapline stacks: which blocks of a running process stay, by the stack that allocated them.
 * Probes in its allocators enter each block into a table in the kernel when it is handed out and
 * take it out when it is freed; what is left at the end is the result.
 */
#pragma once

#include "base/index.h"
#include "bpf/allocators.h"
#include "bpf/heap_shared.h"
#include "bpf/probe.h"
#include "bpf/trace.h"
#include "bpf/walker.h"

#include <stdbool.h>
#include <stdint.h>

#define HL_HEAP_MAX_BLOCKS_DEFAULT   (UINT64_C(2) << 20)
#define HL_HEAP_MAX_BLOCKS_MAX	     (UINT64_C(1) << 28)
#define HL_HEAP_MAX_OVERHEAD_DEFAULT 30u

struct hl_heap_settings {
	bool all;	       /* every allocation, frees ignored */
	const char *object;    /* only probe files whose path contains it; NULL: all */
	uint64_t sample_bytes; /* mean bytes between samples; 0: every block */
	double older_seconds;  /* only blocks at least this old at the end */
	uint64_t max_overhead; /* percent of one processor that the target may pay */
	uint64_t max_blocks;   /* that the table can hold */
	bool growth;	       /* results are what changed since the last one */
	bool choose_way;       /* else the best that the kernel has */
	enum hl_probe_way way;
};

/* Its settings are a struct hl_heap_settings. */
extern const struct hl_trace_backend hl_heap_trace;

/* ---- which functions are probed, and the probes themselves (heap_probes.c) ---- */

/* Zero-initialize: no probes. */
struct hl_heap_probes {
	pid_t pid;
	enum hl_probe_way way;
	const char *object;   /* part of the path of files to look at; NULL: any */
	bool entry_alone;     /* neither returns nor frees are of interest */
	bool spares_throwing; /* leaves out functions that an exception may leave */
	bool calibrates;      /* they are heapline's own */
	struct hl_allocators allocators;
	struct hl_probe_links links;
	int missed; /* allocators that were mapped late, and have no probes */
};

/*
 * Finds the allocators of ${pid}; members above allocators must be set. 0, or a negative errno with
 * a sentence.
 */
int hl_heap_probes_find(struct hl_heap_probes *probes, struct hl_error *err);

/* Whether one function that is to be probed may call another one. */
bool hl_heap_probes_may_nest(const struct hl_heap_probes *probes);

/*
 * Runs ${entry_fd} where functions begin, and ${return_fd} (not for sessions, nor when entries are
 * all that is wanted: -1) where they return. 0, or a negative errno with a sentence and with no
 * probe left.
 */
int hl_heap_probes_link(struct hl_heap_probes *probes, int entry_fd, int return_fd,
			struct hl_error *err);

/*
 * The same in files that were mapped since. How many of them have allocators, those that could not
 * be reached (they may be unmapped again) included, which are counted; -ESRCH when the process has
 * ended, or another negative errno with a sentence.
 */
int hl_heap_probes_extend(struct hl_heap_probes *probes, int entry_fd, int return_fd,
			  struct hl_error *err);

/* Takes the probes away. */
void hl_heap_probes_unlink(struct hl_heap_probes *probes);

/* "malloc, free+3 and 6 others in libc.so.6" for each file, for the user. NULL: no memory. */
char *hl_heap_probes_describe(const struct hl_heap_probes *probes);

/* Names of functions of which each call costs about 10 us, with commas; "" when there are none, NULL
 * when there is no memory. */
char *hl_heap_probes_slow(const struct hl_heap_probes *probes);

/* The same for functions that were left out because an exception may leave them. */
char *hl_heap_probes_spared(const struct hl_heap_probes *probes);

void hl_heap_probes_release(struct hl_heap_probes *probes);

/*
 * What would harm a target. A function whose return is watched has its return address replaced, and
 * mostly nobody notices. Two do. The C++ runtime finds no way through the replaced address, so that
 * an exception ends the program; of an allocator's functions operator new can throw, when there is
 * no memory. And from kernel 6.11 on that address leads to a system call that filters (seccomp) do
 * not know, so that they end the program; kernel 6.14 exempts it.
 */

/*
 * Whether the system may refuse memory to ${pid} while the machine has some: limits of the process,
 * or no overcommitment. Then even small requests can fail.
 */
bool hl_heap_probes_memory_is_limited(pid_t pid);

/* Larger requests are refused on any machine like this one: all its memory, in bytes. */
uint64_t hl_heap_probes_request_max(void);

/* Whether returns can be watched in ${pid} without ending it. 0, or -ENOTSUP with a sentence. */
int hl_heap_probes_check_returns(pid_t pid, struct hl_error *err);

/* ---- what it will cost a program, by how often it calls its allocator (heap_cost.c) ---- */

struct hl_heap_rate {
	double allocations_per_second, frees_per_second, calls_per_second;
	double mean_bytes;	/* of an allocation */
	double percent_of_core; /* that the target uses without any probe */
	double doubt;		/* the rates may be higher by this factor; 1: they are known */
};

/* What this machine takes for a call. */
struct hl_heap_prices {
	double trap_ns;	      /* of a probe that counts */
	double least_pair_ns; /* of an allocation and its free without probes, at their fastest */
};

/* Percent of a core. */
struct hl_heap_use {
	double percent;
	double wanted; /* the same if nothing else had run: hl_heap_cost_wanted() */
};

/* How calls were counted. */
struct hl_heap_counting {
	struct hl_heap_counters counters;
	uint64_t elapsed_ns;
	struct hl_heap_use before; /* before there was any probe; 0: unknown */
	struct hl_heap_use during; /* while calls were counted */
	struct hl_heap_prices prices;
	const struct hl_heap_settings *traced_with; /* meanwhile; NULL: calls were counted alone */
};

#define HL_HEAP_ROUNDS 32

/* What calls of malloc and free take in this process; zero-initialize. */
struct hl_heap_calibration {
	struct hl_heap_probes probes; /* as the target has them */
	double plain_ns;	      /* of a pair without any */
	double probed_ns[HL_HEAP_ROUNDS];
	unsigned count; /* of rounds */
};

/*
 * Times some calls, in less than a millisecond. To be called again and again while the target's
 * calls are counted: what makes its probes dearer makes these dearer, too.
 */
void hl_heap_cost_calibrate(struct hl_heap_calibration *calibration);

/* What that amounts to; what it did on a slow machine if there was no round. Takes probes away. */
struct hl_heap_prices hl_heap_cost_end_calibration(struct hl_heap_calibration *calibration);

/*
 * What a target that used ${percent} of a core, and of which threads that could run waited for
 * ${waited_ns} in all, would use if others did not keep it from running: more only if it hardly
 * waits for anything else, and no more than ${most} of its threads can at a time.
 */
double hl_heap_cost_wanted(double percent, uint64_t waited_ns, uint64_t elapsed_ns, unsigned most);

/*
 * The rate of calls without probes, with the processor time that other load leaves the target. For one that wants a whole
 * core it is higher than what was counted, because probes took time from it: by the processor time of each call, less that of
 * its probe. Where next to nothing is left, the two cannot be told apart: then the rate is the least that
 * it can be, and its doubt leads to that of a target that does nothing but call its allocator.
 */
struct hl_heap_rate hl_heap_cost_rate(const struct hl_heap_counting *counting);

/*
 * Processor time that tracing with ${settings} takes, in percent of a core. Samples are taken into
 * account by the mean size of allocations, which gives more of them than there are.
 */
double hl_heap_cost(const struct hl_heap_rate *rate, const struct hl_heap_settings *settings,
		    double trap_ns);

/* How many times as long a request takes: 2.5; 1 when that cannot be told. */
double hl_heap_cost_slowdown(const struct hl_heap_rate *rate, double cost_percent);

/*
 * The smallest power of two for settings->sample_bytes with which tracing costs ${percent} of a
 * core at most, from HL_HEAP_SAMPLE_MIN to HL_HEAP_SAMPLE_MAX; 0 if there is none.
 */
uint64_t hl_heap_cost_fitting_sample(const struct hl_heap_rate *rate,
				     const struct hl_heap_settings *settings, double trap_ns,
				     double percent);

#define HL_HEAP_SAMPLE_MIN UINT64_C(4096)
#define HL_HEAP_SAMPLE_MAX (UINT64_C(1) << 20)

/* ---- heap.bpf.c from the user's side: loaded, switched on, and asked what it has counted ---- */

struct hl_heap_program;

/* Programs to be probed with; -1: none. */
struct hl_heap_entries {
	int entry_fd, return_fd;
};

/*
 * Loads the programs, to look at ${pid}, for the best way of those in which this kernel accepts
 * them, or the one that was chosen; they count nothing yet. ${settings} must live as long. 0 or a
 * negative errno with a sentence.
 */
int hl_heap_program_new(pid_t pid, const struct hl_heap_settings *settings,
			struct hl_heap_program **ret_program, struct hl_error *err);

/* Whether that can be done here, with default settings: the way (enum hl_probe_way), or a negative
 * errno with a sentence. */
int hl_heap_program_try(struct hl_error *err);

enum hl_probe_way hl_heap_program_way(const struct hl_heap_program *program);

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

/* ---- settings->max_overhead, before a trace and while its cost is unknown (heap_cost.c) ---- */

/* What the target used and called since some moment. */
struct hl_heap_window {
	uint64_t start_ns, waited_ns;
	uint64_t threads;  /* of the target */
	bool was_runnable; /* its first thread, whenever that was looked at until then */
	int64_t cpu_ns;
	struct hl_heap_counters counters;
};

/* All above the line is to be set by the caller, and lives as long. */
struct hl_heap_limit {
	const struct hl_trace_request *request;
	const struct hl_heap_settings *settings;
	struct hl_heap_probes *probes;
	struct hl_heap_program *program;
	/* ---- */
	struct hl_heap_prices prices;
	bool is_watching; /* the cost is not known yet, and all processors are not allowed */
	bool is_awake;	  /* the target called its allocator in the window before this one */
	struct hl_heap_window window;
};

/*
 * Measures what the trace will cost, and says it; to be called before there are probes. 0,
 * HL_TRACE_TOO_COSTLY with a sentence that says what would fit, or a negative errno with one. A
 * target that does not call its allocator is not judged: 0.
 */
int hl_heap_limit_check(struct hl_heap_limit *limit, struct hl_error *err);

/*
 * To be called again and again while the trace goes on: measures such a target once it calls its
 * allocator. Returns as above.
 */
int hl_heap_limit_watch(struct hl_heap_limit *limit, struct hl_error *err);
