/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline heap: the state of a process' heap on one screen; snapshots and their differences. */
#include "cli/heap_target.h"
#include "heap/heap_figures.h"
#include "heap/owners/resident.h"
#include "view/format.h"
#include "view/heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROWS_DEFAULT 20
#define WATCH_MAX_S  86400 /* a day */

static uint64_t row_limit = ROWS_DEFAULT;
static uint64_t watch_s;
static const char *save;
static bool diff;
static bool show_arenas;
static struct hl_option_texts fail_above;

static const struct hl_option options[] = {
	{"rows", 'n', "N", "show at most N arenas, or types; 0: all (default: 20)", HL_OPTION_COUNT,
	 &row_limit, NULL},
	{"arenas", 0, NULL, "also show each arena of malloc, and all answers", HL_OPTION_FLAG,
	 &show_arenas, NULL},
	{0},
};

/* Below those of guests, which show more, too. */
static const struct hl_option other_options[] = {
	{"watch", 'w', "SECONDS", "repeat every SECONDS, until the process ends or Ctrl-C",
	 HL_OPTION_COUNT, &watch_s, HL_BOUNDS(0, WATCH_MAX_S)},
	{"save", 0, "FILE", "save the state to FILE, for --diff", HL_OPTION_TEXT, &save, NULL},
	{"diff", 0, NULL, "compare two saved files", HL_OPTION_FLAG, &diff, NULL},
	{"fail-above", 0, "FIGURE=N",
	 "exit with status 3 if a figure (or with --diff, its growth) is above N", HL_OPTION_TEXTS,
	 &fail_above, NULL},
	{0},
};

/* ---- limits ---- */

/* --fail-above, "FIGURE=NUMBER" each. */
static struct {
	enum hl_heap_figure figure;
	uint64_t most;
} limits[HL_OPTION_TEXTS_MAX];

/* HL_EXIT_DONE, or HL_EXIT_USAGE after a report. */
static int parse_limits(void)
{
	if (fail_above.count > HL_OPTION_TEXTS_MAX)
		return hl_cli_usage_error(&hl_verb_heap,
					  "'--fail-above' is given more than %d times",
					  HL_OPTION_TEXTS_MAX);
	for (size_t i = 0; i < fail_above.count; i++) {
		const char *text = fail_above.texts[i], *sign = strchr(text, '=');
		int figure = sign ? hl_heap_figure_find(text, (size_t)(sign - text)) : -EINVAL;
		if (figure < 0 || hl_option_parse_number(sign + 1, true, &limits[i].most) < 0)
			return hl_cli_usage_error(
				&hl_verb_heap,
				"bad value '%s' of option '--fail-above': not FIGURE=NUMBER, such "
				"as free-resident=1G; --json shows the figures under 'total'",
				text);
		limits[i].figure = (enum hl_heap_figure)figure;
	}
	return HL_EXIT_DONE;
}

static const char *format(enum hl_heap_figure figure, int64_t number, char buffer[HL_FORMAT_MAX])
{
	return hl_heap_figure_is_bytes(figure) ? hl_format_bytes(number, buffer)
					       : hl_format_count(number, buffer);
}

/*
 * Says on standard error which limits are crossed by what ${after} has (beyond ${before}, if that
 * is not NULL). HL_EXIT_LIMIT if any is, else HL_EXIT_DONE.
 */
static int check_figures(const struct hl_heap_figures *before, const struct hl_heap_figures *after)
{
	int status = HL_EXIT_DONE;

	for (size_t i = 0; i < fail_above.count; i++) {
		enum hl_heap_figure figure = limits[i].figure;
		char number[HL_FORMAT_MAX], most[HL_FORMAT_MAX];
		int64_t found = hl_heap_number(after->numbers[figure]) -
				(before ? hl_heap_number(before->numbers[figure]) : 0);
		if (found <= hl_heap_number(limits[i].most))
			continue;
		hl_cli_note("%s %s %s, more than %s", hl_heap_figure_names[figure],
			    before ? "has grown by" : "is", format(figure, found, number),
			    format(figure, hl_heap_number(limits[i].most), most));
		status = HL_EXIT_LIMIT;
	}
	return status;
}

/* ---- writing ---- */

static int check_limits(const struct hl_heap *heap)
{
	struct hl_heap_figures figures;

	hl_heap_figures_of(heap, &figures);
	return check_figures(NULL, &figures);
}

/* A snapshot is the report as JSON. */
static int save_heap(const struct hl_resident *resident, struct hl_error *err)
{
	struct hl_output_file file;

	int r = hl_output_file_open(&file, save, err);
	if (r < 0)
		return r;
	struct hl_emit_options how = {.out = file.out, .json = true};
	r = hl_heap_view(resident->heap, resident, show_arenas, &how);
	int closed = hl_output_file_close(&file, r == 0, err);
	if (r < 0 && closed >= 0)
		return hl_error_set(err, r, "cannot write '%s'", save);
	if (closed == 0)
		hl_cli_note("saved to '%s'; compare with 'heapline heap --diff %s LATER'", save,
			    save);
	return closed;
}

/* ---- once ---- */

