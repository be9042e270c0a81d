/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hook of _dl_debug_state(): a thread that has loaded libraries, or unloaded some, waits until
 * heapline has patched their functions, or forgotten them; see enum hl_libraries_state.
 *
 * The thread holds the loader's lock, and no constructor has run. It may have no thread pointer yet,
 * so nothing here is of a thread; signals wait, as a handler that forks would have a child that gives
 * the region back while we look at it.
 */
#include "recorder/image/image.h"

#include "base/clock.h"
#include "recorder/libc.h"
#include "recorder/modules.h"
#include "recorder/recorder.h"
#include "recorder/sys.h"
#include "recorder/thread.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <time.h>

#define LOOK_NS	    (HL_NS_PER_SECOND / 20) /* whether heapline is still there */
#define PATIENCE_NS (2 * HL_NS_PER_SECOND)  /* for one that may be stopped */
#define ANSWERING_NS \
	(20 * HL_NS_PER_SECOND) /* for one whose end would not be seen; see attach_late.c */

bool hl_image_has_lost_heapline(bool *ret_is_known)
{
	const struct hl_region_map *region = &hl_recorder->region;
	uint32_t owner = atomic_load(&hl_image_children->owner);

	*ret_is_known = owner || region->collector_pid > 0;
	return owner & FUTEX_OWNER_DIED ||
	       (region->collector_pid > 0 && !hl_region_map_collector_exists(region));
}

/* Whether nobody will answer, as far as can be told. ${word}: what was there just now. */
static bool is_in_vain(_Atomic uint32_t *libraries, uint32_t word, uint64_t waited_ns)
{
	uint32_t missed = hl_libraries_word(hl_libraries_answers(word) + 1, HL_LIBRARIES_MISSED);
	bool is_known, ended = hl_image_has_lost_heapline(&is_known);

	if (waited_ns >= LOOK_NS && ended) {
		atomic_store(libraries, HL_LIBRARIES_UNWATCHED);
		return true;
	}
	/* One that writes code is not to be left alone with it, unless it has ended. */
	if (hl_libraries_state_of(word) == HL_LIBRARIES_WRITING)
		return waited_ns >= ANSWERING_NS && !is_known;
	return waited_ns >= PATIENCE_NS && atomic_compare_exchange_strong(libraries, &word, missed);
}

static int64_t map_room(void)
{
	uint64_t at = hl_attached.room, bytes = hl_attached.room_bytes;

	int64_t r = hl_sys6(SYS_mmap, (long)at, (long)bytes, PROT_READ | PROT_EXEC,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (r < 0)
		return r;
	if ((uint64_t)r != at) { /* a kernel before 4.17 takes the address for a wish */
		hl_sys_munmap((void *)r, bytes);
		return -EEXIST;
	}
	/* The marks of our memory, see attach_prepare.c. */
	hl_sys_madvise((void *)r, bytes, MADV_NOHUGEPAGE);
	hl_sys_madvise((void *)r, bytes, MADV_RANDOM);
	return 0;
}

static void make_room(_Atomic uint32_t *libraries, uint32_t word)
{
	uint32_t answering = hl_libraries_word(hl_libraries_answers(word), HL_LIBRARIES_ANSWERING);

	hl_attached.room_result = map_room();
	if (!atomic_compare_exchange_strong(libraries, &word, answering) &&
	    hl_attached.room_result == 0)
		hl_sys_munmap((void *)hl_attached.room, hl_attached.room_bytes);
	HL_SYS(SYS_futex, libraries, FUTEX_WAKE, INT_MAX);
}

static void wait_for_answer(_Atomic uint32_t *libraries, uint32_t asked)
{
	const struct timespec look = {.tv_nsec = LOOK_NS};
	uint64_t begin_ns = hl_clock_ns(HL_SYS_CLOCK);
	uint32_t word;

	while (hl_libraries_answers(word = atomic_load(libraries)) == hl_libraries_answers(asked)) {
		if (hl_libraries_state_of(word) == HL_LIBRARIES_ROOM) {
			make_room(libraries, word);
			continue;
		}
		hl_sys6(SYS_futex, (long)libraries, FUTEX_WAIT, word, (long)&look, 0, 0);
		/* With what is there now: for one that has answered meanwhile nobody waits. */
		word = atomic_load(libraries);
		if (hl_libraries_answers(word) == hl_libraries_answers(asked) &&
		    is_in_vain(libraries, word, hl_clock_ns(HL_SYS_CLOCK) - begin_ns))
			return;
	}
}

/* Where nobody else says that libraries have gone: a program that is entered as it begins has no
 * dlclose() yet. */
static void retire_unloaded(void)
{
	if (hl_libc.dlclose || !atomic_load(&hl_self_gate.open) || !hl_image_find())
		return;
	hl_libc_note_unloaded();
	struct hl_thread *thread = hl_thread_enter();
	if (thread) {
		hl_modules_retire_unloaded(&hl_recorder->modules);
		hl_thread_leave(thread);
	}
	hl_rule_cache_invalidate(&hl_recorder->unwind);
}

static void note_change(void)
{
	_Atomic uint32_t *libraries = &hl_recorder->region.header->libraries;

	uint32_t word = atomic_load(libraries);
	uint32_t asked = hl_libraries_word(hl_libraries_answers(word), HL_LIBRARIES_ASKED);
	if (hl_libraries_state_of(word) == HL_LIBRARIES_WATCHED &&
	    atomic_compare_exchange_strong(libraries, &word, asked)) {
		HL_SYS(SYS_futex, libraries, FUTEX_WAKE, INT_MAX);
		wait_for_answer(libraries, asked);
		hl_image_note_rules(hl_recorder); /* libraries that came later have some */
	}
	retire_unloaded();
}

void hl_image_libraries(void)
{
	uint64_t before;

	hl_sys_block_signals(&before);
	/* Once more: a handler may have forked since the stub looked, and this be the child. */
	if (atomic_load(&hl_self_gate.started))
		note_change();
	hl_sys_restore_signals(&before);
}
