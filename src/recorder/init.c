/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the library comes to life. Linked with -z initfirst, so before the constructors of every
 * other library. */
#include "recorder/real.h"
#include "recorder/recorder.h"

/* glibc hands constructors what main() gets; environ itself may not be set yet. */
static __attribute__((constructor)) void start(int argc, char **argv, char **environment)
{
	(void)argc;
	(void)argv;
	if (hl_real_resolve() && hl_real_libc_is_known())
		hl_recorder_start(environment);
}
