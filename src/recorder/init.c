/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the library comes to life. Linked with -z initfirst, so before the constructors of every
 * other library. */
#include "recorder/annotations.h"
#include "recorder/hooks.h"
#include "recorder/kin.h"
#include "recorder/libc.h"
#include "recorder/recorder.h"
#include "recorder/start.h"

#include <link.h>

/* What the program is linked with, before it has run; what comes later is noted as stacks show it. */
static void note_interpreters(void)
{
	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
		struct hl_exports exports = hl_exports_of(map->l_ld, map->l_addr);
		hl_python_objects_note(hl_recorder->region.header, &exports);
	}
	if (hl_python_objects_pending)
		hl_python_objects_look();
}

/* glibc hands constructors what main() gets; environ itself may not be set yet. */
static __attribute__((constructor)) void start(int argc, char **argv, char **environment)
{
	(void)argc;
	if (!hl_libc_resolve() || !hl_libc_is_known())
		return;
	hl_kin_keep_arguments(argv, environment);
	hl_python_objects_use(&hl_hooks_python, &hl_hooks_python_arenas);
	hl_start(environment);
	hl_annotations_begin();
	if (hl_recorder_is_running(hl_recorder))
		note_interpreters();
}

static __attribute__((destructor)) void end(void)
{
	hl_kin_keep_title();
}
