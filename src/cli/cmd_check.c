/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline check: whether a program kept within limits, for tests and CI. */
#include "base/case_file.h"
#include "base/cleanup.h"
#include "cli/check_limits.h"
#include "cli/families.h"
#include "cli/output.h"
#include "view/check.h"
#include "view/check_cases.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMITS_FILE ".heapline.toml"

struct request {
	struct hl_view_output output;
	/* Each at most once, which check_repeats() sees to. */
	struct hl_option_texts given[HL_CHECK_COUNT];
	struct hl_option_texts baseline, allowed, limits, focus, junit, markdown, recording,
		save_baseline;
	bool no_pools, per_test, per_process;
};

static const struct request defaults;

static const struct hl_option options[] = {
	{"peak", 0, "BYTES", "limit the bytes in use at the peak", HL_OPTION_TEXTS,
	 HL_AT(given[HL_CHECK_PEAK]), NULL},
	{"inuse-at-end", 0, "BYTES", "limit the bytes in use at the end", HL_OPTION_TEXTS,
	 HL_AT(given[HL_CHECK_INUSE]), NULL},
	{"allocs", 0, "N", "limit the number of allocations", HL_OPTION_TEXTS,
	 HL_AT(given[HL_CHECK_ALLOCS]), NULL},
	{"leak-per-stack", 0, "BYTES", "limit the bytes in use at the end that one stack allocated",
	 HL_OPTION_TEXTS, HL_AT(given[HL_CHECK_PER_STACK]), NULL},
	{"growth", 0, "RATE", "limit steady growth: 1M/min, 64K/s, 10M/h", HL_OPTION_TEXTS,
	 HL_AT(given[HL_CHECK_GROWTH]), NULL},
	{"rss", 0, "BYTES", "limit the resident memory of the process", HL_OPTION_TEXTS,
	 HL_AT(given[HL_CHECK_RSS]), NULL},
	{"lost", 0, "BYTES", "limit the bytes that nothing leads to when a process exits",
	 HL_OPTION_TEXTS, HL_AT(given[HL_CHECK_LOST]), NULL},
	{"baseline", 0, "NAME.hl",
	 "limit peak, in use at the end and allocations to those of another recording",
	 HL_OPTION_TEXTS, HL_AT(baseline), NULL},
	{"allow", 0, "PERCENT", "exceed the baseline by at most PERCENT (default: 0)",
	 HL_OPTION_TEXTS, HL_AT(allowed), NULL},
	{"focus", 0, "RE", "check only stacks with a frame that matches RE", HL_OPTION_TEXTS,
	 HL_AT(focus), NULL},
	{"per-test", 0, NULL, "check each test case of COMMAND", HL_OPTION_FLAG, HL_AT(per_test),
	 NULL},
	{"per-process", 0, NULL, "--per-test, and each process that COMMAND starts is a test case",
	 HL_OPTION_FLAG, HL_AT(per_process), NULL},
	{"save-baseline", 0, "FILE", "keep the figures of test cases for --baseline",
	 HL_OPTION_TEXTS, HL_AT(save_baseline), NULL},
	{"limits", 0, "FILE", "read limits from FILE (default: " LIMITS_FILE ", where it exists)",
	 HL_OPTION_TEXTS, HL_AT(limits), NULL},
	{"junit", 0, "FILE", "also write the verdicts as JUnit XML", HL_OPTION_TEXTS, HL_AT(junit),
	 NULL},
	{"markdown", 0, "FILE", "also write the verdicts as a Markdown table", HL_OPTION_TEXTS,
	 HL_AT(markdown), NULL},
	{"recording", 0, "NAME.hl", "keep the recording of COMMAND", HL_OPTION_TEXTS,
	 HL_AT(recording), NULL},
	HL_OPTION_NO_POOLS(HL_AT(no_pools)),
	{0},
};

/* What was given, or NULL. */
static const char *text_of(const struct hl_option_texts *texts)
{
	return texts->count ? texts->texts[0] : NULL;
}

/* Of two equal options one would be passed over. */
static int check_repeats(const struct request *request)
{
	for (const struct hl_option *option = options; option->name; option++)
		if (option->kind == HL_OPTION_TEXTS &&
		    ((const struct hl_option_texts *)((const char *)request + option->offset))
				    ->count > 1)
			return hl_cli_usage_error(
				&hl_verb_check, "--%s is given twice; give it once", option->name);
	return HL_EXIT_DONE;
}

