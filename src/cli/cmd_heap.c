/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline heap: the state of a process' heap on one screen; snapshots and their differences. */
#include "cli/families.h"
#include "heap/heap_figures.h"
#include "heap/owners/owners.h"
#include "view/format.h"
#include "view/heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROWS_DEFAULT 20
#define WATCH_MAX_S  86400 /* a day */

struct request {
	struct hl_heap_target target;
	uint64_t watch_s;
	const char *save;
	bool diff, arenas;
	struct hl_option_texts fail_above; /* "FIGURE=NUMBER" each */
	struct {
		enum hl_heap_figure figure;
		uint64_t most;
	} limits[HL_OPTION_TEXTS_MAX]; /* what that says */
};

static const struct request defaults = {.target.output.row_limit = ROWS_DEFAULT};

static const struct hl_option options[] = {
	{"rows", 'n', "N", "show at most N arenas, or types; 0: all (default: 20)", HL_OPTION_COUNT,
	 HL_AT(target.output.row_limit), NULL},
	{"arenas", 0, NULL, "also show each arena of malloc, and all answers", HL_OPTION_FLAG,
	 HL_AT(arenas), NULL},
	{0},
};

/* Below those of guests, which show more, too. */
static const struct hl_option other_options[] = {
	{"watch", 'w', "SECONDS", "repeat every SECONDS, until the process ends or Ctrl-C",
	 HL_OPTION_COUNT, HL_AT(watch_s), HL_BOUNDS(0, WATCH_MAX_S)},
	{"save", 0, "FILE", "save the state to FILE, for --diff", HL_OPTION_TEXT, HL_AT(save),
	 NULL},
	{"diff", 0, NULL, "compare two saved files", HL_OPTION_FLAG, HL_AT(diff), NULL},
	{"fail-above", 0, "FIGURE=N",
	 "exit with status 3 if a figure (or with --diff, its growth) is above N", HL_OPTION_TEXTS,
	 HL_AT(fail_above), NULL},
	{0},
};

/* ---- limits ---- */

