/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline diff: what grew from one recording to another. */
#include "cli/view_options.h"
#include "view/format.h"

#include <errno.h>

#define NO_LIMIT UINT64_MAX

static hl_view view_and_check;

static const struct hl_view_request defaults = {
	HL_VIEW_DEFAULTS,
	.view = view_and_check,
	.profiles_max = 2,
	.compares = true,
	.pages = true,
	.options = {.row_limit = HL_EMIT_ROWS_DEFAULT, .diff.fail_above = NO_LIMIT},
};

static const char *const by_words[] = {"function", "line", "module", "stack", NULL};
static const enum hl_view_key by_keys[] = {HL_VIEW_BY_FUNCTION, HL_VIEW_BY_LINE, HL_VIEW_BY_MODULE,
					   HL_VIEW_BY_STACK};

static const char *const sort_words[] = {"growth", "size", NULL};
static const enum hl_view_sort sorts[] = {HL_VIEW_SORT_GROWTH, HL_VIEW_SORT_SIZE};

static const struct hl_option options[] = {
	{"by", 'b', "KEY", "function, line, module or stack (default: function)", HL_OPTION_CHOICE,
	 HL_VIEW_AT(options.by), by_words},
	{"sort", 's', "KEY", "growth (what shrank most comes last) or size (default: growth)",
	 HL_OPTION_CHOICE, HL_VIEW_AT(options.sort), sort_words},
	{"rows", 'n', "N",
	 "N rows that grew and N that shrank; 0: all (default: 20, with --json all)",
	 HL_OPTION_COUNT, HL_VIEW_AT(options.row_limit), NULL},
	{"normalize", 0, NULL, "scale BEFORE by the ratio of the durations", HL_OPTION_FLAG,
	 HL_VIEW_AT(normalize), NULL},
	{"fail-above", 0, "BYTES", "exit with status 3 if the total grew by more", HL_OPTION_BYTES,
	 HL_VIEW_AT(options.diff.fail_above), NULL},
	{0},
};

static int view_and_check(const struct hl_profile *profile, const struct hl_view_options *chosen,
			  struct hl_error *err)
{
	int64_t before = hl_profile_figure(&profile->base_total, chosen->value, HL_UNIT_BYTES);
	int64_t growth = hl_profile_figure(&profile->total, chosen->value, HL_UNIT_BYTES) - before;
	uint64_t fail_above = chosen->diff.fail_above;
	char grown[HL_FORMAT_MAX], limit[HL_FORMAT_MAX];

	int r = hl_diff_view(profile, chosen, err);
	if (r < 0 || fail_above == NO_LIMIT)
		return r;
	if (!hl_profile_knows(profile, chosen->value, HL_UNIT_BYTES))
		return hl_error_set(err, -ENODATA,
				    "cannot check '--fail-above': '%s' is not known in bytes; "
				    "choose another --value",
				    hl_value_names[chosen->value]);
	if (growth <= 0 || (uint64_t)growth <= fail_above)
		return 0;
	hl_cli_note("'%s' grew by %s B, more than the %s B that --fail-above allows",
		    hl_profile_text(profile, profile->name), hl_format_count(growth, grown),
		    hl_format_count((int64_t)fail_above, limit));
	return HL_VIEW_LIMIT_CROSSED;
}

static int run_diff(void *parsed, int argc, char **argv)
{
	struct hl_view_request *request = parsed;

	request->options.by = by_keys[request->options.by];
	request->options.sort = sorts[request->options.sort];
	return hl_view_run(&hl_verb_diff, argc, argv, request);
}

const struct hl_verb hl_verb_diff = {
	.name = "diff",
	.group = HL_GROUP_LOOK,
	.arguments = "[BEFORE.hl] AFTER.hl",
	.summary = "show what grew from one recording to another",
	.options = options,
	.shared_options = {HL_VIEW_TABLE_OPTIONS},
	HL_REQUEST(defaults),
	.run = run_diff,
};
