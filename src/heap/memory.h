/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory of a process, as a walk of its heap reads it: of a live process, from a core file, or
 * from an image that a test made. Readers ask first which pages are present and touch no others, so
 * that reading changes nothing in a live process.
 */
#pragma once

#include "base/clock.h"
#include "base/error.h"
#include "process/maps.h"
#include "process/process.h"

#include <errno.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

struct hl_memory;

typedef int hl_thread_visit(void *context, const struct hl_thread_registers *registers);

struct hl_memory_kind {
	/* Copies ${length} bytes. 0, -EFAULT when some are not mapped, -ESRCH when the process has
	 * ended, -EACCES. */
	int (*read)(struct hl_memory *memory, uint64_t address, void *bytes, size_t length);
	/* Appends the present pages in [${start}, ${end}), page-aligned. 0 or a negative errno. */
	int (*scan)(struct hl_memory *memory, uint64_t start, uint64_t end, struct hl_pages *pages);
	/* Opens the file of ${map}; a descriptor or a negative errno. */
	int (*open_file)(struct hl_memory *memory, const struct hl_map *map);
	/* `stop` stops the process and reads its mappings again, 0 or a negative errno with a
	 * sentence; `go_on` lets it run. NULL where nothing runs. */
	int (*stop)(struct hl_memory *memory, struct hl_error *err);
	void (*go_on)(struct hl_memory *memory);
	void (*free)(struct hl_memory *memory);
	/* Calls ${visit} for each thread of a process that is stopped, until it returns non-zero;
	 * returns that. NULL where there are none. */
	int (*threads)(struct hl_memory *memory, hl_thread_visit *visit, void *context);
	/* As `stop`, but may leave threads alone that sleep; `has_moved` tells whether one of these has
	 * run since: such a thread is stopped the next time. In a process that is held already this stops
	 * those alone, and the others stay as they are. NULL where `stop` is. */
	int (*hold)(struct hl_memory *memory, struct hl_error *err);
	bool (*has_moved)(struct hl_memory *memory);
	/* Appends the pages in [${start}, ${end}) that are on swap and that `scan` leaves out. NULL where
	 * there are none. */
	int (*scan_swapped)(struct hl_memory *memory, uint64_t start, uint64_t end,
			    struct hl_pages *pages);
	/* Like hl_kernel_words_read(). NULL where the kernel has none. */
	int (*kernel_words)(struct hl_memory *memory, hl_kernel_visit *visit, void *context,
			    bool *ret_has_io_uring);
	/* See hl_memory_list_sleepers(). NULL where `stop` is. */
	bool (*list_sleepers)(struct hl_memory *memory);
};

struct hl_memory {
	const struct hl_memory_kind *kind;
	struct hl_maps maps;
	pid_t pid; /* 0: it is not that of a running process */
	uint64_t page_bytes;
	uint64_t program_headers; /* where those of the program lie; 0: that is not known */
	uint64_t stopped_ns;	  /* how long threads were stopped, in stops that have ended */
	uint32_t stopped_threads; /* how many were stopped at once, at most */
	bool is_audited;	  /* a stop of it: many may be needed */
	bool is_cut_off;	  /* a core file that ends before what it is to hold does */
	bool is_slow_on_holes; /* scanning addresses without pages takes time: see process/maps.h */
	/* See hl_memory_keep_time(); 0: the stop lasts until hl_memory_go_on(). */
	uint64_t still_until_ns;
	uint64_t late_bytes; /* read after still_until_ns had passed */
	uint64_t
		block_bytes; /* of blocks since the clock was looked at: hl_memory_keep_time_of_block() */
	bool is_late;	     /* it has passed */
};

static inline int hl_memory_read(struct hl_memory *memory, uint64_t address, void *bytes,
				 size_t length)
{
	return memory->kind->read(memory, address, bytes, length);
}

static inline int hl_memory_scan(struct hl_memory *memory, uint64_t start, uint64_t end,
				 struct hl_pages *pages)
{
	return memory->kind->scan(memory, start, end, pages);
}

/* Like hl_memory_read(); also -EFAULT, and nothing is touched, where a page is not in memory. */
static inline int hl_memory_read_present(struct hl_memory *memory, uint64_t address, void *bytes,
					 size_t length)
{
	uint64_t mask = memory->page_bytes - 1, start = address & ~mask;
	uint64_t end = (address + length + mask) & ~mask;
	struct hl_pages pages = {0};

	int r = hl_memory_scan(memory, start, end, &pages);
	if (r == 0 && pages.page_count != (end - start) / memory->page_bytes)
		r = -EFAULT;
	hl_pages_release(&pages);
	return r == 0 ? hl_memory_read(memory, address, bytes, length) : r;
}

static inline int hl_memory_open_file(struct hl_memory *memory, const struct hl_map *map)
{
	return memory->kind->open_file(memory, map);
}

static inline int hl_memory_stop(struct hl_memory *memory, struct hl_error *err)
{
	return memory->kind->stop ? memory->kind->stop(memory, err) : 0;
}

/* Stops what runs. Unless hl_memory_has_moved() says so afterwards, nothing has run from here to
 * there. */
static inline int hl_memory_hold(struct hl_memory *memory, struct hl_error *err)
{
	return memory->kind->hold ? memory->kind->hold(memory, err) : 0;
}

