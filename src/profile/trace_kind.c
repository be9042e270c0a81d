/* SPDX-License-Identifier: BSD-2-Clause */
/* The kinds of traces; see trace_kind.h. */
#include "profile/trace_kind.h"

#include "base/compiler.h"

#include <string.h>

static const struct hl_trace_kind kinds[] = {
	{
		.mode = "stacks",
		.verb = "stacks",
		.value = HL_VALUE_INUSE,
		.noun = "block",
		.nouns = "blocks",
		.word = "not freed",
		.no_object = "everything allocated during the trace was freed",
		.no_stack = "nothing was allocated during the trace",
	},
	{
		.mode = "stacks-all",
		.verb = "stacks",
		.value = HL_VALUE_ALLOC,
		.noun = "block",
		.nouns = "blocks",
		.word = "allocated",
		.no_object = "nothing was allocated during the trace",
	},
	{
		.mode = "stacks-growth",
		.verb = "stacks",
		.value = HL_VALUE_INUSE,
		.noun = "block",
		.nouns = "blocks",
		.word = "gained",
		.no_object = "nothing grew or shrank",
		.negative = "negative: blocks from before were freed",
	},
	{
		.mode = "pgfault",
		.verb = "pgfault",
		.value = HL_VALUE_INUSE,
		.noun = "page",
		.nouns = "pages",
		.word = "gained",
		.no_object = "no page came or went during the trace",
		.negative = "negative: pages that existed before the trace were released",
	},
	{
		.mode = "page-events",
		.verb = "page-events",
		.value = HL_VALUE_ALLOC,
		.noun = "fault",
		.nouns = "faults",
		.word = "touched",
		.no_object = "no page fault was seen during the trace",
	},
	{
		.mode = "leaks",
		.verb = "leaks",
		.value = HL_VALUE_INUSE,
		.noun = "block",
		.nouns = "blocks",
		.word = "lost",
		.no_object = "no block was lost",
	},
};

const struct hl_trace_kind *hl_trace_kind_of(const char *mode)
{
	for (size_t i = 0; i < HL_COUNT_OF(kinds); i++)
		if (!strcmp(mode, kinds[i].mode))
			return &kinds[i];
	return NULL;
}

const struct hl_trace_kind *hl_trace_kind_of_profile(const struct hl_profile *profile)
{
	return profile->imported ? NULL : hl_trace_kind_of(hl_profile_text(profile, profile->mode));
}

bool hl_trace_kind_counts_pages(const struct hl_trace_kind *kind)
{
	return !strcmp(kind->noun, "page");
}
