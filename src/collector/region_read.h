/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions as the collector has them: makes them, and turns them into the tables of a recording. */
#pragma once

#include "base/error.h"
#include "recording/recording.h"
#include "region/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- region read ---- */

/*
 * Turns a region into the tables of a recording. Works while the target writes and after its death;
 * trusts nothing in the region, because the target's own bugs can write there.
 */

/* What a cell had counted at a reset. */
struct hl_cell_base {
	uint64_t alloc_bytes, alloc_objects;
	uint64_t free_objects;
	uint64_t temporary_objects;
};

/*
 * The reset from which figures count. The counters themselves go on, as the recorder is their only writer:
 * what they were is taken off whenever they are read. Zero-initialize: there was none.
 */
struct hl_region_base {
	struct hl_cell_base *cells; /* those of a chunk after those of the one before */
	size_t cell_count;	    /* later ones count from zero */
	uint64_t peak_mark;	    /* the highest of all before */
};

/* Nodes are read, and known again, in pieces of this many. */
#define HL_REGION_PIECE_NODES 512u

/*
 * The first stack nodes of a region, as they were read at the last time. Those that are still the same
 * are not read again. Zero-initialize.
 */
struct hl_region_known {
	uint64_t *hashes; /* of pieces of nodes as they lie in the region */
	size_t piece_count;
	size_t capacity;
	uint32_t module_count, site_count; /* what the nodes refer to is among these */
	uint32_t first_node; /* of the last reading: nodes up to this id were the same, and are not
				among those that were read */
};

/* A mapped region. */
struct hl_region_view {
	const void *base;
	size_t bytes;
	const struct hl_region_header *layout; /* as laid out at first; only areas[].offset and
						  .capacity are used. The copy in the region is
						  not believed */
	const int *fd; /* the region's memfd, which knows how much of it is backed by memory; NULL:
			  the region is believed */
	const struct hl_region_base *reset; /* NULL: there was no reset */
	struct hl_region_known *known; /* NULL: all nodes are read. Of a process that is not over */
};

/* CLOCK_MONOTONIC, to place the peak in time. */
struct hl_region_times {
	uint64_t start_ns; /* when the region was handed over */
	uint64_t now_ns;
};

/*
 * Fills modules, nodes, values, threads, sites, lost, own_malloc and peak_mark_ns of ${process}, which
 * must not own any yet. A node that two threads made at once occurs twice; a parent's id may be
 * larger than its children's. Where nodes are known, nodes[0] has the id first_node + 1, and node_count
 * counts all. What cannot be is left out and counted as damaged; of a process that
 * is complete that includes stacks of which more was freed than allocated.
 * Returns 0, -ENOMEM, or -EINVAL when the layout does not fit the region; ${process} then owns
 * nothing new.
 */
int hl_region_read(const struct hl_region_view *view, const struct hl_region_times *times,
		   struct hl_recording_process *process, struct hl_error *err);

/*
 * Resets: what was allocated and freed, what was temporary and the peak count from here on; what is in
 * use stays. ${base} is that of the view's later readings, and as it was on failure. Each cell is read at a
 * moment of its own; of a thread in the middle of an event, that event may count in part. 0 or -ENOMEM.
 */
int hl_region_base_take(const struct hl_region_view *view, struct hl_region_base *base);

void hl_region_base_release(struct hl_region_base *base);

void hl_region_known_release(struct hl_region_known *known);

/* What cell ${index}, counted from the first of the area, had counted at the reset. */
static inline struct hl_cell_base hl_region_base_of(const struct hl_region_view *view, size_t index)
{
	const struct hl_region_base *base = view->reset;

	return base && index < base->cell_count ? base->cells[index] : (struct hl_cell_base){0};
}

/* A number that differs when the counters have changed since (but for a wrap of 64 bits). Costs one
 * pass over the cells. */
uint64_t hl_region_read_activity(const struct hl_region_view *view);

/* Single modules and nodes, for a caller that reads while the target runs. The counts cover what is
 * published and backed by memory: module indexes are below the first, node ids 1 to the second. */
uint32_t hl_region_read_module_count(const struct hl_region_view *view);
uint32_t hl_region_read_node_count(const struct hl_region_view *view);

/* Chunks of cells that are given out and backed by memory; thread slots ever used that are. */
uint32_t hl_region_read_chunk_count(const struct hl_region_view *view);
uint32_t hl_region_read_thread_count(const struct hl_region_view *view);

