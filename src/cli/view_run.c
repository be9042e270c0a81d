/* SPDX-License-Identifier: BSD-2-Clause */
/* From operands to a loaded profile and a view of it; see view_options.h. */
#include "base/cleanup.h"
#include "cli/families.h"
#include "cli/output.h"
#include "collector/control_ask.h"
#include "open/open.h"
#include "profile/profile.h"
#include "recording/recording_files.h"
#include "view/format.h"
#include "view/summary.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROFILES_MAX 2

HL_DEFINE_FREE_AT(struct hl_history, hl_history_free)

/* ---- operands ---- */

static int profiles_max(const struct hl_view_request *request)
{
	return request->profiles_max ? request->profiles_max : 1;
}

/* The files to open: paths, moments, and the part to look at. */
struct operands {
	char **paths; /* one at least */
	size_t path_count;
	bool is_live;	/* the recording was found by the process that it records now */
	bool is_unsure; /* the recording is the newest here, and may lack that process */
	struct hl_moment moments[PROFILES_MAX];
	size_t moment_count;
	struct hl_profile_selection selection;
	struct hl_history_range range;
	struct hl_filter filter;
};

/*
 * The name of the recording in the current directory that was last written to: of a folder NAME.hl,
 * judged by the time of its state file. To be freed; NULL when there is none.
 */
static char *newest_recording(void)
{
	char path[NAME_MAX + sizeof("/" HL_META_FILE)];
	struct timespec newest_time = {0};
	char *newest = NULL;
	DIR *here = opendir(".");

	if (!here)
		return NULL;
	for (const struct dirent *entry; (entry = readdir(here));) {
		struct stat status;
		if (fnmatch("*.hl", entry->d_name, FNM_PERIOD) != 0)
			continue;
		snprintf(path, sizeof(path), "%s/" HL_META_FILE, entry->d_name);
		if (stat(path, &status) < 0)
			continue;
		const struct timespec *time = &status.st_mtim;
		if (time->tv_sec < newest_time.tv_sec ||
		    (time->tv_sec == newest_time.tv_sec && time->tv_nsec <= newest_time.tv_nsec))
			continue;
		newest_time = *time;
		free(newest);
		newest = strdup(entry->d_name);
	}
	closedir(here);
	return newest;
}

