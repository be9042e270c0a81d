/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the library comes to life. Linked with -z initfirst, so before the constructors of every
 * other library. */
#include "recorder/annotations.h"
#include "recorder/kin.h"
#include "recorder/libc.h"
#include "recorder/start.h"

/* glibc hands constructors what main() gets; environ itself may not be set yet. */
static __attribute__((constructor)) void start(int argc, char **argv, char **environment)
{
	(void)argc;
	if (!hl_libc_resolve() || !hl_libc_is_known())
		return;
	hl_kin_keep_arguments(argv, environment);
	hl_start(environment);
	hl_annotations_begin();
}

static __attribute__((destructor)) void end(void)
{
	hl_kin_keep_title();
}
