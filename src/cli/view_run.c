/* SPDX-License-Identifier: BSD-2-Clause */
/* From operands to a loaded profile and a view of it; see view_options.h. */
#include "cli/output_file.h"
#include "cli/pager.h"
#include "cli/terminal_progress.h"
#include "cli/view_options.h"
#include "open/open.h"
#include "profile/profile_join.h"
#include "profile/symbols_advice.h"
#include "recording/recording_files.h"
#include "view/format.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROFILES_MAX 2

/* ---- operands ---- */

/* A pipe can be read once. */
static bool is_stream(const char *path)
{
	struct stat status;
	return stat(path, &status) < 0 || (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode));
}

static int profiles_max(const struct hl_view_command *command)
{
	return command->profiles_max ? command->profiles_max : 1;
}

/* What is opened: paths, moments of them, and what of it is looked at. */
struct operands {
	char **paths; /* one at least */
	size_t path_count;
	struct hl_moment moments[PROFILES_MAX];
	size_t moment_count;
	struct hl_filter filter;
};

static bool is_later(const struct timespec *time, const struct timespec *than)
{
	return time->tv_sec != than->tv_sec ? time->tv_sec > than->tv_sec
					    : time->tv_nsec > than->tv_nsec;
}

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
		if (stat(path, &status) < 0 || !is_later(&status.st_mtim, &newest_time))
			continue;
		newest_time = status.st_mtim;
		free(newest);
		newest = strdup(entry->d_name);
	}
	closedir(here);
	return newest;
}

/* Where nothing is named: standard input, or the newest recording, which must live as long as
 * ${operands}. */
static int choose_operand(const struct hl_verb *verb, const struct hl_view_command *command,
			  struct operands *operands)
{
	static char standard_input[] = "-", *chosen[] = {standard_input};

	operands->paths = chosen;
	operands->path_count = 1;
	if (command->reads_stdin && !isatty(STDIN_FILENO))
		return HL_EXIT_DONE;
	if (command->compares && operands->moment_count < PROFILES_MAX)
		return hl_cli_usage_error(verb, "'%s' needs two recordings, or one and --at twice",
					  verb->name);
	chosen[0] = newest_recording();
	if (!chosen[0])
		return hl_cli_usage_error(
			verb, "'%s' needs a recording, and there is none in this directory",
			verb->name);
	hl_cli_note("showing '%s', the newest recording in this directory", chosen[0]);
	return HL_EXIT_DONE;
}

/* ---- profiles ---- */

static int open_filtered(const char *path, const struct hl_profile_selection *selection,
			 const struct hl_filter *filter, struct hl_profile **ret_profile,
			 struct hl_error *err)
{
	struct hl_profile *profile;

	int r = hl_profile_open(path, selection, &profile, err);
	if (r < 0)
		return r;
	r = hl_filter_apply(filter, profile, NULL, err);
	if (r < 0)
		hl_profile_free(profile);
	else
		*ret_profile = profile;
	return r;
}

static int open_joined(const struct operands *operands,
		       const struct hl_profile_selection *selection, bool normalize,
		       struct hl_profile **ret_profile, struct hl_error *err)
{
	struct hl_profile_selection at_first = *selection, at_last = *selection;
	struct hl_profile *before = NULL, *after = NULL;
	char from[HL_FORMAT_MAX], to[HL_FORMAT_MAX];

	at_first.at = operands->moments[0];
	at_last.at = operands->moments[operands->moment_count > 1];
	int r = open_filtered(operands->paths[0], &at_first, &operands->filter, &before, err);
	if (r == 0)
		r = open_filtered(operands->paths[operands->path_count - 1], &at_last,
				  &operands->filter, &after, err);
	if (r == 0)
		r = hl_profile_join(before, after, normalize, ret_profile, err);
	if (r == 0 && normalize)
		hl_cli_note("the figures of '%s' are multiplied by %.4g, as if it had taken %s, "
			    "not %s",
			    hl_profile_text(before, before->name),
			    (double)after->duration_ns / (double)before->duration_ns,
			    hl_format_duration(after->duration_ns, to),
			    hl_format_duration(before->duration_ns, from));
	hl_profile_free(before);
	hl_profile_free(after);
	return r;
}

static int open_operands(const struct hl_view_command *command, const struct operands *operands,
			 struct hl_profile_selection *selection, struct hl_profile **ret_profile,
			 struct hl_error *err)
{
	int r;