static bool runs(uint32_t pid)
{
	return pid && pid <= INT32_MAX && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

static int explain_not_recorded(uint32_t pid)
{
	struct hl_error err = {0};

	hl_ctl_explain((pid_t)pid, "", "show", &err);
	return hl_cli_error("%s", err.text);
}

/* The path of what process ${pid} is being recorded to, to be freed; NULL when it is not recorded. */
static char *recording_of(uint32_t pid)
{
	struct hl_control_peers peers;
	char *path = NULL;

	if (!pid || pid > INT32_MAX)
		return NULL;
	if (hl_control_ask_search((pid_t)pid, &peers) == 0 && peers.count &&
	    peers.peers[0].pid != (pid_t)pid) /* collectors are found, too */
		path = strdup(peers.peers[0].recording);
	hl_control_ask_release(&peers);
	return path;
}

static void note_newest(const char *path)
{
	hl_cli_note("showing '%s', the newest recording in this directory", path);
}

/* Where nothing is named: the recording of the process that --process names, standard input, or the newest recording here. What is chosen lives
 * as long as the program. */
static int choose_operand(const struct hl_verb *verb, const struct hl_view_request *request,
			  struct operands *operands)
{
	static char standard_input[] = "-", *chosen[] = {standard_input};
	bool reads_stdin = request->reads_stdin && !isatty(STDIN_FILENO);
	uint32_t pid = operands->selection.pid;

	operands->paths = chosen;
	operands->path_count = 1;
	if (!reads_stdin && request->compares && operands->moment_count < PROFILES_MAX)
		return hl_cli_usage_error(verb, "'%s' needs two recordings, or one and --at twice",
					  verb->name);
	char *recorded = recording_of(pid);
	if (recorded) {
		hl_cli_note("process %u is being recorded; showing '%s'", pid, recorded);
		chosen[0] = recorded;
		operands->is_live = true;
		return HL_EXIT_DONE;
	}
	if (reads_stdin)
		return HL_EXIT_DONE;
	chosen[0] = newest_recording();
	if (!chosen[0] && pid && pid <= INT32_MAX)
		return explain_not_recorded(pid);
	if (!chosen[0])
		return hl_cli_usage_error(
			verb, "'%s' needs a recording, and there is none in this directory",
			verb->name);
	operands->is_unsure = pid;
	if (!pid)
		note_newest(chosen[0]);
	return HL_EXIT_DONE;
}

/* ---- profiles ---- */

static int open_filtered(const struct operands *operands, size_t path, struct hl_moment at,
			 struct hl_profile **ret_profile, struct hl_error *err)
{
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;
	struct hl_profile_selection selection = operands->selection;
	char reason[HL_NOTICES_REASON_MAX];

	selection.at = at;
	int r = hl_open_profile(operands->paths[path], &selection, &profile, err);
	if (r == 0)
		r = hl_filter_apply(&operands->filter, profile, NULL, err);
	if (r == 0 && operands->filter.stack == HL_STACK_SCRIPT && !hl_profile_has_scripts(profile))
		hl_cli_note("'%s' has no frames of scripts, so that all is [native]; %s",
			    hl_profile_text(profile, profile->name),
			    hl_notices_no_scripts(profile, reason));
	if (r == 0)
		*ret_profile = HL_TAKE(profile);
	return r;
}

/* Two recordings, or two moments of one. */
static int open_joined(const struct operands *operands, bool normalize,
		       struct hl_profile **ret_profile, struct hl_error *err)
{
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *before = NULL;
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *after = NULL;
	char from[HL_FORMAT_MAX], to[HL_FORMAT_MAX];

	int r = open_filtered(operands, 0, operands->moments[0], &before, err);
	if (r == 0)
		r = open_filtered(operands, operands->path_count - 1,
				  operands->moments[operands->moment_count > 1], &after, err);
	if (r == 0)
		r = hl_profile_join(before, after, normalize, ret_profile, err);
	if (r == 0 && normalize)
		hl_cli_note("the figures of '%s' are multiplied by %.4g, as if it had taken %s, "
			    "not %s",
			    hl_profile_text(before, before->name),
			    (double)after->duration_ns / (double)before->duration_ns,
			    hl_format_duration(after->duration_ns, to),
			    hl_format_duration(before->duration_ns, from));
	return r;
}

/* What the log tells of a whole recording; NULL when there is none, or it cannot be read. */
static struct hl_history *open_own_history(const struct hl_profile *profile,
					   const struct operands *operands)
{
	const char *path = operands->paths[0];
	struct hl_history *history = NULL;
	struct hl_error err = {0};
	struct stat status;

	if (profile->imported || profile->base || profile->moment || operands->selection.tid ||
	    hl_filter_has_expressions(&operands->filter))
		return NULL;
	if (stat(path, &status) < 0 || (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode)))
		return NULL; /* a pipe can be read once */
	int r = hl_history_open(path, &operands->selection, &HL_HISTORY_ALL, &operands->filter,
				&history, &err);
	if (r < 0 && r != -ENOENT)
		hl_cli_note("nothing is shown over time: %s", err.text);
	return history;
}

/* ---- all of it ---- */

/* Of ${profile} or of ${history}, as the command's view is. */
static int write_view(struct hl_view_request *request, const struct hl_profile *profile,
		      struct hl_history *history, struct hl_terminal_progress *progress,
		      struct hl_error *err)
{
	struct hl_view_options *options = &request->options;
	const struct hl_view_output *where = &request->output;
	bool on_terminal = isatty(STDOUT_FILENO) && !where->path;
	struct hl_report_output output;
	char *notes = NULL;
	size_t size;

	if (request->binary && on_terminal && !where->json)
		return hl_error_set(
			err, -ENOTTY,
			"cannot write binary output to a terminal; name a file with -o");
	int r = hl_report_output_open(&output, where, request->pages, err);
	if (r < 0)
		return r;
	hl_terminal_progress_phase(progress, on_terminal ? NULL : "writing");
	options->out = output.out;
	options->json = where->json;
	options->color = hl_view_output_has_color(where);
	options->notes = open_memstream(&notes, &size); /* for after what the terminal shows now */
	if (!options->notes)
		return hl_report_output_close(&output, -ENOMEM, err);
	r = history ? request->history_view(history, options, err)
		    : request->view(profile, options, err);
	if (fclose(options->notes) == 0 && size) {
		hl_terminal_progress_wipe();
		fputs(notes, stderr);
	}
	free(notes);
	return hl_report_output_close(&output, r, err);
}

static int open_and_write(struct hl_view_request *request, const struct operands *operands,
			  struct hl_terminal_progress *progress, struct hl_error *err)
{
	bool is_flame = request->view == hl_folded_view || request->view == hl_flame_view;
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;
	HL_CLEANUP(hl_history_free_at) struct hl_history *history = NULL;