HL_DEFINE_FREE_AT(struct hl_check, hl_check_free)
HL_DEFINE_FREE_AT(struct hl_check_cases, hl_check_cases_free)

/* ---- all limits ---- */

static int collect_limits(const struct request *request, struct hl_check_limits *limits)
{
	const char *path = text_of(&request->limits);
	bool has_words = request->baseline.count > 0;
	struct hl_error err = {0};
	int r = 0;

	for (size_t kind = 0; kind < HL_CHECK_COUNT; kind++) {
		const char *text = text_of(&request->given[kind]);
		if (!text)
			continue;
		has_words = true;
		if (hl_check_limits_add(limits, (enum hl_check_kind)kind, text, NULL,
					text_of(&request->focus)) < 0)
			return hl_cli_usage_error(
				&hl_verb_check, "--%s takes %s, not '%s'", hl_check_names[kind],
				kind == HL_CHECK_GROWTH ? "a rate such as 1M/min"
							: "a number such as 200M or 1e6",
				text);
	}
	limits->baseline = text_of(&request->baseline);
	if (limits->baseline)
		r = hl_check_limits_add_baseline(limits, NULL, text_of(&request->focus));
	bool reads = path || (!has_words && access(LIMITS_FILE, F_OK) == 0);
	if (reads && request->focus.count && !has_words)
		return hl_cli_usage_error(
			&hl_verb_check, "--focus is for limits on the command line; in a file each "
					"table has a focus of its own");
	if (r == 0 && reads)
		r = hl_check_limits_read(limits, path ? path : LIMITS_FILE, &err);
	if (r < 0)
		return hl_cli_error("%s", err.text);
	/* The command line has the last word. */
	if (request->allowed.count && hl_check_limits_allow(limits, text_of(&request->allowed)) < 0)
		return hl_cli_usage_error(&hl_verb_check, "--allow takes a percentage, not '%s'",
					  text_of(&request->allowed));
	if (!limits->count && !request->per_test)
		return hl_cli_usage_error(&hl_verb_check,
					  "no limit to check; name one, such as '--peak 200M', or "
					  "write it to " LIMITS_FILE);
	return HL_EXIT_DONE;
}

/* ---- running the program ---- */

static volatile sig_atomic_t recorder_pid; /* 0: 'heapline record' does not run */
static volatile sig_atomic_t ended_by;	   /* the signal; 0: none */

/* 'record' ends the program and its recording. What a terminal sends it gets by itself. */
static void pass_on(int signal_number, siginfo_t *about, void *unused)
{
	(void)unused;
	ended_by = signal_number;
	if (about->si_code <= 0 && recorder_pid)
		kill(recorder_pid, signal_number);
}

/* From here on these signals end heapline by end_by_signal(), when nothing is left behind. Who
 * ignores one, as nohup(1) does, goes on ignoring it. */
static void delay_signals(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	const struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO};
	struct sigaction old;

	for (size_t i = 0; i < HL_COUNT_OF(signals); i++)
		if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
			sigaction(signals[i], &action, NULL);
}

static void end_by_signal(void)
{
	if (!ended_by)
		return;
	signal(ended_by, SIG_DFL);
	raise(ended_by);
}

/* Runs the program under 'heapline record'. Its status, or that of 'record'; -errno. */
static int record(const struct request *request, char **command, int count, const char *path,
		  bool needs_log, bool leaks, bool is_closed)
{
	const char *how[8] = {NULL};
	size_t used = 0;
	int status;
	pid_t pid;

	if (request->output.force)
		how[used++] = "--force";
	if (needs_log) {
		how[used++] = "--mode";
		how[used++] = "log-fast";
	}
	if (is_closed) {
		how[used++] = "--mode";
		how[used++] = "closed";
	}
	if (leaks)
		how[used++] = "--leaks";
	if (request->no_pools)
		how[used++] = "--no-pools";
	int r = hl_record_child_start(command, count, path, how, &pid);
	if (r < 0)
		return r;
	recorder_pid = pid;
	if (ended_by)
		kill(pid, ended_by); /* it came before that could be known */
	while ((r = waitpid(pid, &status, 0)) < 0 && errno == EINTR)
		;
	recorder_pid = 0;
	return r < 0 ? -errno : hl_record_child_status(status);
}

