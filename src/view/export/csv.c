/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heapline export --format csv: a row for each stack with all its figures (RFC 4180). Stacks are
 * those of the folded view, and written as there.
 */
#include "base/cleanup.h"
#include "profile/calltree.h"
#include "view/format.h"
#include "view/rows.h"
#include "view/summary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

static void put_stack(FILE *out, const char *const *path, uint32_t length)
{
	putc('"', out);
	for (uint32_t i = 0; i < length; i++) {
		if (i)
			putc(';', out);
		for (const char *at = path[i]; *at;) {
			if (*at == '"')
				putc('"', out);
			/* Within a name ';' would be another frame. */
			at += hl_format_put_letter(out, *at == ';' ? ":" : at);
		}
	}
	fputs("\"\r\n", out);
}

/* Figures of pages have columns only where they are known. */
static bool has_column(const struct hl_profile *profile, enum hl_value value, enum hl_unit unit)
{
	return hl_profile_has_unit(value, unit) &&
	       (!hl_value_is_of_pages(value) || hl_profile_knows(profile, value, unit));
}

static int put_file(FILE *out, const struct hl_profile *profile, const struct hl_calltree *tree)
{
	HL_FREED struct hl_profile_counters *sums = calloc(tree->count, sizeof(*sums));
	HL_FREED const char **path = calloc(tree->depth_max + 1, sizeof(*path));

	if (!sums || !path)
		return -ENOMEM;
	for (size_t i = 0; i < profile->node_count; i++)
		hl_profile_counters_add(&sums[tree->node_of[i]], &profile->counters[i]);
	for (int value = 0; value < HL_VALUE_COUNT; value++)
		for (int unit = 0; unit < HL_UNIT_COUNT; unit++)
			if (has_column(profile, (enum hl_value)value, (enum hl_unit)unit))
				fprintf(out, "%s_%s,", hl_value_names[value], hl_unit_names[unit]);
	fputs("stack\r\n", out);
	for (size_t i = 0; i < tree->count; i++) {
		const struct hl_calltree_node *node = &tree->nodes[i];
		uint32_t length = node->depth ? node->depth : 1;
		path[length - 1] = i ? hl_profile_text(profile, node->name) : HL_KEYS_NO_STACK;
		if (!hl_profile_counters_any(&sums[i]))
			continue;
		for (int value = 0; value < HL_VALUE_COUNT; value++)
			for (int unit = 0; unit < HL_UNIT_COUNT; unit++) {
				enum hl_value of = (enum hl_value)value;
				enum hl_unit in = (enum hl_unit)unit;
				if (!has_column(profile, of, in))
					continue;
				if (hl_profile_knows(profile, of, in)) /* else the field is empty */
					fprintf(out, "%" PRId64,
						hl_profile_figure(&sums[i], of, in));
				putc(',', out);
			}
		put_stack(out, path, length);
	}
	return ferror(out) ? -EIO : 0;
}

int hl_csv_view(const struct hl_profile *profile, const struct hl_view_options *options,
		struct hl_error *err)
{
	HL_CLEANUP(hl_calltree_release) struct hl_calltree tree = {0};

	int r = hl_calltree_init(&tree, profile, options->value, options->unit);
	if (r == 0)
		r = put_file(options->out, profile, &tree);
	if (r == 0)
		r = hl_summary_note(profile, options);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
