/* SPDX-License-Identifier: BSD-2-Clause */
/* Instead of what asks a BEAM, in builds without libei. */
#include "guests/beam/beam.h"

#include <errno.h>

static int refuse(const struct hl_beam_settings *settings, struct hl_error *err)
{
	return hl_error_set(err, -ENOTSUP,
			    "cannot ask '%s': this heapline was built without libei; install the "
			    "package erlang-dev, then build it again with 'make clean all'",
			    settings->node);
}

int hl_beam_carriers(const struct hl_beam_settings *settings, struct hl_beam_report *report,
		     struct hl_error *err)
{
	(void)report;
	return refuse(settings, err);
}

int hl_beam_allocations(const struct hl_beam_settings *settings, struct hl_beam_report *report,
			struct hl_error *err)
{
	(void)report;
	return refuse(settings, err);
}