/* ---- reports ---- */

/* What is reported: limits on the recording, or on test cases. */
struct report {
	const struct hl_check *check;
	const struct hl_check_cases *cases; /* NULL: the former */
};

static int view(const struct report *report, const struct hl_emit_options *how)
{
	return report->cases ? hl_check_cases_view(report->cases, how)
			     : hl_check_view(report->check, how);
}

static void write_junit(const struct report *report, FILE *out)
{
	if (report->cases)
		hl_check_cases_write_junit(report->cases, out);
	else
		hl_check_write_junit(report->check, out);
}

static void write_markdown(const struct report *report, FILE *out)
{
	if (report->cases)
		hl_check_cases_write_markdown(report->cases, out);
	else
		hl_check_write_markdown(report->check, out);
}

static void write_baseline(const struct report *report, FILE *out)
{
	const struct hl_emit_options how = {.out = out, .json = true};

	view(report, &how); /* write errors stay in the file */
}

static int write_file(const struct report *report, const char *path,
		      void (*write)(const struct report *report, FILE *out), struct hl_error *err)
{
	struct hl_output_file file;

	if (!path)
		return 0;
	int r = hl_output_file_open(&file, path, err);
	if (r < 0)
		return r;
	write(report, file.out);
	return hl_output_file_close(&file, true, err);
}

/* For the report of a program that has standard output to itself. */
static int view_on_stderr(const struct report *report, const struct hl_view_output *to)
{
	const struct hl_emit_options how = {
		.out = stderr, .json = to->json, .color = hl_view_output_has_color(to)};

	return view(report, &how);
}

static int write_reports(const struct request *request, const struct report *report,
			 bool has_command, struct hl_error *err)
{
	const struct hl_view_output *to = &request->output;
	struct hl_report_output output;

	/* Before files, of which one may fail: the program has run for it. */
	int r = has_command && !to->path ? view_on_stderr(report, to) : 0;
	if (r == 0)
		r = write_file(report, text_of(&request->junit), write_junit, err);
	if (r == 0)
		r = write_file(report, text_of(&request->markdown), write_markdown, err);
	if (r == 0)
		r = write_file(report, text_of(&request->save_baseline), write_baseline, err);
	if (r < 0 || (has_command && !to->path))
		return r;
	r = hl_report_output_open(&output, to, false, err);
	if (r < 0)
		return r;
	const struct hl_emit_options how = hl_report_output_emit(&output);
	return hl_report_output_close(&output, view(report, &how), err);
}

static int check_recording(const struct request *request, const struct hl_check_limits *limits,
			   const char *path, bool has_command, bool *ret_crossed,
			   struct hl_error *err)
{
	HL_CLEANUP(hl_check_free_at) struct hl_check *check = NULL;
	const struct hl_check_settings settings = {.limits = limits->limits,
						   .limit_count = limits->count,
						   .path = path,
						   .is_kept =
							   !has_command || request->recording.count,
						   .baseline = limits->baseline,
						   .allow_percent = limits->allow_percent};

	int r = hl_check_run(&settings, &check, err);
	if (r == 0)
		r = write_reports(request, &(struct report){.check = check}, has_command, err);
	if (r < 0)
		return r;
	*ret_crossed = check->crossed > 0;
	return check->flawed && !check->crossed
		       ? hl_error_set(err, -EBADMSG,
				      "cannot tell whether limits were kept: '%s' %s, so figures "
				      "may be too small; record it again",
				      check->flawed, check->flaw)
		       : 0;
}

/* Whether each process is a test case; else cases are noted, and each opens the recorder. */
static bool has_processes(const struct request *request, char **argv, int argc)
{
	return request->per_process || hl_check_tests_are_processes(argv, argc);
}

