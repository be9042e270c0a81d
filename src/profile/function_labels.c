/* SPDX-License-Identifier: BSD-2-Clause */
/* Tells functions of scripts with one name apart by their sources; see function_labels.h. */
#include "profile/function_labels.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct named {
	uint32_t name, function;
	const char *source;
	size_t length;
};

/* How many bytes the ends of both sources have in common. */
static size_t shared_end(const struct named *a, const struct named *b)
{
	size_t least = a->length < b->length ? a->length : b->length, shared = 0;

	while (shared < least &&
	       a->source[a->length - 1 - shared] == b->source[b->length - 1 - shared])
		shared++;
	return shared;
}

static bool is_same_source(const struct named *a, const struct named *b)
{
	return a->length == b->length && shared_end(a, b) == a->length;
}

/* By name, then by source read from its end: those that are most alike lie side by side. */
static int by_name_and_source_end(const void *left, const void *right)
{
	const struct named *a = left, *b = right;

	if (a->name != b->name)
		return a->name < b->name ? -1 : 1;
	size_t shared = shared_end(a, b);
	if (shared == a->length || shared == b->length)
		return (a->length > b->length) - (a->length < b->length);
	unsigned char in_a = (unsigned char)a->source[a->length - 1 - shared];
	unsigned char in_b = (unsigned char)b->source[b->length - 1 - shared];
	return in_a < in_b ? -1 : 1;
}

/* Where the whole names of folders and files begin that say more than the last ${shared} bytes. A chunk that is
 * no file, "[string ...]", is told whole. */
static const char *telling_part(const struct named *of, size_t shared)
{
	size_t at = of->length - (shared < of->length ? shared + 1 : shared);

	if (of->source[0] == '[')
		return of->source;
	if (at && of->source[at] == '/')
		at--;
	while (at && of->source[at - 1] != '/')
		at--;
	return of->source + at;
}

/* The label of all functions first .. end - 1, which have one source; ${shared} is with the most similar other. */
static int set_label(struct hl_profile *profile, const struct named *first, const struct named *end,
		     size_t shared)
{
	uint32_t label;
	char *text;

	if (asprintf(&text, "%s (%s)", hl_profile_text(profile, first->name),
		     telling_part(first, shared)) < 0)
		return -ENOMEM;
	int r = hl_strings_intern(&profile->strings, text, &label);
	free(text);
	for (const struct named *at = first; r == 0 && at < end; at++)
		profile->functions[at->function].label = label;
	return r;
}

static int set_labels(struct hl_profile *profile, const struct named *all, size_t count)
{
	const struct named *before = NULL; /* of the source before, if it shares the name */
	int r = 0;

	for (size_t i = 0, end; r == 0 && i < count; i = end) {
		for (end = i + 1; end < count && all[end].name == all[i].name &&
				  is_same_source(&all[end], &all[i]);)
			end++;
		bool has_next = end < count && all[end].name == all[i].name;
		size_t shared = before ? shared_end(before, &all[i]) : 0;
		if (has_next && shared_end(&all[i], &all[end]) > shared)
			shared = shared_end(&all[i], &all[end]);
		if (before || has_next)
			r = set_label(profile, &all[i], &all[end], shared);
		before = has_next ? &all[i] : NULL;
	}
	return r;
}

int hl_function_labels_set(struct hl_profile *profile)
{
	HL_FREED struct named *all = calloc(profile->function_count + 1, sizeof(*all));
	size_t count = 0;

	if (!all)
		return -ENOMEM;
	for (uint32_t i = 1; i < profile->function_count; i++) {
		struct hl_profile_function *function = &profile->functions[i];
		const char *source = hl_profile_text(profile, function->file);
		function->label = function->name;
		if (profile->modules[function->module].script && *source)
			all[count++] = (struct named){function->name, i, source, strlen(source)};
	}
	qsort(all, count, sizeof(*all), by_name_and_source_end);
	return set_labels(profile, all, count);
}