/* HL_EXIT_DONE, or HL_EXIT_USAGE after a report. */
static int parse_limits(struct request *request)
{
	if (request->fail_above.count > HL_OPTION_TEXTS_MAX)
		return hl_cli_usage_error(&hl_verb_heap,
					  "'--fail-above' is given more than %d times",
					  HL_OPTION_TEXTS_MAX);
	for (size_t i = 0; i < request->fail_above.count; i++) {
		const char *text = request->fail_above.texts[i], *sign = strchr(text, '=');
		int figure = sign ? hl_heap_figure_find(text, (size_t)(sign - text)) : -EINVAL;
		if (figure < 0 ||
		    hl_option_parse_number(sign + 1, true, &request->limits[i].most) < 0)
			return hl_cli_usage_error(
				&hl_verb_heap,
				"bad value '%s' of option '--fail-above': not FIGURE=NUMBER, such "
				"as free-resident=1G; --json shows the figures under 'total'",
				text);
		request->limits[i].figure = (enum hl_heap_figure)figure;
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
static int check_figures(const struct request *request, const struct hl_heap_figures *before,
			 const struct hl_heap_figures *after)
{
	int status = HL_EXIT_DONE;

	for (size_t i = 0; i < request->fail_above.count; i++) {
		enum hl_heap_figure figure = request->limits[i].figure;
		char number[HL_FORMAT_MAX], most[HL_FORMAT_MAX];
		int64_t found = hl_heap_number(after->numbers[figure]) -
				(before ? hl_heap_number(before->numbers[figure]) : 0);
		if (found <= hl_heap_number(request->limits[i].most))
			continue;
		hl_cli_note("%s %s %s, more than %s", hl_heap_figure_names[figure],
			    before ? "has grown by" : "is", format(figure, found, number),
			    format(figure, hl_heap_number(request->limits[i].most), most));
		status = HL_EXIT_LIMIT;
	}
	return status;
}

/* ---- writing ---- */

static int check_limits(const struct request *request, const struct hl_heap *heap)
{
	struct hl_heap_figures figures;

	hl_heap_figures_of(heap, &figures);
	return check_figures(request, NULL, &figures);
}

/* A snapshot is the report as JSON. */
static int save_heap(const struct request *request, const struct hl_resident *resident,
		     struct hl_error *err)
{
	struct hl_output_file file;

	int r = hl_output_file_open(&file, request->save, err);
	if (r < 0)
		return r;
	struct hl_emit_options how = {.out = file.out, .json = true};
	r = hl_heap_view(resident->heap, resident, request->arenas, &how);
	int closed = hl_output_file_close(&file, r == 0, err);
	if (r < 0 && closed >= 0)
		return hl_error_set(err, r, "cannot write '%s'", request->save);
	if (closed == 0)
		hl_cli_note("saved to '%s'; compare with 'heapline heap --diff %s LATER'",
			    request->save, request->save);
	return closed;
}

/* ---- once ---- */

/* With stacks, where a recorder in the process knows them. */
static int read_heap(const struct request *request, struct hl_resident **ret_resident,
		     struct hl_error *err)
{
	const struct hl_heap_target *target = &request->target;
	struct hl_heap_settings settings = {
		.want_pins = true, .guests = target->guests, .stop = target->stop};
	struct hl_resident *resident = NULL;
	struct hl_error why = {0};
	int r = 0;

	if (target->pid && hl_resident_read((pid_t)target->pid, &settings, &resident, &why) < 0)
		why.text[0] = '\0'; /* there is no recorder */
	if (!resident && !(resident = calloc(1, sizeof(*resident))))
		return hl_error_set(err, -ENOMEM, "out of memory");
	/* Without a recorder, or with one beside an allocator that cannot be walked. */
	if (!resident->heap)
		r = hl_heap_target_read(target, &settings, &resident->heap, &why);
	if (r == -ENOTSUP && target->pid) {
		/* Where memory is shows whatever allocator it is of. */
		why.text[0] = '\0';
		r = hl_resident_read_pages((pid_t)target->pid, resident, &why);
	}
	if (r < 0)
		hl_error_set(err, r, "%s", why.text);
	if (r < 0)
		hl_resident_free(resident);
	else
		*ret_resident = resident;
	return r;
}

static int run_once(const struct request *request)
{
	const struct hl_view_output *to = &request->target.output;
	struct hl_report_output output;
	struct hl_error err = {0};
	struct hl_resident *resident = NULL;
	int status = HL_EXIT_DONE;

	int r = request->save ? hl_output_file_check(request->save, to->force, NULL, 0, &err)
			      : hl_report_output_check(to, NULL, 0, &err);
	if (r == 0)
		r = read_heap(request, &resident, &err);
	if (r == 0)
		r = request->save ? save_heap(request, resident, &err)
				  : hl_report_output_open(&output, to, true, &err);
	if (r == 0 && !request->save) {
		const struct hl_emit_options how = hl_report_output_emit(&output);
		r = hl_report_output_close(
			&output, hl_heap_view(resident->heap, resident, request->arenas, &how),
			&err);
	}
	if (r == 0)
		status = check_limits(request, resident->heap);
	hl_resident_free(resident);
	return r < 0 ? hl_cli_error("%s", err.text) : status;
}

/* ---- again and again ---- */

/* What is written again and again. */
struct watched {
	const struct hl_resident *resident;
	bool arenas;
};

static int write_heap(const void *subject, const struct hl_emit_options *how)
{
	const struct watched *watched = subject;

	return hl_heap_view(watched->resident->heap, watched->resident, watched->arenas, how);
}

static int run_watch(const struct request *request)
{
	uint64_t start_ticks =
		0; /* of the process that was read first; its number may be another's */
	int status = HL_EXIT_DONE;

	for (bool first = true;; first = false) {
		struct hl_error err = {0};
		struct hl_resident *resident = NULL;
		int r = read_heap(request, &resident, &err);
		if (r == 0 && first)
			start_ticks = resident->heap->process.start_ticks;
		bool is_another = r == 0 && resident->heap->process.start_ticks != start_ticks;
		if ((r == -ESRCH && !first) || is_another) {
			hl_resident_free(resident);
			break; /* it has ended, as everything does */
		}
		if (r == 0)
			r = hl_report_output_screen(&request->target.output, write_heap,
						    &(struct watched){resident, request->arenas});
		if (r == 0 && status == HL_EXIT_DONE)
			status = check_limits(request, resident->heap);
		hl_resident_free(resident);
		if (r < 0)
			return hl_cli_error("%s",
					    err.text[0] ? err.text : "cannot write the report");
		struct timespec pause = {.tv_sec = (time_t)request->watch_s};
		nanosleep(&pause, NULL);
	}
	return status;
}

/* ---- differences ---- */

static int run_diff(const struct request *request, char **paths)
{
	const struct hl_heap_target *target = &request->target;
	struct hl_heap_figures before, after;
	struct hl_report_output output;
	struct hl_error err = {0};

	int r = hl_report_output_check(&target->output, NULL, 0, &err);
	if (r == 0)
		r = hl_heap_figures_read(paths[0], &before, &err);
	if (r == 0)
		r = hl_heap_figures_read(paths[1], &after, &err);
	if (r == 0)
		r = hl_report_output_open(&output, &target->output, true, &err);
	if (r == 0) {
		const struct hl_emit_options how = hl_report_output_emit(&output);
		r = hl_heap_diff_view(&before, &after, &how);
		r = hl_report_output_close(&output, r, &err);
	}
	return r < 0 ? hl_cli_error("%s", err.text) : check_figures(request, &before, &after);
}

static int run_heap(void *parsed, int argc, char **argv)
{
	struct request *request = parsed;
	struct hl_heap_target *target = &request->target;
	const char *save = request->save, *path = target->output.path;
	bool diff = request->diff, watches = request->watch_s > 0;

	if (diff && (save || watches))
		return hl_cli_usage_error(
			&hl_verb_heap,
			"--diff compares two saved files; leave out --save and --watch");
	if (watches && (save || path))
		return hl_cli_usage_error(
			&hl_verb_heap, "--watch repeats its report; leave out --save and --output");
	if (watches && !target->pid)
		return hl_cli_usage_error(&hl_verb_heap,
					  "--watch needs a process, not a core file");
	if (save && path)
		return hl_cli_usage_error(&hl_verb_heap, "--save and --output exclude each other");
	int status = hl_view_output_obey_name(&hl_verb_heap, &target->output, NULL, false);
	if (status == HL_EXIT_DONE)
		status = parse_limits(request);
	if (status != HL_EXIT_DONE)
		return status;
	if (diff && argc != 2)
		return hl_cli_usage_error(&hl_verb_heap, "--diff needs two saved files");
	if (diff)
		return run_diff(request, argv);
	status = hl_heap_target_check(&hl_verb_heap, argc, argv, target);
	if (status != HL_EXIT_DONE)
		return status;
	return watches ? run_watch(request) : run_once(request);
}

const struct hl_verb hl_verb_heap = {
	.name = "heap",
	.group = HL_GROUP_ALLOCATORS,
	.arguments = "-p PID | --core FILE | --diff BEFORE AFTER",
	.summary = "show how much of a heap is live, cached, free and could be returned",
	.options = options,
	.guest_options = HL_GUEST_OPTIONS_HEAP,
	.guests_at = HL_AT(target.guests),
	.shared_options = {other_options, HL_HEAP_TARGET_OPTIONS, hl_view_json_options,
			   hl_view_color_options, hl_view_output_options},
	HL_REQUEST(defaults),
	.run = run_heap,
	.written = (const char *const[]){"save", NULL},
};
