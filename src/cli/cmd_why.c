/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline why: one question about a process or a control group, one page. */
#include "why/why.h"

#include "base/cleanup.h"
#include "base/compiler.h"
#include "cli/families.h"
#include "view/format.h"

#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define SECONDS_DEFAULT 10.0
#define SECONDS_MAX	86400.0

struct request {
	struct hl_view_output output;
	uint64_t pid;
	const char *cgroup, *keep;
	double seconds;
	bool outside, is_plan, html;
};

static const struct request defaults = {.seconds = SECONDS_DEFAULT};

static const struct hl_option options[] = {
	{"pid", 'p', "PID", "the process", HL_OPTION_PID, HL_AT(pid), NULL},
	HL_OPTION_COMM_OF(HL_AT(pid)),
	{"cgroup", 0, "PATH", "the process of this control group that grows most, or is largest",
	 HL_OPTION_TEXT, HL_AT(cgroup), NULL},
	{"for", 0, "SECONDS", "how long to watch it (default: 10)", HL_OPTION_SECONDS,
	 HL_AT(seconds), NULL},
	{"outside", 0, NULL, "do not enter the process, whatever doctor says", HL_OPTION_FLAG,
	 HL_AT(outside), NULL},
	{"dry-run", 'n', NULL, "print what would be done, with its cost, and do nothing",
	 HL_OPTION_FLAG, HL_AT(is_plan), NULL},
	{"keep", 0, "NAME.hl", "keep the recording as NAME.hl", HL_OPTION_TEXT, HL_AT(keep), NULL},
	{"html", 0, NULL, "write the page as HTML, with pictures", HL_OPTION_FLAG, HL_AT(html),
	 NULL},
	{0},
};

static int check_usage(const struct request *request, int argc, char **argv)
{
	if (argc > 0)
		return request->pid || request->cgroup
			       ? hl_cli_usage_error(&hl_verb_why, "unexpected argument '%s'",
						    argv[0])
			       : hl_cli_unexpected_process(argv[0]);
	if (!request->pid == !request->cgroup)
		return hl_cli_usage_error(&hl_verb_why,
					  "'why' needs one process or group; name it with -p PID, "
					  "--comm NAME or --cgroup PATH");
	if (request->pid == (uint64_t)getpid())
		return hl_cli_usage_error(&hl_verb_why, "'why' cannot look at itself");
	if (request->seconds < 1 || request->seconds > SECONDS_MAX)
		return hl_cli_usage_error(&hl_verb_why, "--for takes 1 to %.0f seconds",
					  SECONDS_MAX);
	if (request->html && request->output.json)
		return hl_cli_usage_error(&hl_verb_why, "--html and --json exclude each other");
	return HL_EXIT_DONE;
}

static void say(const char *text)
{
	hl_cli_note("%s", text);
}

/* Signals that end what is going on, and have the page say what is known by then. */
static int catch_signals(void)
{
	sigset_t ending;

	sigemptyset(&ending);
	sigaddset(&ending, SIGINT);
	sigaddset(&ending, SIGTERM);
	sigaddset(&ending, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &ending, NULL) < 0)
		return -1;
	return signalfd(-1, &ending, SFD_CLOEXEC);
}

static int write_page(const struct request *request, const struct hl_why *why, struct hl_error *err)
{
	struct hl_report_output output;

	int r = hl_report_output_open(&output, &request->output, !request->html, err);
	if (r < 0)
		return r;
	if (request->output.json)
		r = hl_why_write_json(why, output.out);
	else if (request->html)
		hl_why_write_html(why, output.out);
	else
		hl_why_write_text(why, output.out,
				  isatty(STDOUT_FILENO) ? hl_format_terminal_width(STDOUT_FILENO)
							: 0);
	return hl_report_output_close(&output, r, err);
}

static int run_why(void *parsed, int argc, char **argv)
{
	struct request *request = parsed;
	static struct hl_why why; /* large */
	char folder[PATH_MAX - 64] = "";
	HL_CLOSED int lock = -1;
	struct hl_error err = {0};

	int status = check_usage(request, argc, argv);
	if (status == HL_EXIT_DONE && !request->html)
		status = hl_view_output_obey_name(&hl_verb_why, &request->output, NULL, false);
	if (status != HL_EXIT_DONE)
		return status;
	struct hl_why_request asked = {.pid = (pid_t)request->pid,
				       .cgroup = request->cgroup,
				       .seconds = request->seconds,
				       .outside = request->outside,
				       .folder = folder,
				       .keep = request->keep,
				       .stop_fd = -1,
				       .say = say};
	if (request->is_plan) {
		hl_why_plan(&asked, stdout);
		return HL_EXIT_DONE;
	}
	int r = hl_report_output_check(&request->output, NULL, 0, &err);
	if (r == 0 && request->keep)
		r = hl_output_file_check_regular(request->keep, false, NULL, 0, &err);
	if (r == 0)
		r = hl_record_child_folder(folder, sizeof(folder), &lock, &err);
	if (r < 0)
		return hl_cli_error("%s", err.text);
	HL_CLOSED int stop = catch_signals();
	asked.stop_fd = stop;
	unsetenv("DEBUGINFOD_URLS"); /* nobody waits for a network here */
	r = hl_why_run(&asked, &why, &err);
	if (r == 0)
		r = write_page(request, &why, &err);
	hl_record_child_remove(folder);
	if (r < 0)
		return hl_cli_error("%s", err.text);
	return why.cause == HL_WHY_UNKNOWN ? HL_EXIT_FAILED : HL_EXIT_DONE;
}

const struct hl_verb hl_verb_why = {
	.name = "why",
	.group = HL_GROUP_ASK,
	.arguments = "-p PID | --cgroup PATH",
	.summary = "say why the memory of a process or container is high, and what to do",
	.options = options,
	.shared_options = {hl_view_json_options, hl_view_color_options, hl_view_output_options},
	HL_REQUEST(defaults),
	.run = run_why,
	.written = (const char *const[]){"keep", NULL},
};