/* ${directory}: of files of cases. */
static int check_cases(const struct request *request, const struct hl_check_limits *limits,
		       const char *path, const char *directory, char **argv, int argc,
		       bool *ret_crossed, struct hl_error *err)
{
	HL_CLEANUP(hl_check_cases_free_at) struct hl_check_cases *cases = NULL;
	struct hl_check_cases_settings settings = {.limits = limits->limits,
						   .limit_count = limits->count,
						   .path = path,
						   .directory = directory,
						   .has_processes =
							   has_processes(request, argv, argc),
						   .baseline_path = limits->baseline,
						   .allow_percent = limits->allow_percent};
	struct hl_check_test *tests;

	hl_check_tests_ask(argv, argc, &tests, &settings.test_count);
	settings.tests = tests;
	int r = hl_check_cases_run(&settings, &cases, err);
	hl_check_tests_free(tests, settings.test_count);
	if (r == 0)
		r = write_reports(request, &(struct report){.cases = cases}, true, err);
	if (r < 0)
		return r;
	*ret_crossed = cases->crossed > 0;
	if (cases->crossed)
		return 0;
	if (cases->refused_count)
		return hl_error_set(err, -ENODATA, "cannot tell whether limits were kept: %s",
				    cases->refused ? cases->refused : HL_CASES_REFUSED);
	if (!cases->open && !cases->inexact)
		return 0;
	size_t count = cases->open ? cases->open : cases->inexact;
	return hl_error_set(
		err, -ENODATA, "cannot tell whether limits were kept: %s%zu test case%s %s",
		cases->open ? "" : "events of ", count, count == 1 ? "" : "s",
		cases->open ? "did not end" : "could not be counted, so figures may be too small");
}

/* Limits that a case cannot have. HL_EXIT_DONE, or HL_EXIT_USAGE after a report. */
static int check_per_test(const struct request *request, const struct hl_check_limits *limits,
			  bool is_command)
{
	if (!request->per_test)
		return request->save_baseline.count
			       ? hl_cli_usage_error(&hl_verb_check,
						    "'--save-baseline' is for '--per-test'; a "
						    "recording is a baseline itself")
			       : HL_EXIT_DONE;
	if (!is_command)
		return hl_cli_usage_error(&hl_verb_check,
					  "'--per-test' is for a command, behind '--'");
	for (size_t i = 0; i < limits->count; i++) {
		const struct hl_check_limit *limit = &limits->limits[i];
		if (hl_check_needs_log(limit->kind) || limit->kind == HL_CHECK_LOST)
			return hl_cli_usage_error(&hl_verb_check,
						  "'%s' is not a limit of test cases; see 'man "
						  "heapline-check'",
						  hl_check_names[limit->kind]);
		if (limit->focus)
			return hl_cli_usage_error(&hl_verb_check,
						  "limits of test cases have no focus; leave out "
						  "'%s'",
						  limit->focus);
	}
	return HL_EXIT_DONE;
}

/* A directory for files of cases in ${folder}, which recorders find in the environment. */
static int make_case_directory(const char *folder, char path[PATH_MAX + 16], struct hl_error *err)
{
	snprintf(path, PATH_MAX + 16, "%s/cases", folder);
	return mkdir(path, 0700) < 0 || setenv(HL_ENV_CASES, path, 1) < 0
		       ? hl_error_set(err, -errno, "cannot make '%s': %s", path, strerror(errno))
		       : 0;
}

/* ---- all ---- */

/* The recording of a program that ran: none where 'record' has said why. ${was_there}: it then left
 * an older one at ${path}. */
static bool is_recorded(int status, const char *path, bool was_there)
{
	bool has_failed = status >= HL_RECORD_FAILED && status <= HL_RECORD_NOT_FOUND;

	if (access(path, F_OK) == 0 && !(was_there && has_failed))
		return true;
	if (!has_failed)
		hl_cli_error("cannot check the program: nothing of it was recorded");
	return false;
}

