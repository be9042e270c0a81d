/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the library comes to life. Linked with -z initfirst, so before the constructors of every
 * other library. */
#include "guests/guest.h"
#include "recorder/hooks.h"
#include "recorder/libc.h"
#include "recorder/modules.h"
#include "recorder/recorder.h"
#include "recorder/start.h"
#include "recorder/sys.h"

#include <link.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* What the program is linked with, before it has run; what comes later is noted as stacks show it. */
static void note_interpreters(void)
{
	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
		struct hl_exports exports = hl_exports_of(map->l_ld, map->l_addr);
		HL_GUESTS_CALL(linked, hl_recorder->region.header, &exports);
	}
	void (*look)(void) = atomic_load(&hl_guest_wants.look);
	if (look)
		look();
}

/* glibc hands constructors what main() gets; environ itself may not be set yet. */
static __attribute__((constructor)) void start(int argc, char **argv, char **environment)
{
	(void)argc;
	if (!hl_libc_resolve() || !hl_libc_is_known())
		return;
	hl_kin_keep_arguments(argv, environment);
	hl_objects_hooks = (struct hl_objects_hooks){&hl_hooks_objects, &hl_hooks_arenas};
	hl_start(environment);
	hl_annotations_begin();
	if (hl_recorder_is_running(hl_recorder)) {
		hl_deepbind_begin();
		note_interpreters();
	}
}

/* About as much as asking takes. */
#define ASKING_BYTES 4096

/* Addresses of blocks that events have left on the stack must not look like words of the frames that ask. */
static __attribute__((noinline)) void wipe_stack(void)
{
	char below[ASKING_BYTES];

	explicit_bzero(below, sizeof(below));
}

/*
 * Has the collector look for blocks that nothing leads to any more, once all that the program does at its exit is done. It waits for
 * that, for a minute at most.
 */
static __attribute__((noinline)) void look_for_leaks(void)
{
	char reason[HL_ASK_REASON_BYTES];
	struct hl_answer answer = {0};

	/* Some systems let only ancestors look into a process, and the one that looks is a sibling. */
	HL_SYS(SYS_prctl, PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0);
	if (hl_ask_collector("leaks 0", &answer, reason) == 0)
		hl_answer_release(&answer);
}

static __attribute__((destructor)) void end(void)
{
	hl_kin_keep_title();
	if (hl_recorder_is_running(hl_recorder) &&
	    atomic_load(&hl_recorder->region.header->flags) & HL_REGION_LEAKS) {
		wipe_stack();
		look_for_leaks();
	}
}