/* Where an area begins. */
const void *hl_region_read_area(const struct hl_region_view *view, enum hl_area_id id);

/* 0, or -ENOMEM. The path is the caller's to free; the main program's is empty. */
int hl_region_read_module(const struct hl_region_view *view, uint32_t index,
			  struct hl_recording_module *ret_module);

/* As it stands: frame 0 when it is not there yet, any parent. */
struct hl_recording_node hl_region_read_node(const struct hl_region_view *view, uint32_t id);

/* Fills providers, sites and their names of ${process}, which has none yet. 0 or -ENOMEM; the caller
 * releases ${process} in either case. */
int hl_region_sites_read(const struct hl_region_view *view, struct hl_recording_process *process);

/* How many records of ${size} bytes of an area, out of ${claimed}, may be read. */
uint32_t hl_region_read_bounded(const struct hl_region_view *view, enum hl_area_id id,
				uint64_t claimed, size_t size);

/* The dynamic loader gives the program itself no name. */
static inline bool hl_region_module_is_main(const struct hl_recording_module *module)
{
	return module->path[0] == '\0' && module->end;
}

/* ---- what can be ---- */

/* What can stand in a region. A program with a bug writes there as it writes into its own memory:
 * what its recorder cannot have counted is not shown as if it had. */

/* More events than this take longer than ${ns}: a bound of each count, and of their sum. */
uint64_t hl_region_check_most_events(const struct hl_region_view *view, uint64_t ns);

/* Whether a thread can have counted so: ${most} events at most, of blocks that fit into the address
 * space. */
bool hl_region_check_cell(const struct hl_cell *cell, uint64_t most);

/* Whether ${kin} tells of as many execs as there can be threads, and of namespaces of dlmopen()
 * that a program may ask for. */
bool hl_region_check_kin(const struct hl_region_kin *kin);

/* How many fields of the header differ that nobody changes, or cannot be. */
uint64_t hl_region_check_header(const struct hl_region_view *view);

/* Whether the total in use that threads add to as they go is, within what they may still hold back,
 * ${inuse_bytes}, the sum of the counters of a process that has ended. */
bool hl_region_check_total(const struct hl_region_view *view, int64_t inuse_bytes);

/* ---- sums at a glance ---- */

struct hl_region_figures {
	uint64_t alloc_bytes, free_bytes, alloc_objects, free_objects; /* whatever was reset */
	uint64_t events; /* allocations and frees since the last reset */
	int64_t inuse_bytes, inuse_objects;
	int64_t peak_bytes; /* within 1 %: of the last mark, or now when that is more */
	uint32_t stack_nodes;
	uint64_t lost_events;	  /* that could not be counted */
	uint64_t lost_log_events; /* counted, but not in the log */
};

/* Costs one pass over the cells. The layout fits the region: the collector made both. */
void hl_region_figures_read(const struct hl_region_view *view,
			    struct hl_region_figures *ret_figures);

/* ---- makes the regions that the collector hands out ---- */

/* What every region of a recording says to its recorder. */
struct hl_region_settings {
	enum hl_mode mode;
	bool mappings;
	bool sizes;
	bool no_scripts; /* interpreters are not looked for */
	bool no_objects; /* of interpreters */
	bool lossy;	 /* full rings drop events */
	bool leaks;	 /* processes that exit have their lost blocks looked for */
	bool follow;	 /* programs that the target starts are recorded, too */
	uint64_t sample_bytes;
	uint64_t spare_sample_bytes; /* see header.spare_sample_bytes */
};

struct hl_region {
	struct hl_region_header *header; /* start of the mapping */
	size_t bytes;
	int fd;				/* its memfd */
	struct hl_region_header layout; /* as laid out, where the target cannot write */
};

/*
 * Makes a region and maps it. It takes at most an eighth of ${address_space_limit} (UINT64_MAX: no
 * limit), since the target maps it, too. ${memfd} is an empty one to hold it, which is taken over
 * also on failure; -1: one is made. 0 or a negative errno: -EBADFD when ${memfd} is not an empty memfd
 * whose size can be sealed.
 */
int hl_region_make(const struct hl_region_settings *settings, uint64_t address_space_limit,
		   int memfd, struct hl_region *ret_region);

/* Unmaps and closes it; the target's own mapping is its own. */
void hl_region_release(struct hl_region *region);

/* ---- time stamps ---- */

/* Whether the kernel relies on the time stamp counter, as the file at ${path} says; for tests. */
bool hl_time_stamps_are_clock(const char *path);
