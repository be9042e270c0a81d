/* SPDX-License-Identifier: BSD-2-Clause */
/* What views write of a profile, for tests that read it. */
#pragma once

#include "view/view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static inline void rename_function(struct hl_profile *profile, uint32_t function, const char *name)
{
	assert_int_equal(
		hl_strings_intern(&profile->strings, name, &profile->functions[function].name), 0);
	profile->functions[function].label = profile->functions[function].name;
}

/* All that ${view} writes, notes too; to be freed. */
static inline char *text_of(hl_view *view, const struct hl_profile *profile,
			    struct hl_view_options options)
{
	static char *text; /* gcc 12 warns of one on the stack, as if it were what is returned */
	static size_t size;
	struct hl_error err = {0};

	options.out = open_memstream(&text, &size);
	options.notes = options.out;
	if (view(profile, &options, &err) != 0)
		fail_msg("%s", err.text);
	fclose(options.out);
	return text;
}

/* The same as JSON; to be given back. */
static inline json_t *json_of(hl_view *view, const struct hl_profile *profile,
			      struct hl_view_options options)
{
	json_error_t error;

	options.json = true;
	char *text = text_of(view, profile, options);
	json_t *report = json_loads(text, JSON_REJECT_DUPLICATES, &error);
	if (!report)
		fail_msg("%s in %s", error.text, text);
	free(text);
	return report;
}

/* What ${view} returns, which nobody reads what it writes; of a failure ${profile} is named. */
static inline int view_quietly(hl_view *view, const struct hl_profile *profile,
			       struct hl_view_options options)
{
	struct hl_error err = {0};

	options.out = fopen("/dev/null", "w");
	options.notes = options.out;
	int r = view(profile, &options, &err);
	fclose(options.out);
	if (r < 0)
		assert_non_null(strstr(err.text, hl_profile_text(profile, profile->name)));
	return r;
}
