/* SPDX-License-Identifier: BSD-2-Clause */
/* From the samples of a pprof file, by way of its locations, functions and mappings, to a tree. */
#pragma once

#include "import/pprof_reader.h"
#include "import/pprof_values.h"
#include "profile/builder.h"

/*
 * Adds the stacks of ${reader} to ${builder}, and what the file says of them to ${values}. Places
 * without names get them from the files they lie in, if these are there. 0 or a negative errno.
 */
int hl_pprof_stacks_read(struct hl_pprof_reader *reader, struct hl_builder *builder,
			 struct hl_pprof_values *values);
