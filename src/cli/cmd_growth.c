/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline growth: what rises steadily, as leaks do, in a recording or in a process that runs. */
#include "base/cleanup.h"
#include "base/self.h"
#include "cli/families.h"
#include "cli/trace_run.h"
#include "cli/view_options.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct request {
	struct hl_view_request view;
	const char *kept_path; /* of the recording of a running process; NULL: it is not kept */
};

static const struct request defaults = {
	.view = {HL_VIEW_DEFAULTS, .history_view = hl_growth_view, .pages = true,
		 .options.row_limit = HL_EMIT_ROWS_DEFAULT},
};

static const char *const by_words[] = {"stack", "function", "line", NULL};
static const enum hl_view_key by_keys[] = {HL_VIEW_BY_STACK, HL_VIEW_BY_FUNCTION, HL_VIEW_BY_LINE};

static const struct hl_option options[] = {
	{"by", 'b', "KEY", "stack, function or line (default: stack)", HL_OPTION_CHOICE,
	 HL_VIEW_AT(options.by), by_words},
	{"rows", 'n', "N", "show N rows; 0: all (default: 20, with --json all)", HL_OPTION_COUNT,
	 HL_VIEW_AT(options.row_limit), NULL},
	{"comm", 0, "NAME", "the running process whose program is called NAME", HL_OPTION_COMM,
	 HL_VIEW_AT(pid), NULL},
	{"keep", 0, "NAME.hl", "keep the recording of a running process as NAME.hl", HL_OPTION_TEXT,
	 HL_AT(kept_path), NULL},
	{"full", 0, NULL, "show stacks with all their frames", HL_OPTION_FLAG,
	 HL_VIEW_AT(options.full), NULL},
	{0},
};

/* ---- of a running process ---- */

static volatile sig_atomic_t attach_pid;

/* Ends the recording early; what it has by then is shown. */
static void end_recording(int number)
{
	if (attach_pid)
		kill((pid_t)attach_pid, number);
}

static void handle_signals(void (*handler)(int))
{
	static const int ending[] = {SIGINT, SIGTERM, SIGHUP};

	for (size_t i = 0; i < HL_COUNT_OF(ending); i++)
		signal(ending[i], handler);
}

static void repeat(int complaints)
{
	char text[HL_SELF_SENTENCE_MAX];
	ssize_t size;

	lseek(complaints, 0, SEEK_SET);
	while ((size = read(complaints, text, sizeof(text))) > 0)
		fwrite(text, 1, (size_t)size, stderr);
}

/* Runs 'heapline attach', whose warnings are in the recording; only its failure is reported here. */
static int record(pid_t process, const char *seconds, const char *path)
{
	char pid_text[16];
	const char *const line[] = {"heapline", "attach",     "--quiet", "--pid",
				    pid_text,	"--duration", seconds,	 "--mode",
				    "log-fast", "--output",   path,	 NULL};
	HL_CLOSED int said = memfd_create("said", MFD_CLOEXEC);
	int status = 0;
	pid_t child;

	snprintf(pid_text, sizeof(pid_text), "%d", process);
	int r = said < 0 ? -errno : hl_self_spawn((char **)line, said, said, &child);
	if (r < 0)
		return hl_cli_error("cannot run 'heapline attach': %s", strerror(-r));
	attach_pid = child;
	handle_signals(end_recording);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	attach_pid = 0;
	handle_signals(SIG_DFL);
	if (!status)
		return HL_EXIT_DONE;
	repeat(said);
	return HL_EXIT_FAILED;
}

static int run_on_process(struct request *request, pid_t process, const char *seconds)
{
	char folder[PATH_MAX - 64] = "", temporary[PATH_MAX], called[32];
	const char *kept_path = request->kept_path, *path = kept_path ? kept_path : temporary;
	HL_CLOSED int lock = -1;
	struct hl_error err = {0};

	if (hl_trace_recorded_has(process))
		return hl_cli_error("process %d is being recorded already; 'heapline growth -p "
				    "%d', without SECONDS, shows what grew since that began",
				    process, process);
	if (!kept_path && hl_record_child_folder(folder, sizeof(folder), &lock, &err) < 0)
		return hl_cli_error("%s", err.text);
	snprintf(temporary, sizeof(temporary), "%s/pid-%d.hl", folder, process);
	if (isatty(STDERR_FILENO))
		hl_cli_note("recording process %d for %s s; Ctrl-C ends that early", process,
			    seconds);
	int status = record(process, seconds, path);
	request->view.pid = (uint64_t)process;
	snprintf(called, sizeof(called), "process %d", process);
	request->view.called = kept_path ? NULL : called;
	if (status == HL_EXIT_DONE)
		status = hl_view_run(&hl_verb_growth, 1, (char *[]){(char *)path, NULL},
				     &request->view);
	if (!kept_path)
		hl_record_child_remove(folder);
	return status;
}

/* ---- all of it ---- */

static int run_growth(void *parsed, int argc, char **argv)
{
	struct request *request = parsed;
	struct hl_view_request *view = &request->view;
	struct hl_profile_selection selection = {0};
	double seconds;

	view->options.by = by_keys[view->options.by];
	int status = hl_view_options_parse_selection(&hl_verb_growth, view, &selection);
	if (status != HL_EXIT_DONE)
		return status;
	pid_t process = (pid_t)(view->pid ? view->pid : selection.by_sequence ? 0 : selection.pid);
	if (process && argc == 1 && hl_option_parse_seconds(argv[0], &seconds) == 0)
		return run_on_process(request, process, argv[0]);
	if (process && argc == 1 && strcmp(argv[0], "-") != 0 && access(argv[0], F_OK) < 0)
		return hl_cli_usage_error(&hl_verb_growth,
					  "'%s' is neither a recording nor SECONDS, which is a "
					  "number greater than 0",
					  argv[0]);
	if (request->kept_path)
		return hl_cli_usage_error(&hl_verb_growth,
					  "--keep is for the recording of a running process; name "
					  "that and for how long: -p PID SECONDS");
	return hl_view_run(&hl_verb_growth, argc, argv, view);
}

const struct hl_verb hl_verb_growth = {
	.name = "growth",
	.group = HL_GROUP_LOOK,
	.arguments = "[NAME.hl | -p PID SECONDS]",
	.summary = "show what rises steadily, as leaks do",
	.options = options,
	.shared_options = {hl_view_history_options, hl_view_filter_options, hl_view_stack_options,
			   hl_view_plumbing_options, hl_view_json_options, hl_view_color_options,
			   hl_view_output_options},
	HL_REQUEST(defaults),
	.run = run_growth,
	.entering = (const char *const[]){"comm", "process", NULL},
	.written = (const char *const[]){"keep", NULL},
};
