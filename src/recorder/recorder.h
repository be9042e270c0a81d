/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The recorder of this process: its state, its threads, and the way into and out of recording.
 *
 * Life: hooks pass through until hl_start() has got a region (phase RUNNING). In a forked
 * child the state reads as zero (private_map.h), which is phase FORKED: the child's first event
 * starts again. A vfork()ed child runs in its parent's memory and counts as its parent.
 */
#pragma once

#include "guests/guest.h"
#include "recorder/block.h"
#include "recorder/cases.h"
#include "recorder/cells.h"
#include "recorder/mappings.h"
#include "recorder/modules.h"
#include "recorder/node.h"
#include "recorder/private_map.h"
#include "recorder/region_map.h"
#include "recorder/script.h"
#include "recorder/self.h"
#include "recorder/spin.h"
#include "region/protocol.h"
#include "unwind/recall.h"
#include "unwind/unwind.h"

enum hl_phase {
	HL_PHASE_FORKED, /* only ever seen in a child, by wiping */
	HL_PHASE_STARTING,
	HL_PHASE_RUNNING,
	HL_PHASE_OFF, /* no collector, or no memory: pass through for good */
};

/* What a thread is doing. A signal handler that runs in between sees it. */
enum hl_activity {
	HL_NOT_A_THREAD, /* wiped by fork */
	HL_IDLE,	 /* in the program's own code: an event may be recorded */
	HL_RECORDING,	 /* in the recorder: an allocation here is a signal handler's */
	HL_IN_ALLOCATOR, /* in the real allocator: an allocation here is a signal handler's or the
			    allocator's own */
};

/* Frees by signal handlers that interrupted the recorder; more are counted as lost. */
#define HL_PENDING_MAX 64u

struct hl_pending_free {
	const void *address;
	uint64_t usable;
	struct hl_block block;
};

/* What is large of a thread. */
struct hl_thread_tables {
	struct hl_recall recall;
	struct hl_walk walk;
	struct hl_node_cache nodes;
	struct hl_size_cell size_cells[1 << HL_SIZE_CELL_BITS];
};

/* A forked child finds it wiped, and no tables. */
struct hl_thread {
	_Atomic uint32_t activity;	    /* enum hl_activity; written by its thread only */
	uint32_t slot;			    /* in the region */
	struct hl_region_thread *in_region; /* its slot */
	bool sampling;			    /* only blocks that are hit are recorded */
	bool plain; /* neither sampling nor sizes: events only count, if the mode says no other */
	bool plain_chunks;	  /* and blocks are chunks of glibc's */
	int64_t sample_countdown; /* bytes until the next block that is hit; see sample.h */
	uint64_t random;
	const void *last_block;	     /* allocated by this thread's last event, else NULL */
	const void *last_ruled_free; /* by a rule's function, which may go on in another's */
	uint32_t alloc_events;	     /* counts recorded allocations; wraps */
	int64_t unflushed_bytes; /* change of bytes in use not yet added to header.inuse_bytes */
	int64_t flush_bytes;	 /* add it beyond +- this */
	_Atomic uint32_t pending_count;
	struct hl_thread *next_free;
	struct hl_cells cells;
	struct hl_thread_tables *tables;
	struct hl_ring_writer ring;
	bool maps_arena;	     /* what it maps is for blocks that are recorded one by one */
	struct hl_guest_stamp stamp; /* of the block that is being allocated */
	struct hl_cell *ahead;	     /* what hl_event_look_ahead() has found, or NULL */
	bool looked_ahead;	     /* and interpreters are not to be asked */
	const char *type; /* what the realloc() that runs is for, see guests/guest.h; or NULL */
	const uint64_t *saved;		 /* of the caller, for guests/provider.h; NULL: unknown */
	struct hl_script_thread *script; /* for script.h; NULL until it is needed */
	struct hl_walk *check_walk;	 /* for recall_check.h; NULL until it is needed */
	uint32_t unchecked;		 /* stacks recalled since the last comparison */
	struct hl_pending_free pending[HL_PENDING_MAX];
};

struct hl_recorder {
	_Atomic uint32_t phase;
	bool sampling;		  /* from the beginning */
	_Atomic bool has_dropped; /* exact blocks are forgotten: HL_MODE_SAMPLED was seen */
	_Atomic bool hash_only;	  /* no block goes into the array of the block table */
	uint64_t sample_mean;	  /* of sample.h, now or later; 0: nothing is ever sampled */
	bool objects_only;	  /* and of malloc() none, objects do */
	bool sizes;		  /* blocks count by size class, too */
	bool inherits;		  /* a forked child: its parent's blocks are not in the table */
	bool has_rules;	     /* blocks have keys of two kinds, see event.h; in the image alone */
	bool counts_layers;  /* and what they call counts, too */
	bool has_type_rules; /* one names where an interpreter tells types */
	struct hl_region_map region;
	struct hl_block_table blocks;
	struct hl_mappings mappings;
	_Atomic uint32_t threads_lock, deepbind_lock;
	struct hl_thread *free_threads;
	_Atomic uint32_t live_threads;
	/* From here on a forked child has nothing until it starts. */
	_Alignas(HL_PRIVATE_MAP_HEAD) struct hl_modules modules;
	struct hl_script_sites sites;
	_Atomic(void *) guest_places[HL_GUESTS][HL_GUEST_PLACES];
	struct hl_unwind unwind;
	struct hl_cases cases;
};

static_assert(sizeof(struct hl_thread) <= HL_PRIVATE_MAP_HEAD &&
		      offsetof(struct hl_recorder, modules) == HL_PRIVATE_MAP_HEAD,
	      "a child reads the head only");

/* NULL until the first start; then the same address for good. Valid when phase is RUNNING. */
extern HL_HIDDEN struct hl_recorder *hl_recorder;

/* Makes ${recorder}, zero-filled, one that counts into ${region}, of which ${bytes} are mapped.
 * ${stamps}: it may read the time stamp counter. False without memory. */
bool hl_recorder_set_up(struct hl_recorder *recorder, void *region, size_t bytes, bool stamps);

/* Says in the region that this process is recorded. */
void hl_recorder_announce(struct hl_recorder *recorder);

static inline bool hl_recorder_has_rules(const struct hl_recorder *recorder)
{
#ifdef HL_ATTACHED
	return HL_UNLIKELY(recorder->has_rules);
#else
	(void)recorder;
	return false;
#endif
}

static inline bool hl_recorder_is_running(struct hl_recorder *recorder)
{
	return recorder &&
	       atomic_load_explicit(&recorder->phase, memory_order_acquire) == HL_PHASE_RUNNING;
}

/* Whether ${thread}, the calling one or NULL, is in the recorder or the allocator: what runs is a
 * signal handler or the allocator itself. */
static inline bool hl_thread_is_inside(const struct hl_thread *thread)
{
	return thread && atomic_load_explicit(&thread->activity, memory_order_relaxed) > HL_IDLE;
}

static inline void hl_thread_set(struct hl_thread *thread, enum hl_activity activity)
{
	/* Only this thread's own signal handlers must see it in order. */
	atomic_signal_fence(memory_order_seq_cst);
	atomic_store_explicit(&thread->activity, activity, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
}