static int check_command(const struct request *request, const struct hl_check_limits *limits,
			 int argc, char **argv)
{
	char folder[PATH_MAX] = "", path[PATH_MAX + 16], directory[PATH_MAX + 16];
	const char *recorded = request->recording.count ? text_of(&request->recording) : path;
	bool was_there = request->recording.count && access(recorded, F_OK) == 0;
	bool needs_log = false, needs_leaks = false, is_crossed = false;
	HL_CLOSED int lock = -1;
	struct hl_error err = {0};

	delay_signals();
	for (size_t i = 0; i < limits->count; i++) {
		needs_log |= hl_check_needs_log(limits->limits[i].kind);
		needs_leaks |= limits->limits[i].kind == HL_CHECK_LOST;
	}
	bool needs_folder = !request->recording.count || request->per_test;
	if (needs_folder && hl_record_child_folder(folder, sizeof(folder), &lock, &err) < 0)
		return hl_cli_error("%s", err.text);
	if (request->per_test && make_case_directory(folder, directory, &err) < 0) {
		hl_record_child_remove(folder);
		return hl_cli_error("%s", err.text);
	}
	snprintf(path, sizeof(path), "%s/check.hl", folder);
	int status = record(request, argv, argc, recorded, needs_log, needs_leaks,
			    request->per_test && !has_processes(request, argv, argc)),
	    r = 0;
	if (status < 0)
		hl_cli_error("cannot run 'heapline record': %s", strerror(-status));
	else if (!ended_by && is_recorded(status, recorded, was_there) && request->per_test)
		r = check_cases(request, limits, recorded, directory, argv, argc, &is_crossed,
				&err);
	else if (!ended_by && is_recorded(status, recorded, was_there))
		r = check_recording(request, limits, recorded, true, &is_crossed, &err);
	else
		r = -ENODATA;
	if (needs_folder)
		hl_record_child_remove(folder);
	end_by_signal();
	if (err.text[0])
		hl_cli_error("%s", err.text);
	if (is_crossed)
		return HL_EXIT_LIMIT;
	/* A program that failed has failed, whatever it used. */
	return status > 0 ? status : status < 0 || r < 0 ? HL_EXIT_FAILED : HL_EXIT_DONE;
}

static int run_check(void *parsed, int argc, char **argv)
{
	struct request *request = parsed;
	HL_CLEANUP(hl_check_limits_release) struct hl_check_limits limits = {0};
	struct hl_error err = {0};
	bool is_crossed = false;

	if (argc == 0)
		return hl_cli_usage_error(&hl_verb_check, "no recording and no command to check");
	/* Operands are a part of what main() was given: another word is before them. */
	bool is_command = !strcmp(argv[-1], "--");
	if (!is_command && argc > 1)
		return hl_cli_usage_error(
			&hl_verb_check, "there is one recording to check; a command stands behind "
					"'--', after all options");
	if (!is_command && request->no_pools)
		return hl_cli_usage_error(&hl_verb_check,
					  "'--no-pools' is for a command; '%s' is a recording",
					  argv[0]);
	if (!is_command && request->recording.count)
		return hl_cli_usage_error(&hl_verb_check,
					  "'--recording' is for a command; '%s' is a recording",
					  argv[0]);
	request->per_test |= request->per_process;
	int status = check_repeats(request);
	if (status == HL_EXIT_DONE)
		status = hl_view_output_obey_name(&hl_verb_check, &request->output, NULL, false);
	if (status == HL_EXIT_DONE)
		status = collect_limits(request, &limits);
	if (status == HL_EXIT_DONE)
		status = check_per_test(request, &limits, is_command);
	if (status != HL_EXIT_DONE)
		return status;
	size_t inputs = is_command ? 0 : 1;
	int r = hl_report_output_check(&request->output, argv, inputs, &err);
	/* A test is run again and again: what it wrote is replaced. */
	if (r == 0 && request->junit.count)
		r = hl_output_file_check(text_of(&request->junit), true, argv, inputs, &err);
	if (r == 0 && request->markdown.count)
		r = hl_output_file_check(text_of(&request->markdown), true, argv, inputs, &err);
	if (r == 0 && request->save_baseline.count)
		r = hl_output_file_check(text_of(&request->save_baseline), true, argv, inputs,
					 &err);
	if (r == 0 && request->per_test && limits.baseline)
		r = hl_check_cases_try_baseline(limits.baseline, &err);
	if (r == 0 && is_command)
		return check_command(request, &limits, argc, argv);
	if (r == 0)
		r = check_recording(request, &limits, argv[0], false, &is_crossed, &err);
	if (r < 0)
		return hl_cli_error("%s", err.text);
	return is_crossed ? HL_EXIT_LIMIT : HL_EXIT_DONE;
}

const struct hl_verb hl_verb_check = {
	.name = "check",
	.group = HL_GROUP_LOOK,
	.arguments = "NAME.hl | -- COMMAND...",
	.summary = "check that a program keeps within limits",
	.options = options,
	.shared_options = {hl_view_json_options, hl_view_color_options, hl_view_output_options},
	.stops_at_operand = true,
	HL_REQUEST(defaults),
	.run = run_check,
	.written = (const char *const[]){"junit", "markdown", "recording", "save-baseline", NULL},
};