/*
 * Before hl_memory_hold(): lists the threads that sleep and reads the mappings; nothing is stopped. hl_memory_threads()
 * visits these. Then hl_memory_hold() stops what does not sleep or has woken since, and hl_memory_threads() visits what
 * it has stopped: each thread that has run since it was visited before, unless one has woken once more after several attempts.
 * False, and nothing is known, where nobody tells.
 */
static inline bool hl_memory_list_sleepers(struct hl_memory *memory)
{
	return memory->kind->list_sleepers && memory->kind->list_sleepers(memory);
}

static inline bool hl_memory_has_moved(struct hl_memory *memory)
{
	return memory->kind->has_moved && memory->kind->has_moved(memory);
}

static inline void hl_memory_go_on(struct hl_memory *memory)
{
	memory->still_until_ns = 0;
	if (memory->kind->go_on)
		memory->kind->go_on(memory);
}

/*
 * Called before ${bytes} are read, in the thread that stopped the process: lets it go on when still_until_ns has
 * passed, and counts what is read from then on.
 */
static inline void hl_memory_keep_time(struct hl_memory *memory, uint64_t bytes)
{
	if (memory->still_until_ns && hl_clock_ns(CLOCK_MONOTONIC) >= memory->still_until_ns) {
		memory->is_late = true;
		hl_memory_go_on(memory);
	}
	memory->late_bytes += memory->is_late ? bytes : 0;
}

/* The same for each block of many, of ${bytes}: the clock is looked at now and then. */
static inline void hl_memory_keep_time_of_block(struct hl_memory *memory, uint64_t bytes)
{
	enum { LOOK_BYTES = 256 << 10 };

	memory->block_bytes += bytes;
	if (memory->block_bytes < LOOK_BYTES)
		return;
	hl_memory_keep_time(memory, memory->block_bytes);
	memory->block_bytes = 0;
}

static inline int hl_memory_threads(struct hl_memory *memory, hl_thread_visit *visit, void *context)
{
	return memory->kind->threads ? memory->kind->threads(memory, visit, context) : 0;
}

static inline int hl_memory_scan_swapped(struct hl_memory *memory, uint64_t start, uint64_t end,
					 struct hl_pages *pages)
{
	return memory->kind->scan_swapped ? memory->kind->scan_swapped(memory, start, end, pages)
					  : 0;
}

static inline int hl_memory_kernel_words(struct hl_memory *memory, hl_kernel_visit *visit,
					 void *context, bool *ret_has_io_uring)
{
	*ret_has_io_uring = false;
	return memory->kind->kernel_words
		       ? memory->kind->kernel_words(memory, visit, context, ret_has_io_uring)
		       : 0;
}

/* ${memory} itself is freed, too; NULL is fine. */
static inline void hl_memory_free(struct hl_memory *memory)
{
	if (memory)
		memory->kind->free(memory);
}

/* The memory of ${pid}. 0; -ESRCH; -EACCES; -ENOMEM, with a sentence. */
int hl_memory_live_open(pid_t pid, struct hl_memory **ret_memory, struct hl_error *err);

/* Whether ${map} is memory alone: reading it has no effect, which reading a device's may have. */
bool hl_memory_is_plain(const struct hl_map *map);

/* Pages on swap count as present from now on: reading brings them back into RAM. */
void hl_memory_live_read_swapped(struct hl_memory *memory);

/* Lets hl_memory_hold() ask ${source}, which must live as long. */
void hl_memory_live_set_sleepers(struct hl_memory *memory, const struct hl_sleeper_source *source);

/* Opens the memory in a core file and fills ${facts}, which must be empty and are to be released,
 * on failure, too. 0; -EBADMSG when it is not a core file; another negative errno, with a sentence.
 * */
int hl_memory_core_open(const char *path, struct hl_memory **ret_memory,
			struct hl_process_facts *facts, struct hl_error *err);

/* ---- reading ahead ---- */

/*
 * Of memory that is read in order a second thread reads the next part while the first one works on this one. What is
 * taken was so a moment ago, when it was asked for. For one thread at a time.
 */
struct hl_ahead;

/* ${bytes}: as much as is asked for at once. 0 or -ENOMEM. */
int hl_ahead_new(struct hl_memory *memory, size_t bytes, struct hl_ahead **ret_ahead);

/* Asks for [${start}, ${end}), pages that are in memory; what was asked for before is forgotten. */
void hl_ahead_ask(struct hl_ahead *ahead, uint64_t start, uint64_t end);

/* Whether what was asked for holds ${address} and could be read. It is exchanged for *${window}, of as many bytes, then. */
bool hl_ahead_take(struct hl_ahead *ahead, uint64_t address, uint64_t **window, uint64_t *ret_start,
		   uint64_t *ret_end);

/* Nothing is asked for any more. NULL is fine for both. */
void hl_ahead_forget(struct hl_ahead *ahead);
void hl_ahead_free(struct hl_ahead *ahead);

/* ---- stops ---- */

/*
 * Stops all threads of a process for a moment, by ptrace: unlike with a stop signal, its parent
 * does not notice. If heapline dies meanwhile, the kernel lets them go on.
 */
struct hl_stop;

/* Whether another process traces ${pid}, so that it cannot be stopped: 0, or -EBUSY with a
 * sentence. */
int hl_stop_check(pid_t pid, struct hl_error *err);