	int r = hl_report_output_check(&request->output, operands->paths, operands->path_count,
				       err);
	if (r == 0 && request->history_view) {
		r = hl_history_open(operands->paths[0], &operands->selection, &operands->range,
				    &operands->filter, &history, err);
		if (r == 0 && operands->is_unsure)
			note_newest(operands->paths[0]);
		if (r == 0 && request->called)
			r = hl_strings_intern(&history->profile->strings, request->called,
					      &history->profile->name);
		return r == 0 ? write_view(request, NULL, history, progress, err) : r;
	}
	if (r == 0 &&
	    (operands->path_count == PROFILES_MAX || operands->moment_count == PROFILES_MAX))
		r = open_joined(operands, request->normalize, &profile, err);
	else if (r == 0)
		r = open_filtered(operands, 0, operands->moments[0], &profile, err);
	if (r == 0 && operands->is_unsure)
		note_newest(operands->paths[0]);
	/* Two moments are as good as two recordings, and some files hold a comparison already. */
	if (r == 0 && request->compares && !profile->base)
		r = hl_error_set(err, -EINVAL,
				 "cannot compare '%s': there is nothing to compare it with; name "
				 "the earlier recording before it, or use --at twice",
				 hl_profile_text(profile, profile->name));
	if (r == 0 && request->normalize && !profile->base_duration_ns)
		r = hl_error_set(err, -EINVAL,
				 "cannot normalize '%s' by time: it is not compared with another "
				 "recording; leave out --normalize",
				 hl_profile_text(profile, profile->name));
	if (r == 0)
		r = hl_view_options_choose_value(request, profile, is_flame, &request->options,
						 err);
	if (r < 0)
		return r;
	if (request->advises)
		hl_symbols_advice_add(profile, HL_DPKG_DIRECTORY); /* or goes without advice */
	if (request->tells_history)
		request->options.report.history = history = open_own_history(profile, operands);
	return write_view(request, profile, NULL, progress, err);
}

static int explain_failure(const struct operands *operands, int r, const struct hl_error *why)
{
	const struct hl_profile_selection *selection = &operands->selection;
	bool lacks_process = r == -ESRCH && !selection->tid;

	if (lacks_process && operands->is_live)
		return hl_cli_error("nothing of process %u is saved yet; ask again in a second",
				    selection->pid);
	if (lacks_process && operands->is_unsure && runs(selection->pid))
		return explain_not_recorded(selection->pid);
	return hl_cli_error("%s", why->text);
}

int hl_view_run(const struct hl_verb *verb, int argc, char **argv, struct hl_view_request *request)
{
	struct operands operands = {.paths = argv,
				    .path_count = (size_t)argc,
				    .selection = {.keep_rows = request->keep_rows},
				    .range = HL_HISTORY_ALL};
	const enum hl_view_key by = request->options.by;
	struct hl_terminal_progress progress;
	struct hl_error err = {0};

	if (argc > profiles_max(request))
		return hl_cli_usage_error(verb, "unexpected argument '%s'",
					  argv[profiles_max(request)]);
	int status = hl_view_options_parse_moments(verb, request, (size_t)profiles_max(request),
						   operands.moments, &operands.moment_count);
	if (status == HL_EXIT_DONE)
		status = hl_view_output_obey_name(verb, &request->output, request->formats,
						  request->format >= 0);
	if (status == HL_EXIT_DONE)
		status = hl_view_options_parse_selection(verb, request, &operands.selection);
	if (request->pid)
		operands.selection.pid = (uint32_t)request->pid;
	if (status == HL_EXIT_DONE)
		status = hl_view_options_parse_filter(verb, request, &operands.filter);
	if (by == HL_VIEW_BY_TYPE || by == HL_VIEW_BY_SERVICE) {
		operands.filter.root = by == HL_VIEW_BY_TYPE ? HL_PART_TYPE : HL_PART_SERVICE;
		operands.filter.root_alone = true;
	}
	operands.selection.filler = hl_live_filler(hl_view_options_ask_pages(request),
						   hl_filter_asks_types(&operands.filter),
						   operands.filter.survived > 0);
	if (status == HL_EXIT_DONE)
		status = hl_view_options_parse_between(verb, request, &operands.range);
	if (status == HL_EXIT_DONE && argc == 0)
		status = choose_operand(verb, request, &operands);
	if (status != HL_EXIT_DONE)
		return status;
	hl_terminal_progress_init(&progress, "reading");
	operands.selection.progress = &progress.progress;
	int r = open_and_write(request, &operands, &progress, &err);
	hl_terminal_progress_clear(&progress);
	if (r < 0)
		return explain_failure(&operands, r, &err);
	return r == HL_VIEW_LIMIT_CROSSED ? HL_EXIT_LIMIT : HL_EXIT_DONE;
}
