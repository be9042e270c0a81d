/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heapline export --format dhat: version 2 of the JSON that Valgrind's dh_view.html opens, with a program point for each stack. Lifetimes are unknown, and
 * so is a stack's own maximum: it is given as the larger of what it had at the peak and has at the end.
 */
#include "base/cleanup.h"
#include "view/emit.h"
#include "view/export/stack_table.h"
#include "view/summary.h"

#include <errno.h>

#define NS_PER_US      1000
#define US_PER_MS      1000
#define NO_SHORT_LIVES (-1) /* of the viewer's threshold: lifetimes of 0 are unknown, not short */

static int64_t larger(int64_t one, int64_t other)
{
	return one > other ? one : other;
}

static void put_point(struct hl_json *json, const struct hl_stack_table *table,
		      const struct hl_profile *profile, size_t node)
{
	int64_t figures[HL_UNIT_COUNT][3];

	for (int unit = 0; unit < HL_UNIT_COUNT; unit++) {
		enum hl_unit in = (enum hl_unit)unit;
		figures[unit][0] = hl_stack_table_allocated(table, profile, node, in);
		figures[unit][1] = hl_stack_table_figure(table, profile, node, HL_VALUE_PEAK, in);
		figures[unit][2] = hl_stack_table_figure(table, profile, node, HL_VALUE_INUSE, in);
	}
	const int64_t *bytes = figures[HL_UNIT_BYTES], *blocks = figures[HL_UNIT_OBJECTS];
	hl_json_open(json, NULL, '{');
	hl_json_integer(json, "tb", bytes[0]);
	hl_json_integer(json, "tbk", blocks[0]);
	hl_json_integer(json, "tl", 0);
	hl_json_integer(json, "mb", larger(bytes[1], bytes[2]));
	hl_json_integer(json, "mbk", larger(blocks[1], blocks[2]));
	hl_json_integer(json, "gb", bytes[1]);
	hl_json_integer(json, "gbk", blocks[1]);
	hl_json_integer(json, "eb", bytes[2]);
	hl_json_integer(json, "ebk", blocks[2]);
	hl_json_open(json, "fs", '[');
	/* Innermost first; frame 0 of the file is the viewer's root. */
	do {
		hl_json_integer(json, NULL, table->frame_of[node] + 1);
		node = table->tree.nodes[node].parent;
	} while (node);
	hl_json_close(json, ']');
	hl_json_close(json, '}');
}

static int put_frames(struct hl_json *json, const struct hl_stack_table *table,
		      const struct hl_profile *profile)
{
	hl_json_open(json, "ftbl", '[');
	hl_json_text(json, NULL, "[root]");
	for (size_t i = 0; i < table->frame_count; i++) {
		const struct hl_export_frame *frame = &table->frames[i];
		const char *name = hl_stack_table_name(table, profile, i);
		HL_FREED char *text = NULL;
		int length = frame->file
				     ? asprintf(&text, "%s (%s:%u)", name,
						hl_profile_text(profile, frame->file), frame->line)
				     : asprintf(&text, "%s", name);
		if (length < 0) {
			text = NULL;
			return -ENOMEM;
		}
		hl_json_text(json, NULL, text);
	}
	hl_json_close(json, ']');
	return 0;
}

/* When most was in use, in microseconds; the end where no log knows. */
static int64_t peak_us(const struct hl_profile *profile, const struct hl_history *history)
{
	const struct hl_log_point *peak = history ? hl_history_head_peak(history) : NULL;

	return peak ? (int64_t)hl_history_head_ms(peak) * US_PER_MS
		    : (int64_t)(profile->duration_ns / NS_PER_US);
}

static int put_file(const struct hl_profile *profile, const struct hl_view_options *options,
		    const struct hl_stack_table *table)
{
	struct hl_json json = {.out = options->out};

	hl_json_open(&json, NULL, '{');
	hl_json_integer(&json, "dhatFileVersion", 2);
	hl_json_text(&json, "mode", "heap");
	hl_json_text(&json, "verb", "Allocated");
	hl_json_boolean(&json, "bklt", true);
	hl_json_boolean(&json, "bkacc", false);
	hl_json_text(&json, "tu", "us");
	hl_json_text(&json, "Mtu", "s");
	hl_json_integer(&json, "tuth", NO_SHORT_LIVES);
	hl_json_text(&json, "cmd", hl_profile_text(profile, profile->command));
	hl_json_integer(&json, "pid", profile->process_count ? profile->processes[0].pid : 0);
	hl_json_integer(&json, "tg", peak_us(profile, options->report.history));
	hl_json_integer(&json, "te", (int64_t)(profile->duration_ns / NS_PER_US));
	hl_json_open(&json, "pps", '[');
	for (size_t i = 0; i < table->tree.count; i++)
		if (hl_profile_counters_any(&table->sums[i]))
			put_point(&json, table, profile, i);
	hl_json_close(&json, ']');
	int r = put_frames(&json, table, profile);
	hl_json_close(&json, '}');
	return r == 0 && ferror(options->out) ? -EIO : r;
}

int hl_dhat_view(const struct hl_profile *profile, const struct hl_view_options *options,
		 struct hl_error *err)
{
	HL_CLEANUP(hl_stack_table_release) struct hl_stack_table table = {0};

	int r = hl_stack_table_init(&table, profile, options);
	if (r == 0)
		r = put_file(profile, options, &table);
	if (r == 0)
		r = hl_summary_note(profile, options);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