/* With stacks, where a recorder in the process knows them. */
static int read_heap(struct hl_resident **ret_resident, struct hl_error *err)
{
	struct hl_heap_settings settings = {
		.want_pins = true, .want_guests = true, .stop = hl_heap_target_stops()};
	struct hl_resident *resident = NULL;
	struct hl_error why = {0};
	int r = 0;

	if (hl_heap_target_pid() &&
	    hl_resident_read(hl_heap_target_pid(), &settings, &resident, &why) < 0)
		why.text[0] = '\0'; /* there is no recorder */
	if (!resident && !(resident = calloc(1, sizeof(*resident))))
		return hl_error_set(err, -ENOMEM, "out of memory");
	/* Without a recorder, or with one beside an allocator that cannot be walked. */
	if (!resident->heap)
		r = hl_heap_target_read(&settings, &resident->heap, &why);
	if (r == -ENOTSUP && hl_heap_target_pid()) {
		/* Where memory is shows whatever allocator it is of. */
		why.text[0] = '\0';
		r = hl_resident_read_pages(hl_heap_target_pid(), resident, &why);
	}
	if (r < 0)
		hl_error_set(err, r, "%s", why.text);
	if (r < 0)
		hl_resident_free(resident);
	else
		*ret_resident = resident;
	return r;
}

static int run_once(void)
{
	bool force = hl_view_options_parse_output().force;
	struct hl_report_output output;
	struct hl_error err = {0};
	struct hl_resident *resident = NULL;
	int status = HL_EXIT_DONE;

	int r = save ? hl_output_file_check(save, force, NULL, 0, &err)
		     : hl_report_output_check(NULL, 0, &err);
	if (r == 0)
		r = read_heap(&resident, &err);
	if (r == 0)
		r = save ? save_heap(resident, &err) : hl_report_output_open(&output, true, &err);
	if (r == 0 && !save) {
		const struct hl_emit_options how = hl_report_output_emit(&output, row_limit);
		r = hl_report_output_close(
			&output, hl_heap_view(resident->heap, resident, show_arenas, &how), &err);
	}
	if (r == 0)
		status = check_limits(resident->heap);
	hl_resident_free(resident);
	return r < 0 ? hl_cli_error("%s", err.text) : status;
}

/* ---- again and again ---- */

static int write_heap(const void *resident, const struct hl_emit_options *how)
{
	return hl_heap_view(((const struct hl_resident *)resident)->heap, resident, show_arenas,
			    how);
}

static int run_watch(void)
{
	uint64_t start_ticks =
		0; /* of the process that was read first; its number may be another's */
	int status = HL_EXIT_DONE;

	for (bool first = true;; first = false) {
		struct hl_error err = {0};
		struct hl_resident *resident = NULL;
		int r = read_heap(&resident, &err);
		if (r == 0 && first)
			start_ticks = resident->heap->process.start_ticks;
		bool is_another = r == 0 && resident->heap->process.start_ticks != start_ticks;
		if ((r == -ESRCH && !first) || is_another) {
			hl_resident_free(resident);
			break; /* it has ended, as everything does */
		}
		if (r == 0)
			r = hl_report_output_screen(row_limit, write_heap, resident);
		if (r == 0 && status == HL_EXIT_DONE)
			status = check_limits(resident->heap);
		hl_resident_free(resident);
		if (r < 0)
			return hl_cli_error("%s",
					    err.text[0] ? err.text : "cannot write the report");
		struct timespec pause = {.tv_sec = (time_t)watch_s};
		nanosleep(&pause, NULL);
	}
	return status;
}

/* ---- differences ---- */

static int run_diff(char **paths)
{
	struct hl_heap_figures before, after;
	struct hl_report_output output;
	struct hl_error err = {0};

	int r = hl_report_output_check(NULL, 0, &err);
	if (r == 0)
		r = hl_heap_figures_read(paths[0], &before, &err);
	if (r == 0)
		r = hl_heap_figures_read(paths[1], &after, &err);
	if (r == 0)
		r = hl_report_output_open(&output, true, &err);
	if (r == 0) {
		const struct hl_emit_options how = hl_report_output_emit(&output, row_limit);
		r = hl_heap_diff_view(&before, &after, &how);
		r = hl_report_output_close(&output, r, &err);
	}
	return r < 0 ? hl_cli_error("%s", err.text) : check_figures(&before, &after);
}

static int run_heap(int argc, char **argv)
{
	const struct hl_view_output output = hl_view_options_parse_output();
	enum hl_report_form form;

	if (diff && (save || watch_s))
		return hl_cli_usage_error(
			&hl_verb_heap,
			"--diff compares two saved files; leave out --save and --watch");
	if (watch_s && (save || output.path))
		return hl_cli_usage_error(
			&hl_verb_heap, "--watch repeats its report; leave out --save and --output");
	if (watch_s && !hl_heap_target_pid())
		return hl_cli_usage_error(&hl_verb_heap,
					  "--watch needs a process, not a core file");
	if (save && output.path)
		return hl_cli_usage_error(&hl_verb_heap, "--save and --output exclude each other");
	int status = hl_report_output_choose_form(&hl_verb_heap, false, false, &form);
	if (status == HL_EXIT_DONE)
		status = parse_limits();
	if (status != HL_EXIT_DONE)
		return status;
	if (diff && argc != 2)
		return hl_cli_usage_error(&hl_verb_heap, "--diff needs two saved files");
	if (diff)
		return run_diff(argv);
	status = hl_heap_target_check(&hl_verb_heap, argc, argv);
	if (status != HL_EXIT_DONE)
		return status;
	return watch_s ? run_watch() : run_once();
}

const struct hl_verb hl_verb_heap = {
	.name = "heap",
	.group = HL_GROUP_ALLOCATORS,
	.arguments = "-p PID | --core FILE | --diff BEFORE AFTER",
	.summary = "show how much of a heap is live, cached, free and could be returned",
	.options = options,
	.guest_options = HL_GUEST_OPTIONS_HEAP,
	.shared_options = {other_options, hl_heap_target_options, hl_view_json_options,
			   hl_view_color_options, hl_view_output_options},
	.run = run_heap,
};