	selection->keep_rows = command->keep_rows;
	selection->at = operands->moments[0];
	if (operands->path_count == PROFILES_MAX || operands->moment_count == PROFILES_MAX)
		r = open_joined(operands, selection, command->normalize, ret_profile, err);
	else
		r = open_filtered(operands->paths[0], selection, &operands->filter, ret_profile,
				  err);
	if (r == 0 && command->advises)
		hl_symbols_advice_add(*ret_profile, HL_DPKG_DIRECTORY); /* or goes without advice */
	return r;
}

/* ---- output ---- */

/* Where a report goes; it must not move while it is open. */
struct sink {
	struct hl_view_output output;
	struct hl_pager pager;
	struct hl_output_file file;
	FILE *out; /* NULL: not open */
};

/* Before hours of work are in vain. */
static int check_output(const struct operands *operands, struct hl_error *err)
{
	struct hl_view_output output = hl_view_options_parse_output();

	return output.path ? hl_output_file_check(output.path, output.force, operands->paths,
						  operands->path_count, err)
			   : 0;
}

static int open_sink(struct sink *sink, const struct hl_view_command *command, struct hl_error *err)
{
	sink->output = hl_view_options_parse_output();
	sink->out = stdout;
	if (sink->output.path) {
		int r = hl_output_file_open(&sink->file, sink->output.path, err);
		sink->out = r == 0 ? sink->file.out : NULL;
		return r;
	}
	if (command->binary && !sink->output.json && isatty(STDOUT_FILENO))
		return hl_error_set(err, -ENOTTY,
				    "cannot write binary output to a terminal; name a file "
				    "with -o");
	if (command->pages && !sink->output.no_pager) {
		hl_pager_init(&sink->pager);
		sink->out = sink->pager.out;
	}
	return 0;
}

/* ---- all of it ---- */

/* Two moments are as good as two recordings, and some files hold a comparison already. */
static int check_comparison(const struct hl_profile *profile, const struct hl_view_command *command,
			    struct hl_error *err)
{
	const char *name = hl_profile_text(profile, profile->name);

	if (command->compares && !profile->base)
		return hl_error_set(err, -EINVAL,
				    "cannot compare '%s': there is nothing to compare it with; "
				    "name the earlier recording before it, or use --at twice",
				    name);
	if (command->normalize && !profile->base_duration_ns)
		return hl_error_set(err, -EINVAL,
				    "cannot normalize '%s' by time: it is not compared with "
				    "another recording; leave out --normalize",
				    name);
	return 0;
}

static int run_view(const struct hl_profile *profile, struct hl_history *history,
		    const struct hl_view_command *command, struct hl_view_options *options,
		    const struct sink *sink, struct hl_error *err)
{
	char *notes = NULL;
	size_t size;

	options->out = sink->out;
	options->json = sink->output.json;
	options->color = sink->output.color;
	options->notes = open_memstream(&notes, &size); /* for after what the terminal shows now */
	if (!options->notes)
		return hl_error_set(err, -ENOMEM, "out of memory");
	int r = history ? command->history_view(history, options, err)
			: command->view(profile, options, err);
	if (fclose(options->notes) == 0 && size) {
		hl_terminal_progress_wipe();
		fputs(notes, stderr);
	}
	free(notes);
	return r;
}

/* Of ${profile} or of ${history}, as the command's view is. */
static int write_view(const struct hl_profile *profile, struct hl_history *history,
		      const struct hl_view_command *command, struct hl_view_options *options,
		      struct hl_terminal_progress *progress, struct hl_error *err)
{
	bool flame = command->view == hl_view_folded || command->view == hl_view_flame;
	struct sink sink = {0};
	int r = 0;

	if (!history)
		r = check_comparison(profile, command, err);
	if (r == 0 && !history)
		r = hl_view_options_choose_value(profile, flame, options, err);
	if (r == 0)
		r = open_sink(&sink, command, err);
	if (r == 0) {
		bool on_terminal = !sink.output.path && isatty(STDOUT_FILENO);
		hl_terminal_progress_phase(progress, on_terminal ? NULL : "writing");
		r = run_view(profile, history, command, options, &sink, err);
	}
	/* An error of standard output is reported when the program ends; a pager that was left
	 * early is not an error. */
	if (r < 0 && !sink.output.path && sink.out && ferror(sink.out))
		r = 0;
	if (!sink.output.path || !sink.out) {
		hl_pager_release(&sink.pager);
		return r;
	}
	int closed = hl_output_file_close(&sink.file, r >= 0, err);
	return closed < 0 ? closed : r;
}

