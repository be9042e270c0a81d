/* SPDX-License-Identifier: BSD-2-Clause */
/* Stands in until the real files are here: whoever adds one takes its part out of this file. */
#include "profile/open.h"

#include <errno.h>

static bool never(const struct hl_import_input *input)
{
	return input == NULL;
}

const struct hl_importer hl_importer_pprof = {"pprof", never, NULL};
