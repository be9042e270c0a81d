/* SPDX-License-Identifier: BSD-2-Clause */
/* Reports of a fleet; see fleet.h. */
#include "view/fleet.h"

#include "base/cleanup.h"
#include "view/table.h"

#define ROWS_DEFAULT 30 /* for people */

/* ---- heads ---- */

static int begin(const struct hl_fleet_head *head, const struct hl_emit_options *options,
		 const char *schema, struct hl_emit **ret_emit)
{
	const struct hl_fleet_selection *selection = head->selection;
	HL_FREED char *which = NULL;
	char from[32], to[32];
	size_t size;
	FILE *out = open_memstream(&which, &size);

	if (!out)
		return -ENOMEM;
	hl_fleet_selection_describe(selection, out);
	if (fclose(out) != 0)
		return -ENOMEM;
	int r = hl_emit_open(options, schema, ret_emit);
	if (r < 0)
		return r;
	struct hl_emit *emit = *ret_emit;
	hl_fleet_put_time(selection->since_ms, from);
	hl_fleet_put_time(selection->at_ms, to);
	hl_emit_line(emit, "%s: %s%s to %s%s%s", head->store, which, from, to,
		     head->focus ? ", stacks with " : "", head->focus ? head->focus : "");
	hl_emit_text(emit, "store", head->store);
	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++)
		if (selection->labels[i])
			hl_emit_text(emit, hl_fleet_label_names[i], selection->labels[i]);
	if (head->focus)
		hl_emit_text(emit, "focus", head->focus);
	hl_emit_integer(emit, "since_ms", selection->since_ms);
	hl_emit_integer(emit, "until_ms", selection->at_ms);
	hl_emit_blank(emit);
	return 0;
}

/* ---- by label ---- */

static void name(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_fleet_group *group = row;

	(void)context;
	hl_cell_text(emit, *group->name || hl_emit_is_json(emit) ? group->name : "[none]");
}

int hl_fleet_groups_view(const struct hl_fleet_head *head, const struct hl_fleet_groups *groups,
			 enum hl_fleet_label label, const struct hl_emit_options *options)
{
	const struct hl_column columns[] = {
		{"name", hl_fleet_label_names[label], HL_COLUMN_TEXT, .cell = name,
		 .flags = HL_COLUMN_KEY | HL_COLUMN_SHORTENED},
		{"processes", "processes", HL_COLUMN_COUNT,
		 HL_MEMBER(struct hl_fleet_group, processes)},
		{"inuse_bytes", "in use", HL_COLUMN_BYTES,
		 HL_MEMBER(struct hl_fleet_group, inuse_bytes)},
		{NULL, "share", HL_COLUMN_SHARE, HL_MEMBER(struct hl_fleet_group, inuse_bytes)},
		{"before_bytes", "before", HL_COLUMN_BYTES,
		 HL_MEMBER(struct hl_fleet_group, before_bytes)},
		{"growth_bytes", "growth", HL_COLUMN_BYTES,
		 HL_MEMBER(struct hl_fleet_group, growth_bytes)},
		{"alloc_bytes", "allocated", HL_COLUMN_BYTES,
		 HL_MEMBER(struct hl_fleet_group, alloc_bytes), .flags = HL_COLUMN_OMITTED},
	};
	const struct hl_table table = {HL_TABLE("rows", columns), .sum = groups->total.inuse_bytes};
	struct hl_emit *emit;

	int r = begin(head, options, "fleet-groups/1", &emit);
	if (r < 0)
		return r;
	size_t shown = hl_emit_shown(emit, options->row_limit, ROWS_DEFAULT, groups->count);
	hl_emit_text(emit, "by", hl_fleet_label_names[label]);
	hl_table_begin(emit, &table);
	for (size_t i = 0; i < shown; i++)
		hl_table_row(emit, &groups->all[i], 0);
	if (!hl_emit_is_json(emit) && groups->count > 1)
		hl_table_row(emit, &groups->total, 0);
	hl_table_end(emit);
	hl_emit_more(emit, groups->count - shown, "-n");
	return hl_emit_finish(emit);
}

/* ---- over time ---- */

static const struct hl_column moment_columns[] = {
	{"time", "time", HL_COLUMN_TEXT, HL_MEMBER_ARRAY(struct hl_fleet_moment, time)},
	{"ms", NULL, HL_COLUMN_NUMBER, HL_MEMBER(struct hl_fleet_moment, ms)},
	{"processes", "processes", HL_COLUMN_COUNT, HL_MEMBER(struct hl_fleet_moment, processes)},
	{"inuse_bytes", "in use", HL_COLUMN_BYTES, HL_MEMBER(struct hl_fleet_moment, inuse_bytes)},
	{"alloc_bytes", "allocated", HL_COLUMN_BYTES,
	 HL_MEMBER(struct hl_fleet_moment, alloc_bytes)},
};

int hl_fleet_moments_view(const struct hl_fleet_head *head, const struct hl_fleet_moments *moments,
			  const struct hl_emit_options *options)
{
	const struct hl_table table = {HL_TABLE("rows", moment_columns)};
	struct hl_emit *emit;

	int r = begin(head, options, "fleet-when/1", &emit);
	if (r < 0)
		return r;
	/* The latest, where they are limited. */
	size_t shown = hl_emit_shown(emit, options->row_limit, 0, moments->count);
	hl_table_write(emit, &table, moments->all + (moments->count - shown), shown,
		       sizeof(*moments->all));
	hl_emit_more(emit, moments->count - shown, "-n");
	return hl_emit_finish(emit);
}
