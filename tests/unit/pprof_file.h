/* SPDX-License-Identifier: BSD-2-Clause */
/* Files of pprof in memory, as the importer reads them. */
#pragma once

#include "import/gzip.h"
#include "open/open.h"

#include "pprof.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct pprof_file {
	uint8_t *bytes; /* to be freed */
	size_t size;
};

/* Reads ${file}; the error's sentence in ${err} when the result is negative. */
static int pprof_read(const struct pprof_file *file, struct hl_profile **ret_profile,
		      struct hl_error *err)
{
	const struct hl_import_input input = {
		.name = "x.pb", .bytes = file->bytes, .size = file->size};

	*err = (struct hl_error){0};
	int r = hl_open_import_bytes(&hl_importer_pprof, &input, ret_profile, err);
	if (r == 0)
		assert_true(hl_profile_is_valid(*ret_profile));
	return r;
}

static struct hl_profile *profile_of_pprof(const struct pprof_file *file)
{
	struct hl_profile *profile;
	struct hl_error err;

	if (pprof_read(file, &profile, &err) < 0)
		fail_msg("%s", err.text);
	return profile;
}