static int status_of(int r, const struct hl_error *err)
{
	if (r < 0)
		return hl_cli_error("%s", err->text);
	return r == HL_VIEW_LIMIT_CROSSED ? HL_EXIT_LIMIT : HL_EXIT_DONE;
}

static int run_history_view(const struct hl_view_command *command, const struct operands *operands,
			    struct hl_profile_selection *selection,
			    const struct hl_history_range *range, struct hl_view_options *options)
{
	struct hl_terminal_progress progress;
	struct hl_history *history;
	struct hl_error err = {0};

	hl_terminal_progress_init(&progress, "reading");
	selection->progress = &progress.progress;
	int r = check_output(operands, &err);
	if (r == 0)
		r = hl_history_open(operands->paths[0], selection, range, &operands->filter,
				    &history, &err);
	if (r == 0) {
		r = write_view(NULL, history, command, options, &progress, &err);
		hl_history_free(history);
	}
	hl_terminal_progress_clear(&progress);
	return status_of(r, &err);
}

/* Whether ${profile} is of a whole recording, of which a log could tell more. */
static bool may_have_history(const struct hl_profile *profile, const struct operands *operands,
			     const struct hl_profile_selection *selection)
{
	return !profile->imported && !profile->base && !profile->moment && !selection->tid &&
	       !hl_filter_has_expressions(&operands->filter) && !is_stream(operands->paths[0]);
}

/* Without a log, or with one that cannot be read, the view goes without. */
static struct hl_history *open_own_history(const struct operands *operands,
					   const struct hl_profile_selection *selection)
{
	struct hl_history *history;
	struct hl_error err = {0};

	int r = hl_history_open(operands->paths[0], selection, &HL_HISTORY_ALL, &operands->filter,
				&history, &err);
	if (r < 0 && r != -ENOENT)
		hl_cli_note("nothing is shown over time: %s", err.text);
	return r < 0 ? NULL : history;
}

static int run_profile_view(const struct hl_view_command *command, const struct operands *operands,
			    struct hl_profile_selection *selection, struct hl_view_options *options)
{
	struct hl_terminal_progress progress;
	struct hl_profile *profile = NULL;
	struct hl_error err = {0};

	hl_terminal_progress_init(&progress, "reading");
	selection->progress = &progress.progress;
	int r = check_output(operands, &err);
	if (r == 0)
		r = open_operands(command, operands, selection, &profile, &err);
	if (r == 0 && command->tells_history && may_have_history(profile, operands, selection))
		options->history = open_own_history(operands, selection);
	if (r == 0)
		r = write_view(profile, NULL, command, options, &progress, &err);
	hl_terminal_progress_clear(&progress);
	hl_history_free(options->history);
	hl_profile_free(profile);
	return status_of(r, &err);
}

int hl_view_run(const struct hl_verb *verb, int argc, char **argv,
		const struct hl_view_command *command, struct hl_view_options options)
{
	struct hl_profile_selection selection = {0};
	struct hl_history_range range = HL_HISTORY_ALL;
	struct operands operands = {.paths = argv, .path_count = (size_t)argc};

	if (argc > profiles_max(command))
		return hl_cli_usage_error(verb, "unexpected argument '%s'",
					  argv[profiles_max(command)]);
	int status = hl_view_options_parse_moments(verb, (size_t)profiles_max(command),
						   operands.moments, &operands.moment_count);
	if (status == HL_EXIT_DONE)
		status = hl_view_options_obey_name(verb, command);
	if (status == HL_EXIT_DONE)
		status = hl_view_options_parse_selection(verb, &selection);
	if (status == HL_EXIT_DONE)
		status = hl_view_options_parse_filter(verb, &operands.filter);
	if (status == HL_EXIT_DONE)
		status = hl_view_options_parse_between(verb, &range);
	if (status == HL_EXIT_DONE && argc == 0)
		status = choose_operand(verb, command, &operands);
	if (status != HL_EXIT_DONE)
		return status;
	if (command->history_view)
		return run_history_view(command, &operands, &selection, &range, &options);
	return run_profile_view(command, &operands, &selection, &options);
}
